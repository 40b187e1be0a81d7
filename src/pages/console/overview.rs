//! The start page: the search, the number of alerts, and what waits for an operator.

use std::time::Duration;

use maud::{Markup, html};
use poem::http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::search::search_box;
use crate::pages::call::Refusal;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::parts::values::figure;
use crate::pages::visit::Visit;

/// Longest time that the page waits for a number.
const PATIENCE: Duration = Duration::from_secs(5);

/// Alerts and low stock, as `GET /admin/v1/alerts` returns them.
#[derive(Debug, Deserialize)]
struct Alerts {
    alerts: Vec<IgnoredAny>,
    low_stock: Vec<IgnoredAny>,
}

pub async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let (alerts, approvals, payouts, delayed, partial, accounts) = futures::join!(
        in_time(PATIENCE, visit.get::<Alerts>("/admin/v1/alerts")),
        total(&visit, "/admin/v1/approvals?limit=1&status=PENDING", "approvals"),
        total(&visit, "/admin/v1/payouts?limit=1&status=PENDING", "payouts"),
        total(&visit, "/admin/v1/orders?limit=1&status=DELAYED", "orders"),
        total(&visit, "/admin/v1/orders?limit=1&status=PARTIALLY_DELIVERED", "orders"),
        total(&visit, "/admin/v1/accounts?limit=1", "accounts"),
    );
    let firing = alerts.as_ref().map(|found| found.alerts.len() as u64);
    let low = alerts.as_ref().map(|found| found.low_stock.len() as u64);
    let body = html! {
        (layout::live(&visit))
        (search_box(&Filled { form: &visit.query, refusal: None }))
        div.figures {
            (counted("Alerts that fire", firing, "/console/operations#alerts"))
            (counted("Approvals that wait", approvals.as_ref().copied(), "/console/approvals"))
            (counted("Payouts to settle", payouts.as_ref().copied(), "/console/payouts?status=PENDING"))
            (counted("Orders that wait for stock", delayed.as_ref().copied(), "/console/orders?status=DELAYED"))
            (counted("Orders delivered in part", partial.as_ref().copied(), "/console/orders?status=PARTIALLY_DELIVERED"))
            (counted("Face values low on stock", low, "/console/operations#low-stock"))
            (counted("Accounts", accounts.as_ref().copied(), "/console/accounts"))
        }
    };
    Ok(layout::page(&visit, "Overview", &body))
}

/// Returns the number of items of a list.
async fn total(visit: &Visit, path: &str, plural: &str) -> Result<u64, Refusal> {
    Ok(in_time(PATIENCE, visit.list::<Value>(path, plural)).await?.total)
}

/// Waits for a part of the page, so that a slow one does not delay the others for long.
async fn in_time<T>(patience: Duration, part: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let late = |_| Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "E_UNAVAILABLE", "The database takes too long to count."));
    tokio::time::timeout(patience, part).await.unwrap_or_else(late)
}

/// Renders a number that leads to the list of what it counts, or the reason why the number is not known.
fn counted(name: &str, number: Result<u64, &Refusal>, target: &str) -> Markup {
    match number {
        Ok(number) => figure(name, &html! { a href=(target) { (number) } }),
        Err(refusal) => html! { div.figure { span.quiet { (name) } strong { "–" } span.quiet { (refusal.message) } } },
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    #[tokio::test]
    async fn a_number_that_takes_too_long_is_missing() {
        let slow = in_time(Duration::from_millis(1), future::pending::<Result<u64, Refusal>>()).await.unwrap_err();
        let missing = counted("Accounts", Err(&slow), "/console/accounts").0;
        assert!(missing.contains("<strong>–</strong>") && missing.contains("takes too long to count"), "{missing}");
        let fast = in_time(Duration::ZERO, future::ready(Ok::<u64, Refusal>(7))).await;
        assert_eq!(fast.unwrap(), 7, "a number that is there at once counts");
    }

    #[test]
    fn a_number_leads_to_its_list_and_a_missing_one_has_a_reason() {
        let known = counted("Accounts", Ok(7), "/console/accounts").0;
        assert!(known.contains("<a href=\"/console/accounts\">7</a>"), "{known}");
        let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "E_UNAVAILABLE", "It is <away>.");
        let missing = counted("Accounts", Err(&refusal), "/console/accounts").0;
        assert!(missing.contains("<strong>–</strong>") && missing.contains("It is &lt;away&gt;."), "{missing}");
    }
}
