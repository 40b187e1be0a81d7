//! Numbers outside links: each number in a table, among the figures that stand out, or in a definition list leads to the events
//! behind it, or is one of the exceptions here.

use std::collections::{BTreeMap, BTreeSet};

use super::every_page::{route_of, routes};
use super::values::{name_of, texts};

/// Names by the place that has them: columns by the caption of their table, or figures and terms by the route of their page.
type Named = (&'static str, &'static [&'static str]);

/// Columns of tables, by caption, whose numbers have no events behind them.
const WITHOUT_EVENTS: [Named; 17] = [
    // The amount that a voucher of the row is worth, and the setting of its warning.
    ("Low stock", &["Denomination"]),
    ("Purchases", &["Face value"]),
    ("Stock by face value", &["Face value", "Low below"]),
    ("Vouchers", &["Face value"]),
    // Numbers that name the thing of the row, and a setting of it.
    ("Accounts", &["Number"]),
    ("Categories", &["Category"]),
    ("Products", &["Units per order"]),
    ("Users", &["Number"]),
    // The place of an attempt among those of its delivery, and statuses of HTTP.
    ("Attempts", &["Attempt", "Response"]),
    ("Attempts of all accounts", &["Attempt", "Response"]),
    ("Deliveries", &["Response"]),
    ("Latest deliveries", &["Response"]),
    // Measures of a machine, and requests, which no event records.
    ("Connections by task", &["Connections"]),
    ("Limits in use", &["Used", "Left"]),
    // The place of an event in its stream, and the length of its proof.
    ("Events of the receipt", &["Version", "Hashes in the path"]),
    // Amounts that a bank states. The row leads to the line.
    ("Lines of the statement", &["Amount"]),
    // The sum of two columns of the table below, each of which leads to its vouchers.
    ("Vouchers by face value", &["Expired or voided"]),
];

/// Beginnings of the captions of tables beside plots whose rows lead to their lists by their headings alone: amounts, which
/// `days_agree` adds up.
const BY_HEADING: [&str; 2] = ["Money by day in ", "Spend by day, in "];

/// Units of measures. They are the end of a value, of the name of its column, or of the caption of its plot.
const UNITS: [&str; 4] = ["%", "ms", "s", "milliseconds"];

/// Figures that stand out and lead nowhere, by page: balances, whose movements stand on the same page, and the sum of two lists,
/// both of which stand beside it.
const LEFT_ALONE: [Named; 3] = [
    ("/console/operations", &["Orders without stock"]),
    ("/console/wallets/{id}", &["Balance"]),
    ("/portal/wallets/{id}", &["Balance"]),
];

/// Terms of definition lists, by page, whose number says something of the thing itself and sums up nothing: its amount and its
/// place, and settings. The amounts of a movement are those of the one event that made it: see `leads_to_its_event`.
const OF_ITSELF: [Named; 7] = [
    ("/console/bank-statements/{id}/lines/{line}", &["Amount"]),
    ("/console/events/{shard}/{position}", &["Position", "Version of the schema", "Version of the subject"]),
    ("/console/products/{id}", &["Face values"]),
    ("/console/purchases/{id}", &["Face value"]),
    ("/console/transactions/{id}", &["Amount", "Balance after it"]),
    ("/portal/products/{id}", &["Face value"]),
    ("/portal/transactions/{id}", &["Amount", "Balance afterwards"]),
];

/// Facts that people write. They may look like numbers, and are none.
const WRITTEN: [&str; 3] = ["Client's reference", "Reference", "Your reference"];

/// An exception: a place of a list with one of its names. An entry without a place, or without names, has an empty text instead.
type Exception = (&'static str, &'static str);

/// Returns the exceptions of a list.
fn exceptions(list: &'static [Named]) -> impl Iterator<Item = Exception> {
    list.iter().flat_map(|(place, names)| names.iter().map(move |name| (*place, *name)))
}

/// Returns the exception of a list for a name of a place.
fn exception(list: &'static [Named], place: &str, name: &str) -> Option<Exception> {
    exceptions(list).find(|(of, known)| *of == place && *known == name)
}

/// Returns the exception for the facts that people write under this term.
fn written(term: &str) -> Option<Exception> {
    WRITTEN.into_iter().find(|written| *written == term).map(|written| ("", written))
}

/// Returns the names of the figures that stand out and have a number outside a link.
fn unlinked_figures(page: &str) -> BTreeSet<String> {
    let figures = page.split("<div class=\"figure\">").skip(1).filter_map(|rest| rest.split("</div>").next());
    let figures = figures.filter_map(|figure| figure.split_once("<span class=\"quiet\">")?.1.split_once("</span>"));
    figures.filter(|(_, value)| has_number(value)).map(|(name, _)| name.to_owned()).collect()
}

/// Returns the captions of the tables that have a number outside a link, each with the column of the number. Adds the exceptions
/// that the page needs to `used`.
fn unlinked(page: &str, used: &mut BTreeSet<Exception>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for table in page.split("<table>").skip(1).filter_map(|rest| rest.split("</table>").next()) {
        let between = |opening: &str, closing: &str| table.split_once(opening)?.1.split_once(closing);
        let caption = between("<caption class=\"unseen\">", "</caption>").map_or("", |(caption, _)| caption);
        let by_heading = BY_HEADING.into_iter().find(|beginning| caption.starts_with(beginning));
        let leads = |row: &str| row.split_once("</th>").is_some_and(|(heading, _)| heading.contains("<a "));
        let rows = table.split_once("<tbody>").map_or("", |(_, rows)| rows).split("</tr>");
        let cells = rows.flat_map(|row| row.split("<td class=\"number\"").skip(1).map(move |cell| (row, cell)));
        for (row, cell) in cells {
            let Some((tag, cell)) = cell.split("</td>").next().and_then(|cell| cell.split_once('>')) else { continue };
            let column = tag.split_once("data-name=\"").and_then(|(_, name)| name.split('"').next()).unwrap_or_default();
            let is_measure = [caption, column].iter().any(|name| name.rsplit(' ').next().is_some_and(|end| UNITS.contains(&end)));
            if is_measure || !has_number(cell) {
                continue;
            }
            let by_heading = by_heading.filter(|_| leads(row)).map(|beginning| (beginning, ""));
            match by_heading.or_else(|| exception(&WITHOUT_EVENTS, caption, column)) {
                Some(exception) => _ = used.insert(exception),
                None => _ = found.insert(format!("{caption}: {column}")),
            }
        }
    }
    found
}

/// Returns whether a text of some markup begins with a number that is not zero, outside a link. Codes, times and measures, such
/// as `2.5 %`, are no numbers.
fn has_number(markup: &str) -> bool {
    let is_number = |text: &str| {
        let text = text.replace('\u{202f}', "");
        let mut words = text.split_whitespace();
        let word = words.next().unwrap_or_default().trim_end_matches(',').trim_start_matches('−');
        let is_measure = words.next().is_some_and(|unit| UNITS.contains(&unit));
        !is_measure
            && word.starts_with(|first: char| first.is_ascii_digit())
            && word.parse::<f64>().is_ok_and(|number| number > 0.0)
    };
    let is_plain = |open: &[&str]| !open.iter().any(|tag| ["a", "code", "time"].contains(&name_of(tag)));
    texts(&format!("<dd>{markup}")).iter().any(|(open, text)| is_plain(open) && is_number(text))
}

/// Returns the terms of definition lists whose value has a number and no link.
fn unlinked_facts(page: &str) -> BTreeSet<String> {
    let lists = page.split("<dl class=\"facts\">").skip(1).filter_map(|rest| rest.split("</dl>").next());
    let facts = lists.flat_map(|list| list.split("<dt>").skip(1)).filter_map(|fact| fact.split_once("</dt><dd>"));
    let unlinked = facts.filter(|(_, value)| !value.contains("<a ") && has_number(value));
    unlinked.map(|(term, _)| term.to_owned()).collect()
}

/// Returns whether the page of a movement leads to its event. A client's page names the event, and leads to the order or the
/// payout, whose page has all events. Clients have no page of the event of a funding or an adjustment.
fn leads_to_its_event(route: &str, page: &str) -> bool {
    match route {
        "/console/transactions/{id}" => page.contains("<dt>Event</dt><dd>Position <a href=\"/console/events/"),
        "/portal/transactions/{id}" => {
            let is_due_to = |cause: &str| page.contains(&format!("<dt>Cause</dt><dd>{cause}"));
            ["<a href=\"/portal/orders/", "<a href=\"/portal/payouts/"].into_iter().any(is_due_to)
                || ["Funding<", "Adjustment<"].into_iter().any(is_due_to) && page.contains("<dt>Event</dt><dd><code>")
        }
        _ => true,
    }
}

/// Checks that the numbers in tables of these pages, the figures that stand out, and those in definition lists have a link, and
/// that a page needs each exception.
pub fn lead_somewhere<'a>(pages: impl Iterator<Item = (&'a String, &'a String)>) {
    let (routes, mut used, mut found) = (routes(), BTreeSet::new(), BTreeMap::<String, String>::new());
    for (path, page) in pages {
        let route = route_of(&routes, path).map_or("", String::as_str);
        let mut names = unlinked(page, &mut used);
        let figures = unlinked_figures(page).into_iter().map(|name| (exception(&LEFT_ALONE, route, &name), name));
        let facts = unlinked_facts(page).into_iter();
        let facts = facts.map(|term| (exception(&OF_ITSELF, route, &term).or_else(|| written(&term)), term));
        for (exception, name) in figures.chain(facts) {
            match exception {
                Some(exception) => _ = used.insert(exception),
                None => _ = names.insert(name),
            }
        }
        names.extend((!leads_to_its_event(route, page)).then(|| "Event".to_owned()));
        found.extend(names.into_iter().map(|name| (name, path.clone())));
    }
    assert_eq!(found, BTreeMap::new(), "these figures, or those in these tables, lead nowhere");
    let unused = unused(&used);
    assert!(unused.is_empty(), "no page needs these exceptions: {unused:?}");
}

/// Returns the exceptions that are not among these.
fn unused(used: &BTreeSet<Exception>) -> Vec<Exception> {
    let lists: [&'static [Named]; 3] = [&WITHOUT_EVENTS, &LEFT_ALONE, &OF_ITSELF];
    let named = lists.into_iter().flat_map(exceptions);
    let alone = BY_HEADING.map(|beginning| (beginning, "")).into_iter().chain(WRITTEN.map(|term| ("", term)));
    named.chain(alone).filter(|exception| !used.contains(exception)).collect()
}

#[test]
fn a_number_without_a_link_is_found() {
    let table = |caption: &str, cell: &str, column: &str, value: &str| {
        let row = format!("<tr>{cell}<td class=\"number\" data-name=\"{column}\">{value}</td></tr>");
        format!("<table><caption class=\"unseen\">{caption}</caption><tbody>{row}</tbody></table>")
    };
    let unlinked = |page: &str| unlinked(page, &mut BTreeSet::new());
    let of = |caption: &str, column: &str, value: &str| unlinked(&table(caption, "", column, value));
    let linked_row = "<td class=\"\" data-name=\"Order\"><a href=\"/x\">Order 1</a></td>";
    let sums = BTreeSet::from(["Sums: Units".to_owned()]);
    assert_eq!(unlinked(&table("Sums", linked_row, "Units", "1")), sums, "a link in another cell is not enough");
    assert_eq!(of("Sums", "Units", "<a href=\"/x\">1</a><br><span>5</span>"), sums);
    for value in ["<a href=\"/x\">1</a> of 3", "0", "0.00", "–", "", "2.0 s", "7 ms", "40 %"] {
        assert!(of("Sums", "Units", value).is_empty(), "{value}");
    }
    assert!(of("Sums", "Average, ms", "7").is_empty() && of("Response time by day, in milliseconds", "Longest", "7").is_empty());
    assert!(of("Users", "Number", "7").is_empty());
    assert_eq!(of("Users", "Sessions", "7").len(), 1, "an exception is that of a column");
    let heading =
        |content: &str| unlinked(&table("Money by day in EUR", &format!("<th scope=\"row\">{content}</th>"), "Funding", "7"));
    assert!(heading("<a href=\"/x\">11-28</a>").is_empty() && heading("11-28").len() == 1);
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
    for value in codes.into_iter().chain(["2.50 %", "up to 5", "Card 5", linked.as_str()]) {
        assert!(unlinked_facts(&fact(value)).is_empty(), "{value}");
    }
}

#[test]
fn an_exception_that_no_page_needs_is_found() {
    let cell = |column: &str| format!("<td class=\"number\" data-name=\"{column}\">7</td>");
    let table = |caption: &str, row: &str| {
        format!("<table><caption class=\"unseen\">{caption}</caption><tbody><tr>{row}</tr></tbody></table>")
    };
    let day = format!("<th scope=\"row\"><a href=\"/x\">11-28</a></th>{}", cell("Funding"));
    let mut used = BTreeSet::new();
    let page = table("Attempts", &cell("Response")) + &table("Money by day in EUR", &day);
    assert!(unlinked(&page, &mut used).is_empty());
    assert_eq!(used, BTreeSet::from([("Attempts", "Response"), ("Money by day in ", "")]));
    let unused = unused(&used);
    assert!(unused.contains(&("Attempts", "Attempt")) && unused.contains(&("", "Reference")), "{unused:?}");
    assert!(used.iter().all(|exception| !unused.contains(exception)), "{unused:?}");
}
