//! The reconciliation of a period: totals, and each difference with the way to its events. Also as CSV and as a workbook.

use chrono::{DateTime, Datelike, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::header;
use serde::Deserialize;

use super::extent;
use super::narrowed::{self, Narrowed};
use super::stock::{self, Stock, StockDay};
use super::wallets::{self, Wallet};
use crate::pages::call::Refusal;
use crate::pages::console::parts::position;
use crate::pages::form::Form;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{period_in_utc, rfc3339};
use crate::pages::parts::plot::{Label, Series, bars, left_out};
use crate::pages::parts::values::{money, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Largest numbers of bytes that the rows of each table take on the page. The files have all of them.
const MAX_DIFFERENCES: usize = 20_000;
const MAX_DAYS: usize = 32_000;
const MAX_STOCK: usize = 35_000;
const MAX_WALLETS: usize = 25_000;
/// Largest number of plots, one for each currency, and largest number of days in all of them.
const MAX_PLOTS: usize = 3;
const MAX_PLOT_DAYS: usize = 62;
const FIELDS: [&str; 4] = ["from", "to", "account_id", "every_event"];
pub(super) const WORKBOOK: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

/// A report, as `GET /admin/v1/reconciliation` returns it.
#[derive(Debug, Deserialize)]
struct Report {
    checked: String,
    checked_events: i64,
    narrowed: Vec<Narrowed>,
    narrowed_left_out: u64,
    currencies: Vec<Currency>,
    days: Vec<Day>,
    stock: Vec<Stock>,
    stock_days: Vec<StockDay>,
    wallets: Vec<Wallet>,
    wallets_left_out: u64,
    found: u64,
    differences: Vec<Difference>,
}

#[derive(Debug, Deserialize)]
struct Moved {
    funding: String,
    debits: String,
    refunds: String,
    adjustments: String,
}

#[derive(Debug, Deserialize)]
struct Currency {
    currency: String,
    wallets: i64,
    opening_balance: String,
    closing_balance: String,
    #[serde(flatten)]
    moved: Moved,
}

#[derive(Debug, Deserialize)]
struct Day {
    day: String,
    currency: String,
    #[serde(flatten)]
    moved: Moved,
}

#[derive(Debug, Deserialize)]
struct Difference {
    kind: String,
    shard_id: i16,
    wallet_id: Option<i64>,
    order_id: Option<i64>,
    payout_id: Option<i64>,
    positions: Vec<i64>,
    problem: String,
}

pub fn add(site: Site) -> Site {
    site.get_long("/console/reconciliation", &extent::CHECKING, show)
        .get("/console/reconciliation.csv", |visit| download(visit, "text/csv"))
        .get("/console/reconciliation.xlsx", |visit| download(visit, WORKBOOK))
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let form = chosen(&visit.query, Utc::now());
    match load(&visit, &form).await {
        Ok(report) => Ok(page(&visit, &form, Some(&report), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, &form, None, Some(refusal)), refusal)),
    }
}

/// Returns the fields of the query, with the days of this month if it names none.
fn chosen(query: &Form, now: DateTime<Utc>) -> Form {
    if query.text("from").or(query.text("to")).is_some() {
        return query.clone();
    }
    let today = now.date_naive();
    let first = today.with_day(1).unwrap_or(today);
    let days = [("from".to_owned(), first.to_string()), ("to".to_owned(), today.to_string())];
    Form::from_pairs(days.into_iter().chain(query.pairs().iter().cloned()).collect())
}

/// Returns the fields as a query of the API.
fn encoded(form: &Form) -> Result<String, Refusal> {
    let mut query = url::form_urlencoded::Serializer::new(form.only(&["account_id", "every_event"]));
    for (name, at) in ["from", "to"].into_iter().zip(period_in_utc(form)?) {
        query.extend_pairs(at.map(|at| (name, rfc3339(at))));
    }
    Ok(query.finish())
}

async fn load(visit: &Visit, form: &Form) -> Result<Report, Refusal> {
    let found = visit.get(&format!("/admin/v1/reconciliation?{}", encoded(form)?)).await;
    found.map_err(|refusal| match refusal.code.as_str() {
        "E_NOT_FOUND" => Refusal::of_field("account_id", "is not the number of an account"),
        _ => extent::above_form(refusal),
    })
}

async fn download(visit: Visit, accept: &'static str) -> PageResult {
    visit.operator()?;
    let file = visit.bytes(&format!("/admin/v1/reconciliation?{}", encoded(&visit.query)?), accept).await?;
    let kept = [header::CONTENT_TYPE, header::CONTENT_DISPOSITION];
    let kept: Vec<_> = kept.into_iter().filter_map(|name| Some((name.clone(), file.headers.get(&name)?.clone()))).collect();
    let mut response = Response::builder().body(file.into_bytes());
    response.headers_mut().extend(kept);
    Ok(response)
}

fn page(visit: &Visit, form: &Form, report: Option<&Report>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form, refusal };
    let body = html! {
        (layout::problem(refusal))
        p.actions { a.button.plain href="/console/bank-statements" { "Bank statements" } }
        (table::filters("/console/reconciliation", &html! {
            (fields.input("from", "From (UTC)", "date", ""))
            (fields.input("to", "Until (UTC)", "date", ""))
            (fields.input("account_id", "Account number", "search", ""))
        }))
        @if let Some(report) = report { (content(form, report)) }
    };
    layout::page(visit, "Reconciliation", &body)
}

fn content(form: &Form, report: &Report) -> Markup {
    let query = form.only(&FIELDS);
    let is_good = report.found == 0;
    html! {
        p.actions {
            a.button href={ "/console/reconciliation.xlsx?" (query) } { "Download as a spreadsheet" }
            a.button.plain href={ "/console/reconciliation.csv?" (query) } { "Download as CSV" }
        }
        p.notice.good[is_good].bad[!is_good] role="status" {
            @if is_good { "No differences: what the log says and what the wallets say agree." }
            @else { "Differences found: " (report.found) ". Each one leads to what it concerns." }
        }
        (extent::section(&report.checked, report.checked_events, !report.narrowed.is_empty(), form))
        @if !is_good { (differences(report)) }
        @if !report.narrowed.is_empty() { (narrowed::section(&report.narrowed, report.narrowed_left_out, form)) }
        h2 { "Totals by currency" }
        @if report.currencies.is_empty() {
            (table::empty("No wallet existed in this period, so nothing can be reconciled. An account's page opens one.", Some(("/console/accounts", "To the accounts"))))
        } @else { (currencies(&report.currencies, &report.wallets, form)) }
        (plots(form, report))
        @if !report.days.is_empty() { h2 { "Days" } (days(form, report)) }
        @if !report.stock.is_empty() {
            h2 #stock { "Voucher stock" }
            (stock::section(&report.stock, &report.stock_days, MAX_STOCK, form, |day| of_day(form, day)))
        }
        @if !report.wallets.is_empty() {
            h2 #wallets { "Wallets" }
            (wallets::section(&report.wallets, report.wallets_left_out, MAX_WALLETS, form))
        }
    }
}

fn differences(report: &Report) -> Markup {
    let columns = [("Difference", false), ("Concerns", false), ("Positions of the log", false), ("Problem", false)];
    let row =
        |found: &Difference| vec![html! { (words(&found.kind)) }, concerns(found), positions(found), html! { (found.problem) }];
    let rows = table::fitting(report.differences.iter().map(row), MAX_DIFFERENCES);
    html! {
        h2 { "Differences" }
        (table::table("Differences", &columns, &rows))
        @if report.found > rows.len() as u64 {
            p.quiet { "The page shows the first " (rows.len()) " of " (report.found) ". The files have more, and the command "
                code { "rewards-ledger reconcile" } " lists all of them." }
        }
    }
}

/// Links to the events of a difference.
fn positions(found: &Difference) -> Markup {
    html! {
        @for (index, at) in found.positions.iter().enumerate() { @if index > 0 { ", " } (position(found.shard_id, *at)) }
        @if found.positions.is_empty() { "–" } @else { " of shard " (found.shard_id) }
    }
}

/// Renders what a difference concerns. The pages of orders, payouts and wallets show the events.
fn concerns(found: &Difference) -> Markup {
    html! {
        ul.links {
            @if let Some(order) = found.order_id { li { a href={ "/console/orders/" (order) } { "Order " (order) } } }
            @if let Some(payout) = found.payout_id { li { a href={ "/console/payouts/" (payout) } { "Payout " (payout) } } }
            @if let Some(wallet) = found.wallet_id { li { a href={ "/console/wallets/" (wallet) } { "Wallet " (wallet) } } }
        }
    }
}

/// Renders the totals by currency. They lead to the wallets that they add up. The sums of a single wallet lead to its events.
fn currencies(currencies: &[Currency], wallets: &[Wallet], form: &Form) -> Markup {
    let columns = [
        ("Currency", false),
        ("Wallets", true),
        ("Opening", true),
        ("Funding", true),
        ("Debits", true),
        ("Refunds", true),
        ("Adjustments", true),
        ("Closing", true),
    ];
    let row = |one: &Currency| {
        let period = (form.value("from"), form.value("to"));
        let only = only_wallet(one, wallets);
        let events = |kind: &str| only.map_or_else(|| "#wallets".to_owned(), |wallet| wallet.events(kind, period));
        let total = |amount: &str| html! { a href="#wallets" { (money(amount, &one.currency)) } };
        let [funding, debits, refunds, adjustments] = moved(&one.moved, &one.currency, events);
        vec![
            html! { (one.currency) },
            html! { a href="#wallets" { (one.wallets) } },
            total(&one.opening_balance),
            funding,
            debits,
            refunds,
            adjustments,
            total(&one.closing_balance),
        ]
    };
    table::table("Totals by currency", &columns, &currencies.iter().map(row).collect::<Vec<_>>())
}

/// Returns the wallet of a currency if it is the only one. The API may have left out wallets.
fn only_wallet<'a>(currency: &Currency, wallets: &'a [Wallet]) -> Option<&'a Wallet> {
    wallets::only_one(wallets, &currency.currency).filter(|_| currency.wallets == 1)
}

/// Renders the amounts that moved. `target` returns the address of the wallets' events of a type.
fn moved(moved: &Moved, currency: &str, target: impl Fn(&str) -> String) -> [Markup; 4] {
    let kinds = [
        (&moved.funding, "WalletFunded"),
        (&moved.debits, "WalletDebited"),
        (&moved.refunds, "WalletRefunded"),
        (&moved.adjustments, "WalletAdjusted"),
    ];
    kinds.map(|(amount, kind)| html! { a href=(target(kind)) { (money(amount, currency)) } })
}

/// Draws what came in and what went out, by day, for the first currencies in which anything moved.
fn plots(form: &Form, report: &Report) -> Markup {
    let series = |name, days: &[&Day], amount: fn(&Moved) -> &str| Series {
        name,
        values: days.iter().map(|day| amount(&day.moved).parse::<f64>().unwrap_or_default()).collect(),
        counted: None,
    };
    let moved = |one: &&Currency| report.days.iter().any(|day| day.currency == one.currency);
    let moving: Vec<&Currency> = report.currencies.iter().filter(moved).collect();
    let (drawn, others) = moving.split_at(moving.len().min(MAX_PLOTS));
    let others: Vec<&str> = others.iter().map(|one| one.currency.as_str()).collect();
    let most = MAX_PLOT_DAYS / drawn.len().max(1);
    html! {
        @for one in drawn {
            @let days: Vec<&Day> = report.days.iter().filter(|day| day.currency == one.currency).collect();
            @let (all, days) = (days.len(), &days[..days.len().min(most)]);
            @let labels: Vec<Label> = days.iter().map(|day| Label::of_day(&day.day, Some(of_day(form, &day.day)))).collect();
            @if !days.is_empty() {
                (bars(&format!("Money by day in {}", one.currency), &one.currency, &labels, &[
                    series("Funding", days, |moved| &moved.funding),
                    series("Debits", days, |moved| &moved.debits),
                    series("Refunds", days, |moved| &moved.refunds),
                ]))
                @if all > most { p.quiet { "The plot shows the first " (most) " of " (all) " days. The files have all of them." } }
            }
        }
        (left_out(&others, "The totals above have them, too."))
    }
}

/// Returns the address of the reconciliation of one day, which compares each movement.
fn of_day(form: &Form, day: &str) -> String {
    let account = form.only(&["account_id"]);
    format!("/console/reconciliation?from={day}&to={day}{}{account}", if account.is_empty() { "" } else { "&" })
}

/// Renders the days. Their amounts lead to the wallets of the day, whose sums lead to their movements. Those of a single wallet
/// lead to its events.
fn days(form: &Form, report: &Report) -> Markup {
    let Report { days, currencies, wallets, .. } = report;
    let columns =
        [("Day", false), ("Currency", false), ("Funding", true), ("Debits", true), ("Refunds", true), ("Adjustments", true)];
    let row = |day: &Day| {
        let own = of_day(form, &day.day);
        let currency = currencies.iter().find(|one| one.currency == day.currency);
        let only = currency.and_then(|one| only_wallet(one, wallets));
        let events =
            |kind: &str| only.map_or_else(|| format!("{own}#wallets"), |wallet| wallet.events(kind, (&day.day, &day.day)));
        let mut row = vec![html! { a href=(own) { (day.day) } }, html! { (day.currency) }];
        row.extend(moved(&day.moved, &day.currency, events));
        row
    };
    let rows = table::fitting(days.iter().map(row), MAX_DAYS);
    html! {
        (table::table("Totals by day", &columns, &rows))
        @if days.len() > rows.len() { p.quiet { "The page shows the first " (rows.len()) " of " (days.len()) " rows. The files have all of them." } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_period_is_this_month_unless_a_day_is_chosen() {
        let now: DateTime<Utc> = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(chosen(&Form::parse(b"account_id=3"), now).only(&FIELDS), "from=2026-01-01&to=2026-01-31&account_id=3");
        assert_eq!(chosen(&Form::parse(b"from=2025-05-05"), now).only(&FIELDS), "from=2025-05-05");
        assert_eq!(
            encoded(&Form::parse(b"from=2026-01-01&to=2026-01-31&account_id=3")).unwrap(),
            "account_id=3&from=2026-01-01T00%3A00%3A00Z&to=2026-02-01T00%3A00%3A00Z"
        );
    }

    /// The page stays under 200 kB with its files, which take about 21 kB.
    #[test]
    fn the_page_of_a_long_period_is_light() {
        let moved = json!({"funding": "1000000000.00", "debits": "1000000000.00", "refunds": "1000000000.00", "adjustments": "-1000000000.00"});
        let with = |fields: Value| {
            let mut all = moved.clone();
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            all
        };
        let lot = json!({"vouchers": 1_000_000, "unpriced": 1_000_000, "cost": "1000000000.00"});
        let lots = ["opening", "loaded", "allocated", "voided", "expired", "closing", "transferred"]
            .map(|name| (name.to_owned(), lot.clone()));
        let stock = |fields: Value| {
            let mut all: serde_json::Map<String, Value> = lots.clone().into_iter().collect();
            all.extend(json!({"sales": "1000000000.00", "margin": "1000000000.00"}).as_object().unwrap().clone());
            all.extend(fields.as_object().unwrap().clone());
            Value::Object(all)
        };
        let first = chrono::NaiveDate::from_ymd_opt(2026, 1, 1).unwrap();
        let days: Vec<(String, &str)> = first
            .iter_days()
            .take(366)
            .flat_map(|day| ["EUR", "GBP", "USD"].map(|currency| (day.to_string(), currency)))
            .collect();
        let balance = json!({"opening_balance": "1000000000.00", "closing_balance": "1000000000.00", "currency": "EUR"});
        let wallet = |id: i64| {
            let mut wallet = with(balance.clone());
            (wallet["shard_id"], wallet["wallet_id"], wallet["account_id"]) = (1.into(), id.into(), id.into());
            for part in ["order_debits", "order_refunds", "payout_debits", "payout_refunds"] {
                wallet[part] = "1000000000.00".into();
            }
            wallet
        };
        let currency = |currency: &str| {
            let mut of = with(balance.clone());
            (of["currency"], of["wallets"]) = (currency.into(), 1_000.into());
            of
        };
        let difference = json!({"kind": "ORDER_DEBIT", "shard_id": 1, "wallet_id": 1_000_000, "order_id": 1_000_000, "payout_id": null,
            "positions": [1_000_000, 2_000_000], "problem": "&".repeat(200)});
        let differences = vec![difference; 1_000];
        let currencies = ["EUR", "GBP", "USD"];
        let (stocks, currencies) = (currencies.map(|currency| stock(json!({"currency": currency}))), currencies.map(currency));
        let narrowed = json!({"account_id": 1_000_000, "checked": "DAY", "day": "2026-01-31", "checked_events": 100_000});
        let report = json!({"checked": "TOTALS", "checked_events": 1, "currencies": currencies,
            "narrowed": vec![narrowed; 10], "narrowed_left_out": 9,
            "days": days.iter().map(|(day, currency)| with(json!({"day": day, "currency": currency}))).collect::<Vec<_>>(),
            "stock": stocks,
            "stock_days": days.iter().map(|(day, currency)| stock(json!({"day": day, "currency": currency}))).collect::<Vec<_>>(),
            "wallets": (1..=1_000).map(|id| wallet(1_000_000 + id)).collect::<Vec<_>>(), "wallets_left_out": 9,
            "found": 1_000, "differences": differences});
        let report: Report = serde_json::from_value(report).unwrap();
        let page = content(&Form::parse(b"from=2026-01-01&to=2026-12-31"), &report).0;
        assert!(page.len() < 175_000, "{}", page.len());
        for shown in ["The plot shows the first 20 of 366 days", "of 1098 rows", "of 1009 wallets", "of 1000. The files"] {
            assert!(page.contains(shown), "{shown}");
        }
    }

    #[test]
    fn a_difference_leads_to_what_it_concerns() {
        let found = Difference {
            kind: "ORDER_DEBIT".to_owned(),
            shard_id: 1,
            wallet_id: Some(3),
            order_id: Some(4),
            payout_id: Some(5),
            positions: vec![7, 1_000],
            problem: String::new(),
        };
        let events = positions(&found).0;
        assert!(
            events.contains("href=\"/console/events/1/7\"") && events.contains("href=\"/console/events/1/1000\""),
            "{events}"
        );
        let markup = concerns(&found).0;
        for place in ["/console/wallets/3", "/console/orders/4", "/console/payouts/5"] {
            assert!(markup.contains(place), "{markup}");
        }
    }
}
