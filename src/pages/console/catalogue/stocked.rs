//! The vouchers of a product, by face value and status, without their codes.

use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::{Product, audit_of, product_of};
use crate::pages::call::{List, Refusal};
use crate::pages::form::address;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, grouped, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Statuses of vouchers, and the events that lead to them.
const STATUSES: [(&str, &str); 4] = [
    ("AVAILABLE", "VoucherStockLoaded,VouchersTransferredIn"),
    ("ALLOCATED", ""),
    ("EXPIRED", "VouchersExpired,VoucherExpirySet"),
    ("VOIDED", "VouchersVoided"),
];

/// A voucher, as `GET /admin/v1/products/:id/vouchers` returns it.
#[derive(Debug, Deserialize)]
struct Stocked {
    voucher_reference_number: String,
    denomination: String,
    status: String,
    expires_on: Option<String>,
    order_id: Option<i64>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/products/:id/stock/vouchers", list)
}

/// Returns the address of a product's vouchers. The face value and the status may be empty.
pub fn of_product(product: i64, denomination: &str, status: &str) -> String {
    address(&format!("/console/products/{product}/stock/vouchers"), &[("denomination", denomination), ("status", status)])
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let path = format!("/admin/v1/products/{id}/vouchers?{}", visit.query.only(&["page", "denomination", "status"]));
    let (product, vouchers) = futures::join!(product_of(&visit, id), visit.list::<Stocked>(&path, "vouchers"));
    let product = product?;
    match vouchers {
        Ok(vouchers) => Ok(page(&visit, &product, Some(&vouchers), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, &product, None, Some(refusal)), refusal)),
    }
}

fn page(visit: &Visit, product: &Product, vouchers: Option<&List<Stocked>>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let any = std::iter::once(("", "Any".to_owned()));
    let statuses: Vec<(&str, String)> = any.chain(STATUSES.map(|(status, _)| (status, words(status)))).collect();
    let body = html! {
        (layout::problem(refusal))
        p { "The vouchers of " (product.name) ", the last one that was added first. Their codes are shown only with their order." }
        (table::filters(visit.path(), &html! {
            (fields.input("denomination", &format!("Face value, {}", product.currency), "search", ""))
            (fields.select("status", "Status", &statuses, ""))
        }))
        @match vouchers {
            None => {},
            Some(vouchers) if vouchers.items.is_empty() => (table::empty("No voucher matches.", Some((&of_product(product.id, "", ""), "Show all vouchers")))),
            Some(vouchers) => {
                (rows(product.id, &vouchers.items))
                (table::pager(vouchers, visit.path(), &visit.query))
            }
        }
        p.actions { a href={ "/console/products/" (product.id) "/stock" } { "Back to the stock" } }
    };
    layout::page(visit, &format!("Vouchers of {}", product.name), &body)
}

/// Renders vouchers. The status of each leads to its order, or to the events of the product that lead to the status.
fn rows(product: i64, vouchers: &[Stocked]) -> Markup {
    let columns =
        [("Reference number", false), ("Face value", true), ("Last day", false), ("Status", false), ("Order or events", false)];
    let row = |voucher: &Stocked| {
        let events = STATUSES.iter().find(|(status, _)| *status == voucher.status).map_or("", |(_, events)| *events);
        vec![
            html! { (voucher.voucher_reference_number) },
            html! { (grouped(&voucher.denomination)) },
            html! { (voucher.expires_on.as_deref().unwrap_or("–")) },
            badge(&voucher.status),
            html! {
                @match voucher.order_id {
                    Some(order) => a href={ "/console/orders/" (order) } { "Order " (order) },
                    None => a href=(audit_of(product, events)) { "Events" },
                }
            },
        ]
    };
    table::table("Vouchers", &columns, &vouchers.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_voucher_leads_to_its_order_or_to_its_events() {
        let voucher = |status: &str, order: Option<i64>| -> Stocked {
            let voucher = json!({"voucher_reference_number": "<b>", "denomination": "1000.00", "status": status, "expires_on": null, "order_id": order});
            serde_json::from_value(voucher).unwrap()
        };
        let markup = rows(7, &[voucher("ALLOCATED", Some(42)), voucher("VOIDED", None)]).0;
        for link in ["/console/orders/42", "/console/audit?subject=product%2F7&amp;type=VouchersVoided"] {
            assert!(markup.contains(&format!("\"{link}\"")), "{link}: {markup}");
        }
        assert!(!markup.contains("<b>"), "{markup}");
        assert_eq!(of_product(7, "10.00", "VOIDED"), "/console/products/7/stock/vouchers?denomination=10.00&status=VOIDED");
    }
}
