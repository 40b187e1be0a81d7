//! The deliveries of an account with their filters, and one of them with its attempts.

use std::sync::Arc;

use ledger_events::webhook::WebhookEventType;
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::{Account, account, page};
use crate::pages::call::{List, Refusal};
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{filters_by_minute, in_minutes, minute_fields};
use crate::pages::parts::values::{badge, facts, time, time_or_none, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::delivery::{self, Delivery, Detail, STATUSES, about, attempts, excerpt, responses};
use crate::pages::shared::delivery_headers::headers;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Filters of the list, which are those of the API.
const FILTERS: [&str; 6] = ["page", "status", "event_type", "order_id", "webhook_url_id", "replay_id"];

/// A delivery with its account, as `GET /admin/v1/deliveries/:id` returns it.
#[derive(Debug, Deserialize)]
struct AnyDelivery {
    account_id: i64,
    #[serde(flatten)]
    detail: Detail,
}

/// Names of a webhook's own headers, as `GET /admin/v1/webhooks/:id` returns them.
#[derive(Debug, Deserialize)]
struct OwnHeaders {
    header_names: Vec<String>,
}

/// Adds the pages. The headers of a delivery have the service's name.
pub fn add(site: Site, service_name: Arc<str>) -> Site {
    site.get("/console/accounts/:id/deliveries", list)
        .get("/console/deliveries/:id", move |visit| show(visit, service_name.clone()))
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let deliveries = async {
        let filters = filters_by_minute(&visit.query, &FILTERS)?;
        visit.list::<Delivery>(&format!("/admin/v1/accounts/{id}/deliveries?{filters}"), "deliveries").await
    };
    let (account, deliveries) = futures::join!(account(&visit, id), deliveries);
    let account = account?;
    match deliveries {
        Ok(deliveries) => Ok(list_page(&visit, &account, Some(&deliveries), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(list_page(&visit, &account, None, Some(refusal)), refusal)),
    }
}

fn list_page(visit: &Visit, account: &Account, deliveries: Option<&List<Delivery>>, refusal: Option<&Refusal>) -> Response {
    let query = in_minutes(&visit.query);
    let fields = Filled { form: &query, refusal };
    let path = format!("/console/accounts/{}/deliveries", account.id);
    let any = || std::iter::once(("", "Any".to_owned()));
    let statuses: Vec<(&str, String)> = any().chain(STATUSES.map(|status| (status, words(status)))).collect();
    let events = WebhookEventType::ALL.iter().map(|event| (event.as_str(), event.as_str().to_owned()));
    let events: Vec<(&str, String)> = any().chain(events).collect();
    let body = html! {
        (layout::problem(refusal))
        (table::filters(&path, &html! {
            (fields.select("status", "Status", &statuses, ""))
            (fields.select("event_type", "Event", &events, ""))
            (fields.input("webhook_url_id", "Webhook number", "search", ""))
            (fields.input("order_id", "Order number", "search", ""))
            (fields.input("replay_id", "Replay number", "search", ""))
            (minute_fields(&fields))
        }))
        @if let Some(deliveries) = deliveries {
            @if deliveries.items.is_empty() { (nothing(&path, visit.query.only(&[&FILTERS[1..], &["from", "to"]].concat()).is_empty())) }
            @else {
                (rows("Deliveries", &deliveries.items))
                (table::pager(deliveries, &path, &visit.query))
            }
        }
    };
    page(visit, account, &format!("Deliveries of {}", account.name), &body)
}

fn nothing(path: &str, is_whole_list: bool) -> Markup {
    match is_whole_list {
        true => table::empty("Nothing was delivered to this account yet. It needs a webhook, and an order.", None),
        false => table::empty("No delivery matches these filters.", Some((path, "Show all deliveries"))),
    }
}

/// A table of deliveries. Each one leads to its page.
pub fn rows(caption: &str, deliveries: &[Delivery]) -> Markup {
    delivery::rows(caption, deliveries, ("/console/deliveries", "/console/orders"), webhook)
}

fn webhook(delivery: &Delivery) -> Markup {
    html! { a href={ "/console/webhooks/" (delivery.webhook_url_id) } { "Webhook " (delivery.webhook_url_id) } }
}

async fn show(visit: Visit, service_name: Arc<str>) -> PageResult {
    visit.operator()?;
    let AnyDelivery { account_id, detail } = visit.get(&format!("/admin/v1/deliveries/{}", visit.id("id")?)).await?;
    let delivery = &detail.delivery;
    let webhook_path = format!("/admin/v1/webhooks/{}", delivery.webhook_url_id);
    let (account, own) = futures::try_join!(account(&visit, account_id), visit.get::<OwnHeaders>(&webhook_path))?;
    let body = html! {
        (facts(&[
            ("Status", badge(&delivery.status)),
            ("Account", html! { a href={ "/console/accounts/" (account_id) } { (account.name) } }),
            ("Event", html! { (delivery.event_type) }),
            ("About", about("/console/orders", delivery)),
            ("Webhook", webhook(delivery)),
            ("Attempts", html! { a href="#attempts" { (delivery.attempt_count) } " of " (delivery.max_attempts) }),
            ("Created", time(delivery.created_at)),
            ("Delivered", time_or_none(delivery.delivered_at)),
            ("Next attempt", time_or_none(detail.next_attempt_at)),
        ]))
        h2 #attempts { "Attempts" }
        @if detail.attempts.is_empty() { (table::empty("No attempt was made yet, or they are no longer kept.", None)) }
        @else { (attempts(&detail.attempts)) }
        h2 { "Response bodies of the endpoint" }
        (responses(&detail.attempts))
        h2 { "Headers" }
        (headers(&service_name, &detail, Some(&own.header_names)))
        h2 { "Payload" }
        (excerpt(&format!("{:#}", delivery.payload)))
    };
    Ok(page(&visit, &account, &format!("Delivery {}", delivery.id), &body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::shared::delivery::tests::detail;

    #[test]
    fn a_delivery_leads_to_its_order_and_its_webhook() {
        let markup = rows("Deliveries", &[detail("failed", 1).delivery]).0;
        assert!(markup.contains("/console/orders/42") && markup.contains("/console/webhooks/6"), "{markup}");
    }
}
