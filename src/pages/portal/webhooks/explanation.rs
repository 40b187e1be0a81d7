//! The explanation of an order's events at a webhook: which ones it received, and why or why not.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::StatusCode;
use serde::Deserialize;

use crate::pages::call::{List, Refusal};
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::timeline::{Step, Tone, timeline};
use crate::pages::parts::values::{badge, time};
use crate::pages::parts::{layout, table};
use crate::pages::portal::webhook::{ALL, Webhook, named};
use crate::pages::shared::order::Order;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// An explanation, as `GET /api/v1/webhooks/:id/explanation` returns it.
#[derive(Debug, Deserialize)]
struct Explanation {
    order_id: i64,
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    event_type: String,
    created_at: DateTime<Utc>,
    outcome: String,
    explanation: String,
    deliveries: Vec<EventDelivery>,
}

#[derive(Debug, Deserialize)]
struct EventDelivery {
    delivery_id: i64,
    created_at: DateTime<Utc>,
    is_replay: bool,
    outcome: String,
    attempt_count: i16,
    response_status: Option<i16>,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/webhooks/:id/explanation", show)
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let webhooks: List<Webhook> = visit.list(ALL, "webhooks").await?;
    let Some(order) = visit.query.text("order_id") else { return Ok(page(&visit, id, &webhooks.items, None, None)) };
    match explain(&visit, id, order).await {
        Ok(explanation) => Ok(page(&visit, id, &webhooks.items, Some(&explanation), None)),
        Err(refusal) => {
            corrected(refusal, |refusal| layout::refused(page(&visit, id, &webhooks.items, None, Some(refusal)), refusal))
        }
    }
}

/// Reads the explanation of an order, which is given by its number or by its reference.
async fn explain(visit: &Visit, webhook: i64, order: &str) -> Result<Explanation, Refusal> {
    let unknown = || Refusal::of_field("order_id", "must be the number or the reference of an order of yours");
    let id = match order.parse::<i64>() {
        Ok(id) => id,
        Err(_) => {
            let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("reference_code", order).finish();
            let orders: List<Order> = visit.list(&format!("/api/v1/orders?{query}"), "orders").await?;
            orders.items.first().map(|order| order.id).ok_or_else(unknown)?
        }
    };
    let explanation = visit.get(&format!("/api/v1/webhooks/{webhook}/explanation?order_id={id}")).await;
    explanation.map_err(|refusal| if refusal.status == StatusCode::NOT_FOUND { unknown() } else { refusal })
}

fn page(visit: &Visit, id: i64, webhooks: &[Webhook], explanation: Option<&Explanation>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "Webhook: " (named(webhooks, id)) }
        (table::filters(&format!("/portal/webhooks/{id}/explanation"), &html! {
            (fields.input("order_id", "Order", "search", "Its number or its reference."))
        }))
        @if let Some(explanation) = explanation {
            h2 { "Events of " a href={ "/portal/orders/" (explanation.order_id) } { "order " (explanation.order_id) } }
            @if explanation.events.is_empty() { (table::empty("The order has no events yet.", None)) }
            @else { (timeline("Events of the order", explanation.events.iter().map(step).collect())) }
        }
    };
    layout::page(visit, "Why did (didn't) I get this?", &body)
}

fn step(event: &Event) -> Step {
    let tone = match event.outcome.as_str() {
        "delivered" => Tone::Good,
        "failed" => Tone::Bad,
        "pending" => Tone::Wait,
        _ => Tone::Plain,
    };
    let detail = html! {
        p { (event.explanation) }
        @if !event.deliveries.is_empty() { ul { @for delivery in &event.deliveries { li { (sent(delivery)) } } } }
    };
    Step { at: event.created_at, tone, title: html! { (event.event_type) " " (badge(&event.outcome)) }, detail }
}

fn sent(delivery: &EventDelivery) -> Markup {
    html! {
        a href={ "/portal/webhooks/deliveries/" (delivery.delivery_id) } { "Delivery " (delivery.delivery_id) }
        " " (badge(&delivery.outcome)) " " (time(delivery.created_at))
        @if delivery.is_replay { ", a replay" }
        ", " (delivery.attempt_count) @if delivery.attempt_count == 1 { " attempt" } @else { " attempts" }
        @if let Some(status) = delivery.response_status { ", your endpoint answered " (status) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_has_its_reason_and_its_deliveries() {
        let delivery = json!({"delivery_id": 11, "created_at": "2026-01-31T12:00:00Z", "is_replay": true, "outcome": "failed",
            "attempt_count": 1, "response_status": 500});
        let event = json!({"event_id": "e", "event_type": "order.created", "created_at": "2026-01-31T12:00:00Z",
            "outcome": "failed", "webhook_state": "subscribed", "explanation": "<b>It failed.", "deliveries": [delivery]});
        let step = step(&serde_json::from_value(event).unwrap());
        assert_eq!(step.tone, Tone::Bad);
        let detail = step.detail.0;
        assert!(detail.contains("&lt;b&gt;It failed.") && detail.contains("/portal/webhooks/deliveries/11"), "{detail}");
        assert!(detail.contains("a replay, 1 attempt, your endpoint answered 500"), "{detail}");
    }
}
