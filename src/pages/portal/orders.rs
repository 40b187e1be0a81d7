//! The list of orders: with its filters, and as CSV.

use chrono::SecondsFormat;
use futures::{StreamExt, TryStreamExt, stream};
use maud::{Markup, html};
use poem::Response;

use crate::pages::call::{List, Refusal};
use crate::pages::outcome::{PageResult, Stop, file};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::filters;
use crate::pages::parts::values::{badge, money, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::order::{Order, STATUSES};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use crate::spreadsheet::{self, inert};

/// Filters of the list that are those of the API.
const FILTERS: [&str; 4] = ["status", "product_id", "reference_code", "client_reference"];
/// Number of pages of the API in a CSV. Each has 100 orders.
const CSV_PAGES: u64 = 10;
const CSV_PAGE: u64 = 100;
/// Number of pages of a CSV that are read at the same time.
const AT_ONCE: usize = 3;
const COLUMNS: [&str; 14] = [
    "id",
    "reference_code",
    "client_reference",
    "status",
    "product_id",
    "product_name",
    "currency",
    "denomination",
    "quantity",
    "discount",
    "amount",
    "refunded_amount",
    "delivered_quantity",
    "created_at",
];

pub fn add(site: Site) -> Site {
    site.get("/portal/orders", list).get("/portal/orders.csv", download)
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let filters = match filters(&visit.query, &FILTERS) {
        Ok(filters) => filters,
        Err(refusal) => return corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    };
    let number = visit.query.only(&["page"]);
    match visit.list::<Order>(&format!("/api/v1/orders?{filters}&{number}"), "orders").await {
        Ok(orders) => Ok(page(&visit, Some(&orders), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

fn page(visit: &Visit, orders: Option<&List<Order>>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let statuses: Vec<(&str, String)> =
        std::iter::once(("", "Any".to_owned())).chain(STATUSES.map(|status| (status, words(status)))).collect();
    let kept = visit.query.only(&[&FILTERS[..], &["from", "to"][..]].concat());
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        p.actions {
            a.button href="/portal/products" { "Order" }
            a.button.plain href="/portal/orders/bulk" { "Order many at once" }
        }
        (table::filters("/portal/orders", &html! {
            (fields.select("status", "Status", &statuses, ""))
            (fields.input("reference_code", "Reference", "search", ""))
            (fields.input("client_reference", "Your reference", "search", ""))
            (fields.input("product_id", "Product number", "search", ""))
            (fields.input("from", "From (UTC)", "date", ""))
            (fields.input("to", "Until (UTC)", "date", ""))
        }))
        @if let Some(orders) = orders {
            @if orders.items.is_empty() { (nothing(&kept)) }
            @else {
                (rows("Orders", &orders.items))
                (table::pager(orders, "/portal/orders", &visit.query))
                p { a href={ "/portal/orders.csv?" (kept) } { "Download as CSV" } " " span.quiet { (extent(orders.total)) } }
            }
        }
    };
    layout::page(visit, "Orders", &body)
}

/// Says how much of a list a CSV contains.
fn extent(total: u64) -> String {
    match total > CSV_PAGES * CSV_PAGE {
        true => format!("The newest {} orders. Filter by date to get others.", CSV_PAGES * CSV_PAGE),
        false => "All orders of this list.".to_owned(),
    }
}

fn nothing(kept: &str) -> Markup {
    match kept.is_empty() {
        true => table::empty("You have not ordered anything yet.", Some(("/portal/products", "Browse the catalogue"))),
        false => table::empty("No order matches these filters.", Some(("/portal/orders", "Show all orders"))),
    }
}

/// A table of orders. Each one leads to its page.
pub fn rows(caption: &str, orders: &[Order]) -> Markup {
    let columns = [("Order", false), ("Placed", false), ("Product", false), ("Units", true), ("Amount", true), ("Status", false)];
    let row = |order: &Order| {
        vec![
            html! { a href={ "/portal/orders/" (order.id) } { (order.reference_code) } },
            time(order.created_at),
            html! { (order.product_name) },
            html! { (order.quantity) },
            money(&order.amount, &order.currency),
            badge(&order.status),
        ]
    };
    table::table(caption, &columns, &orders.iter().map(row).collect::<Vec<_>>())
}

/// Sends the newest orders of the filtered list as CSV.
async fn download(visit: Visit) -> PageResult {
    visit.user()?;
    let filters = filters(&visit.query, &FILTERS)?;
    let list = |number: u64| format!("/api/v1/orders?{filters}&limit={CSV_PAGE}&page={number}");
    let first = visit.list::<Order>(&list(1), "orders").await?;
    let further: Vec<String> = (2..=first.pages.min(CSV_PAGES)).map(list).collect();
    let calls: Vec<_> = further.iter().map(|path| visit.list::<Order>(path, "orders")).collect();
    let further: Vec<List<Order>> = stream::iter(calls).buffered(AT_ONCE).try_collect().await?;
    let mut orders: Vec<Order> = first.items.into_iter().chain(further.into_iter().flat_map(|list| list.items)).collect();
    // An order that was placed meanwhile moves the last one of a page to the next page.
    orders.sort_by_key(|order| std::cmp::Reverse(order.id));
    orders.dedup_by_key(|order| order.id);
    let text = csv(&orders).map_err(|error| {
        tracing::error!(%error, "orders cannot be written as CSV");
        Stop::Refused(Refusal::new(poem::http::StatusCode::INTERNAL_SERVER_ERROR, "E_INTERNAL", "The CSV cannot be written."))
    })?;
    Ok(file("orders.csv", "text/csv; charset=utf-8; header=present", text))
}

fn csv(orders: &[Order]) -> Result<Vec<u8>, csv::Error> {
    let mut text = Vec::new();
    spreadsheet::rows(&mut text, |csv| {
        csv.write_record(COLUMNS)?;
        orders.iter().try_for_each(|order| {
            csv.write_record([
                &*order.id.to_string(),
                &*order.reference_code,
                &*inert(order.client_reference.as_deref().unwrap_or_default()),
                &*order.status,
                &*order.product_id.to_string(),
                &*inert(&order.product_name),
                &*order.currency,
                &*order.denomination,
                &*order.quantity.to_string(),
                &*order.discount,
                &*order.amount,
                &*order.refunded_amount,
                &*order.delivered_quantity.to_string(),
                &*order.created_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            ])
        })
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::shared::order::tests::order;

    #[test]
    fn a_csv_has_no_formulas() {
        let text = String::from_utf8(csv(&[order(1)]).unwrap()).unwrap();
        let row = text.lines().nth(1).unwrap();
        assert_eq!(row, "1,ORD-0000000001,'=1+1,PENDING,7,\"Card, blue\",EUR,10.00,3,0.00,30.00,0.00,1,2026-01-31T12:00:00.000Z");
    }
}
