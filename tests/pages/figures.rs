//! Figures: each one leads to what it counts, and the list there has as many entries or adds up to the amount.

use std::collections::{BTreeMap, BTreeSet};

use super::crawl::attributes;
use super::every_page::{read, route_of, routes};
use super::furnished::Furnished;

/// Pages to which a number leads that counts no entries of a list: a position leads to its event, and so does what an erasure
/// removed; the number of a movement leads to the movement, units lead to their order with its events, and attempts to their
/// delivery, which keeps them for a time only. A verification names what is missing or differs.
const NO_LISTS: [&str; 8] = [
    "/console/audit-runs",
    "/console/audit-runs/{id}",
    "/console/deliveries/{id}",
    "/console/events/{shard}/{position}",
    "/console/orders/{id}",
    "/console/transactions/{id}",
    "/portal/orders/{id}",
    "/portal/transactions/{id}",
];

/// Pages that show the amount which leads to them: a movement with the balance after it, and the reconciliation of a day.
const SHOWING: [&str; 3] = ["/console/reconciliation", "/console/transactions/{id}", "/portal/transactions/{id}"];

/// List of events, to which sums lead whose amounts stand in the events alone.
const EVENTS: &str = "/console/audit";

/// Types of the events that change a stock by several vouchers each.
const OF_STOCK: [&str; 4] = ["VoucherStockLoaded", "VouchersVoided", "VouchersExpired", "VouchersTransferredOut"];

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
    // An amount may follow a number in the same link.
    links(page).filter_map(|(content, target)| Some((content.split('<').next()?.parse().ok()?, target)))
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

/// Returns the content of a cell, without the link around it.
fn content(cell: &str) -> &str {
    cell.strip_prefix("<a ").and_then(|link| link.split_once('>')).map_or(cell, |(_, content)| content)
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
        sum += cells.map(content).filter_map(hundredths).sum::<i64>();
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
    /// Those whose list has another number of entries, or adds up to another amount, and links to places that are not there.
    wrong: BTreeSet<String>,
}

/// Returns the amounts that a page shows, in hundredths and without their signs.
fn shown(page: &str) -> BTreeSet<i64> {
    page.match_indices("<span class=\"money\">").filter_map(|(at, _)| hundredths(&page[at..])).map(i64::abs).collect()
}

/// Pages that are read already, and lists that are counted already, by address.
#[derive(Default)]
struct Known {
    pages: BTreeMap<String, String>,
    lists: BTreeMap<String, Option<u64>>,
}

impl Known {
    /// Returns the page at an address, which must be there.
    async fn page(&mut self, furnished: &Furnished, cookie: &str, address: &str) -> &str {
        let address = address.split('#').next().unwrap();
        if !self.pages.contains_key(address) {
            self.pages.insert(address.to_owned(), read(furnished, cookie, address).await);
        }
        &self.pages[address]
    }
}

/// Returns whether a number agrees with the number of entries of the list to which it leads. Most are equal.
fn agrees(number: u64, target: &str, listed: u64) -> bool {
    let has = |part: &str| target.contains(part);
    if has("type=VoucherStockLoaded%2C") {
        // A stock is what its changes have left.
        return number == 0 || listed > 0;
    }
    if has("?subject=purchase%2F") || has("?subject=reconciliation%2F") {
        // The events of a purchase or a statement have its vouchers and decisions among them.
        return listed > 0;
    }
    // An event of the stock, or of an order, concerns several vouchers.
    let of_type = |part: &str| part.strip_prefix("type=").is_some_and(|kind| OF_STOCK.contains(&kind));
    let of_stock = target.split(['?', '&']).any(of_type) || has("type=OrderPartiallyDelivered%2C");
    listed == number || (of_stock && (1..=number).contains(&listed))
}

/// Returns whether the list at a target has the deliveries to a webhook that wait for another attempt. The largest number of
/// their attempts leads there too.
fn is_of_retries(target: &str) -> bool {
    target.starts_with("/console/webhooks/") && target.ends_with("/queue?part=retries")
}

/// Returns whether a delivery on a page of such a list has this number of attempts.
fn has_attempts(page: &str, number: u64) -> bool {
    let cells = page.split(" data-name=\"Attempts so far\">").skip(1).map(content);
    cells.filter_map(|cell| cell.split('<').next()?.parse().ok()).any(|attempts: u64| attempts == number)
}

/// Returns whether an address is a place of the page itself.
fn is_on_page(target: &str) -> bool {
    target.starts_with('#')
}

/// Returns the addresses on a page that name a place which their page does not have.
async fn lost_places(furnished: &Furnished, cookie: &str, path: &str, page: &str, known: &mut Known) -> BTreeSet<String> {
    let mut lost = BTreeSet::new();
    for target in attributes(page, "href").into_iter().filter(|target| target.starts_with(['/', '#'])) {
        let Some((_, id)) = target.split_once('#') else { continue };
        let there = if is_on_page(&target) { page } else { known.page(furnished, cookie, &target).await };
        if !there.contains(&format!(" id=\"{id}\"")) {
            lost.insert(format!("{path} leads to {target}, which is no place of its page"));
        }
    }
    lost
}

/// Follows every number and every amount of a page that is a link, and compares it with the list or the page to which it leads.
/// Every place of a page to which a link leads must be there.
async fn compare(furnished: &Furnished, cookie: &str, path: &str, page: &str, known: &mut Known) -> Comparison {
    let routes = routes();
    let wrong = lost_places(furnished, cookie, path, page, known).await;
    let mut comparison = Comparison { wrong, ..Comparison::default() };
    for (number, target) in numbers(page).filter(|(_, target)| !is_on_page(target)) {
        let route = route_of(&routes, &target).unwrap_or_else(|| panic!("{path}: {target} has no route"));
        if NO_LISTS.contains(&&**route) {
            known.page(furnished, cookie, &target).await;
            continue;
        }
        if !known.lists.contains_key(&target) {
            known.lists.insert(target.clone(), count(furnished, cookie, &target).await);
        }
        let listed = known.lists[&target];
        let is_right = listed.is_some_and(|listed| agrees(number, &target, listed))
            || (is_of_retries(&target) && has_attempts(known.page(furnished, cookie, &target).await, number));
        if !is_right {
            comparison.wrong.insert(format!("{path}: {number} leads to {target}, which lists {listed:?}"));
        }
        comparison.numbers += 1;
    }
    for (amount, target) in amounts(page).filter(|(_, target)| !is_on_page(target)) {
        comparison.amounts += 1;
        let route = route_of(&routes, &target).map_or("", String::as_str);
        if SHOWING.contains(&route) {
            if !shown(known.page(furnished, cookie, &target).await).contains(&amount.abs()) {
                comparison.wrong.insert(format!("{path}: {amount} hundredths lead to {target}, which does not show them"));
            }
            continue;
        }
        if route == EVENTS {
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
    let (mut known, mut wrong, mut numbers, mut amounts) = (Known::default(), BTreeSet::new(), 0, 0);
    for (path, page) in pages {
        let mut comparison = compare(furnished, cookie, path, page, &mut known).await;
        for _ in 1..READINGS {
            if comparison.wrong.is_empty() {
                break;
            }
            known = Known::default();
            let page = read(furnished, cookie, path).await;
            comparison = compare(furnished, cookie, path, &page, &mut known).await;
        }
        wrong.append(&mut comparison.wrong);
        numbers += comparison.numbers;
        amounts += comparison.amounts;
    }
    assert_eq!(wrong, BTreeSet::new());
    let routes = routes();
    let unknown: Vec<&str> = NO_LISTS.into_iter().chain(SHOWING).filter(|of| !routes.contains(*of)).collect();
    assert!(unknown.is_empty(), "these are no routes: {unknown:?}");
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
        let cells = row.split("<td class=\"number\"").skip(1).filter_map(|cell| cell.split_once('>'));
        let figures = cells.filter_map(|(_, cell)| of_plot(content(cell).split('<').next()?)).collect();
        Some((links(row).next()?.1, figures))
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
        let comparison = compare(furnished, admin, target, &page, &mut Known::default()).await;
        assert_eq!(comparison.wrong, BTreeSet::new());
        assert!(comparison.amounts > 0, "{target}");
    }
    assert!([&orders, &spend, &money].iter().all(|days| !days.is_empty()), "{orders:?} {spend:?} {money:?}");
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
    assert_eq!((shown(page), content(page).split(' ').next()), (BTreeSet::from([123_450]), Some("<span")));
    let lot = "<a href=\"/x\">5<br><span class=\"quiet\">9.00</span></a>";
    assert_eq!(numbers(lot).collect::<Vec<_>>(), [(5, "/x".to_owned())]);
    assert_eq!(["10.5", "3", "0.25", "-1"].map(of_plot), [1_050, 300, 25, -100].map(Some));
    let row = |figure: &str| {
        format!("<tr><th><a href=\"/x?a=1&amp;b=2\">11-28</a></th><td class=\"number\" data-name=\"Sum\">{figure}</td></tr>")
    };
    let linked = row("<a href=\"/x\">3</a>");
    let plot = format!("<figcaption>Sums</figcaption><tbody>{}{}{linked}</tbody></figure>{}", row("0"), row("10.5"), row("7"));
    assert_eq!(days(&plot, "Sums"), [1_050, 300].map(|sum| ("/x?a=1&b=2".to_owned(), vec![sum])));
}

#[test]
fn a_number_that_disagrees_with_its_list_is_found() {
    for (number, target, listed, is_right) in [
        (3, "/console/orders?status=PENDING", 3, true),
        (3, "/console/orders?status=PENDING", 2, false),
        (3, "/console/audit?type=VouchersVoided", 1, true),
        (3, "/console/audit?type=VouchersVoided", 4, false),
        (3, "/console/audit?type=OrderPartiallyDelivered%2COrderDelivered", 0, false),
        (3, "/console/audit?type=VoucherStockLoaded%2CVouchersVoided&to=2026-01-31", 4, true),
        (3, "/console/audit?type=VoucherStockLoaded%2CVouchersVoided&to=2026-01-31", 0, false),
        (3, "/console/audit?type=VouchersRevealed", 1, false),
        (3, "/console/audit?from=2026-01-31&type=VouchersTransferredOut&to=2026-01-31", 1, true),
        (3, "/console/attempts?webhook_url_id=6", 4, false),
        (3, "/console/audit?subject=purchase%2F9", 0, false),
    ] {
        assert_eq!(agrees(number, target, listed), is_right, "{number} leads to {target}, which lists {listed}");
    }
    let cell = "<td class=\"number\" data-name=\"Attempts so far\">";
    let page = format!("{cell}12</td>{cell}<a href=\"/x\">3</a></td><td data-name=\"Order\">5</td>");
    assert_eq!([12, 3, 1, 5].map(|number| has_attempts(&page, number)), [true, true, false, false]);
    let targets = ["/console/webhooks/6/queue?part=retries", "/console/webhooks/6/queue?part=due", "/console/queue?part=retries"];
    assert_eq!(targets.map(is_of_retries), [true, false, false]);
}
