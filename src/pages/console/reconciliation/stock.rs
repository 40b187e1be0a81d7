//! The voucher stock in the reconciliation: what it is worth, what it gained and lost, and the margin of what was sold.

use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::form::Form;
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
/// reconciliation, and each movement to the events of its kind in the period (`from` and `to` of the form).
pub fn section(totals: &[Stock], days: &[StockDay], most: usize, form: &Form, of_day: impl Fn(&str) -> String) -> Markup {
    let head = |first: &[(&'static str, bool)]| [first, &COLUMNS].concat();
    let period = form.only(&["from", "to"]);
    let total = |stock: &Stock| [vec![html! { (stock.currency) }], figures(stock, &period)].concat();
    let day = |of: &StockDay| {
        let day = html! { a href=(of_day(&of.day)) { (of.day) } };
        [vec![day, html! { (of.stock.currency) }], figures(&of.stock, &format!("from={0}&to={0}", of.day))].concat()
    };
    let totals_rows: Vec<Vec<Markup>> = totals.iter().map(total).collect();
    let days_rows = table::fitting(days.iter().map(day), most);
    let unpriced = totals.iter().any(|stock| stock.closing.unpriced > 0 || stock.allocated.unpriced > 0);
    html! {
        p.quiet {
            "Numbers of vouchers, and what they cost, of whole days. Those that moved from one product to another one stay in the stock. Sales are what customers paid for the allocated vouchers, and the margin is what is left of it after their cost."
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

fn figures(stock: &Stock, period: &str) -> Vec<Markup> {
    let lots = [
        (&stock.opening, ""),
        (&stock.loaded, "VoucherStockLoaded"),
        (&stock.allocated, ""),
        (&stock.voided, "VouchersVoided"),
        (&stock.expired, "VouchersExpired"),
        (&stock.closing, ""),
        (&stock.transferred, "VouchersTransferredOut"),
    ];
    let mut cells: Vec<Markup> = lots.map(|(lot, events)| self::lot(lot, &stock.currency, events, period)).into();
    cells.extend([&stock.sales, &stock.margin].map(|amount| money(amount, &stock.currency)));
    cells
}

/// Renders a lot, which leads to events of this type, if there is one.
fn lot(lot: &Lot, currency: &str, events: &str, period: &str) -> Markup {
    html! {
        @if events.is_empty() { (lot.vouchers) }
        @else { a href={ "/console/audit?type=" (events) @if !period.is_empty() { "&" (period) } } { (lot.vouchers) } }
        br;
        span.quiet { (money(&lot.cost, currency)) }
    }
}
