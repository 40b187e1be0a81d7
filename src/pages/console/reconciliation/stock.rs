//! The voucher stock in the reconciliation: what it is worth, what it gained and lost, and the margin of what was sold.

use chrono::NaiveDate;
use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::form::{Form, address};
use crate::pages::parts::table;
use crate::pages::parts::values::money;

#[derive(Debug, Deserialize)]
struct Lot {
    vouchers: i64,
    unpriced: i64,
    cost: String,
}

/// Stock of a currency, as `GET /admin/v1/reconciliation` returns it.
#[derive(Debug, Deserialize)]
pub struct Stock {
    currency: String,
    opening: Lot,
    loaded: Lot,
    allocated: Lot,
    voided: Lot,
    expired: Lot,
    transferred: Lot,
    closing: Lot,
    sales: String,
    margin: String,
}

#[derive(Debug, Deserialize)]
pub struct StockDay {
    day: String,
    #[serde(flatten)]
    stock: Stock,
}

/// Types of the events with which orders get vouchers of the stock.
const ALLOCATIONS: &str = "OrderPartiallyDelivered,OrderDelivered";
/// Types of the events that change the stock of a currency. A movement from one product to another one changes no sum.
const CHANGES: &str = "VoucherStockLoaded,VouchersVoided,VouchersExpired,OrderPartiallyDelivered,OrderDelivered";

const COLUMNS: [(&str, bool); 9] = [
    ("Opening", true),
    ("Loaded", true),
    ("Allocated", true),
    ("Voided", true),
    ("Expired", true),
    ("Closing", true),
    ("Transferred", true),
    ("Sales", true),
    ("Margin", true),
];

/// Renders the stock by currency and by day, with as many days as fit into this number of bytes. Each day leads to its
/// reconciliation, each movement to the events of its kind in the period (`from` and `to` of the form), and each stock to the
/// changes until then.
pub fn section(totals: &[Stock], days: &[StockDay], most: usize, form: &Form, of_day: impl Fn(&str) -> String) -> Markup {
    let head = |first: &[(&'static str, bool)]| [first, &COLUMNS].concat();
    let period = (form.value("from"), form.value("to"));
    let total = |stock: &Stock| [vec![html! { (stock.currency) }], figures(stock, period)].concat();
    let day = |of: &StockDay| {
        let day = html! { a href=(of_day(&of.day)) { (of.day) } };
        [vec![day, html! { (of.stock.currency) }], figures(&of.stock, (&of.day, &of.day))].concat()
    };
    let totals_rows: Vec<Vec<Markup>> = totals.iter().map(total).collect();
    let days_rows = table::fitting(days.iter().map(day), most);
    let unpriced = totals.iter().any(|stock| stock.closing.unpriced > 0 || stock.allocated.unpriced > 0);
    html! {
        p.quiet {
            "Numbers of vouchers, and what they cost, of whole days. Those that moved from one product to another one stay in the stock. Sales are what customers paid for the allocated vouchers, and the margin is what is left of it after their cost. The links lead to the events of all currencies in the first shard. The audit leads to the other shards."
            @if unpriced { " Vouchers that were loaded without a cost count as free." }
        }
        (table::table("Voucher stock by currency", &head(&[("Currency", false)]), &totals_rows))
        @if !days.is_empty() {
            (table::table("Voucher stock by day", &head(&[("Day", false), ("Currency", false)]), &days_rows))
            @if days.len() > days_rows.len() { p.quiet { "The page shows the first " (days_rows.len()) " of " (days.len()) " rows. The files have all of them." } }
        }
        p.actions { a.button.plain href="/console/products" { "To the products and their stock" } }
    }
}

fn figures(stock: &Stock, (from, to): (&str, &str)) -> Vec<Markup> {
    let day_before = from.parse::<NaiveDate>().ok().and_then(|day| day.pred_opt()).map(|day| day.to_string());
    let events = |types: &str, from: &str, to: &str| address("/console/audit", &[("type", types), ("from", from), ("to", to)]);
    let of_period = |types: &str| Some(events(types, from, to));
    let allocated = events(ALLOCATIONS, from, to);
    let lots = [
        // Without a first day, the period begins with the log, and nothing was in stock.
        (&stock.opening, day_before.map(|last| events(CHANGES, "", &last))),
        (&stock.loaded, of_period("VoucherStockLoaded")),
        (&stock.allocated, Some(allocated.clone())),
        (&stock.voided, of_period("VouchersVoided")),
        (&stock.expired, of_period("VouchersExpired")),
        (&stock.closing, Some(events(CHANGES, "", to))),
        (&stock.transferred, of_period("VouchersTransferredOut")),
    ];
    let mut cells: Vec<Markup> = lots.map(|(lot, events)| self::lot(lot, &stock.currency, events)).into();
    let sum = |amount: &String| html! { a href=(allocated) { (money(amount, &stock.currency)) } };
    cells.extend([&stock.sales, &stock.margin].map(sum));
    cells
}

/// Renders a lot, which leads to these events.
fn lot(lot: &Lot, currency: &str, events: Option<String>) -> Markup {
    let text = html! {
        (lot.vouchers)
        br;
        span.quiet { (money(&lot.cost, currency)) }
    };
    html! { @match events { Some(events) => a href=(events) { (text) }, None => (text) } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_figure_leads_to_the_events_behind_it() {
        let lot = |vouchers: i64| json!({"vouchers": vouchers, "unpriced": 0, "cost": "9.00"});
        let stock = json!({"currency": "EUR", "opening": lot(1), "loaded": lot(2), "allocated": lot(3), "voided": lot(4),
            "expired": lot(5), "closing": lot(6), "transferred": lot(7), "sales": "30.00", "margin": "3.00"});
        let stock: Stock = serde_json::from_value(stock).unwrap();
        let cells: Vec<String> = figures(&stock, ("2026-01-01", "2026-01-31")).into_iter().map(|cell| cell.0).collect();
        let changes = CHANGES.replace(',', "%2C");
        let allocations = format!("type={}&amp;from=2026-01-01&amp;to=2026-01-31", ALLOCATIONS.replace(',', "%2C"));
        let amount = |amount: &str| format!("<span class=\"money\">{amount} ");
        for (cell, query, figure) in [
            (0, format!("type={changes}&amp;to=2025-12-31"), "1<br>".to_owned()),
            (1, "type=VoucherStockLoaded&amp;from=2026-01-01&amp;to=2026-01-31".to_owned(), "2<br>".to_owned()),
            (2, allocations.clone(), "3<br>".to_owned()),
            (5, format!("type={changes}&amp;to=2026-01-31"), "6<br>".to_owned()),
            (7, allocations.clone(), amount("30.00")),
            (8, allocations, amount("3.00")),
        ] {
            let link = format!("<a href=\"/console/audit?{query}\">{figure}");
            assert!(cells[cell].starts_with(&link), "{link}: {}", cells[cell]);
        }
        assert!(figures(&stock, ("", "2026-01-31"))[0].0.starts_with("1<br>"), "the log has nothing before its beginning");
    }
}
