//! The story of an order on one time line: its events and movements, and every delivery and attempt to tell of them.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::transaction::Transaction;
use crate::pages::form::Form;
use crate::pages::parts::timeline::{Place, Step, Tone, paged};
use crate::pages::parts::values::{grouped, money};

/// Addresses to which a story leads. Pages of clients and of operators have different ones.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Returns the address of the page that shows a transaction.
    pub transaction: fn(&Transaction) -> String,
    /// Path of deliveries' pages, without the id.
    pub deliveries: &'static str,
    /// Renders the ID of a request.
    pub request: fn(&str) -> Markup,
    /// Renders a link to the order (its id) as it was at a position of the log.
    pub moment: fn(i64, i64) -> Markup,
    /// Says where all readings of the codes of an order (its id) are, for a story that leaves some out.
    pub readings: fn(i64) -> Markup,
}

/// The history of an order, as the API returns it.
#[derive(Debug, Deserialize)]
pub struct Story {
    order_id: i64,
    entries: Vec<Entry>,
    entries_left_out: u64,
    #[serde(skip)]
    place: Option<Place>,
}

impl Story {
    /// Returns the movement that refunds the order.
    pub fn refund(&self) -> Option<&Transaction> {
        self.entries.iter().filter_map(|entry| entry.transaction.as_ref()).find(|movement| movement.category == "ORDER_REFUND")
    }

    /// Sets the address of the page, and the part of the story that its query asks for. A long story links to its parts then.
    pub fn turn_to(&mut self, address: String, query: &Form) {
        self.place = Some(Place { address, first: query.value("steps").parse().ok() });
    }
}

#[derive(Debug, Deserialize)]
struct Entry {
    position: Option<i64>,
    event_type: String,
    recorded_at: DateTime<Utc>,
    actor: Actor,
    request_id: String,
    description: String,
    reason: Option<String>,
    transaction: Option<Transaction>,
    deliveries: Vec<Delivery>,
}

#[derive(Debug, Deserialize)]
struct Actor {
    kind: String,
    actor_id: Option<i64>,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Delivery {
    delivery_id: i64,
    webhook_id: i64,
    webhook_name: Option<String>,
    replay_id: Option<i64>,
    event_type: String,
    status: String,
    created_at: DateTime<Utc>,
    next_attempt_at: Option<DateTime<Utc>>,
    attempts: Vec<Attempt>,
    retries: Vec<Retry>,
}

#[derive(Debug, Deserialize)]
struct Attempt {
    attempt: i16,
    request_id: String,
    started_at: DateTime<Utc>,
    outcome: String,
    response_status: Option<i16>,
    response_time_ms: Option<i32>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Retry {
    requested_at: DateTime<Utc>,
    actor: Actor,
}

/// Renders the story. A long one is shown in part.
pub fn time_line(story: &Story, places: &Places) -> Markup {
    let (shown, count) = (story.entries.len() as u64, |count: u64| grouped(&count.to_string()));
    html! {
        (paged("What happened", steps(story, places), story.place.as_ref()))
        @if story.entries_left_out > 0 {
            p.quiet {
                "The time line has " (count(shown)) " of " (count(shown + story.entries_left_out)) " events. " (count(story.entries_left_out))
                " further readings of the codes are recorded but not shown: they came before the last 100. "
                ((places.readings)(story.order_id))
            }
        }
    }
}

fn steps(story: &Story, places: &Places) -> Vec<Step> {
    let of_entry = |entry: &Entry| {
        let deliveries = entry.deliveries.iter().flat_map(|one| delivery(one, places));
        std::iter::once(event(story, entry, places)).chain(deliveries).collect::<Vec<_>>()
    };
    story.entries.iter().flat_map(of_entry).collect()
}

fn event(story: &Story, entry: &Entry, places: &Places) -> Step {
    let tone = match entry.event_type.as_str() {
        "OrderDelivered" | "OrderPartiallyDelivered" => Tone::Good,
        "OrderCancelled" => Tone::Bad,
        "OrderDelayed" => Tone::Wait,
        _ => Tone::Plain,
    };
    let detail = html! {
        p.quiet {
            "By " (who(&entry.actor)) ", request " ((places.request)(&entry.request_id))
            @if let Some(position) = entry.position { ((places.moment)(story.order_id, position)) }
        }
        @if let Some(reason) = &entry.reason { p { "Reason: “" (reason) "”" } }
        @if let Some(movement) = &entry.transaction {
            p {
                a href=((places.transaction)(movement)) { "Transaction " (movement.id) } ": "
                (money(&movement.signed_amount(), &movement.currency)) ", balance "
                (money(&movement.balance_after, &movement.currency))
            }
        }
    };
    Step { at: entry.recorded_at, tone, title: html! { (sentence(&entry.description)) }, detail }
}

/// Returns a description with a capital letter.
fn sentence(description: &str) -> String {
    let mut letters = description.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

/// Names an actor: by its name if it has one, or by its kind.
fn who(actor: &Actor) -> String {
    let kind = match actor.kind.as_str() {
        "credential" => "API key",
        "operator" => "an operator of the service",
        "fulfilment" => "fulfilment",
        kind => kind,
    };
    match (&actor.name, actor.actor_id) {
        (Some(name), _) => format!("{kind} {name}"),
        (None, Some(id)) => format!("{kind} {id}"),
        (None, None) => kind.to_owned(),
    }
}

/// Lists the steps of a delivery: its creation, its attempts, its retries, and the attempt that is due.
fn delivery(delivery: &Delivery, places: &Places) -> Vec<Step> {
    let link = html! { a href={ (places.deliveries) "/" (delivery.delivery_id) } { "Delivery " (delivery.delivery_id) } };
    let to = match &delivery.webhook_name {
        Some(name) => format!("webhook “{name}”"),
        None => format!("webhook {}", delivery.webhook_id),
    };
    let created = match delivery.replay_id {
        Some(_) => html! { (delivery.event_type) " is sent again to " (to) },
        None => html! { (delivery.event_type) " is for " (to) },
    };
    let mut steps = vec![Step { at: delivery.created_at, tone: Tone::Plain, title: created, detail: link.clone() }];
    steps.extend(delivery.attempts.iter().map(|one| attempt(one, &to, &link)));
    steps.extend(delivery.retries.iter().map(|retry| Step {
        at: retry.requested_at,
        tone: Tone::Plain,
        title: html! { "Retry to " (to) " requested" },
        detail: html! { p.quiet { "By " (who(&retry.actor)) } },
    }));
    if let Some(at) = delivery.next_attempt_at.filter(|_| delivery.status == "pending") {
        steps.push(Step { at, tone: Tone::Wait, title: html! { "Next attempt to " (to) " is due" }, detail: link });
    }
    steps
}

fn attempt(attempt: &Attempt, to: &str, link: &Markup) -> Step {
    let (tone, outcome) = match attempt.outcome.as_str() {
        "delivered" => (Tone::Good, "delivered"),
        "failed" => (Tone::Bad, "failed"),
        "in_flight" => (Tone::Wait, "in flight"),
        _ => (Tone::Wait, "interrupted, outcome unknown"),
    };
    let detail = html! {
        p.quiet {
            (link)
            @if let Some(status) = attempt.response_status { ", HTTP status " (status) }
            @if let Some(duration) = attempt.response_time_ms { ", " (duration) " ms" }
            ", request " code { (attempt.request_id) }
        }
        @if let Some(error) = &attempt.error { p { (error) } }
    };
    Step { at: attempt.started_at, tone, title: html! { "Attempt " (attempt.attempt) " to " (to) ": " (outcome) }, detail }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLACES: Places = Places {
        transaction: |movement| format!("/wallets/{}", movement.wallet_id),
        deliveries: "/deliveries",
        request: |id| html! { "<" (id) ">" },
        moment: |order, position| html! { " order " (order) " at " (position) },
        readings: |order| html! { a href={ "/readings/" (order) } { "All readings" } },
    };

    fn story() -> Story {
        let actor = json!({"kind": "credential", "actor_id": 3, "name": "main"});
        let attempt = |number: i16, outcome: &str, at: &str| {
            json!({
                "attempt": number, "request_id": "r", "started_at": at, "outcome": outcome, "response_status": 500,
                "response_time_ms": 12, "error": "<b>no</b>"
            })
        };
        let story = json!({
            "order_id": 3, "entries_left_out": 2,
            "entries": [
                {
                    "position": 17, "event_type": "OrderPlaced", "recorded_at": "2026-01-31T12:00:00Z", "actor": actor, "request_id": "a",
                    "description": "placed: 1 × 10.00 EUR", "reason": null,
                    "transaction": {
                        "id": 9, "wallet_id": 2, "type": "DEBIT", "category": "ORDER", "amount": "10.00", "balance_after": "1.00",
                        "currency": "EUR", "order_id": 3, "reference": null, "description": "",
                        "created_at": "2026-01-31T12:00:00Z"
                    },
                    "deliveries": [{
                        "delivery_id": 4, "webhook_id": 5, "webhook_name": "<i>shop</i>", "replay_id": null,
                        "event_type": "order.created", "status": "pending", "created_at": "2026-01-31T12:00:01Z",
                        "next_attempt_at": "2026-01-31T12:05:00Z",
                        "attempts": [attempt(1, "failed", "2026-01-31T12:00:02Z"), attempt(2, "unknown", "2026-01-31T12:02:00Z")],
                        "retries": [{"requested_at": "2026-01-31T12:01:00Z", "actor": {"kind": "operator", "actor_id": null, "name": null}}]
                    }]
                },
                {
                    "event_type": "OrderCancelled", "recorded_at": "2026-01-31T12:01:30Z", "actor": actor, "request_id": "b",
                    "description": "cancelled by the client", "reason": "no <u>need</u>", "transaction": null, "deliveries": []
                }
            ]
        });
        serde_json::from_value(story).unwrap()
    }

    #[test]
    fn everything_stands_on_one_time_line() {
        let markup = time_line(&story(), &PLACES).0;
        let order = [
            "Placed: 1 × 10.00 EUR",
            "order.created is for",
            ": failed",
            "Retry to",
            "Cancelled by the client",
            ": interrupted",
            "Next attempt",
        ];
        let places: Vec<_> = order.iter().map(|text| markup.find(text)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {markup}");
        assert!(markup.contains("By API key main") && markup.contains("By an operator of the service"), "{markup}");
        assert!(markup.contains("href=\"/wallets/2\"") && markup.contains("href=\"/deliveries/4\""), "{markup}");
        assert_eq!(markup.matches("order 3 at 17").count(), 1, "{markup}");
        assert!(markup.contains("−10.00") && markup.contains("2 further readings"), "{markup}");
    }

    #[test]
    fn a_story_that_leaves_readings_out_says_so_and_leads_to_them() {
        let mut story = story();
        story.entries_left_out = 30;
        let markup = time_line(&story, &PLACES).0;
        let note = "has 2 of 32 events. 30 further readings of the codes are recorded but not shown";
        assert!(markup.contains(note) && markup.contains("<a href=\"/readings/3\">All readings</a>"), "{markup}");
        story.entries_left_out = 0;
        let markup = time_line(&story, &PLACES).0;
        assert!(!markup.contains("further readings") && !markup.contains("/readings/"), "{markup}");
    }

    #[test]
    fn texts_of_people_are_escaped() {
        let markup = time_line(&story(), &PLACES).0;
        for attack in ["<b>", "<i>", "<u>"] {
            assert!(!markup.contains(attack), "{markup}");
        }
    }

    #[test]
    fn a_long_story_leads_to_the_steps_between_its_beginning_and_its_end() {
        let mut story = story();
        let delivery = &mut story.entries[0].deliveries[0];
        let actor = || Actor { kind: "operator".to_owned(), actor_id: None, name: None };
        let retry = |_| Retry { requested_at: delivery.created_at, actor: actor() };
        delivery.retries = (0..300).map(retry).collect();
        assert!(!time_line(&story, &PLACES).0.contains("steps="));
        story.turn_to("/orders/3".to_owned(), &Form::default());
        assert!(time_line(&story, &PLACES).0.contains("href=\"/orders/3?steps=51\""));
        story.turn_to("/orders/3".to_owned(), &Form::parse(b"steps=51"));
        let markup = time_line(&story, &PLACES).0;
        assert!(markup.contains("Steps 51 to 300 of 306") && !markup.contains("Placed: 1"), "{markup}");
    }
}
