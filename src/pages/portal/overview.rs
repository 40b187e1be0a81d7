//! The overview: balances, needs for attention, orders and spend by day, the health of webhooks, the latest orders.

use std::cmp::Reverse;

use chrono::{DateTime, Days, DurationRound, TimeDelta, Utc};
use maud::{Markup, html};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::health::{self, Attempts, Webhook};
use super::notice::{self, Notice};
use super::orders;
use crate::pages::call::List;
use crate::pages::form::address;
use crate::pages::outcome::PageResult;
use crate::pages::parts::period::rfc3339;
use crate::pages::parts::plot::{self, Label, Series};
use crate::pages::parts::values::{MAX_LISTED, beginning, figure, grouped, money};
use crate::pages::parts::{layout, table};
use crate::pages::shared::order::Order;
use crate::pages::visit::Visit;

/// Largest number of currencies with a plot of their own.
const MAX_PLOTS: usize = 4;
/// Largest number of bytes that the sums by currency take on the page.
const MAX_SUMS: usize = 40_000;

/// A wallet, as `GET /api/v1/wallets` returns it.
#[derive(Debug, Deserialize)]
pub struct Wallet {
    pub id: i64,
    pub currency: String,
    pub balance: String,
}

impl Wallet {
    /// Says that the balance does not cover an order, and of which wallet.
    pub fn too_low(&self) -> String {
        let balance = grouped(&self.balance);
        format!("The balance of wallet {} is too low: {balance} {}. Add money to it first.", self.id, self.currency)
    }

    fn is_empty(&self) -> bool {
        self.balance == "0.00"
    }

    /// Returns the name and the address of the wallet.
    fn link(&self) -> (String, String) {
        (format!("{} ({})", self.currency, self.id), format!("/portal/wallets/{}", self.id))
    }
}

/// Statistics, as `GET /api/v1/orders/stats` returns them.
#[derive(Debug, Deserialize)]
struct Statistics {
    statuses: Vec<InStatus>,
    days: Vec<Day>,
}

impl Statistics {
    /// Returns the number of orders in a status.
    fn orders(&self, status: &str) -> i64 {
        self.statuses.iter().filter(|counted| counted.status == status).map(|counted| counted.orders).sum()
    }
}

#[derive(Debug, Deserialize)]
struct InStatus {
    status: String,
    orders: i64,
}

#[derive(Debug, Deserialize)]
struct Day {
    day: String,
    orders: i64,
    spend: Vec<Spend>,
}

#[derive(Debug, Deserialize)]
struct Spend {
    currency: String,
    spent: String,
    refunded: String,
}

/// Failed deliveries since a minute: their number by the API, and the page that lists them.
struct FailedSince(DateTime<Utc>);

impl FailedSince {
    fn last_day(now: DateTime<Utc>) -> FailedSince {
        let since = now.checked_sub_days(Days::new(1)).unwrap_or(now);
        FailedSince(since.duration_trunc(TimeDelta::minutes(1)).unwrap_or(since))
    }

    fn api_address(&self) -> String {
        address("/api/v1/webhooks/deliveries", &[("status", "failed"), ("created_from", &rfc3339(self.0)), ("limit", "1")])
    }

    fn page_address(&self) -> String {
        let from = self.0.format("%Y-%m-%dT%H:%M").to_string();
        address("/portal/webhooks/deliveries", &[("status", "failed"), ("from", &from)])
    }
}

pub async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let failed_since = FailedSince::last_day(Utc::now());
    let failed_address = failed_since.api_address();
    let (wallets, notices, latest, statistics, webhooks, attempts, failed) = futures::try_join!(
        visit.list::<Wallet>("/api/v1/wallets?limit=100", "wallets"),
        visit.list::<Notice>(notice::ALL, "notices"),
        visit.list::<Order>("/api/v1/orders?limit=5", "orders"),
        visit.get::<Statistics>("/api/v1/orders/stats?days=30"),
        visit.list::<Webhook>("/api/v1/webhooks?limit=100", "webhooks"),
        visit.get::<Attempts>(health::ATTEMPTS),
        visit.list::<IgnoredAny>(&failed_address, "deliveries"),
    )?;
    let (deactivated, inactive): (Vec<&Webhook>, Vec<&Webhook>) =
        webhooks.items.iter().filter(|webhook| !webhook.is_active).partition(|webhook| webhook.deactivation.is_some());
    let of_webhooks = |webhooks: &[&Webhook]| -> Vec<_> {
        webhooks.iter().map(|webhook| (webhook.name.clone(), format!("/portal/webhooks/{}", webhook.id))).collect()
    };
    let wanted = visit.query.value("currency").to_ascii_uppercase();
    let body = html! {
        (layout::live(&visit))
        (balances(&wallets))
        h2 { "Needs attention" }
        (attention(&[
            count(statistics.orders("DELAYED"), ("order waits", "orders wait"), "for stock", "/portal/orders?status=DELAYED"),
            count(
                statistics.orders("PARTIALLY_DELIVERED"), ("order is", "orders are"), "delivered in part, the rest waits for stock",
                "/portal/orders?status=PARTIALLY_DELIVERED"
            ),
            count(
                i64::try_from(failed.total).unwrap_or(i64::MAX), ("delivery", "deliveries"), "of the last 24 hours failed", &failed_since.page_address()
            ),
            named(&of_webhooks(&deactivated), ("webhook was", "webhooks were"), "switched off, because all deliveries failed"),
            named(&of_webhooks(&inactive), ("webhook is", "webhooks are"), "switched off"),
            named(&empty(&wallets.items), ("wallet is", "wallets are"), "empty"),
            named(
                &low(&wallets.items, &notices.items), ("wallet is", "wallets are"), "below the amount that was set for a notice"
            ),
        ]))
        h2 #spend { "Orders and spend" }
        (by_day(&statistics.days, &wallets.items, &wanted))
        h2 { "Health of webhooks" }
        (health::plots(&webhooks.items, &attempts))
        h2 { "Latest orders" }
        @if latest.items.is_empty() {
            (table::empty("You have not ordered anything yet.", Some(("/portal/products", "Browse the catalogue"))))
        } @else { (orders::rows("Latest orders", &latest.items)) }
    };
    Ok(layout::page(&visit, "Overview", &body))
}

fn balances(wallets: &List<Wallet>) -> Markup {
    html! {
        @if wallets.items.is_empty() {
            (table::empty("You have no wallet yet. The operators of the service open one for each currency.", None))
        }
        div.figures {
            @for wallet in &wallets.items {
                (figure(&format!("Balance of wallet {}", wallet.id), &html! {
                    a href={ "/portal/wallets/" (wallet.id) } { (money(&wallet.balance, &wallet.currency)) }
                }))
            }
        }
    }
}

/// Returns the names and the addresses of the empty wallets.
fn empty(wallets: &[Wallet]) -> Vec<(String, String)> {
    wallets.iter().filter(|wallet| wallet.is_empty()).map(Wallet::link).collect()
}

/// Returns the names and the addresses of the wallets below the amounts of their notices, without the empty ones.
fn low(wallets: &[Wallet], notices: &[Notice]) -> Vec<(String, String)> {
    let is_low = |wallet: &&Wallet| notices.iter().any(|notice| notice.concerns(wallet.id, &wallet.balance));
    wallets.iter().filter(|wallet| !wallet.is_empty()).filter(is_low).map(Wallet::link).collect()
}

/// Renders a number of things with the name of each as a link to it, or nothing if there are none.
fn named(things: &[(String, String)], (one, more): (&str, &str), state: &str) -> Option<Markup> {
    let number = things.len();
    (number > 0).then(|| {
        html! {
            (number) " " (if number == 1 { one } else { more }) " " (state) ": "
            @for (n, (name, target)) in things.iter().enumerate() { @if n > 0 { ", " } a href=(target) { (name) } }
            "."
        }
    })
}

/// Renders a number of things with a link to them, or nothing if there are none.
fn count(number: i64, (one, more): (&str, &str), state: &str, target: &str) -> Option<Markup> {
    let things = if number == 1 { one } else { more };
    (number > 0).then(|| html! { (number) " " (things) " " (state) ". " a href=(target) { @if number == 1 { "Show it" } @else { "Show them" } } })
}

fn attention(needs: &[Option<Markup>]) -> Markup {
    html! {
        @if needs.iter().all(Option::is_none) { p.quiet { "Nothing needs your attention." } }
        @for need in needs.iter().flatten() { p.notice.wait { (need) } }
    }
}

/// Divides currencies into those with a plot and the others. The wanted one has a plot, and then those with the most days with
/// spend.
fn divided<'a>(days: &[Day], currencies: &[&'a str], wanted: &str) -> (Vec<&'a str>, Vec<&'a str>) {
    let spent_on = |currency: &str| days.iter().filter(|day| day.spend.iter().any(|spend| spend.currency == currency)).count();
    let mut drawn = currencies.to_vec();
    drawn.sort_by_cached_key(|currency| (*currency != wanted, Reverse(spent_on(currency)), *currency));
    let mut others = drawn.split_off(drawn.len().min(MAX_PLOTS));
    others.sort_unstable();
    (drawn, others)
}

/// Plots of orders by day, and of spend by day in the wanted currency and in those with the most days with spend. The days lead
/// to their orders, and to the movements of the currency's wallet.
fn by_day(days: &[Day], wallets: &[Wallet], wanted: &str) -> Markup {
    let labels = |path: &str| -> Vec<Label> {
        days.iter().map(|Day { day, .. }| Label::of_day(day, Some(format!("{path}?from={day}&to={day}")))).collect()
    };
    let mut currencies: Vec<&str> = days.iter().flat_map(|day| &day.spend).map(|spend| &*spend.currency).collect();
    currencies.sort_unstable();
    currencies.dedup();
    let (drawn, others) = divided(days, &currencies, wanted);
    let orders = Series { name: "Orders", values: days.iter().map(|day| day.orders as f64).collect(), counted: Some("") };
    let amount = |day: &Day, currency: &str, of: fn(&Spend) -> &str| {
        let spend = day.spend.iter().find(|spend| spend.currency == currency);
        spend.and_then(|spend| of(spend).parse().ok()).unwrap_or_default()
    };
    let spend = |currency: &str| {
        let values = |of: fn(&Spend) -> &str| days.iter().map(|day| amount(day, currency, of)).collect();
        let series = [
            Series { name: "Spent", values: values(|spend| &spend.spent), counted: None },
            Series { name: "Refunded", values: values(|spend| &spend.refunded), counted: None },
        ];
        let wallet = wallets.iter().find(|wallet| wallet.currency == currency);
        let path = wallet.map_or("/portal/orders".to_owned(), |wallet| format!("/portal/wallets/{}", wallet.id));
        plot::bars(&format!("Spend by day, in {currency}"), currency, &labels(&path), &series)
    };
    html! {
        (plot::bars("Orders by day (UTC)", "orders", &labels("/portal/orders"), &[orders]))
        @if !wanted.is_empty() && !currencies.contains(&wanted) {
            p.quiet { "Nothing was spent in " (beginning(wanted, MAX_LISTED)) " in the last " (days.len()) " days." }
        }
        @for currency in &drawn { (spend(currency)) }
        (plot::left_out(&others, "The table has their sums, and leads to their plots."))
        @if currencies.is_empty() { p.quiet { "Nothing was spent in the last " (days.len()) " days." } }
        @else { (sums(days, &currencies, &others, wallets)) }
    }
}

/// A table of what was spent in all these days, by currency. The sums lead to the movements of the currency's wallet, and a
/// currency without a plot to its plot.
fn sums(days: &[Day], currencies: &[&str], without_plot: &[&str], wallets: &[Wallet]) -> Markup {
    let [from, to] = [days.first(), days.last()].map(|day| day.map_or("", |day| day.day.as_str()));
    let sum = |currency: &str, of: fn(&Spend) -> &str, category: &str| {
        let spend = days.iter().flat_map(|day| &day.spend).filter(|spend| spend.currency == currency);
        let sum: Decimal = spend.filter_map(|spend| of(spend).parse::<Decimal>().ok()).sum();
        let sum = money(&sum.to_string(), currency);
        let wallet = wallets.iter().find(|wallet| wallet.currency == currency);
        let list = wallet.map(|wallet| format!("/portal/wallets/{}", wallet.id));
        let list = list.map(|wallet| address(&wallet, &[("category", category), ("from", from), ("to", to)]));
        html! { @match list { Some(list) => a href=(list) { (sum) }, None => (sum) } }
    };
    let row = |currency: &&str| {
        let spent = sum(currency, |spend| &spend.spent, "ORDER");
        let plot = without_plot.contains(currency).then(|| address("/portal", &[("currency", *currency)]));
        let name = html! { @match plot { Some(plot) => a href={ (plot) "#spend" } { (currency) }, None => (currency) } };
        vec![name, spent, sum(currency, |spend| &spend.refunded, "ORDER_REFUND")]
    };
    let rows = table::fitting(currencies.iter().map(row), MAX_SUMS);
    html! {
        p.quiet { "In all, from " (from) " to " (to) " (UTC):" }
        (table::table("Spend by currency", &[("Currency", false), ("Spent", true), ("Refunded", true)], &rows))
        @if rows.len() < currencies.len() { p.quiet { "The page shows " (rows.len()) " of " (currencies.len()) " currencies. The wallets have all of them." } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spend_has_a_plot_for_each_currency() {
        let days: Vec<Day> = serde_json::from_value(json!([
            {"day": "2026-01-30", "orders": 0, "spend": []},
            {"day": "2026-01-31", "orders": 2, "spend": [
                {"currency": "USD", "spent": "5.00", "refunded": "0.00"}, {"currency": "EUR", "spent": "10.50", "refunded": "2.00"}
            ]}
        ]))
        .unwrap();
        let wallets = [Wallet { id: 3, currency: "EUR".to_owned(), balance: "1.00".to_owned() }];
        let markup = by_day(&days, &wallets, "").0;
        for target in ["/portal/orders?from=2026-01-31&amp;to=2026-01-31", "/portal/wallets/3?from=2026-01-31&amp;to=2026-01-31"]
        {
            assert!(markup.contains(target), "{markup}");
        }
        assert!(markup.contains("Spend by day, in EUR") && markup.contains("Spend by day, in USD"), "{markup}");
        assert!(markup.contains(">10.5<") && markup.contains(">01-31<"), "{markup}");
        assert!(by_day(&days[..1], &wallets, "").0.contains("Nothing was spent"));
    }

    #[test]
    fn every_currency_has_a_sum_though_few_have_a_plot() {
        let currencies = ["AED", "BRL", "CHF", "DKK", "EUR", "GBP"];
        let day = |day: &str| {
            let spend = currencies.map(|currency| json!({"currency": currency, "spent": "10.50", "refunded": "1.05"}));
            json!({"day": day, "orders": 6, "spend": spend})
        };
        let days: Vec<Day> = serde_json::from_value(json!([day("2026-01-30"), day("2026-01-31")])).unwrap();
        let wallets = [Wallet { id: 3, currency: "GBP".to_owned(), balance: "1.00".to_owned() }];
        let markup = by_day(&days, &wallets, "").0;
        assert_eq!(markup.matches("Spend by day, in ").count(), 3 * MAX_PLOTS, "a caption, a label and a title: {markup}");
        assert!(markup.contains("And 2 more currencies without a plot: EUR, GBP. "), "{markup}");
        assert_eq!(markup.matches("21.00 <span").count(), currencies.len(), "{markup}");
        let link = "/portal/wallets/3?category=ORDER_REFUND&amp;from=2026-01-30&amp;to=2026-01-31\"><span class=\"money\">2.10 ";
        assert!(markup.contains(link), "{markup}");
    }

    #[test]
    fn the_currencies_with_the_most_days_with_spend_have_a_plot_and_a_link_leads_to_another_one() {
        let spend = |currencies: &[&str]| -> Vec<_> {
            currencies.iter().map(|currency| json!({"currency": currency, "spent": "1.00", "refunded": "0.00"})).collect()
        };
        let of = |currencies: &[&str]| json!({"day": "2026-01-31", "orders": 1, "spend": spend(currencies)});
        let days = json!([of(&["AED", "BRL", "CHF", "DKK", "EUR", "USD"]), of(&["USD", "CHF"]), of(&["USD"])]);
        let days: Vec<Day> = serde_json::from_value(days).unwrap();
        let drawn = |markup: &str| -> Vec<String> {
            let titles = markup.split("<figcaption>Spend by day, in ").skip(1);
            titles.map(|title| title.chars().take(3).collect()).collect()
        };
        let markup = by_day(&days, &[], "").0;
        assert_eq!(drawn(&markup), ["USD", "CHF", "AED", "BRL"]);
        assert!(markup.contains("2 more currencies without a plot: DKK, EUR. "), "{markup}");
        assert!(markup.contains("<a href=\"/portal?currency=EUR#spend\">EUR</a>"), "{markup}");
        assert!(!markup.contains("/portal?currency=USD"), "{markup}");
        assert_eq!(drawn(&by_day(&days, &[], "EUR").0), ["EUR", "USD", "CHF", "AED"]);
        let unknown = by_day(&days, &[], "<B>").0;
        assert!(unknown.contains("Nothing was spent in &lt;B&gt; in the last 3 days."), "{unknown}");
        assert_eq!(drawn(&unknown), drawn(&markup));
    }

    #[test]
    fn attention_counts_what_needs_it() {
        assert!(count(0, ("order waits", "orders wait"), "for stock", "/").is_none());
        let one = count(1, ("order waits", "orders wait"), "for stock", "/portal/orders");
        assert!(attention(&[one, None]).0.contains("1 order waits for stock. "));
        assert!(attention(&[None]).0.contains("Nothing needs"));
        let off = |names: &[&str]| {
            let webhooks: Vec<_> = names.iter().map(|name| ((*name).to_owned(), "/portal/webhooks/3".to_owned())).collect();
            attention(&[named(&webhooks, ("webhook is", "webhooks are"), "switched off")]).0
        };
        assert!(off(&["<b>"]).contains("1 webhook is switched off: <a href=\"/portal/webhooks/3\">&lt;b&gt;</a>."));
        assert!(off(&["a", "b"]).contains("2 webhooks are switched off: ") && off(&[]).contains("Nothing needs"));
    }

    #[test]
    fn the_number_of_failed_deliveries_and_its_page_are_of_the_same_period() {
        let day = FailedSince::last_day("2026-03-01T12:05:59.9Z".parse().unwrap());
        assert_eq!(day.page_address(), "/portal/webhooks/deliveries?status=failed&from=2026-02-28T12%3A05");
        let call = "/api/v1/webhooks/deliveries?status=failed&created_from=2026-02-28T12%3A05%3A00Z&limit=1";
        assert_eq!(day.api_address(), call);
    }

    #[test]
    fn a_wallet_is_empty_or_below_the_amount_of_its_notice() {
        let wallet = |id, balance: &str| Wallet { id, currency: "EUR".to_owned(), balance: balance.to_owned() };
        let wallets = [wallet(3, "0.00"), wallet(4, "5.00"), wallet(5, "5.00")];
        let notices = [3, 4].map(|id| serde_json::from_value::<Notice>(json!({"wallet_id": id, "below": "10.00"})).unwrap());
        let link = |id: i64| vec![(format!("EUR ({id})"), format!("/portal/wallets/{id}"))];
        assert_eq!((empty(&wallets), low(&wallets, &notices)), (link(3), link(4)));
    }

    #[test]
    fn a_low_balance_names_its_wallet() {
        let wallet = Wallet { id: 3, currency: "EUR".to_owned(), balance: "1.00".to_owned() };
        assert_eq!(wallet.too_low(), "The balance of wallet 3 is too low: 1.00 EUR. Add money to it first.");
    }
}
