//! The orders of all accounts, with their filters.

use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::parts::account;
use crate::pages::call::{List, Refusal};
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{day_fields, filters};
use crate::pages::parts::values::{badge, money, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::order::{Order, STATUSES};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Filters of the list that are those of the API.
const FILTERS: [&str; 5] = ["account_id", "status", "product_id", "reference_code", "client_reference"];

/// An order with its account, as `GET /admin/v1/orders` returns it.
#[derive(Debug, Deserialize)]
pub struct AccountOrder {
    pub account_id: i64,
    #[serde(flatten)]
    pub order: Order,
}

pub fn add(site: Site) -> Site {
    site.get("/console/orders", list)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    match load(&visit).await {
        Ok(orders) => Ok(page(&visit, Some(&orders), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

async fn load(visit: &Visit) -> Result<List<AccountOrder>, Refusal> {
    let (filters, place) = (filters(&visit.query, &FILTERS)?, visit.query.only(&["page", "before"]));
    visit.list(&format!("/admin/v1/orders?{filters}&{place}"), "orders").await
}

/// Returns whether the list is one of all accounts. It can be long, so its pages have no numbers.
fn is_of_all(visit: &Visit) -> bool {
    ["account_id", "reference_code", "client_reference"].iter().all(|name| visit.query.text(name).is_none())
}

fn page(visit: &Visit, orders: Option<&List<AccountOrder>>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let statuses: Vec<(&str, String)> =
        std::iter::once(("", "Any".to_owned())).chain(STATUSES.map(|status| (status, words(status)))).collect();
    let body = html! {
        (layout::problem(refusal))
        (table::filters("/console/orders", &html! {
            (fields.select("status", "Status", &statuses, ""))
            (fields.input("account_id", "Account number", "search", ""))
            (fields.input("reference_code", "Reference", "search", ""))
            (fields.input("client_reference", "Client's reference", "search", ""))
            (fields.input("product_id", "Product number", "search", ""))
            (day_fields(&fields))
        }))
        @if let Some(orders) = orders {
            @if orders.items.is_empty() { (nothing(visit)) }
            @else {
                (rows("Orders", &orders.items))
                @if is_of_all(visit) { (table::pager_by_id(orders, "/console/orders", &visit.query, |one| one.order.id)) }
                @else { (table::pager(orders, "/console/orders", &visit.query)) }
            }
        }
    };
    layout::page(visit, "Orders", &body)
}

fn nothing(visit: &Visit) -> Markup {
    if visit.query.text("before").is_some() {
        return table::empty("There is no older order.", Some(("/console/orders", "Show the newest orders")));
    }
    let kept = visit.query.only(&[&FILTERS[..], &["from", "to", "page"][..]].concat());
    match kept.is_empty() {
        true => table::empty(
            "There is no order yet. Clients order with an API key, or in the portal.",
            Some(("/console/accounts", "Show the accounts")),
        ),
        false => table::empty("No order matches these filters.", Some(("/console/orders", "Show all orders"))),
    }
}

/// A table of orders. Each one leads to its page.
pub fn rows(caption: &str, orders: &[AccountOrder]) -> Markup {
    let columns = [
        ("Order", false),
        ("Account", false),
        ("Placed", false),
        ("Product", false),
        ("Units", true),
        ("Amount", true),
        ("Status", false),
    ];
    let row = |AccountOrder { account_id, order }: &AccountOrder| {
        vec![
            html! { a href={ "/console/orders/" (order.id) } { (order.reference_code) } },
            account(*account_id),
            time(order.created_at),
            html! { (order.product_name) },
            html! { a href={ "/console/orders/" (order.id) "#story" } { (order.quantity) } },
            html! { a href={ "/console/transactions/" (order.transaction_id) } { (money(&order.amount, &order.currency)) } },
            badge(&order.status),
        ]
    };
    table::table(caption, &columns, &orders.iter().map(row).collect::<Vec<_>>())
}
