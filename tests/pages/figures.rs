//! Figures of tables: each row leads to what it counts, and the list there has as many entries.

use std::collections::{BTreeMap, BTreeSet};

use super::every_page::{read, route_of, routes};
use super::furnished::Furnished;

/// Tables whose rows are themselves what is counted, or measure a machine and no event.
const WITHOUT_EVENTS: [&str; 3] = ["Attempts", "Connections by task", "Loops of this node"];

/// Figures that lead nowhere: balances, whose movements stand on the same page, and commands that are not events yet.
const LEFT_ALONE: [&str; 3] = ["Balance", "Commands that wait", "Last change"];

/// Pages to which a number leads that counts no entries of a list: a position leads to its event, the number of a movement to the
/// movement, and the result of a verification names what is missing.
const NO_LISTS: [&str; 4] =
    ["/console/audit-runs", "/console/events/{shard}/{position}", "/console/transactions/{id}", "/portal/transactions/{id}"];

/// Number of times that a page and its lists are read until they agree.
const READINGS: usize = 5;

/// Returns the numbers of a page that are links, each with its target.
fn numbers(page: &str) -> impl Iterator<Item = (u64, String)> {
    page.split("<a href=\"").skip(1).filter_map(|rest| {
        let (target, rest) = rest.split_once('"')?;
        let text = rest.split_once('>')?.1.split("</a>").next()?.replace('\u{202f}', "");
        Some((text.parse().ok()?, target.replace("&amp;", "&")))
    })
}

/// Number of entries of a list, as far as a page tells.
#[derive(Debug, PartialEq)]
enum Entries {
    All(u64),
    /// Those of the page. This page has the next ones.
    Some(u64, String),
}

/// Returns the number of entries of the list on a page, or nothing if the page has no list.
fn entries(page: &str) -> Option<Entries> {
    let stated = page.split("<span class=\"quiet\">").skip(1).filter_map(|rest| rest.split_once(" entr")?.0.parse().ok()).next();
    if let Some(all) = stated.or_else(|| page.contains("<div class=\"empty\">").then_some(0)) {
        return Some(Entries::All(all));
    }
    let rows = page.split_once("<tbody>")?.1.split("</tbody>").next()?.matches("<tr>").count() as u64;
    let next = page
        .split("<a class=\"button\" href=\"")
        .skip(1)
        .find_map(|rest| rest.split_once("\" rel=\"next\"").filter(|(link, _)| !link.contains('>')));
    Some(next.map_or(Entries::All(rows), |(link, _)| Entries::Some(rows, link.replace("&amp;", "&"))))
}

/// Counts the entries of the list at an address, page by page.
async fn count(furnished: &Furnished, cookie: &str, address: &str) -> Option<u64> {
    let (mut counted, mut address) = (0, address.to_owned());
    loop {
        match entries(&read(furnished, cookie, &address).await)? {
            Entries::All(rest) => return Some(counted + rest),
            Entries::Some(rows, next) => (counted, address) = (counted + rows, next),
        }
    }
}

/// Numbers of a page that were compared with the lists to which they lead.
#[derive(Default)]
struct Comparison {
    followed: usize,
    /// Those whose list has another number of entries.
    wrong: BTreeSet<String>,
}

/// Follows every number of a page that is a link, and compares it with the list to which it leads. `lists` has the lists that are
/// counted already.
async fn compare(
    furnished: &Furnished,
    cookie: &str,
    path: &str,
    page: &str,
    lists: &mut BTreeMap<String, Option<u64>>,
) -> Comparison {
    let routes = routes();
    let mut comparison = Comparison::default();
    for (number, target) in numbers(page) {
        if let Some(id) = target.strip_prefix('#') {
            assert!(page.contains(&format!(" id=\"{id}\"")), "{path} has no {target}");
            continue;
        }
        let route = route_of(&routes, &target).unwrap_or_else(|| panic!("{path}: {target} has no route"));
        if NO_LISTS.contains(&&**route) {
            continue;
        }
        if !lists.contains_key(&target) {
            lists.insert(target.clone(), count(furnished, cookie, &target).await);
        }
        let listed = lists[&target];
        // An event of the stock concerns several vouchers.
        let of_stock = target.contains("type=Voucher") && listed.is_some_and(|events| (1..=number).contains(&events));
        if listed != Some(number) && !of_stock {
            comparison.wrong.insert(format!("{path}: {number} leads to {target}, which lists {listed:?}"));
        }
        comparison.followed += 1;
    }
    comparison
}

/// Checks that every number of these pages that is a link leads to a list with as many entries. There must be at least `fewest` of
/// them. Between a page and its lists something may happen, such as a delivery that becomes due, so a page that does not agree with
/// its lists is read again, with them.
pub async fn agree(furnished: &Furnished, cookie: &str, pages: &BTreeMap<String, String>, fewest: usize) {
    let (mut lists, mut wrong, mut followed) = (BTreeMap::new(), BTreeSet::new(), 0);
    for (path, page) in pages {
        let mut comparison = compare(furnished, cookie, path, page, &mut lists).await;
        for _ in 1..READINGS {
            if comparison.wrong.is_empty() {
                break;
            }
            lists.clear();
            let page = read(furnished, cookie, path).await;
            comparison = compare(furnished, cookie, path, &page, &mut lists).await;
        }
        wrong.append(&mut comparison.wrong);
        followed += comparison.followed;
    }
    assert_eq!(wrong, BTreeSet::new());
    assert!(followed >= fewest, "{followed}");
}

/// Returns the names of the figures that have no link.
fn unlinked_figures(page: &str) -> BTreeSet<String> {
    let figures = page.split("<div class=\"figure\">").skip(1).filter_map(|rest| rest.split("</div>").next());
    let unlinked = figures.filter(|figure| !figure.contains("<a "));
    unlinked
        .filter_map(|figure| figure.split_once("<span class=\"quiet\">")?.1.split('<').next())
        .map(ToOwned::to_owned)
        .collect()
}

/// Returns the captions of the tables that have a row with figures and without a link.
fn unlinked(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for table in page.split("<table>").skip(1).filter_map(|rest| rest.split("</table>").next()) {
        let between = |opening: &str, closing: &str| table.split_once(opening)?.1.split_once(closing);
        let caption = between("<caption class=\"unseen\">", "</caption>").map_or("", |(caption, _)| caption);
        let rows = table.split_once("<tbody>").map_or("", |(_, rows)| rows).split("</tr>");
        if rows.into_iter().any(|row| row.contains("<td class=\"number\"") && !row.contains("<a ")) {
            found.insert(caption.to_owned());
        }
    }
    found
}

/// Checks that the rows with figures of these pages, and the figures that stand out, have a link.
pub fn lead_somewhere<'a>(pages: impl Iterator<Item = (&'a String, &'a String)>) {
    let of_page = |(path, page): (&String, &String)| {
        let names = unlinked(page).into_iter().chain(unlinked_figures(page));
        names.map(|name| (name, path.clone())).collect::<Vec<_>>()
    };
    let mut found: BTreeMap<String, String> = pages.flat_map(of_page).collect();
    found.retain(|name, _| !WITHOUT_EVENTS.contains(&&**name) && !LEFT_ALONE.contains(&&**name));
    assert_eq!(found, BTreeMap::new(), "these figures, or those in these tables, lead nowhere");
}

#[test]
fn the_entries_of_a_list_are_counted() {
    let row = "<table><tbody><tr><td>1</td></tr></tbody></table>";
    let paged = format!("<nav><span class=\"quiet\">21 entries, page 1 of 2</span></nav>{row}");
    let followed = format!(
        "{row}<a class=\"button\" href=\"/x\">Newest</a><a class=\"button\" href=\"/x?a=1&amp;before=2\" rel=\"next\">Older</a>"
    );
    assert_eq!(entries(&paged), Some(Entries::All(21)));
    assert_eq!(entries("<div class=\"empty\"><p>None.</p></div>"), Some(Entries::All(0)));
    assert_eq!(entries(row), Some(Entries::All(1)));
    assert_eq!(entries(&followed), Some(Entries::Some(1, "/x?a=1&before=2".to_owned())));
    assert_eq!(entries("<p>No list.</p>"), None);
    let page = "<a href=\"/x?a=1&amp;b=2\">1\u{202f}234</a><a href=\"/y\">Order 3</a>";
    assert_eq!(numbers(page).collect::<Vec<_>>(), [(1_234, "/x?a=1&b=2".to_owned())]);
}

#[test]
fn a_row_without_a_link_is_found() {
    let table = |row: &str| format!("<table><caption class=\"unseen\">Sums</caption><tbody><tr>{row}</tr></tbody></table>");
    assert_eq!(unlinked(&table("<td class=\"number\">1</td>")), BTreeSet::from(["Sums".to_owned()]));
    assert!(unlinked(&table("<th><a href=\"/x\">a</a></th><td class=\"number\">1</td>")).is_empty());
    assert!(unlinked(&table("<td>a</td>")).is_empty());
    let figure = |value: &str| format!("<div class=\"figure\"><span class=\"quiet\">Due</span><strong>{value}</strong></div>");
    assert_eq!(unlinked_figures(&figure("1")), BTreeSet::from(["Due".to_owned()]));
    assert!(unlinked_figures(&figure("<a href=\"/x\">1</a>")).is_empty());
}
