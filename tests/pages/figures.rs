//! Figures of tables: each row leads to what it counts, and the list there has as many entries or adds up to the amount.

use std::collections::{BTreeMap, BTreeSet};

use super::every_page::{read, route_of, routes};
use super::furnished::Furnished;
use super::values::{name_of, texts};

/// Tables whose rows are themselves what is counted, or measure a machine and no event.
const WITHOUT_EVENTS: [&str; 3] = ["Attempts", "Connections by task", "Loops of this node"];

/// Figures that lead nowhere: balances, whose movements stand on the same page, and commands that are not events yet.
const LEFT_ALONE: [&str; 3] = ["Balance", "Commands that wait", "Last change"];

/// Pages to which a number leads that counts no entries of a list: a position leads to its event, the number of a movement to the
/// movement, and the result of a verification names what is missing.
const NO_LISTS: [&str; 4] =
    ["/console/audit-runs", "/console/events/{shard}/{position}", "/console/transactions/{id}", "/portal/transactions/{id}"];

/// List of events, to which sums lead whose amounts stand in the events alone.
const EVENTS: &str = "/console/audit";

/// Terms of definition lists, by page, whose number says something of the thing itself and sums up nothing: its amount and its
/// place, settings, calls that no event records, and codes that no page may list. The amounts of a movement are those of the one
/// event that made it: see `leads_to_its_event`.
const OF_ITSELF: [(&str, &[&str]); 8] = [
    ("/console/bank-statements/{id}/lines/{line}", &["Amount"]),
    ("/console/events/{shard}/{position}", &["Position", "Version of the schema", "Version of the subject"]),
    ("/console/products/{id}", &["Face values"]),
    ("/console/purchases/{id}", &["Calls so far", "Face value"]),
    ("/console/transactions/{id}", &["Amount", "Balance after it"]),
    ("/portal/account/two-factor", &["Recovery codes left"]),
    ("/portal/products/{id}", &["Face value", "Your discount"]),
    ("/portal/transactions/{id}", &["Amount", "Balance afterwards"]),
];

/// Facts that people write. They may look like numbers, and are none.
const WRITTEN: [&str; 3] = ["Client's reference", "Reference", "Your reference"];

/// Number of times that a page and its lists are read until they agree.
const READINGS: usize = 5;

/// Returns the content of each link of a page, with its target.
fn links(page: &str) -> impl Iterator<Item = (String, String)> {
    page.split("<a href=\"").skip(1).filter_map(|rest| {
        let (target, rest) = rest.split_once('"')?;
        let content = rest.split_once('>')?.1.split("</a>").next()?.replace('\u{202f}', "");
        Some((content, target.replace("&amp;", "&")))
    })
}

/// Returns the numbers of a page that are links, each with its target.
fn numbers(page: &str) -> impl Iterator<Item = (u64, String)> {
    links(page).filter_map(|(content, target)| Some((content.parse().ok()?, target)))
}

/// Returns the amounts of a page that are links, in hundredths, each with its target.
fn amounts(page: &str) -> impl Iterator<Item = (i64, String)> {
    links(page).filter_map(|(content, target)| Some((hundredths(&content)?, target)))
}

/// Reads the amount with which some markup begins, in hundredths.
fn hundredths(markup: &str) -> Option<i64> {
    let (amount, _) = markup.strip_prefix("<span class=\"money\">")?.split_once(' ')?;
    amount.replace('−', "-").replace(['.', '\u{202f}'], "").parse().ok()
}

/// Returns the address of the page that follows a page of a list.
fn next(page: &str) -> Option<String> {
    let mut links = page.split("<a class=\"button\" href=\"").skip(1);
    let next = links.find_map(|rest| rest.split_once("\" rel=\"next\"").filter(|(link, _)| !link.contains('>')));
    next.map(|(link, _)| link.replace("&amp;", "&"))
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
    Some(next(page).map_or(Entries::All(rows), |next| Entries::Some(rows, next)))
}

/// Returns the number of entries of a section: the rows of its table, or its notices.
fn entries_of(page: &str, section: &str) -> Option<u64> {
    let section = page.split_once(&format!("<section id=\"{section}\">"))?.1.split("</section>").next()?;
    let rows = section.split_once("<tbody>").map(|(_, rows)| rows.matches("<tr>").count());
    Some(rows.unwrap_or_else(|| section.matches("<div class=\"notice ").count()) as u64)
}

/// Counts the entries of the list at an address, page by page. The list of an address with a fragment is a section of the page.
async fn count(furnished: &Furnished, cookie: &str, address: &str) -> Option<u64> {
    if let Some((_, section)) = address.split_once('#') {
        return entries_of(&read(furnished, cookie, address).await, section);
    }
    let (mut counted, mut address) = (0, address.to_owned());
    loop {
        match entries(&read(furnished, cookie, &address).await)? {
            Entries::All(rest) => return Some(counted + rest),
            Entries::Some(rows, next) => (counted, address) = (counted + rows, next),
        }
    }
}

/// Adds up the movements of the list at an address, page by page, or returns the amount of the one movement there. The result is
/// in hundredths.
async fn sum(furnished: &Furnished, cookie: &str, address: &str) -> i64 {
    let (mut sum, mut following) = (0, Some(address.to_owned()));
    while let Some(address) = following {
        let page = read(furnished, cookie, &address).await;
        let cells = page.split(" data-name=\"Amount\">").skip(1).chain(page.split("<dt>Amount</dt><dd>").skip(1));
        sum += cells.filter_map(hundredths).sum::<i64>();
        following = next(&page);
    }
    sum
}

/// Figures of a page that were compared with the lists to which they lead.
#[derive(Default)]
struct Comparison {
    /// Numbers that were followed.
    numbers: usize,
    /// Amounts that were followed.
    amounts: usize,
    /// Those whose list has another number of entries, or adds up to another amount.
    wrong: BTreeSet<String>,
}

/// Returns whether a target is a place of the page itself, which the page must have.
fn is_on(page: &str, path: &str, target: &str) -> bool {
    let Some(id) = target.strip_prefix('#') else { return false };
    assert!(page.contains(&format!(" id=\"{id}\"")), "{path} has no {target}");
    true
}

/// Follows every number and every amount of a page that is a link, and compares it with the list to which it leads. `lists` has
/// the lists that are counted already.
async fn compare(
    furnished: &Furnished,
    cookie: &str,
    path: &str,
    page: &str,
    lists: &mut BTreeMap<String, Option<u64>>,
) -> Comparison {
    let routes = routes();
    let mut comparison = Comparison::default();
    for (number, target) in numbers(page).filter(|(_, target)| !is_on(page, path, target)) {
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
        comparison.numbers += 1;
    }
    for (amount, target) in amounts(page).filter(|(_, target)| !is_on(page, path, target)) {
        comparison.amounts += 1;
        if route_of(&routes, &target).is_some_and(|route| route == EVENTS) {
            if amount != 0 && count(furnished, cookie, &target).await == Some(0) {
                comparison.wrong.insert(format!("{path}: {amount} hundredths lead to {target}, which has no event"));
            }
            continue;
        }
        let sum = sum(furnished, cookie, &target).await;
        // The sums of debits have no sign.
        if sum.abs() != amount.abs() {
            comparison.wrong.insert(format!("{path}: {amount} hundredths lead to {target}, which adds up to {sum}"));
        }
    }
    comparison
}

/// Checks that every number of these pages that is a link leads to a list with as many entries, and every amount to movements
/// that add up to it. There must be at least this many numbers and amounts. Between a page and its lists something may happen,
/// such as a delivery that becomes due, so a page that does not agree with its lists is read again, with them.
pub async fn agree(
    furnished: &Furnished,
    cookie: &str,
    pages: &BTreeMap<String, String>,
    (fewest_numbers, fewest_amounts): (usize, usize),
) {
    let (mut lists, mut wrong, mut numbers, mut amounts) = (BTreeMap::new(), BTreeSet::new(), 0, 0);
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
        numbers += comparison.numbers;
        amounts += comparison.amounts;
    }
    assert_eq!(wrong, BTreeSet::new());
    assert!(numbers >= fewest_numbers && amounts >= fewest_amounts, "{numbers} numbers, {amounts} amounts");
}

/// Reads a figure of a plot, which has no zeros at its end, in hundredths.
fn of_plot(figure: &str) -> Option<i64> {
    let (whole, rest) = figure.split_once('.').unwrap_or((figure, ""));
    format!("{whole}{rest:0<2}").parse().ok()
}

/// Returns the rows with figures of the table beside a plot: the address to which each row leads, and its figures, in hundredths.
fn days(page: &str, caption: &str) -> Vec<(String, Vec<i64>)> {
    let (_, plot) = page.split_once(&format!("<figcaption>{caption}</figcaption>")).unwrap();
    let (_, rows) = plot.split("</figure>").next().unwrap().split_once("<tbody>").unwrap();
    let rows = rows.split("</tr>");
    let days = rows.filter_map(|row| {
        let cells = row.split("<td class=\"number\">").skip(1);
        Some((links(row).next()?.1, cells.filter_map(|cell| of_plot(cell.split('<').next()?)).collect()))
    });
    days.filter(|(_, figures): &(String, Vec<i64>)| figures.iter().any(|figure| *figure != 0)).collect()
}

/// Returns what moved in EUR by the totals of a reconciliation, in the columns of its plot, in hundredths.
fn totals(page: &str) -> Vec<i64> {
    let table = page.split_once(">Totals by currency</caption>").map_or("", |(_, table)| table);
    let row = table.split("</tr>").find(|row| row.contains(" data-name=\"Currency\">EUR<")).unwrap_or_default();
    let amount = |name: &str| amounts(row.split_once(&format!(" data-name=\"{name}\">"))?.1).next();
    ["Funding", "Debits", "Refunds"].into_iter().filter_map(amount).map(|(amount, _)| amount).collect()
}

/// Checks that the figures of each day beside the plots of orders, spend and money are those of the list to which the day leads.
pub async fn days_agree(furnished: &Furnished) {
    let (owner, admin) = (&furnished.owner().cookie, &furnished.admin().cookie);
    let page = read(furnished, owner, "/portal").await;
    let (orders, spend) = (days(&page, "Orders by day (UTC)"), days(&page, "Spend by day, in EUR"));
    for (target, figures) in &orders {
        let listed = count(furnished, owner, target).await.unwrap();
        assert_eq!(figures, &[i64::try_from(listed).unwrap() * 100], "{target}");
    }
    for (target, figures) in &spend {
        let mut moved = vec![];
        for category in ["ORDER", "ORDER_REFUND"] {
            moved.push(sum(furnished, owner, &format!("{target}&category={category}")).await.abs());
        }
        assert_eq!(figures, &moved, "{target}");
    }
    let money = days(&read(furnished, admin, "/console/reconciliation").await, "Money by day in EUR");
    for (target, figures) in &money {
        let page = read(furnished, admin, target).await;
        assert_eq!(figures, &totals(&page), "{target}");
        // The totals add up wallets, whose sums lead to their movements.
        let comparison = compare(furnished, admin, target, &page, &mut BTreeMap::new()).await;
        assert_eq!(comparison.wrong, BTreeSet::new());
        assert!(comparison.amounts > 0, "{target}");
    }
    assert!([&orders, &spend, &money].iter().all(|days| !days.is_empty()), "{orders:?} {spend:?} {money:?}");
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

/// Returns whether a text of some markup begins with a number that is not zero. Codes and times are no numbers.
fn has_number(markup: &str) -> bool {
    let is_number = |text: &str| {
        let text = text.replace('\u{202f}', "");
        let word = text.split_whitespace().next().unwrap_or_default().trim_end_matches(',').trim_start_matches('−');
        word.starts_with(|first: char| first.is_ascii_digit()) && word.parse::<f64>().is_ok_and(|number| number > 0.0)
    };
    let is_plain = |open: &[&str]| !open.iter().any(|tag| ["code", "time"].contains(&name_of(tag)));
    texts(&format!("<dd>{markup}")).iter().any(|(open, text)| is_plain(open) && is_number(text))
}

/// Returns the terms of definition lists whose value has a number and no link.
fn unlinked_facts(page: &str) -> BTreeSet<String> {
    let lists = page.split("<dl class=\"facts\">").skip(1).filter_map(|rest| rest.split("</dl>").next());
    let facts = lists.flat_map(|list| list.split("<dt>").skip(1)).filter_map(|fact| fact.split_once("</dt><dd>"));
    let unlinked = facts.filter(|(_, value)| !value.contains("<a ") && has_number(value));
    unlinked.map(|(term, _)| term.to_owned()).collect()
}

/// Returns whether the page of a movement leads to its event. A client's page leads to the order or the payout, whose page has
/// the events. Clients see no event of a funding or an adjustment, so its page has the time at which the event was recorded.
fn leads_to_its_event(route: &str, page: &str) -> bool {
    match route {
        "/console/transactions/{id}" => page.contains("<dt>Event</dt><dd>Position <a href=\"/console/events/"),
        "/portal/transactions/{id}" => {
            let is_due_to = |cause: &str| page.contains(&format!("<dt>Cause</dt><dd>{cause}"));
            ["<a href=\"/portal/orders/", "<a href=\"/portal/payouts/"].into_iter().any(is_due_to)
                || ["Funding<", "Adjustment<"].into_iter().any(is_due_to) && page.contains("<dt>Time</dt><dd><time datetime=")
        }
        _ => true,
    }
}

/// Checks that the rows with figures of these pages, the figures that stand out, and those in definition lists have a link.
pub fn lead_somewhere<'a>(pages: impl Iterator<Item = (&'a String, &'a String)>) {
    let routes = routes();
    let of_page = |(path, page): (&String, &String)| {
        let mut names: BTreeSet<String> = unlinked(page).into_iter().chain(unlinked_figures(page)).collect();
        names.retain(|name| !WITHOUT_EVENTS.contains(&&**name) && !LEFT_ALONE.contains(&&**name));
        let route = route_of(&routes, path).map_or("", String::as_str);
        let own = OF_ITSELF.iter().find(|(of, _)| *of == route).map(|(_, terms)| *terms).unwrap_or_default();
        let facts = unlinked_facts(page).into_iter();
        names.extend(facts.filter(|term| !own.contains(&&**term) && !WRITTEN.contains(&&**term)));
        names.extend((!leads_to_its_event(route, page)).then(|| "Event".to_owned()));
        names.into_iter().map(|name| (name, path.clone())).collect::<Vec<_>>()
    };
    let found: BTreeMap<String, String> = pages.flat_map(of_page).collect();
    assert_eq!(found, BTreeMap::new(), "these figures, or those in these tables, lead nowhere");
    let unknown: Vec<&str> = OF_ITSELF.iter().map(|(of, _)| *of).filter(|of| !routes.contains(*of)).collect();
    assert!(unknown.is_empty(), "these are no routes: {unknown:?}");
}

#[test]
fn the_entries_of_a_list_are_counted_and_amounts_are_read() {
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
    let sections = format!("<section id=\"a\">{row}</section><section id=\"b\"><div class=\"notice bad\"></div></section>");
    assert_eq!(["a", "b", "c"].map(|section| entries_of(&sections, section)), [Some(1), Some(1), None]);
    assert_eq!(entries_of("<section id=\"a\"><p class=\"notice good\"></p></section>", "a"), Some(0));
    let page = "<a href=\"/x?a=1&amp;b=2\">1\u{202f}234</a><a href=\"/y\">Order 3</a>";
    assert_eq!(numbers(page).collect::<Vec<_>>(), [(1_234, "/x?a=1&b=2".to_owned())]);
    let page = "<a href=\"/x\"><span class=\"money\">−1\u{202f}234.50 <span class=\"currency\">EUR</span></span></a>";
    assert_eq!(amounts(page).collect::<Vec<_>>(), [(-123_450, "/x".to_owned())]);
    assert_eq!(["10.5", "3", "0.25", "-1"].map(of_plot), [1_050, 300, 25, -100].map(Some));
    let row = |figure: &str| format!("<tr><th><a href=\"/x?a=1&amp;b=2\">11-28</a></th><td class=\"number\">{figure}</td></tr>");
    let plot = format!("<figcaption>Sums</figcaption><tbody>{}{}</tbody></figure>{}", row("0"), row("10.5"), row("7"));
    assert_eq!(days(&plot, "Sums"), [("/x?a=1&b=2".to_owned(), vec![1_050])]);
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
    let fact = |value: &str| format!("<dl class=\"facts\"><div><dt>Sum</dt><dd>{value}</dd></div></dl><p>1</p>");
    let money = "<span class=\"money\">−1\u{202f}234.50 <span class=\"currency\">EUR</span></span>";
    for value in ["3 of 5", "10.00, 25.00", money] {
        assert_eq!(unlinked_facts(&fact(value)), BTreeSet::from(["Sum".to_owned()]), "{value}");
    }
    let linked = format!("<a href=\"/x\">{money}</a>");
    let codes = ["<code>7</code>", "<time datetime=\"x\">2026 UTC</time>", "2026-01-31", "203.0.113.7"];
    for value in codes.into_iter().chain(["0.00 %", "up to 5", "Card 5", linked.as_str()]) {
        assert!(unlinked_facts(&fact(value)).is_empty(), "{value}");
    }
}
