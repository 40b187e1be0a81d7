//! The events of the account in the order of the log, with the cursor by which programs read them.

use chrono::{DateTime, Utc};
use ledger_events::webhook::WebhookEventType;
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;
use serde_json::Value;

use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::zone_field;
use crate::pages::parts::values::{badge, copyable, time};
use crate::pages::parts::zone::Zone;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Number of calls for a page with events. A part of the log without events of the chosen types is empty.
const MAX_CALLS: u32 = 5;

/// Part of the account's events, as `GET /api/v1/events` returns it.
#[derive(Debug, Deserialize)]
struct Events {
    events: Vec<Envelope>,
    cursor: String,
    has_more: bool,
}

#[derive(Debug, Deserialize)]
struct Envelope {
    event_id: String,
    event_type: String,
    created_at: DateTime<Utc>,
    data: Value,
}

/// The order of an event, as it was right after the event.
#[derive(Debug, Deserialize)]
struct Order {
    id: i64,
    reference_code: String,
    delivered_quantity: i32,
    quantity: i32,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/events", list)
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    match load(&visit).await {
        // An address with a cursor shows later events when it is opened again.
        Ok(events) if visit.query.value("after") == "latest" => Ok(redirect(&link(&visit.query, &events.cursor))),
        Ok(events) => Ok(page(&visit, Some(&events), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

async fn load(visit: &Visit) -> Result<Events, Refusal> {
    let mut events: Events = visit.get(&format!("/api/v1/events?{}", first(&visit.query)?)).await?;
    for _ in 1..MAX_CALLS {
        if !events.events.is_empty() || !events.has_more {
            break;
        }
        events = visit.get(&format!("/api/v1/events?{}", after(&visit.query, &events.cursor))).await?;
    }
    Ok(events)
}

/// Returns the query of the first call: the chosen events after a cursor, since a time, or all of them.
///
/// # Errors
/// A refusal of the time zone, and of the time if there is a cursor too.
fn first(query: &Form) -> Result<String, Refusal> {
    let zone = Zone::of(query)?;
    let since = query.text("since").map(|since| ("since", zone.moment(since)));
    if since.is_some() && query.text("after").is_some() {
        return Err(Refusal::of_field("since", "cannot be combined with a cursor: clear one of the two"));
    }
    Ok(url::form_urlencoded::Serializer::new(query.only(&["after", "types"])).extend_pairs(since).finish())
}

/// Returns the query of the events after a cursor, of the chosen types.
fn after(query: &Form, cursor: &str) -> String {
    url::form_urlencoded::Serializer::new(query.only(&["types"])).append_pair("after", cursor).finish()
}

fn link(query: &Form, cursor: &str) -> String {
    format!("/portal/events?{}", after(query, cursor))
}

fn page(visit: &Visit, events: Option<&Events>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let types = WebhookEventType::ALL.iter().map(|kind| (kind.as_str(), kind.as_str()));
    let types: Vec<(&str, &str)> = std::iter::once(("", "Any")).chain(types).collect();
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        p { "Events in the order in which they happened, oldest first. Programs read the same list without a webhook." }
        (table::filters("/portal/events", &html! {
            (fields.select("types", "Event", &types, ""))
            (fields.input("since", "Since", "datetime-local", ""))
            (zone_field(&fields))
            (fields.input("after", "After this cursor", "search", ""))
        }))
        @if let Some(events) = events { (content(&visit.query, events)) }
        p.actions {
            @if !visit.query.only(&["after", "since"]).is_empty() { a.button.plain href="/portal/events" { "From the beginning" } }
            a.button.plain href="/portal/events?after=latest" { "From now on" }
        }
    };
    layout::page(visit, "Events", &body)
}

fn content(query: &Form, events: &Events) -> Markup {
    let is_all = query.only(&["after", "since", "types"]).is_empty();
    html! {
        @if !events.events.is_empty() { (rows(&events.events)) }
        @else if events.has_more { p.quiet { "This part of the log has no such event." } }
        @else if is_all { (table::empty("Nothing has happened yet. An order is the first event.", Some(("/portal/products", "Browse the catalogue")))) }
        @else { (table::empty("There is no such event yet.", None)) }
        @if !is_all || !events.events.is_empty() {
            p { "Cursor after this part: " (copyable(&events.cursor)) }
        }
        nav.pager aria-label="Parts of the log" {
            @if events.has_more { a.button href=(link(query, &events.cursor)) rel="next" { "Later events" } }
            @else { span.quiet { "This is the end of the log." } }
        }
    }
}

fn rows(events: &[Envelope]) -> Markup {
    let columns =
        [("Time", false), ("Event", false), ("About", false), ("Status", false), ("Delivered", true), ("Event number", false)];
    let row = |event: &Envelope| {
        let order: Option<Order> = event.event_type.starts_with("order.").then(|| Order::deserialize(&event.data).ok()).flatten();
        vec![
            time(event.created_at),
            html! { code { (event.event_type) } },
            about(event, order.as_ref()),
            event.data["status"].as_str().map_or_else(|| html! { "–" }, badge),
            html! {
                @if let Some(order) = &order {
                    a href={ "/portal/orders/" (order.id) "#story" } { (order.delivered_quantity) " of " (order.quantity) }
                } @else { "–" }
            },
            html! { code { (event.event_id) } },
        ]
    };
    table::table("Events", &columns, &events.iter().map(row).collect::<Vec<_>>())
}

/// Links to the order, payout or wallet that an event is about.
fn about(event: &Envelope, order: Option<&Order>) -> Markup {
    let number = |field: &str| event.data[field].as_i64().unwrap_or_default();
    html! {
        @if let Some(order) = order { a href={ "/portal/orders/" (order.id) } { (order.reference_code) } }
        @else if event.event_type.starts_with("payout.") { a href={ "/portal/payouts/" (number("id")) } { "Payout " (number("id")) } }
        @else if event.event_type.starts_with("wallet.") {
            a href={ "/portal/wallets/" (number("wallet_id")) } { "Wallet " (number("wallet_id")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn events(has_more: bool) -> Events {
        let order = json!({"id": 5, "reference_code": "ORD-<5>", "status": "PENDING", "delivered_quantity": 0, "quantity": 2});
        let event = json!({"event_id": "a", "event_type": "order.created", "created_at": "2026-01-31T12:00:00Z", "data": order});
        serde_json::from_value(json!({"events": [event], "cursor": "c&d", "has_more": has_more})).unwrap()
    }

    #[test]
    fn an_event_leads_to_its_order_and_the_cursor_to_later_events() {
        let query = Form::parse(b"types=order.created&after=b");
        let markup = content(&query, &events(true)).0;
        assert!(markup.contains("href=\"/portal/orders/5\"") && markup.contains("ORD-&lt;5&gt;"), "{markup}");
        assert!(markup.contains("/portal/events?types=order.created&amp;after=c%26d"), "{markup}");
        assert!(content(&query, &events(false)).0.contains("the end of the log"));
    }

    #[test]
    fn the_first_part_begins_at_a_time_and_later_parts_at_a_cursor() {
        let query = Form::parse(b"types=order.created&since=2026-01-31T12:05&after=");
        assert_eq!(first(&query).unwrap(), "types=order.created&since=2026-01-31T12%3A05%3A00.000Z");
        assert_eq!(link(&query, "c"), "/portal/events?types=order.created&after=c");
        let in_tokyo = first(&Form::parse(b"since=2026-01-31T12:05&zone=Asia/Tokyo")).unwrap();
        assert_eq!(in_tokyo, "since=2026-01-31T03%3A05%3A00.000Z");
        // The API refuses the time at its field.
        assert_eq!(first(&Form::parse(b"since=soon")).unwrap(), "since=soon");
        let refusal = first(&Form::parse(b"since=2026-01-31&after=c")).unwrap_err();
        assert_eq!(refusal.messages["since"], ["cannot be combined with a cursor: clear one of the two"]);
    }

    #[test]
    fn events_of_payouts_and_wallets_lead_to_them() {
        let event = |event_type, data| json!({"event_id": "a", "event_type": event_type, "created_at": "2026-01-31T12:00:00Z", "data": data});
        let payout = event("payout.paid", json!({"id": 3, "status": "PAID"}));
        let wallet = event("wallet.low_balance", json!({"wallet_id": 8, "balance": "1.00"}));
        let events = json!({"events": [payout, wallet], "cursor": "c", "has_more": false});
        let markup = content(&Form::parse(b""), &serde_json::from_value(events).unwrap()).0;
        assert!(
            markup.contains("href=\"/portal/payouts/3\">Payout 3<") && markup.contains("href=\"/portal/wallets/8\""),
            "{markup}"
        );
    }
}
