//! Attempts of deliveries to the webhooks of all accounts.

use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use crate::pages::call::Refusal;
use crate::pages::form::address;
use crate::pages::outcome::PageResult;
use crate::pages::parts::period::during;
use crate::pages::parts::{layout, table};
use crate::pages::shared::attempts::{self, AttemptList, ListedAttempt, Part};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

const PATH: &str = "/console/attempts";

/// An attempt, as `GET /admin/v1/attempts` returns it.
#[derive(Debug, Deserialize)]
struct AnyAttempt {
    account_id: i64,
    webhook_url_id: i64,
    shard_id: i16,
    position: i64,
    #[serde(flatten)]
    listed: ListedAttempt,
}

pub fn add(site: Site) -> Site {
    site.get(PATH, list)
}

/// Returns the address of the attempts that ended in these minutes (UTC), such as `2026-01-31T12:00`. Both are included.
pub fn ended(from: &str, to: &str) -> String {
    during(PATH, from, to)
}

/// Returns the address of the attempts of a webhook.
pub fn of_webhook(webhook: i64) -> String {
    address(PATH, &[("webhook_url_id", &webhook.to_string())])
}

/// Returns the address of the attempts of a webhook that ended on a day (UTC), such as `2026-01-31`.
pub fn of_day(webhook: i64, day: &str) -> String {
    let (webhook, from, to) = (webhook.to_string(), format!("{day}T00:00"), format!("{day}T23:59"));
    address(PATH, &[("webhook_url_id", &webhook), ("from", &from), ("to", &to)])
}

fn listed(visit: &Visit) -> AttemptList<'_> {
    AttemptList { path: PATH, query: &visit.query, is_of_all: true }
}

async fn load(visit: &Visit) -> Result<Part<AnyAttempt>, Refusal> {
    visit.get(&format!("/admin/v1/attempts?{}", listed(visit).filters()?)).await
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    match load(&visit).await {
        Ok(part) => Ok(page(&visit, Some(&part), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

fn page(visit: &Visit, part: Option<&Part<AnyAttempt>>, refusal: Option<&Refusal>) -> Response {
    let body = html! {
        (layout::problem(refusal))
        p {
            "Attempts of all nodes to deliver events to the webhooks of all accounts. Those that a node took up last come first. A \
             period has those that ended in it, as the plots of " a href="/console/operations" { "operations" } " and of a webhook count them."
        }
        (listed(visit).form(refusal))
        @if let Some(part) = part {
            (listed(visit).content(part, rows, ("No attempt is listed yet. It needs a webhook, and an order.", None)))
        }
    };
    layout::page(visit, "Delivery attempts", &body)
}

fn rows(attempts: &[AnyAttempt]) -> Markup {
    let columns = [("Ended", false), ("Account", false), ("Webhook", false), ("Delivery", false), ("Event", false)];
    let row = |any: &AnyAttempt| {
        let AnyAttempt { account_id, webhook_url_id, shard_id, position, listed } = any;
        let mut row = vec![
            attempts::at(listed),
            html! { a href={ "/console/accounts/" (account_id) } { "Account " (account_id) } },
            html! { a href={ "/console/webhooks/" (webhook_url_id) } { "Webhook " (webhook_url_id) } },
            html! { a href={ "/console/deliveries/" (listed.delivery_id) } { "Delivery " (listed.delivery_id) } },
            html! { a href={ "/console/events/" (shard_id) "/" (position) } { (listed.event_type) } },
        ];
        row.extend(attempts::result(listed));
        row
    };
    let columns = [&columns[..], &attempts::RESULT].concat();
    table::table("Attempts of all accounts", &columns, &attempts.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attempt_leads_to_its_event_and_its_delivery() {
        let attempt = json!({"account_id": 5, "webhook_url_id": 6, "delivery_id": 11, "event_type": "order.created", "shard_id": 2,
            "position": 17, "outcome": "failed", "finished_at": "2026-01-31T12:00:01Z", "attempt": 1, "request_id": "r",
            "started_at": "2026-01-31T12:00:00Z", "response_status": null, "response_time_ms": null, "error": "<b>"});
        let markup = rows(&[serde_json::from_value(attempt).unwrap()]).0;
        for link in ["/console/accounts/5", "/console/webhooks/6", "/console/deliveries/11", "/console/events/2/17"] {
            assert!(markup.contains(&format!("\"{link}\"")), "{link}: {markup}");
        }
        assert!(markup.contains("badge bad") && markup.contains("&lt;b&gt;"), "{markup}");
    }
}
