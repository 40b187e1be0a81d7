//! Figures of tables: each row leads to what it counts.

use std::collections::{BTreeMap, BTreeSet};

/// Tables whose rows are themselves what is counted, or measure a machine and no event.
const WITHOUT_EVENTS: [&str; 3] = ["Attempts", "Connections by task", "Loops of this node"];

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

/// Checks that the rows with figures of these pages have a link.
pub fn lead_somewhere<'a>(pages: impl Iterator<Item = (&'a String, &'a String)>) {
    let of_page =
        |(path, page): (&String, &String)| unlinked(page).into_iter().map(|caption| (caption, path.clone())).collect::<Vec<_>>();
    let mut found: BTreeMap<String, String> = pages.flat_map(of_page).collect();
    found.retain(|caption, _| !WITHOUT_EVENTS.contains(&&**caption));
    assert_eq!(found, BTreeMap::new(), "figures in these tables lead nowhere");
}

#[test]
fn a_row_without_a_link_is_found() {
    let table = |row: &str| format!("<table><caption class=\"unseen\">Sums</caption><tbody><tr>{row}</tr></tbody></table>");
    assert_eq!(unlinked(&table("<td class=\"number\">1</td>")), BTreeSet::from(["Sums".to_owned()]));
    assert!(unlinked(&table("<th><a href=\"/x\">a</a></th><td class=\"number\">1</td>")).is_empty());
    assert!(unlinked(&table("<td>a</td>")).is_empty());
}
