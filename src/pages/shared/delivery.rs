//! A delivery with its attempts and its payload.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use crate::pages::parts::table;
use crate::pages::parts::values::{badge, time};

/// Statuses of deliveries.
pub const STATUSES: [&str; 3] = ["pending", "delivered", "failed"];
/// Largest number of characters of a payload on a page, and of all responses together.
const MAX_TEXT: usize = 12_000;

/// A delivery, as a list of the API has it.
#[derive(Debug, Deserialize)]
pub struct Delivery {
    pub id: i64,
    pub event_type: String,
    pub sequence: i64,
    pub event_id: String,
    pub order_id: i64,
    pub webhook_url_id: i64,
    pub status: String,
    pub attempt_count: i16,
    pub max_attempts: i16,
    pub response_status: Option<i16>,
    pub payload: Value,
    pub created_at: DateTime<Utc>,
    pub delivered_at: Option<DateTime<Utc>>,
}

/// A delivery with everything that the API shows of it.
#[derive(Debug, Deserialize)]
pub struct Detail {
    #[serde(flatten)]
    pub delivery: Delivery,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub attempts: Vec<Attempt>,
}

#[derive(Debug, Deserialize)]
pub struct Attempt {
    pub attempt: i16,
    pub request_id: String,
    pub started_at: DateTime<Utc>,
    pub response_status: Option<i16>,
    pub response_time_ms: Option<i32>,
    pub error: Option<String>,
    /// Body of the response, which lists leave out.
    pub response_body: Option<String>,
}

impl Attempt {
    /// Returns the body of the response, unless it is empty or not kept.
    fn body(&self) -> Option<&str> {
        self.response_body.as_deref().filter(|body| !body.is_empty())
    }
}

/// A table of deliveries. Each one leads to its page below `path`, and to its order below `orders`. `webhook` renders the link
/// to its webhook.
pub fn rows(
    caption: &str,
    deliveries: &[Delivery],
    (path, orders): (&str, &str),
    webhook: impl Fn(&Delivery) -> Markup,
) -> Markup {
    let columns = [
        ("Delivery", false),
        ("Created", false),
        ("Event", false),
        ("Order", false),
        ("Webhook", false),
        ("Attempts", true),
        ("Response", true),
        ("Status", false),
    ];
    let row = |delivery: &Delivery| {
        let leading = |text: Markup| html! { a href={ (path) "/" (delivery.id) } { (text) } };
        vec![
            leading(html! { "Delivery " (delivery.id) }),
            time(delivery.created_at),
            html! { (delivery.event_type) },
            about(orders, delivery),
            webhook(delivery),
            leading(html! { (delivery.attempt_count) " of " (delivery.max_attempts) }),
            number(delivery.response_status),
            badge(&delivery.status),
        ]
    };
    table::table(caption, &columns, &deliveries.iter().map(row).collect::<Vec<_>>())
}

/// Links to the order of a delivery. A test has none, and so have events of payouts and wallets. `orders` is the path of
/// orders' pages.
pub fn about(orders: &str, delivery: &Delivery) -> Markup {
    html! {
        @if delivery.order_id != 0 { a href={ (orders) "/" (delivery.order_id) } { "Order " (delivery.order_id) } }
        @else if delivery.event_type.starts_with("order.") { "Test" }
        @else { "–" }
    }
}

/// Renders a number that may be absent.
pub fn number(value: Option<impl Into<i64>>) -> Markup {
    html! { @match value { Some(value) => (value.into()), None => "–" } }
}

/// Shows the beginning of a text that can be long.
pub fn excerpt(text: &str) -> Markup {
    cut(text, MAX_TEXT)
}

/// Shows at most this many characters of a text.
fn cut(text: &str, most: usize) -> Markup {
    let end = text.char_indices().nth(most).map(|(at, _)| at);
    html! {
        pre tabindex="0" { (&text[..end.unwrap_or(text.len())]) }
        @if end.is_some() { p.quiet { "The page shows the first " (most) " characters. The API has all of them." } }
    }
}

/// A table of attempts.
pub fn attempts(attempts: &[Attempt]) -> Markup {
    let columns = [
        ("Attempt", true),
        ("Sent", false),
        ("Response", true),
        ("Duration, ms", true),
        ("Outcome", false),
        ("Request ID", false),
    ];
    let row = |attempt: &Attempt| {
        let outcome = match (&attempt.error, attempt.response_status) {
            (Some(error), _) => html! { (error) },
            (None, Some(_)) => html! { "Delivered" },
            (None, None) => html! { "In flight" },
        };
        vec![
            html! { (attempt.attempt) },
            time(attempt.started_at),
            number(attempt.response_status),
            number(attempt.response_time_ms),
            outcome,
            html! { code { (attempt.request_id) } },
        ]
    };
    table::table("Attempts", &columns, &attempts.iter().map(row).collect::<Vec<_>>())
}

/// Shows the body of each attempt's response. The latest one is open. Each gets an equal share of the page. An attempt without a
/// body is named.
pub fn responses(attempts: &[Attempt]) -> Markup {
    let count = attempts.iter().filter(|attempt| attempt.body().is_some()).count();
    let latest = attempts.iter().rposition(|attempt| attempt.body().is_some());
    html! {
        @if count == 0 { p.quiet { "No attempt has one, or they are no longer kept." } }
        @else {
            @for (n, attempt) in attempts.iter().enumerate() { (response(attempt, MAX_TEXT / count, latest == Some(n))) }
        }
    }
}

/// Shows at most this many characters of an attempt's response.
fn response(attempt: &Attempt, most: usize, is_open: bool) -> Markup {
    html! {
        @match (attempt.body(), attempt.response_status) {
            (Some(body), status) => {
                details.card open[is_open] {
                    summary { "Attempt " (attempt.attempt) ", status " (number(status)) }
                    (cut(body, most))
                }
            },
            (None, Some(status)) => p.quiet { "Attempt " (attempt.attempt) ", status " (status) ": no body is kept." },
            (None, None) => p.quiet { "Attempt " (attempt.attempt) ": no response." },
        }
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// Builds a delivery as the API shows it.
    pub fn detail(status: &str, attempts: i16) -> Detail {
        let attempt = json!({"attempt": 1, "request_id": "r-1", "started_at": "2026-01-31T12:00:00Z", "response_status": 500,
            "response_time_ms": 12, "error": "status <b>500", "response_body": "no <b>room"});
        let detail = json!({"id": 11, "event_id": "e-1", "event_type": "order.created", "order_id": 42, "webhook_url_id": 6, "sequence": 9,
            "status": status, "attempt_count": attempts, "max_attempts": 5, "response_status": 500, "response_time_ms": 12,
            "payload": {"data": {"id": 42}}, "created_at": "2026-01-31T12:00:00Z", "delivered_at": null,
            "next_attempt_at": null, "attempts": [attempt]});
        serde_json::from_value(detail).unwrap()
    }

    #[test]
    fn an_attempt_has_its_response() {
        let markup = attempts(&detail("failed", 1).attempts).0;
        assert!(markup.contains("status &lt;b&gt;500") && markup.contains("r-1"), "{markup}");
    }

    #[test]
    fn the_responses_of_a_delivery_share_the_page_and_the_latest_is_open() {
        let body = |body: Option<String>| Attempt { response_body: body, ..detail("failed", 1).attempts.remove(0) };
        let long = || Some("ä".repeat(MAX_TEXT));
        let markup = responses(&[body(long()), body(Some(String::new())), body(None), body(long())]).0;
        assert_eq!((markup.matches("<summary>").count(), markup.matches(" open>").count()), (2, 1), "{markup}");
        assert_eq!((markup.matches("first 6000 characters").count(), markup.matches('ä').count()), (2, MAX_TEXT));
        assert!(responses(&detail("failed", 1).attempts).0.contains("no &lt;b&gt;room"));
        assert!(responses(&[body(None)]).0.contains("No attempt has one"));
        assert_eq!(markup.matches("Attempt 1, status 500: no body is kept.").count(), 2, "{markup}");
        let unanswered = Attempt { response_status: None, ..body(None) };
        assert!(responses(&[unanswered, body(long())]).0.contains("Attempt 1: no response."));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let markup = excerpt(&"ä".repeat(MAX_TEXT + 1)).0;
        assert!(markup.contains("first 12000 characters") && markup.matches('ä').count() == MAX_TEXT);
        assert!(!excerpt("short").0.contains("characters"));
    }

    #[test]
    fn a_test_has_no_order() {
        let about = |event_type: &str, order_id| {
            let Detail { mut delivery, .. } = detail("pending", 0);
            (delivery.event_type, delivery.order_id) = (event_type.to_owned(), order_id);
            about("/orders", &delivery).0
        };
        assert_eq!(about("order.created", 0), "Test");
        assert_eq!(about("payout.paid", 0), "–");
        assert!(about("order.created", 5).contains("href=\"/orders/5\""));
    }
}
