//! The queue of a webhook: the deliveries that are due, or that wait for another attempt.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::{account, page};
use crate::pages::call::List;
use crate::pages::outcome::PageResult;
use crate::pages::parts::table;
use crate::pages::parts::values::{badge, time};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Parts of a queue, as the API names them.
const PARTS: [(&str, &str); 2] = [("due", "Due and not in flight"), ("retries", "Waiting for another attempt")];

/// Returns the address of a part of a webhook's queue.
pub fn address(webhook: i64, part: &str) -> String {
    format!("/console/webhooks/{webhook}/queue?part={part}")
}

/// Account of a webhook, as `GET /admin/v1/webhooks/:id` returns it.
#[derive(Debug, Deserialize)]
struct Webhook {
    account_id: i64,
}

/// A delivery, as `GET /admin/v1/webhooks/:id/queue` returns it.
#[derive(Debug, Deserialize)]
struct Queued {
    delivery_id: i64,
    order_id: i64,
    event_type: String,
    attempt_count: i16,
    next_attempt_at: DateTime<Utc>,
    is_in_flight: bool,
}

pub fn add(site: Site) -> Site {
    site.get("/console/webhooks/:id/queue", list)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let path = format!("/admin/v1/webhooks/{id}/queue?{}", visit.query.only(&["page", "part"]));
    let webhook = format!("/admin/v1/webhooks/{id}");
    let (webhook, queued): (Webhook, List<Queued>) = futures::try_join!(visit.get(&webhook), visit.list(&path, "deliveries"))?;
    let account = account(&visit, webhook.account_id).await?;
    let shown = match visit.query.value("part") {
        "" => PARTS[0].0,
        part => part,
    };
    let body = html! {
        nav aria-label="Parts of the queue" {
            ul.links {
                @for (part, name) in PARTS {
                    li { a href=(address(id, part)) aria-current=[(part == shown).then_some("page")] { (name) } }
                }
            }
        }
        @if queued.total == 0 {
            (table::empty("No delivery waits here.", Some((&format!("/console/webhooks/{id}"), "Show the webhook"))))
        } @else {
            p.quiet { "The delivery that is due first is at the start. At most 1,000 first attempts and 1,000 retries are listed." }
            (rows(&queued.items))
            (table::pages_of(&queued, visit.path(), &visit.query, ("Earlier", "Later")))
        }
    };
    Ok(page(&visit, &account, &format!("Queue of webhook {id}"), &body))
}

fn rows(queued: &[Queued]) -> Markup {
    let columns = [
        ("Delivery", false),
        ("Event", false),
        ("Order", false),
        ("Attempts so far", true),
        ("Next attempt", false),
        ("State", false),
    ];
    let row = |queued: &Queued| {
        vec![
            html! { a href={ "/console/deliveries/" (queued.delivery_id) } { "Delivery " (queued.delivery_id) } },
            html! { (queued.event_type) },
            html! {
                @match queued.order_id {
                    0 => "–",
                    order => a href={ "/console/orders/" (order) } { "Order " (order) },
                }
            },
            html! { (queued.attempt_count) },
            time(queued.next_attempt_at),
            badge(if queued.is_in_flight { "in_flight" } else { "pending" }),
        ]
    };
    table::table("Deliveries that wait", &columns, &queued.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_delivery_leads_to_its_page_and_its_order() {
        let queued = |order: i64, is_in_flight: bool| -> Queued {
            let queued = json!({"delivery_id": 11, "order_id": order, "event_type": "order.created", "event_id": "e", "attempt_count": 2,
                "next_attempt_at": "2026-01-31T12:00:00Z", "is_in_flight": is_in_flight});
            serde_json::from_value(queued).unwrap()
        };
        let markup = rows(&[queued(42, true), queued(0, false)]).0;
        for part in ["/console/deliveries/11", "/console/orders/42", "In flight", "Pending"] {
            assert!(markup.contains(part), "{part}: {markup}");
        }
        assert!(!markup.contains("/console/orders/0"), "{markup}");
    }
}
