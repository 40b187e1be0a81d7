//! Deliveries of webhooks: their list with its filters, and one with its payload and its attempts.

use std::sync::Arc;

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde_json::{Value, json};

use super::webhook::{ALL, EVENTS, Webhook, may, named};
use crate::pages::call::{List, Refusal};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{filters_by_minute, in_minutes, minute_fields};
use crate::pages::parts::values::{badge, facts, time, time_or_none, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::delivery::{self, Delivery, Detail, STATUSES, about, attempts, excerpt, responses};
use crate::pages::shared::delivery_headers::headers;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::user::UserRole;

/// Filters of the list, which are those of the API.
const FILTERS: [&str; 7] = ["page", "limit", "status", "event_type", "order_id", "webhook_url_id", "replay_id"];

/// Adds the pages. The headers of a delivery have the service's name.
pub fn add(site: Site, service_name: Arc<str>) -> Site {
    let name = service_name.clone();
    site.get("/portal/webhooks/deliveries", list)
        .get("/portal/webhooks/deliveries/:id", move |visit| show(visit, name.clone()))
        .post("/portal/webhooks/deliveries/:id/retry", move |visit| retry(visit, service_name.clone()))
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let deliveries = async {
        let filters = filters_by_minute(&visit.query, &FILTERS)?;
        visit.list::<Delivery>(&format!("/api/v1/webhooks/deliveries?{filters}"), "deliveries").await
    };
    let (webhooks, deliveries) = futures::join!(visit.list::<Webhook>(ALL, "webhooks"), deliveries);
    let webhooks = webhooks?.items;
    match deliveries {
        Ok(deliveries) => Ok(list_page(&visit, &webhooks, Some(&deliveries), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(list_page(&visit, &webhooks, None, Some(refusal)), refusal)),
    }
}

fn list_page(visit: &Visit, webhooks: &[Webhook], deliveries: Option<&List<Delivery>>, refusal: Option<&Refusal>) -> Response {
    let query = in_minutes(&visit.query);
    let fields = Filled { form: &query, refusal };
    let any = || std::iter::once((String::new(), "Any".to_owned()));
    let statuses: Vec<_> = any().chain(STATUSES.map(|status| (status.to_owned(), words(status)))).collect();
    let events: Vec<_> = any().chain(EVENTS.map(|(event, _)| (event.to_owned(), event.to_owned()))).collect();
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        (table::filters("/portal/webhooks/deliveries", &html! {
            (fields.select("status", "Status", &statuses, ""))
            (fields.select("event_type", "Event", &events, ""))
            (fields.select("webhook_url_id", "Webhook", &choices(webhooks, visit.query.value("webhook_url_id")), ""))
            (fields.input("order_id", "Order number", "search", ""))
            (fields.input("replay_id", "Replay number", "search", ""))
            (minute_fields(&fields))
        }))
        @if let Some(deliveries) = deliveries {
            @if deliveries.items.is_empty() { (nothing(visit.query.only(&[&FILTERS[2..], &["from", "to"]].concat()).is_empty())) }
            @else {
                (rows("Deliveries", &deliveries.items, webhooks))
                (table::pager(deliveries, "/portal/webhooks/deliveries", &visit.query))
            }
        }
    };
    layout::page(visit, "Deliveries", &body)
}

/// Lists the webhooks as options. A deleted one is there if the filter names it.
fn choices(webhooks: &[Webhook], chosen: &str) -> Vec<(String, String)> {
    let mut options = vec![(String::new(), "Any".to_owned())];
    options.extend(webhooks.iter().map(|webhook| (webhook.id.to_string(), format!("{} ({})", webhook.name, webhook.id))));
    if options.iter().all(|(id, _)| id != chosen) {
        options.push((chosen.to_owned(), format!("Webhook {chosen} (deleted)")));
    }
    options
}

fn nothing(is_whole_list: bool) -> Markup {
    match is_whole_list {
        true => table::empty(
            "Nothing was delivered yet. Order something, or send a test from the page of a webhook.",
            Some(("/portal/webhooks", "Webhooks")),
        ),
        false => table::empty("No delivery matches these filters.", Some(("/portal/webhooks/deliveries", "Show all deliveries"))),
    }
}

/// A table of deliveries. Each one leads to its page.
pub fn rows(caption: &str, deliveries: &[Delivery], webhooks: &[Webhook]) -> Markup {
    let webhook = |delivery: &Delivery| named(webhooks, delivery.webhook_url_id);
    delivery::rows(caption, deliveries, ("/portal/webhooks/deliveries", "/portal/orders"), webhook)
}

async fn show(visit: Visit, service_name: Arc<str>) -> PageResult {
    visit.user()?;
    let (detail, webhooks) = load(&visit, visit.id("id")?).await?;
    Ok(page(&visit, &service_name, &detail, &webhooks, None))
}

async fn load(visit: &Visit, id: i64) -> Result<(Detail, Vec<Webhook>), Refusal> {
    let path = format!("/api/v1/webhooks/deliveries/{id}");
    let (detail, webhooks) = futures::try_join!(visit.get(&path), visit.list(ALL, "webhooks"))?;
    Ok((detail, webhooks.items))
}

async fn retry(visit: Visit, service_name: Arc<str>) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    match visit.change::<Value>(Method::POST, &format!("/api/v1/webhooks/deliveries/{id}/retry"), &json!({})).await {
        Ok(_) => Ok(redirect(&format!("/portal/webhooks/deliveries/{id}?done=retried"))),
        Err(refusal) if refusal.is_correctable() => {
            let (detail, webhooks) = load(&visit, id).await?;
            Ok(layout::refused(page(&visit, &service_name, &detail, &webhooks, Some(&refusal)), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

fn page(visit: &Visit, service_name: &str, detail: &Detail, webhooks: &[Webhook], refusal: Option<&Refusal>) -> Response {
    let delivery = &detail.delivery;
    let webhook = webhooks.iter().find(|webhook| webhook.id == delivery.webhook_url_id);
    let explanation = format!("/portal/webhooks/{}/explanation?order_id={}", delivery.webhook_url_id, delivery.order_id);
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        (facts(&[
            ("Status", badge(&delivery.status)),
            ("Event", html! { (delivery.event_type) }),
            ("About", about("/portal/orders", delivery)),
            ("Webhook", named(webhooks, delivery.webhook_url_id)),
            ("Attempts", html! { a href="#attempts" { (delivery.attempt_count) } " of " (delivery.max_attempts) }),
            ("Created", time(delivery.created_at)),
            ("Delivered", time_or_none(delivery.delivered_at)),
            ("Next attempt", time_or_none(detail.next_attempt_at)),
        ]))
        div.actions {
            @if may_retry(delivery) && may(visit, UserRole::Operator) {
                form method="post" action={ "/portal/webhooks/deliveries/" (delivery.id) "/retry" } { button { "Retry now" } }
            }
            @if delivery.order_id != 0 { a href=(explanation) { "Why did I get this?" } }
        }
        @if delivery.status == "failed" && !may_retry(delivery) {
            p.quiet {
                "All attempts are used, so this delivery cannot be retried. "
                @if webhook.is_some() {
                    a href={ "/portal/webhooks/" (delivery.webhook_url_id) "/replays" } { "Deliver its event again" } ", with five attempts more."
                } @else { "Your systems can still read the order." }
            }
        }
        h2 #attempts { "Attempts" }
        @if detail.attempts.is_empty() { (table::empty("No attempt was made yet.", None)) } @else { (attempts(&detail.attempts)) }
        h2 { "Response bodies of your endpoint" }
        (responses(&detail.attempts))
        h2 { "Headers" }
        (headers(service_name, detail, webhook.map(|webhook| &*webhook.header_names)))
        h2 { "Payload" }
        (excerpt(&format!("{:#}", delivery.payload)))
        (signature())
    };
    layout::page(visit, &format!("Delivery {}", delivery.id), &body)
}

fn may_retry(delivery: &Delivery) -> bool {
    delivery.status == "failed" && delivery.attempt_count < delivery.max_attempts
}

fn signature() -> Markup {
    html! {
        details.card {
            summary { "How to check the signature" }
            ol {
                li { "Take the body as your endpoint received it, byte by byte. The payload above is formatted for reading." }
                li { "Compute the HMAC-SHA256 over " code { "X-Timestamp" } ", a dot and the body. The key is the text of the webhook's token, or of the signing secret of the API key to which it is linked." }
                li { "Compare its lowercase hex with " code { "X-Signature" } ", in constant time." }
                li { "Refuse a delivery whose " code { "X-Timestamp" } " is more than 5 minutes from your clock." }
            }
            p { "To try it with a body in a file:" }
            pre tabindex="0" { "(printf '%s.' \"$TIMESTAMP\"; cat body.json) | openssl dgst -sha256 -hmac \"$TOKEN\"" }
            p { a href="/docs/guides/webhooks" { "Receiving webhooks, with code in several languages" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use hyper::body::Bytes;
    use sha2::Sha256;
    use webhook_client::custom::CustomHeaders;
    use webhook_client::sender;
    use webhook_client::signature::TOLERANCE_SECONDS;

    use super::*;
    use crate::pages::shared::delivery::tests::detail;

    #[test]
    fn a_failed_delivery_with_attempts_left_can_be_retried() {
        assert!(may_retry(&detail("failed", 1).delivery));
        assert!(!may_retry(&detail("failed", 5).delivery) && !may_retry(&detail("pending", 1).delivery));
    }

    #[test]
    fn the_steps_of_the_signature_check_give_the_header_of_the_sender() {
        let (secret, body) = ("whsec_test", r#"{"event_id":"e-1"}"#);
        let request = sender::Delivery {
            url: "",
            webhook_id: 6,
            event_id: "e-1",
            event_type: "order.created",
            sequence: None,
            request_id: "r-1",
            secret,
            previous_secret: None,
            timestamp: 1_700_000_000,
            traceparent: None,
            custom_headers: CustomHeaders::none(),
            body: Bytes::from_static(body.as_bytes()),
        };
        let headers = sender::DeliveryHeaders::new("SERVICE").unwrap().sign(&request).unwrap();
        let text = signature().0;
        for step in [
            "the body as your endpoint received it, byte by byte",
            "HMAC-SHA256 over <code>X-Timestamp</code>, a dot and the body. The key is the text of the webhook's token",
            "lowercase hex with <code>X-Signature</code>",
            &format!("<code>X-Timestamp</code> is more than {} minutes from", TOLERANCE_SECONDS / 60),
            "(printf '%s.' \"$TIMESTAMP\"; cat body.json) | openssl dgst -sha256 -hmac \"$TOKEN\"",
        ] {
            assert!(text.replace("&quot;", "\"").contains(step), "{step}: {text}");
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(format!("{}.{body}", headers["X-Timestamp"].to_str().unwrap()).as_bytes());
        assert_eq!(headers["X-Signature"], hex::encode(mac.finalize().into_bytes()));
    }

    #[test]
    fn a_deleted_webhook_has_no_link() {
        let markup = rows("Deliveries", &[detail("failed", 1).delivery], &[]).0;
        assert!(markup.contains("Webhook 6 (deleted)") && markup.contains("/portal/orders/42"), "{markup}");
        assert_eq!(choices(&[], "6").len(), 2);
        assert_eq!(choices(&[], "").len(), 1);
    }
}
