//! Headers of a delivery's requests: those of HTTP, those that the sender adds, and the webhook's own.

use hyper::body::Bytes;
use maud::{Markup, html};
use poem::http::{HeaderMap, HeaderName};
use webhook_client::custom::CustomHeaders;
use webhook_client::sender::{self, DeliveryHeaders};

use super::delivery::{Attempt, Delivery, Detail};
use crate::pages::parts::table;
use crate::pages::parts::values::copyable;

const COLUMNS: [(&str, bool); 3] = [("Header", false), ("Value", false), ("Meaning", false)];

/// Names of the headers, as documents write them, with the meanings of their values.
const MEANINGS: [(&str, &str); 13] = [
    ("Host", "The host of the webhook's URL, with the port unless it is 443."),
    ("Content-Type", "The format of the payload."),
    ("User-Agent", "The service that sends."),
    ("X-Webhook-ID", "The number of the webhook."),
    ("X-Event-ID", "The ID of the event, equal in all attempts and replays. A receiver recognizes repeated events by it."),
    ("X-Event-Type", "The type of the event."),
    ("X-Event-Sequence", "A number that grows with every event of the same object. It is equal in all attempts."),
    ("X-Timestamp", "The time at which the attempt is sent, in Unix seconds."),
    (
        "X-Signature",
        "The HMAC-SHA256 over X-Timestamp, a dot and the body, in lowercase hex. The key is the webhook's secret. It differs \
         between attempts, and is not kept.",
    ),
    (
        "X-Signature-Previous",
        "A second signature, whose key is the secret before a rotation. Only while the rotation keeps that secret valid.",
    ),
    ("X-Request-ID", "The ID of the attempt."),
    ("traceparent", "The place of the attempt in a trace (W3C Trace Context). Only if the service exports traces."),
    ("Content-Length", "The number of bytes of the payload as it is sent."),
];
/// End of the name of the header that carries the secret.
const TOKEN_SUFFIX: &str = "-webhook-token";
const TOKEN: &str = "The webhook's secret itself, for a quick check. It is not shown.";

/// A table of all headers of a delivery, and what the attempts have sent in them. `own` are the names of the webhook's own
/// headers, if they are known.
pub fn headers(service_name: &str, detail: &Detail, own: Option<&[String]>) -> Markup {
    let sent = sent(service_name, &detail.delivery);
    let names = std::iter::once("host").chain(sent.keys().map(HeaderName::as_str)).chain(std::iter::once("content-length"));
    let row = |name: &str| {
        let (title, meaning) = meaning(name).unwrap_or_else(|| (name.to_owned(), ""));
        let value = sent.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        vec![html! { (title) }, shown(name, value, &detail.attempts), html! { (meaning) }]
    };
    let of_webhook =
        |name: &String| vec![html! { (name) }, html! { "–" }, html! { "A header of the webhook's own. Its value is not shown." }];
    let rows: Vec<Vec<Markup>> = names.map(row).chain(own.unwrap_or_default().iter().map(of_webhook)).collect();
    html! {
        (table::table("Headers", &COLUMNS, &rows))
        p.quiet {
            "The webhook's secret is its token, or the signing secret of the API key to which it is linked. "
            @if own.is_some() { "Headers of the webhook's own are those that it has now." }
            @else { "If the webhook has headers of its own, each attempt carries them, too." }
        }
    }
}

/// Returns the headers as the sender makes them, with empty values for what only an attempt knows.
fn sent(service_name: &str, delivery: &Delivery) -> HeaderMap {
    let request = sender::Delivery {
        url: "",
        webhook_id: delivery.webhook_url_id,
        event_id: &delivery.event_id,
        event_type: &delivery.event_type,
        sequence: Some(delivery.sequence),
        request_id: "",
        secret: "",
        previous_secret: Some(""),
        timestamp: 0,
        traceparent: Some(""),
        custom_headers: CustomHeaders::none(),
        body: Bytes::new(),
    };
    // The configuration admits only names that fit into a header.
    DeliveryHeaders::new(service_name).ok().and_then(|headers| headers.sign(&request).ok()).unwrap_or_default()
}

/// Returns the name of a header as documents write it, and the meaning of its value.
fn meaning(name: &str) -> Option<(String, &'static str)> {
    if name.ends_with(TOKEN_SUFFIX) {
        return Some((name.to_ascii_uppercase(), TOKEN));
    }
    let known = MEANINGS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(known, meaning)| ((*known).to_owned(), *meaning))
}

/// Renders the value of a header, or that of each attempt. A value that depends on a secret, or that nobody keeps, is not shown.
fn shown(name: &str, value: &str, attempts: &[Attempt]) -> Markup {
    match name {
        "content-type" | "user-agent" | "x-webhook-id" | "x-event-type" | "x-event-sequence" => html! { code { (value) } },
        "x-event-id" => copyable(value),
        "x-request-id" => each(attempts, |attempt| Some(attempt.request_id.clone())),
        // An attempt gets the time of its sending when it ends.
        "x-timestamp" => each(attempts, |attempt| attempt.response_time_ms.map(|_| attempt.started_at.timestamp().to_string())),
        _ => html! { "–" },
    }
}

fn each(attempts: &[Attempt], value: impl Fn(&Attempt) -> Option<String>) -> Markup {
    let value = |attempt: &Attempt| html! { @match value(attempt) { Some(value) => (copyable(&value)), None => "–" } };
    html! {
        @match attempts {
            [] => "–",
            [attempt] => (value(attempt)),
            several => { @for attempt in several { p { "Attempt " (attempt.attempt) ": " (value(attempt)) } } },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pages::shared::delivery::tests::detail;

    #[test]
    fn each_header_of_the_sender_has_a_meaning() {
        let sent = sent("SERVICE", &detail("failed", 1).delivery);
        let unknown: Vec<&HeaderName> = sent.keys().filter(|name| meaning(name.as_str()).is_none()).collect();
        assert!(sent.len() > 10 && unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn each_attempt_has_its_own_time_and_id() {
        let mut detail = detail("failed", 2);
        let one = headers("SERVICE", &detail, Some(&["x-shop".to_owned()])).0;
        assert!(one.contains("1769860800") && one.contains("r-1") && !one.contains("Attempt 1"), "{one}");
        assert!(one.contains("X-SERVICE-WEBHOOK-TOKEN") && one.contains("x-shop"), "{one}");
        let second = json!({"attempt": 2, "request_id": "r-2", "started_at": "2026-01-31T12:01:00Z"});
        detail.attempts.push(serde_json::from_value(second).unwrap());
        let two = headers("SERVICE", &detail, None).0;
        assert!(two.contains("Attempt 2: –") && two.contains("r-2") && two.contains("headers of its own"), "{two}");
    }
}
