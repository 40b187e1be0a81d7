//! One event of the log, as it is recorded.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::audit;
use super::parts::{account, audit_of, request, subject};
use crate::pages::call::Refusal;
use crate::pages::outcome::{PageResult, Stop};
use crate::pages::parts::layout;
use crate::pages::parts::values::{beginning, copyable, facts, time};
use crate::pages::shared::delivery::excerpt;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Number of characters of a reason on the page. Those of earlier releases have no limit.
const MAX_REASON: usize = 2_000;

/// An event, as `GET /admin/v1/events` exports it.
#[derive(Debug, Deserialize)]
struct Event {
    shard_id: i16,
    position: i64,
    event_id: String,
    stream_type: String,
    stream_id: i64,
    version: i64,
    r#type: String,
    schema_version: i16,
    recorded_at: DateTime<Utc>,
    data: Value,
    metadata: Value,
}

pub fn add(site: Site) -> Site {
    site.get("/console/events/:shard/:position", show)
}

/// Reads the event at a position of the log of a shard.
async fn load(visit: &Visit, shard: i64, position: i64) -> Result<Event, Stop> {
    let path = format!("/admin/v1/events?shard_id={shard}&from={position}&to={position}");
    let line = match visit.bytes(&path, "application/x-ndjson").await {
        Ok(answered) => answered.into_bytes(),
        // An unknown shard, or a position that no log has.
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => return Err(Stop::NotFound),
        Err(refusal) => return Err(refusal.into()),
    };
    if line.is_empty() {
        return Err(Stop::NotFound);
    }
    serde_json::from_slice(&line).map_err(|error| {
        tracing::error!(%error, "a page cannot read an event of the log");
        Stop::Refused(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "E_INTERNAL", "The event cannot be shown."))
    })
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let (shard, position) = (visit.id("shard")?, visit.id("position")?);
    let (event, action) = futures::join!(load(&visit, shard, position), audit::at(&visit, shard, position));
    let (event, action) = (event?, action?);
    let stream = format!("{}/{}", event.stream_type, event.stream_id);
    let body = html! {
        (facts(&context(&event, &stream, action.as_ref())))
        h2 { "Data" }
        p { "Texts that name a person are not in the log. It has their hashes, and the texts are sealed beside it." }
        (excerpt(&format!("{:#}", event.data)))
        h2 { "Metadata" }
        (excerpt(&format!("{:#}", event.metadata)))
        p.actions {
            a href=(audit_of("subject", &stream)) { "All events of " (stream) }
            @if event.position > 1 { a href={ "/console/events/" (event.shard_id) "/" (event.position - 1) } { "The event before" } }
        }
    };
    Ok(layout::page(&visit, &format!("{} at position {}", event.r#type, event.position), &body))
}

/// Returns what is known of the event beside its data: who did it, with the texts that the vault has, and its place in the log.
fn context(event: &Event, stream: &str, action: Option<&audit::Entry>) -> Vec<(&'static str, Markup)> {
    let texts = action.into_iter().flat_map(audit::Entry::texts);
    let texts = texts.map(|(name, text)| (name, html! { (beginning(text, MAX_REASON)) }));
    let before = [
        ("Time", time(event.recorded_at)),
        ("Actor", html! { @match action { Some(action) => (action.by()), None => "–" } }),
        ("Subject", subject(stream)),
        ("Version of the subject", html! { (event.version) }),
        ("Account", html! { @match event.metadata["account_id"].as_i64() { Some(id) => (account(id)), None => "–" } }),
    ];
    let after = [
        ("Request", html! { @match event.metadata["request_id"].as_str() { Some(id) => (request(id)), None => "–" } }),
        ("Event ID", copyable(&event.event_id)),
        ("Position", html! { (event.position) " of shard " (event.shard_id) }),
        ("Version of the schema", html! { (event.schema_version) }),
    ];
    before.into_iter().chain(texts).chain(after).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_leads_to_its_subject_its_account_its_actor_and_its_request() {
        let event = json!({"shard_id": 1, "position": 17, "event_id": "e", "stream_type": "order", "stream_id": 42, "version": 2,
            "type": "OrderPlaced", "schema_version": 1, "recorded_at": "2026-01-31T12:00:00Z", "data": {},
            "metadata": {"actor": {"operator": 3}, "account_id": 5, "request_id": "<b>"}});
        let action = json!({"position": 17, "event_id": "e", "type": "OrderCancelled", "actor_type": "operator", "actor_id": 3,
            "actor_name": "<b>", "subject": "order/42", "account_id": 5, "reference": null, "reason": "<b>", "request_id": "r",
            "recorded_at": "2026-01-31T12:00:00Z"});
        let action: audit::Entry = serde_json::from_value(action).unwrap();
        let markup = facts(&context(&serde_json::from_value(event).unwrap(), "order/42", Some(&action))).0;
        for text in [
            "/console/orders/42",
            "/console/accounts/5",
            "/console/search?q=%3Cb%3E",
            "/console/audit?actor=operator%2F3",
            "<dt>Reason or note</dt><dd>&lt;b&gt;</dd>",
        ] {
            assert!(markup.contains(text), "{text}: {markup}");
        }
        assert!(!markup.contains("<b>") && !markup.contains("<dt>Reference</dt>"), "{markup}");
    }
}
