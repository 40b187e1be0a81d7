//! Deliveries by the state of their attempts: of all webhooks, of a shard, or of one webhook.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::accounts;
use super::parts::{account, position};
use crate::pages::call::{List, Refusal};
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// States of deliveries, as the API names them.
const PARTS: [(&str, &str); 6] = [
    ("due", "Due and not in flight"),
    ("retries", "Waiting for another attempt"),
    ("in_flight", "In flight"),
    ("without_outcome", "Without an outcome"),
    ("failed", "Failed for good"),
    ("failed_lately", "Failed in the last 24 hours"),
];

/// Account of a webhook, as `GET /admin/v1/webhooks/:id` returns it.
#[derive(Debug, Deserialize)]
struct Webhook {
    account_id: i64,
}

/// A delivery, as `GET /admin/v1/queue` returns it.
#[derive(Debug, Deserialize)]
struct Queued {
    delivery_id: i64,
    account_id: i64,
    webhook_url_id: i64,
    order_id: i64,
    event_type: String,
    shard_id: i16,
    position: i64,
    attempt_count: i16,
    next_attempt_at: DateTime<Utc>,
    is_in_flight: bool,
}

pub fn add(site: Site) -> Site {
    site.get("/console/queue", list).get("/console/webhooks/:id/queue", list_of_webhook)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let path = format!("/admin/v1/queue?{}", visit.query.only(&["page", "part", "shard_id"]));
    let show = |queued: Option<&List<Queued>>, refusal: Option<&Refusal>| {
        layout::page(
            &visit,
            "Deliveries by state",
            &content(&visit, queued, refusal, true, ("/console/attempts", "Delivery attempts")),
        )
    };
    answer(visit.list(&path, "deliveries").await, show)
}

async fn list_of_webhook(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let webhook: Webhook = visit.get(&format!("/admin/v1/webhooks/{id}")).await?;
    let path = format!("/admin/v1/webhooks/{id}/queue?{}", visit.query.only(&["page", "part"]));
    let (account, queued) =
        futures::join!(accounts::account(&visit, webhook.account_id), visit.list::<Queued>(&path, "deliveries"));
    let account = account?;
    let next = format!("/console/webhooks/{id}");
    let show = |queued: Option<&List<Queued>>, refusal: Option<&Refusal>| {
        let body = content(&visit, queued, refusal, false, (&next, "Show the webhook"));
        accounts::page(&visit, &account, &format!("Deliveries of webhook {id} by state"), &body)
    };
    answer(queued, show)
}

/// Shows a page of the deliveries, or what was refused.
fn answer(
    queued: Result<List<Queued>, Refusal>,
    show: impl Fn(Option<&List<Queued>>, Option<&Refusal>) -> Response,
) -> PageResult {
    match queued {
        Ok(queued) => Ok(show(Some(&queued), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(show(None, Some(refusal)), refusal)),
    }
}

/// Renders a page of the deliveries with the form of its filters. An empty list has a link to `next`.
fn content(visit: &Visit, queued: Option<&List<Queued>>, refusal: Option<&Refusal>, of_all: bool, next: (&str, &str)) -> Markup {
    let fields = Filled { form: &visit.query, refusal };
    html! {
        (layout::problem(refusal))
        (table::filters(visit.path(), &html! {
            (fields.select("part", "State", &PARTS, ""))
            @if of_all { (fields.input("shard_id", "Shard", "search", "")) }
        }))
        @match queued {
            None => {},
            Some(queued) if queued.items.is_empty() => (table::empty("No delivery is in this state.", Some(next))),
            Some(queued) => {
                p.quiet { "A list ends where the state of operations stops to count: after 10,001 deliveries of a shard, or 1,000 of a webhook." }
                (rows(&queued.items))
                (table::pages_of(queued, visit.path(), &visit.query, ("Before", "Next")))
            }
        }
    }
}

fn rows(queued: &[Queued]) -> Markup {
    let columns = [
        ("Delivery", false),
        ("Account", false),
        ("Webhook", false),
        ("Event", false),
        ("Position", true),
        ("Order", false),
        ("Attempts so far", true),
        ("Attempt due", false),
        ("In flight", false),
    ];
    let row = |queued: &Queued| {
        vec![
            html! { a href={ "/console/deliveries/" (queued.delivery_id) } { "Delivery " (queued.delivery_id) } },
            account(queued.account_id),
            html! { a href={ "/console/webhooks/" (queued.webhook_url_id) } { "Webhook " (queued.webhook_url_id) } },
            html! { (queued.event_type) },
            position(queued.shard_id, queued.position),
            html! {
                @match queued.order_id {
                    0 => "–",
                    order => a href={ "/console/orders/" (order) } { "Order " (order) },
                }
            },
            html! { a href={ "/console/deliveries/" (queued.delivery_id) } { (queued.attempt_count) } },
            time(queued.next_attempt_at),
            html! { @if queued.is_in_flight { (badge("in_flight")) } @else { "–" } },
        ]
    };
    table::table("Deliveries in this state", &columns, &queued.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_delivery_leads_to_its_event_its_webhook_and_its_order() {
        let queued = |order: i64, is_in_flight: bool| -> Queued {
            let queued = json!({"delivery_id": 11, "account_id": 5, "webhook_url_id": 6, "order_id": order, "event_type": "order.created",
                "event_id": "e", "shard_id": 2, "position": 17, "attempt_count": 2, "next_attempt_at": "2026-01-31T12:00:00Z",
                "is_in_flight": is_in_flight});
            serde_json::from_value(queued).unwrap()
        };
        let markup = rows(&[queued(42, true), queued(0, false)]).0;
        for part in
            ["/console/deliveries/11", "/console/accounts/5", "/console/webhooks/6", "/console/events/2/17", "/console/orders/42"]
        {
            assert!(markup.contains(part), "{part}: {markup}");
        }
        assert!(markup.contains("badge") && !markup.contains("/console/orders/0"), "{markup}");
    }
}
