//! The start page: the search, the number of alerts, and what waits for an operator.

use maud::{Markup, html};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::search::search_box;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::parts::values::figure;
use crate::pages::visit::Visit;

/// Alerts and low stock, as `GET /admin/v1/alerts` returns them.
#[derive(Debug, Deserialize)]
struct Alerts {
    alerts: Vec<IgnoredAny>,
    low_stock: Vec<IgnoredAny>,
}

pub async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let (alerts, approvals, payouts, delayed, partial, accounts) = futures::try_join!(
        visit.get::<Alerts>("/admin/v1/alerts"),
        visit.list::<Value>("/admin/v1/approvals?limit=1&status=PENDING", "approvals"),
        visit.list::<Value>("/admin/v1/payouts?limit=1&status=PENDING", "payouts"),
        visit.list::<Value>("/admin/v1/orders?limit=1&status=DELAYED", "orders"),
        visit.list::<Value>("/admin/v1/orders?limit=1&status=PARTIALLY_DELIVERED", "orders"),
        visit.list::<Value>("/admin/v1/accounts?limit=1", "accounts"),
    )?;
    let body = html! {
        (layout::live(&visit))
        (search_box(&Filled { form: &visit.query, refusal: None }))
        div.figures {
            (counted("Alerts that fire", alerts.alerts.len() as u64, "/console/operations#alerts"))
            (counted("Approvals that wait", approvals.total, "/console/approvals"))
            (counted("Payouts to settle", payouts.total, "/console/payouts?status=PENDING"))
            (counted("Orders that wait for stock", delayed.total, "/console/orders?status=DELAYED"))
            (counted("Orders delivered in part", partial.total, "/console/orders?status=PARTIALLY_DELIVERED"))
            (counted("Face values low on stock", alerts.low_stock.len() as u64, "/console/operations#low-stock"))
            (counted("Accounts", accounts.total, "/console/accounts"))
        }
    };
    Ok(layout::page(&visit, "Overview", &body))
}

/// Renders a number that leads to the list of what it counts.
fn counted(name: &str, number: u64, target: &str) -> Markup {
    figure(name, &html! { a href=(target) { (number) } })
}
