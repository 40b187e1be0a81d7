//! Purchases of vouchers from suppliers: their list, one of them, and its end.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::parts::{audit_of, is_admin, needs_admin};
use crate::pages::call::{List, Refusal};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, copyable, counted, facts, money, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

const STATUSES: [&str; 4] = ["REQUESTED", "PENDING", "FULFILLED", "REFUSED"];
/// Filters of the list, which are those of the API.
const FILTERS: [&str; 4] = ["status", "supplier", "product_id", "order_id"];

/// A purchase, as `GET /admin/v1/purchases/:id` returns it.
#[derive(Debug, Deserialize)]
struct Purchase {
    id: i64,
    order_id: i64,
    product_id: i64,
    supplier: String,
    sku: String,
    denomination: String,
    currency: String,
    quantity: i32,
    idempotency_key: String,
    status: String,
    vouchers: i32,
    usable_vouchers: i32,
    spent: String,
    supplier_reference: Option<String>,
    refusal: Option<String>,
    attempts: i32,
    problem: Option<String>,
    requested_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl Purchase {
    fn is_open(&self) -> bool {
        self.status == "REQUESTED" || self.status == "PENDING"
    }

    /// Returns the address of the purchase's events.
    fn events(&self) -> String {
        audit_of("subject", &format!("purchase/{}", self.id))
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/purchases", list).get("/console/purchases/:id", show).post("/console/purchases/:id/close", close)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let path = format!("/admin/v1/purchases?{}&{}", visit.query.only(&FILTERS), visit.query.only(&["page"]));
    match visit.list::<Purchase>(&path, "purchases").await {
        Ok(purchases) => Ok(list_page(&visit, Some(&purchases), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(list_page(&visit, None, Some(refusal)), refusal)),
    }
}

fn list_page(visit: &Visit, purchases: Option<&List<Purchase>>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let statuses: Vec<(&str, String)> =
        std::iter::once(("", "Any".to_owned())).chain(STATUSES.map(|status| (status, words(status)))).collect();
    let body = html! {
        (layout::problem(refusal))
        p { "Vouchers that orders lack are bought from the supplier of their product. What arrives goes into the stock." }
        (table::filters("/console/purchases", &html! {
            (fields.select("status", "Status", &statuses, ""))
            (fields.input("supplier", "Supplier", "search", ""))
            (fields.input("product_id", "Product number", "search", ""))
            (fields.input("order_id", "Order number", "search", ""))
        }))
        @if let Some(purchases) = purchases {
            @if purchases.items.is_empty() { (nothing(visit.query.only(&FILTERS).is_empty())) }
            @else {
                (rows(&purchases.items))
                (table::pager(purchases, "/console/purchases", &visit.query))
            }
        }
    };
    layout::page(visit, "Purchases", &body)
}

fn nothing(is_whole_list: bool) -> Markup {
    match is_whole_list {
        true => table::empty(
            "Nothing was bought yet. Name a supplier at a product, and orders buy what its stock lacks.",
            Some(("/console/products", "Show the products")),
        ),
        false => table::empty("No purchase matches these filters.", Some(("/console/purchases", "Show all purchases"))),
    }
}

fn rows(purchases: &[Purchase]) -> Markup {
    let columns = [
        ("Purchase", false),
        ("Requested", false),
        ("Supplier", false),
        ("Product", false),
        ("Order", false),
        ("Face value", true),
        ("Ordered", true),
        ("Usable", true),
        ("Spent", true),
        ("Status", false),
    ];
    let row = |purchase: &Purchase| {
        let events = purchase.events();
        vec![
            html! { a href={ "/console/purchases/" (purchase.id) } { "Purchase " (purchase.id) } },
            time(purchase.requested_at),
            html! { (purchase.supplier) },
            product(purchase),
            order(purchase),
            money(&purchase.denomination, &purchase.currency),
            html! { a href=(events) { (purchase.quantity) } },
            counted(purchase.usable_vouchers, &events),
            html! { a href=(events) { (money(&purchase.spent, &purchase.currency)) } },
            html! { (badge(&purchase.status)) @if purchase.problem.is_some() { " " span.badge.wait { "Outcome unknown" } } },
        ]
    };
    table::table("Purchases", &columns, &purchases.iter().map(row).collect::<Vec<_>>())
}

fn product(purchase: &Purchase) -> Markup {
    html! { a href={ "/console/products/" (purchase.product_id) } { "Product " (purchase.product_id) } }
}

fn order(purchase: &Purchase) -> Markup {
    html! { a href={ "/console/orders/" (purchase.order_id) } { "Order " (purchase.order_id) } }
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    one(&visit, visit.id("id")?, None).await
}

/// Renders a purchase as it is now.
async fn one(visit: &Visit, id: i64, refusal: Option<&Refusal>) -> PageResult {
    let purchase: Purchase = visit.get(&format!("/admin/v1/purchases/{id}")).await?;
    let text = |text: &Option<String>| html! { (text.as_deref().unwrap_or("–")) };
    let events = purchase.events();
    let vouchers = |count: i32| html! { a href=(events) { (count) @if count == 1 { " voucher" } @else { " vouchers" } } };
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        (facts(&[
            ("Status", badge(&purchase.status)),
            ("Supplier", html! { a href={ "/console/purchases?supplier=" (purchase.supplier) } { (purchase.supplier) } }),
            ("Product", html! { (product(&purchase)) " (" (purchase.sku) ")" }),
            ("Order", order(&purchase)),
            ("Face value", money(&purchase.denomination, &purchase.currency)),
            ("Ordered", vouchers(purchase.quantity)),
            ("Delivered", vouchers(purchase.vouchers)),
            ("Usable", vouchers(purchase.usable_vouchers)),
            ("Spent or set aside", html! { a href=(events) { (money(&purchase.spent, &purchase.currency)) } }),
            ("Supplier's reference", text(&purchase.supplier_reference)),
            ("Idempotency key", copyable(&purchase.idempotency_key)),
            ("Reason of the refusal", text(&purchase.refusal)),
            ("Calls so far", html! { (purchase.attempts) }),
            ("Problem of the last call", text(&purchase.problem)),
            ("Requested", time(purchase.requested_at)),
            ("Changed", time(purchase.updated_at)),
        ]))
        p { a href=(events) { "Its events" } }
        @if purchase.is_open() {
            @if is_admin(visit) { (closing(&purchase)) } @else { (needs_admin("close purchases")) }
        }
        p.actions { a href="/console/purchases" { "All purchases" } }
    };
    Ok(layout::page(visit, &format!("Purchase {id}"), &body))
}

fn closing(purchase: &Purchase) -> Markup {
    html! {
        details.card {
            summary { "Close this purchase" }
            form method="post" action={ "/console/purchases/" (purchase.id) "/close" } {
                p {
                    "Ask " (purchase.supplier) " whether it sold anything under the idempotency key. If it did, load those vouchers first. \
                     The purchase then ends as refused, and an order that still waits is bought again after a day. This cannot be undone."
                }
                button.danger { "Close the purchase" }
            }
        }
    }
}

async fn close(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    match visit.change::<Value>(Method::POST, &format!("/admin/v1/purchases/{id}/close"), &json!({})).await {
        Ok(_) => Ok(redirect(&format!("/console/purchases/{id}?done=purchase-closed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => Ok(layout::refused(one(&visit, id, Some(&refusal)).await?, &refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purchase_leads_to_its_order_and_its_product() {
        let purchase = json!({"id": 9, "order_id": 42, "product_id": 7, "supplier": "acme", "sku": "<b>", "denomination": "10.00",
            "currency": "EUR", "quantity": 3, "idempotency_key": "k", "status": "PENDING", "vouchers": 0, "usable_vouchers": 0,
            "spent": "30.00", "supplier_reference": null, "refusal": null, "attempts": 2, "problem": "no answer",
            "requested_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"});
        let purchase: Purchase = serde_json::from_value(purchase).unwrap();
        assert!(purchase.is_open());
        let markup = rows(&[purchase]).0;
        let ordered = "/console/audit?subject=purchase%2F9\">3<";
        for part in ["/console/purchases/9", "/console/orders/42", "/console/products/7", "Outcome unknown", ordered] {
            assert!(markup.contains(part), "{part}: {markup}");
        }
    }
}
