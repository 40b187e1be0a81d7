//! Past checkpoints of a log, with the witnesses that have cosigned them.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::parts::{key_name, position};
use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::parts::table;
use crate::pages::parts::values::{copyable, time};
use crate::pages::visit::Visit;

/// A checkpoint, as `GET /admin/v1/checkpoints` returns it.
#[derive(Debug, Deserialize)]
struct Checkpoint {
    origin: String,
    size: i64,
    root: String,
    signed_at: DateTime<Utc>,
    cosignatures: Vec<Cosignature>,
}

#[derive(Debug, Deserialize)]
struct Cosignature {
    witness: String,
    cosigned_at: DateTime<Utc>,
}

/// A page of checkpoints, the newest first.
#[derive(Debug, Deserialize)]
pub struct Checkpoints {
    checkpoints: Vec<Checkpoint>,
    next_before: Option<i64>,
}

/// Reads the checkpoints of a shard that the query asks for.
pub async fn load(visit: &Visit, shard: i16) -> Result<Checkpoints, Refusal> {
    visit.get(&format!("/admin/v1/checkpoints?shard_id={shard}&{}", visit.query.only(&["before"]))).await
}

/// Renders the checkpoints. `query` has the shard, and the size before which the page begins.
pub fn past(query: &Form, shard: i16, checkpoints: &Checkpoints) -> Markup {
    let link = |before: Option<i64>| {
        let before = before.map(|before| ("before", before.to_string()));
        format!("/console/log?{}", url::form_urlencoded::Serializer::new(query.only(&["shard"])).extend_pairs(before).finish())
    };
    let is_first = query.text("before").is_none();
    html! {
        h2 { "Published checkpoints" }
        @if checkpoints.checkpoints.is_empty() { p.quiet { "There is no older checkpoint." } } @else { (rows(shard, &checkpoints.checkpoints)) }
        @if !is_first || checkpoints.next_before.is_some() {
            nav.pager aria-label="Parts of the list" {
                @if !is_first { a.button href=(link(None)) { "Newest" } }
                @if let Some(before) = checkpoints.next_before { a.button href=(link(Some(before))) rel="next" { "Older" } }
            }
        }
    }
}

fn rows(shard: i16, checkpoints: &[Checkpoint]) -> Markup {
    let columns = [("Signed", false), ("Events", true), ("Root", false), ("Cosigned by", false), ("Origin", false)];
    let row = |checkpoint: &Checkpoint| {
        vec![
            time(checkpoint.signed_at),
            position(shard, checkpoint.size),
            copyable(&checkpoint.root),
            html! {
                @if checkpoint.cosignatures.is_empty() { span.quiet { "nobody" } }
                @for Cosignature { witness, cosigned_at } in &checkpoint.cosignatures { div { (key_name(witness)) ", " (time(*cosigned_at)) } }
            },
            html! { (checkpoint.origin) },
        ]
    };
    table::table("Published checkpoints", &columns, &checkpoints.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn checkpoints_have_their_witnesses_and_a_link_to_older_ones() {
        let checkpoints = json!({"checkpoints": [
            {"origin": "example.com/log/2", "size": 1200, "root": "cm9vdA==", "signed_at": "2026-01-31T12:00:00Z",
             "cosignatures": [{"witness": "witness.example+1234+BASE64", "cosigned_at": "2026-01-31T12:00:02Z"}]},
            {"origin": "example.com/log/2", "size": 900, "root": "cm9vdA==", "signed_at": "2026-01-31T11:00:00Z", "cosignatures": []}],
            "next_before": 900});
        let markup = past(&Form::parse(b"shard=2"), 2, &serde_json::from_value(checkpoints).unwrap()).0;
        for text in ["/console/events/2/", "witness.example, ", "nobody", "/console/log?shard=2&amp;before=900", "cm9vdA=="] {
            assert!(markup.contains(text), "{text}: {markup}");
        }
        assert!(!markup.contains("Newest"), "{markup}");
    }
}
