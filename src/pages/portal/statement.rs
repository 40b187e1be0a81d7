//! The statement of a wallet for a period: on a page that can be printed, and as CSV.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike, NaiveDate, Utc};
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::transactions;
use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, address};
use crate::pages::outcome::{PageResult, file};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{PERIOD, day_fields, period, rfc3339};
use crate::pages::parts::values::{facts, grouped, money};
use crate::pages::parts::zone::{ZONE, Zone};
use crate::pages::parts::{layout, table};
use crate::pages::shared::transaction::Transaction;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Largest number of transactions on the page: one page of the API. More would make it too large.
const MAX_ROWS: usize = 100;

/// Balances and sums, as `GET /api/v1/wallets/:id/statement` returns them.
#[derive(Debug, Deserialize)]
pub struct Sums {
    pub wallet_id: i64,
    pub currency: String,
    opening_balance: String,
    total_credits: String,
    total_debits: String,
    total_refunds: String,
    pub closing_balance: String,
}

/// A statement: its sums, and a page of its transactions. The first page has the latest ones. On a page, the oldest comes first.
struct Statement {
    sums: Sums,
    transactions: List<Transaction>,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/wallets/:id/statement", show).get("/portal/wallets/:id/statement.csv", download)
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    // All parts of a statement end at one time.
    let now = visit.query.text("until").and_then(|text| text.parse().ok()).map_or_else(Utc::now, |until| Utc::now().min(until));
    let id = visit.id("id")?;
    let form = chosen(&visit.query, now);
    match load(&visit, id, &form, now).await {
        Ok(statement) => Ok(page(&visit, id, &form, Some(&statement), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, id, &form, None, Some(refusal)), refusal)),
    }
}

/// Returns the days of the query, or those of this month if there are none, and the time at which all parts end.
fn chosen(query: &Form, now: DateTime<Utc>) -> Form {
    let mut days = ["from", "to"].map(|name| query.text(name).map(ToOwned::to_owned));
    if days == [None, None] {
        // A wrong zone is refused with the period.
        let today = Zone::of(query).unwrap_or_else(|_| Zone::utc()).date(now);
        days = [today.with_day(1).unwrap_or(today), today].map(|day| Some(day.to_string()));
    }
    let [from, to] = days;
    let zone = query.text(ZONE).map(ToOwned::to_owned);
    let fields = [("from", from), ("to", to), (ZONE, zone), ("until", Some(rfc3339(now)))];
    Form::from_pairs(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

/// Returns a period as a query of the API with these names.
fn encoded(names: [&str; 2], period: [Option<DateTime<Utc>>; 2]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, at) in names.into_iter().zip(period) {
        query.extend_pairs(at.map(|at| (name, rfc3339(at))));
    }
    query.finish()
}

async fn load(visit: &Visit, id: i64, form: &Form, now: DateTime<Utc>) -> Result<Statement, Refusal> {
    let [from, to] = period(form)?;
    // The calls are several, and a movement between them must be in all of them or in none.
    let period = [from, Some(to.map_or(now, |to| to.min(now)))];
    let sums = format!("/api/v1/wallets/{id}/statement?totals_only=true&{}", encoded(["from", "to"], period));
    let created = encoded(["created_from", "created_to"], period);
    let rows = format!("/api/v1/transactions?wallet_id={id}&{created}&limit={MAX_ROWS}&{}", visit.query.only(&["page"]));
    let (sums, mut transactions): (Sums, List<Transaction>) =
        futures::try_join!(visit.get(&sums), visit.list(&rows, "transactions"))?;
    transactions.items.reverse();
    Ok(Statement { sums, transactions })
}

fn page(visit: &Visit, id: i64, form: &Form, statement: Option<&Statement>, refusal: Option<&Refusal>) -> Response {
    let path = format!("/portal/wallets/{id}/statement");
    let fields = Filled { form, refusal };
    let body = html! {
        (layout::problem(refusal))
        (table::filters(&path, &day_fields(&fields)))
        @if let Some(statement) = statement { (content(&path, form, statement)) }
        p.actions { a href={ "/portal/wallets/" (id) } { "Back to the wallet" } }
    };
    layout::page(visit, &format!("Statement of wallet {id}"), &body)
}

fn content(path: &str, form: &Form, statement: &Statement) -> Markup {
    let Statement { sums, transactions } = statement;
    let amount = |amount: &str| money(amount, &sums.currency);
    // A sum leads to the movements that it adds up, and a balance to all movements until then. A list has one category, so some
    // sums lead to two lists.
    let wallet = path.trim_end_matches("/statement");
    let period = form.only(&PERIOD);
    let link = |text: Markup, filter: &str| html! { a href={ (wallet) "?" (filter) "&" (period) } { (text) } };
    let balance = |sum: &str, last: &str| {
        html! { a href=(address(wallet, &[("to", last), (ZONE, form.value(ZONE))])) { (amount(sum)) } }
    };
    let of_two = |sum: &str, [one, other]: [(&str, &str); 2]| {
        html! { (amount(sum)) " (" (link(html! { (one.0) }, one.1)) ", " (link(html! { (other.0) }, other.1)) ")" }
    };
    let day_before = form.text("from").and_then(|from| from.parse::<NaiveDate>().ok()?.pred_opt()).map(|day| day.to_string());
    html! {
        div.actions {
            a.button href={ (path) ".csv?" (form.only(&PERIOD)) } { "Download as CSV" }
            button.plain type="button" data-print hidden { "Print" }
        }
        (facts(&[
            (
                "Period",
                html! {
                    (form.text("from").unwrap_or("first movement")) " to " (form.text("to").unwrap_or("now"))
                    ", " (form.text(ZONE).unwrap_or("UTC"))
                },
            ),
            (
                "Opening balance",
                html! {
                    @match day_before { Some(last) => (balance(&sums.opening_balance, &last)), None => (amount(&sums.opening_balance)) }
                },
            ),
            (
                "Credits",
                of_two(&sums.total_credits, [("fundings", "category=FUNDING"), ("adjustments", "category=ADJUSTMENT&type=CREDIT")]),
            ),
            (
                "Refunds",
                of_two(&sums.total_refunds, [("of orders", "category=ORDER_REFUND"), ("of payouts", "category=PAYOUT_REFUND")]),
            ),
            ("Debits", link(amount(&sums.total_debits), "type=DEBIT")),
            ("Closing balance", balance(&sums.closing_balance, form.value("to"))),
        ]))
        @if transactions.total == 0 { (table::empty("Nothing moved in this period.", None)) }
        @else {
            @if transactions.pages > 1 { (part(path, form, transactions)) }
            (transactions::rows("Movements of the period, oldest first", &transactions.items))
        }
    }
}

/// Says which part of a long statement the page shows, and links to the first, the neighbouring and the last part. Parts and
/// movements are numbered from the oldest; the API's pages are numbered from the latest.
fn part(path: &str, form: &Form, transactions: &List<Transaction>) -> Markup {
    let List { items, page, pages, total } = transactions;
    let number = (pages + 1).saturating_sub(*page);
    let last = total.saturating_sub(page.saturating_sub(1).saturating_mul(MAX_ROWS as u64));
    let first = (last + 1).saturating_sub(items.len() as u64);
    let link = |part: u64| table::page_link(path, form, Some(("page", &(pages + 1 - part).to_string())));
    // The next page of the API has the part before this one.
    let rel = |part: u64| if part + 1 == number { Some("next") } else { (part == number + 1).then_some("prev") };
    let count = |count: u64| grouped(&count.to_string());
    let others = BTreeSet::from([1, number.saturating_sub(1), number + 1, *pages]);
    html! {
        p.notice.wait {
            @match items.len() {
                0 => "The statement has no such part.",
                1 => { "Part " (number) " of " (pages) ": movement " (count(last)) " of " (count(*total)) "." }
                _ => { "Part " (number) " of " (pages) ": movements " (count(first)) " to " (count(last)) " of " (count(*total)) "." }
            }
            " The sums include all movements. Print the parts one by one, or download the CSV."
        }
        nav.pager aria-label="Parts of the statement" {
            @for part in others.into_iter().filter(|part| *part != number && (1..=*pages).contains(part)) {
                a.button href=(link(part)) rel=[rel(part)] { "Part " (part) }
            }
        }
    }
}

/// Sends the statement as CSV, part by part. A statement that cannot be read to its end breaks the download off.
async fn download(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let statement = format!("/api/v1/wallets/{id}/statement?{}", encoded(["from", "to"], period(&visit.query)?));
    let csv = visit.body(&statement, "text/csv").await?;
    Ok(file(&format!("statement-{id}.csv"), "text/csv; charset=utf-8; header=present", csv))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_statement_is_that_of_this_month_unless_a_day_is_chosen() {
        let now: DateTime<Utc> = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(chosen(&Form::default(), now).only(&["from", "to"]), "from=2026-01-01&to=2026-01-31");
        // In Auckland, it is the first of February already.
        let elsewhere = chosen(&Form::parse(b"zone=Pacific/Auckland"), now);
        assert_eq!(elsewhere.only(&["from", "to"]), "from=2026-02-01&to=2026-02-01");
        assert_eq!(chosen(&Form::parse(b"from=2025-05-05"), now).only(&PERIOD), "from=2025-05-05");
        assert_eq!(chosen(&Form::parse(b"to=2025-05-05&zone=Asia/Tokyo"), now).only(&PERIOD), "to=2025-05-05&zone=Asia%2FTokyo");
    }

    #[test]
    fn the_page_of_the_longest_references_is_small_and_its_sums_lead_to_the_movements() {
        let reference = "\"".repeat(100);
        let movement = json!({"id": 1_000_000, "wallet_id": 3, "type": "CREDIT", "category": "FUNDING", "amount": "1.00", "balance_after": "1.00",
            "currency": "EUR", "order_id": null, "reference": reference, "description": format!("Funding {reference}"),
            "created_at": "2026-01-31T12:00:00Z"});
        let items = (0..MAX_ROWS).map(|_| serde_json::from_value(movement.clone()).unwrap()).collect();
        let sums = json!({"wallet_id": 3, "currency": "EUR", "opening_balance": "0.00", "total_credits": "100.00", "total_debits": "0.00",
            "total_refunds": "0.00", "closing_balance": "100.00"});
        let transactions = List { items, page: 2, pages: 600, total: 60_000 };
        let statement = Statement { sums: serde_json::from_value(sums).unwrap(), transactions };
        let markup = content("/portal/wallets/3/statement", &Form::parse(b"from=2026-01-01"), &statement).0;
        assert!(markup.len() < 170_000, "{}", markup.len());
        assert!(markup.contains("Part 599 of 600: movements 59\u{202f}801 to 59\u{202f}900 of 60\u{202f}000."), "{markup}");
        assert!(markup.contains("from=2026-01-01&amp;page=1\" rel=\"prev\">Part 600<"), "{markup}");
        assert!(markup.contains("/portal/wallets/3/statement.csv?from=2026-01-01\""), "a CSV has any length: {markup}");
        let categories = ["FUNDING", "ADJUSTMENT&amp;type=CREDIT", "ORDER_REFUND", "PAYOUT_REFUND"];
        for filter in categories.map(|category| format!("category={category}")).into_iter().chain(["type=DEBIT".to_owned()]) {
            assert!(markup.contains(&format!("/portal/wallets/3?{filter}&amp;from=2026-01-01")), "{filter}");
        }
        let form = Form::parse(b"from=2026-01-01&to=2026-01-31&zone=Asia/Tokyo");
        let markup = content("/portal/wallets/3/statement", &form, &statement).0;
        for (name, last, amount) in [("Opening", "2025-12-31", "0.00"), ("Closing", "2026-01-31", "100.00")] {
            let link = format!("<a href=\"/portal/wallets/3?to={last}&amp;zone=Asia%2FTokyo\"><span class=\"money\">{amount} ");
            assert!(markup.contains(&format!("<dt>{name} balance</dt><dd>{link}")), "{name}: {markup}");
        }
    }

    #[test]
    fn a_long_statement_says_which_part_it_shows_and_leads_to_the_others() {
        let shown = |page: u64, rows: usize, total: u64| {
            let transaction = || crate::pages::shared::transaction::tests::transaction("FUNDING", None, "r");
            let items = (0..rows).map(|_| transaction()).collect();
            let list = List { items, page, pages: total.div_ceil(100), total };
            let markup = part("/s", &Form::parse(b"from=2026-01-01&until=2026-01-31T12:00:00Z"), &list).0;
            let links: Vec<String> = markup
                .split("page=")
                .skip(1)
                .map(|rest| rest.split('<').next().unwrap().replace("\" rel=\"", " ").replace("\">", " "))
                .collect();
            (markup, links.join(", "))
        };
        for (page, rows, total, text, links) in [
            (1, 100, 250, "Part 3 of 3: movements 151 to 250 of 250.", "3 Part 1, 2 next Part 2"),
            (2, 100, 250, "Part 2 of 3: movements 51 to 150 of 250.", "3 next Part 1, 1 prev Part 3"),
            (3, 50, 250, "Part 1 of 3: movements 1 to 50 of 250.", "2 prev Part 2, 1 Part 3"),
            (2, 1, 101, "Part 1 of 2: movement 1 of 101.", "1 prev Part 2"),
            (
                4,
                100,
                1_000,
                "Part 7 of 10: movements 601 to 700 of 1\u{202f}000.",
                "10 Part 1, 5 next Part 6, 3 prev Part 8, 1 Part 10",
            ),
            (4, 0, 250, "The statement has no such part.", "3 prev Part 1, 1 Part 3"),
        ] {
            let (markup, found) = shown(page, rows, total);
            assert!(
                markup.contains(text) && markup.contains("from=2026-01-01&amp;until=2026-01-31T12%3A00%3A00Z&amp;page="),
                "{markup}"
            );
            assert_eq!(found, links, "page {page} of {total}");
        }
    }

    #[test]
    fn a_period_has_the_names_of_its_operation() {
        let period = period(&Form::parse(b"to=2026-01-31")).unwrap();
        assert_eq!(encoded(["from", "to"], period), "to=2026-02-01T00%3A00%3A00Z");
        assert_eq!(period[0], None);
    }
}
