//! Erasures of personal data, and the retention of what is kept for a time.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::parts::{account, audit_of, subject};
use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{MAX_LISTED, beginning, counted, grouped, time, time_or_none, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// An erasure, as `GET /admin/v1/erasures` returns it.
#[derive(Debug, Deserialize)]
struct Erasure {
    position: i64,
    actor_type: String,
    actor_id: Option<i64>,
    actor_name: Option<String>,
    subject: String,
    account_id: Option<i64>,
    reason: Option<String>,
    line: Option<i32>,
    texts: i64,
    vouchers: i64,
    responses: i64,
    data_keys: i64,
    is_complete: bool,
    recorded_at: DateTime<Utc>,
}

/// A page of erasures, the newest first.
#[derive(Debug, Deserialize)]
struct Part {
    erasures: Vec<Erasure>,
    next_before: Option<i64>,
    unwiped_tables: Vec<String>,
}

/// A rule of `GET /admin/v1/retention`.
#[derive(Debug, Deserialize)]
struct Rule {
    data: String,
    setting: Option<String>,
    kept_seconds: Option<i64>,
    quota_bytes: Option<i64>,
    oldest_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
struct Retention {
    rules: Vec<Rule>,
}

impl Rule {
    /// Names the data for people, and says whether the page can tell the age of the oldest.
    fn name(&self) -> (&str, bool) {
        match self.data.as_str() {
            "attempts" => ("Delivery attempts, with their response bodies", true),
            "payloads" => ("Payloads of delivered events. They are derived again from the log when needed.", true),
            "response_bodies" => ("Response bodies of a webhook's receiver", false),
            "stored_responses" => ("Responses under an Idempotency-Key", false),
            "delivery_days" => ("Counts of delivery attempts by day", true),
            other => (other, false),
        }
    }

    fn extent(&self) -> String {
        match (self.kept_seconds, self.quota_bytes) {
            (Some(seconds), _) => span(seconds),
            (None, Some(bytes)) => format!("the newest {} KiB of each webhook", grouped(&(bytes / 1024).to_string())),
            (None, None) => "for ever".to_owned(),
        }
    }
}

/// Returns a duration in its largest whole unit.
fn span(seconds: i64) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let (size, name) = units.into_iter().find(|(size, _)| seconds % size == 0 && seconds >= *size).unwrap_or((1, "second"));
    let count = seconds / size;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

pub fn add(site: Site) -> Site {
    site.get("/console/erasures", show)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let erasures = format!("/admin/v1/erasures?{}", visit.query.only(&["before", "shard_id"]));
    match futures::try_join!(visit.get::<Part>(&erasures), visit.get::<Retention>("/admin/v1/retention")) {
        Ok((part, retention)) => Ok(page(&visit, Some((&part, &retention)), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

fn page(visit: &Visit, loaded: Option<(&Part, &Retention)>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let body = html! {
        (layout::problem(refusal))
        p {
            "An erasure destroys a person's data and the keys that sealed it. The log keeps ids and counts, and every proof still holds. "
            "It cannot be undone, and rewrites tables as their owner, so only the command "
            code { "rewards-ledger erase" } " makes one."
        }
        (table::filters("/console/erasures", &fields.input("shard_id", "Shard", "search", "")))
        @if let Some((part, retention)) = loaded {
            (unwiped(&part.unwiped_tables))
            (erasures(&visit.query, part))
            h2 { "Retention" }
            p { "The log, and everything that is derived from it, is kept for ever. This data is deleted, by the settings of this node:" }
            (rules(&retention.rules))
        }
    };
    layout::page(visit, "Erasures", &body)
}

/// Says which tables still hold deleted data in their files.
pub fn unwiped(tables: &[String]) -> Markup {
    html! {
        @if tables.is_empty() { p.quiet { "No erasure is unfinished." } }
        @else {
            p.notice.wait {
                "An erasure still has to remove deleted data from the files of " (tables.join(", ")) ". Run "
                code { "rewards-ledger erase finish" } " at a quiet time."
            }
        }
    }
}

fn erasures(query: &Form, part: &Part) -> Markup {
    let shard = query.text("shard_id").unwrap_or("1");
    let link = |before: Option<i64>| {
        let before = before.map(|before| ("before", before.to_string()));
        let kept = url::form_urlencoded::Serializer::new(query.only(&["shard_id"])).extend_pairs(before).finish();
        format!("/console/erasures?{kept}")
    };
    let is_first = query.text("before").is_none();
    html! {
        @if part.erasures.is_empty() {
            (table::empty("Nothing was erased in this shard.", None))
        } @else { (rows(shard, &part.erasures)) }
        @if !is_first || part.next_before.is_some() {
            nav.pager aria-label="Parts of the list" {
                @if !is_first { a.button href=(link(None)) { "Newest" } }
                @if let Some(before) = part.next_before { a.button href=(link(Some(before))) rel="next" { "Older" } }
            }
        }
    }
}

fn rows(shard: &str, erasures: &[Erasure]) -> Markup {
    let columns = [
        ("Time", false),
        ("Subject", false),
        ("Account", false),
        ("Erased by", false),
        ("Texts", true),
        ("Vouchers", true),
        ("Responses", true),
        ("Keys", true),
        ("Left", false),
    ];
    let row = |erasure: &Erasure| {
        let event = format!("/console/events/{shard}/{}", erasure.position);
        vec![
            html! { a href=(event) { (time(erasure.recorded_at)) } },
            html! { (subject(&erasure.subject)) @if let Some(line) = erasure.line { ", line " (line) } },
            html! { @match erasure.account_id { Some(id) => (account(id)), None => "–" } },
            html! { (actor(erasure)) @if let Some(reason) = &erasure.reason { div.quiet { (beginning(reason, MAX_LISTED)) } } },
            counted(erasure.texts, &event),
            counted(erasure.vouchers, &event),
            counted(erasure.responses, &event),
            counted(erasure.data_keys, &event),
            html! { @if erasure.is_complete { span class="badge good" { "Nothing" } } @else { span class="badge wait" { "More follows" } } },
        ]
    };
    table::table("Erasures", &columns, &erasures.iter().map(row).collect::<Vec<_>>())
}

fn actor(erasure: &Erasure) -> Markup {
    let kind = words(&erasure.actor_type);
    let (filter, title) = match (erasure.actor_id, &erasure.actor_name) {
        (Some(id), Some(name)) => (format!("{}/{id}", erasure.actor_type), format!("{kind} {name}")),
        (Some(0), None) => (format!("{}/0", erasure.actor_type), format!("{kind} of the configuration")),
        (Some(id), None) => (format!("{}/{id}", erasure.actor_type), format!("{kind} {id}")),
        (None, _) => (erasure.actor_type.clone(), kind),
    };
    html! { a href=(audit_of("actor", &filter)) { (title) } }
}

fn rules(rules: &[Rule]) -> Markup {
    let columns = [("Data", false), ("Kept", false), ("Setting", false), ("Oldest", false)];
    let row = |rule: &Rule| {
        let (name, is_dated) = rule.name();
        vec![
            html! { (name) },
            html! { (rule.extent()) },
            html! { @match &rule.setting { Some(setting) => code { (setting) }, None => "fixed" } },
            html! { @if is_dated { (time_or_none(rule.oldest_at)) } @else { span.quiet { "not looked up" } } },
        ]
    };
    table::table("Retention", &columns, &rules.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_erasure_names_its_subject_by_id_and_its_actor() {
        let erasure = json!({"position": 9, "actor_type": "operator", "actor_id": 0, "actor_name": null, "subject": "reconciliation/3",
            "account_id": null, "reason": "<b>", "line": 17, "texts": 2, "vouchers": 0, "responses": 0, "data_keys": 0,
            "is_complete": false, "recorded_at": "2026-01-31T12:00:00Z"});
        let markup = rows("1", &[serde_json::from_value(erasure).unwrap()]).0;
        for text in ["/console/events/1/9\">2<", "reconciliation/3", ", line 17", "Operator of the configuration", "More follows"]
        {
            assert!(markup.contains(text), "{text}: {markup}");
        }
        assert!(markup.contains("&lt;b&gt;") && !markup.contains("<b>"), "{markup}");
    }

    #[test]
    fn a_time_is_shown_in_its_largest_whole_unit() {
        assert_eq!([7_776_000, 86_400, 90_000, 61].map(span), ["90 days", "1 day", "25 hours", "61 seconds"]);
        assert!(unwiped(&["vault.texts".to_owned()]).0.contains("erase finish") && unwiped(&[]).0.contains("No erasure"));
    }
}
