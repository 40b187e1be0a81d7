//! Figures of tables: each row leads to what it counts.

use std::collections::{BTreeMap, BTreeSet};

/// Tables whose rows are themselves what is counted, or measure a machine and no event.
const WITHOUT_EVENTS: [&str; 3] = ["Attempts", "Connections by task", "Loops of this node"];

/// Figures that lead nowhere: balances, whose movements stand on the same page, and commands that are not events yet.
const LEFT_ALONE: [&str; 3] = ["Balance", "Commands that wait", "Last change"];

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
fn a_row_without_a_link_is_found() {
    let table = |row: &str| format!("<table><caption class=\"unseen\">Sums</caption><tbody><tr>{row}</tr></tbody></table>");
    assert_eq!(unlinked(&table("<td class=\"number\">1</td>")), BTreeSet::from(["Sums".to_owned()]));
    assert!(unlinked(&table("<th><a href=\"/x\">a</a></th><td class=\"number\">1</td>")).is_empty());
    assert!(unlinked(&table("<td>a</td>")).is_empty());
    let figure = |value: &str| format!("<div class=\"figure\"><span class=\"quiet\">Due</span><strong>{value}</strong></div>");
    assert_eq!(unlinked_figures(&figure("1")), BTreeSet::from(["Due".to_owned()]));
    assert!(unlinked_figures(&figure("<a href=\"/x\">1</a>")).is_empty());
}
