//! The audit: who did what, by actor, subject, type and time, and as CSV.

use std::cmp::Reverse;
use std::{future, io};

use chrono::{DateTime, SecondsFormat, Utc};
use futures::{StreamExt, stream};
use maud::{Markup, html};
use poem::{Body, Response};
use serde::Deserialize;

use super::parts::{account, short_request, subject};
use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, file};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{PERIOD, in_minutes, minute_fields, minutes, rfc3339};
use crate::pages::parts::values::{MAX_LISTED, beginning, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use crate::spreadsheet::{self, inert};

/// Filters of the page that are those of the API.
const FILTERS: [&str; 6] = ["actor", "subject", "type", "account_id", "shard_id", "reveals"];
/// Number of calls for a page with actions. A part of the log without such actions is empty.
const MAX_CALLS: usize = 5;
/// Number of actions on a page.
const ON_PAGE: usize = 50;
/// Largest number of actions in a call.
const IN_CALL: usize = 100;
/// Choices of the filter for reveals of secrets.
const REVEALS: [(&str, &str); 2] = [("", "All actions"), ("true", "Reveals of secrets")];

/// An action, as `GET /admin/v1/audit` returns it.
#[derive(Debug, Deserialize)]
pub struct Entry {
    position: i64,
    event_id: String,
    r#type: String,
    actor_type: String,
    actor_id: Option<i64>,
    actor_name: Option<String>,
    subject: String,
    account_id: Option<i64>,
    reference: Option<String>,
    reason: Option<String>,
    request_id: String,
    pub recorded_at: DateTime<Utc>,
}

/// A part of the audit, the newest actions first.
#[derive(Debug, Deserialize)]
struct Part {
    entries: Vec<Entry>,
    next_before: Option<i64>,
    /// Shard whose log has them.
    shard_id: i16,
    /// All shards of the ledger.
    shard_ids: Vec<i16>,
}

impl Entry {
    /// Returns the actor as the filter has it, such as `operator/3`.
    fn actor(&self) -> String {
        match self.actor_id {
            Some(id) => format!("{}/{id}", self.actor_type),
            None => self.actor_type.clone(),
        }
    }

    /// Names the actor for people.
    fn actor_title(&self) -> String {
        let kind = if self.actor_type == "credential" { "API key".to_owned() } else { words(&self.actor_type) };
        match (&self.actor_name, self.actor_id) {
            (Some(name), _) => format!("{kind} {name}"),
            (None, Some(0)) => format!("{kind} of the configuration"),
            (None, Some(id)) => format!("{kind} {id}"),
            (None, None) => kind,
        }
    }

    /// Links to everything that the actor did.
    pub fn by(&self) -> Markup {
        html! { a href=(super::parts::audit_of("actor", &self.actor())) { (self.actor_title()) } }
    }

    /// Links to the event in the log of a shard.
    pub fn event(&self, shard: i16) -> Markup {
        html! { a href={ "/console/events/" (shard) "/" (self.position) } { (self.r#type) } }
    }

    /// Returns the reference and the reason, each with its name, as far as the action has them.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let texts = [("Reference", &self.reference), ("Reason or note", &self.reason)];
        texts.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)))
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/audit", list).get("/console/audit.csv", download)
}

/// Returns the filters of a query as a query of the API.
fn filters(query: &Form) -> Result<String, Refusal> {
    let mut filters = url::form_urlencoded::Serializer::new(query.only(&FILTERS));
    for (parameter, at) in ["since", "until"].into_iter().zip(minutes(query)?) {
        filters.extend_pairs(at.map(|at| (parameter, rfc3339(at))));
    }
    Ok(filters.finish())
}

/// Returns a query with the parameter `before`, if there is a position.
fn earlier(query: &str, before: Option<&str>) -> String {
    let before = before.map(|before| ("before", before));
    url::form_urlencoded::Serializer::new(query.to_owned()).extend_pairs(before).finish()
}

/// Reads the part of the log before a position.
async fn call(visit: &Visit, filters: &str, before: Option<&str>, limit: usize) -> Result<Part, Refusal> {
    visit.get(&format!("/admin/v1/audit?{}&limit={limit}", earlier(filters, before))).await
}

/// Reads the action at a position of the log of a shard.
pub async fn at(visit: &Visit, shard: i64, position: i64) -> Result<Option<Entry>, Refusal> {
    let after = position.saturating_add(1).to_string();
    let part = call(visit, &format!("shard_id={shard}"), Some(&after), 1).await?;
    Ok(part.entries.into_iter().find(|entry| entry.position == position))
}

/// Reads the newest actions of these types on a subject in all shards, each with its shard.
pub async fn newest(visit: &Visit, subject: &str, types: &str, most: usize) -> Result<Vec<(i16, Entry)>, Refusal> {
    let filters =
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs([("subject", subject), ("type", types)]).finish();
    let first = call(visit, &filters, None, most).await?;
    let others: Vec<i16> = first.shard_ids.iter().copied().filter(|shard| *shard != first.shard_id).collect();
    let others = others.into_iter().map(|shard| {
        let filters = format!("{filters}&shard_id={shard}");
        async move { call(visit, &filters, None, most).await }
    });
    let mut parts = futures::future::try_join_all(others).await?;
    parts.push(first);
    Ok(merged(parts, most))
}

/// Merges the actions of several shards, the newest first.
fn merged(parts: Vec<Part>, most: usize) -> Vec<(i16, Entry)> {
    let of_part = |part: Part| part.entries.into_iter().map(move |entry| (part.shard_id, entry));
    let mut all: Vec<(i16, Entry)> = parts.into_iter().flat_map(of_part).collect();
    all.sort_by_key(|(_, entry)| Reverse(entry.recorded_at)); // stable: those of a shard stay in their order
    all.truncate(most);
    all
}

/// Reads actions until there are `wanted` of them, the log has no more, or `calls` calls are made.
async fn load(visit: &Visit, wanted: usize, calls: usize) -> Result<Part, Refusal> {
    let filters = filters(&visit.query)?;
    let mut loaded = Part { entries: vec![], next_before: None, shard_id: 0, shard_ids: vec![] };
    let mut before = visit.query.text("before").map(ToOwned::to_owned);
    for _ in 0..calls {
        let limit = (wanted - loaded.entries.len()).min(IN_CALL);
        let part = call(visit, &filters, before.as_deref(), limit).await?;
        before = part.next_before.map(|before| before.to_string());
        loaded.entries.extend(part.entries);
        loaded = Part { entries: loaded.entries, ..part };
        if before.is_none() || loaded.entries.len() >= wanted {
            break;
        }
    }
    Ok(loaded)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    match load(&visit, ON_PAGE, MAX_CALLS).await {
        Ok(part) => Ok(page(&visit, Some(&part), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

/// Returns the address of a page or file with the filters of a query, and the actions before a position.
fn link(path: &str, query: &Form, before: Option<&str>) -> String {
    format!("{path}?{}", earlier(&query.only(&[&FILTERS[..], &PERIOD[..]].concat()), before))
}

fn page(visit: &Visit, part: Option<&Part>, refusal: Option<&Refusal>) -> Response {
    let query = in_minutes(&visit.query);
    let fields = Filled { form: &query, refusal };
    let body = html! {
        (layout::problem(refusal))
        p {
            "Everything that clients, operators and background processes did, the newest first. "
            a href="/console/audit?reveals=true" { "Reveals of secrets" }
            " are included: keys, tokens and signing secrets that were created or rotated, second factors that were \
             enrolled, and "
            a href="/console/audit?type=VouchersRevealed" { "Readings of voucher codes" } "."
        }
        p.quiet {
            "An actor is such as operator/3, or a kind such as operator. A subject is such as order/42. Commas separate several events, \
             such as OrderPlaced,OrderCancelled. Without a shard, the page shows the shard of the subject, or the first one."
        }
        (table::filters("/console/audit", &html! {
            (fields.input("actor", "Actor", "search", ""))
            (fields.input("subject", "Subject", "search", ""))
            (fields.input("type", "Events", "search", ""))
            (fields.select("reveals", "Show", &REVEALS, ""))
            (fields.input("account_id", "Account number", "search", ""))
            (minute_fields(&fields))
            (fields.input("shard_id", "Shard", "search", ""))
        }))
        @if let Some(part) = part { (content(&visit.query, part)) }
    };
    layout::page(visit, "Audit", &body)
}

fn content(query: &Form, part: &Part) -> Markup {
    let is_first = query.text("before").is_none();
    html! {
        @if part.shard_ids.len() > 1 { (shards(query, &part.shard_id.to_string(), &part.shard_ids)) }
        @if !part.entries.is_empty() {
            (rows(part.shard_id, &part.entries))
            p {
                a href=(link("/console/audit.csv", query, None)) { "Download as CSV" } " "
                span.quiet { "Everything that matches these filters." }
            }
        } @else if part.next_before.is_some() { p.quiet { "This part of the log has no such action." } }
        @else { (table::empty("The log has no such action.", Some(("/console/audit", "Show all actions")))) }
        nav.pager aria-label="Parts of the log" {
            @if !is_first { a.button href=(link("/console/audit", query, None)) { "Newest" } }
            @if let Some(before) = part.next_before {
                a.button href=(link("/console/audit", query, Some(&before.to_string()))) rel="next" { "Older" }
            } @else { span.quiet { "This is the beginning of the log." } }
        }
    }
}

/// Links to the same actions in the other shards.
fn shards(query: &Form, shown: &str, all: &[i16]) -> Markup {
    let kept: Vec<&str> = FILTERS.into_iter().filter(|name| *name != "shard_id").chain(PERIOD).collect();
    html! {
        nav aria-label="Shards" {
            ul.links {
                @for shard in all.iter().map(ToString::to_string) {
                    @let filters = url::form_urlencoded::Serializer::new(query.only(&kept)).append_pair("shard_id", &shard).finish();
                    li { a href={ "/console/audit?" (filters) } aria-current=[(shard == shown).then_some("page")] { "Shard " (shard) } }
                }
            }
        }
    }
}

fn rows(shard: i16, entries: &[Entry]) -> Markup {
    let columns =
        [("Time", false), ("Actor", false), ("Event", false), ("Subject", false), ("Account", false), ("Request", false)];
    let row = |entry: &Entry| {
        vec![
            time(entry.recorded_at),
            entry.by(),
            html! { (entry.event(shard)) @for (name, text) in entry.texts() { div.quiet { (name) ": " (beginning(text, MAX_LISTED)) } } },
            subject(&entry.subject),
            html! { @match entry.account_id { Some(id) => (account(id)), None => "–" } },
            short_request(&entry.request_id),
        ]
    };
    table::table("Actions", &columns, &entries.iter().map(row).collect::<Vec<_>>())
}

/// Sends all actions that match the filters as CSV, the newest first, call by call. A call that fails after the first one
/// breaks the download off, so that nobody takes the part for the whole.
async fn download(visit: Visit) -> PageResult {
    visit.operator()?;
    let filters = filters(&visit.query)?;
    let first = call(&visit, &filters, visit.query.text("before"), IN_CALL).await?;
    let begin = future::ready(csv(&first.entries, true));
    let rest = stream::try_unfold((visit, filters, first.next_before), |(visit, filters, before)| async move {
        let Some(before) = before else { return Ok(None) };
        let part = call(&visit, &filters, Some(&before.to_string()), IN_CALL).await.map_err(|refusal| {
            tracing::warn!(code = refusal.code, "a download of the audit broke off");
            io::Error::other(refusal.message)
        })?;
        Ok(Some((csv(&part.entries, false)?, (visit, filters, part.next_before))))
    });
    let body = Body::from_bytes_stream(stream::once(begin).chain(rest));
    Ok(file("audit.csv", "text/csv; charset=utf-8; header=present", body))
}

fn csv(entries: &[Entry], is_first: bool) -> io::Result<Vec<u8>> {
    let columns = [
        "position",
        "event_id",
        "recorded_at",
        "type",
        "actor",
        "actor_name",
        "subject",
        "account_id",
        "request_id",
        "reference",
        "reason",
    ];
    let mut text = Vec::new();
    spreadsheet::rows(&mut text, |csv| {
        if is_first {
            csv.write_record(columns)?;
        }
        entries.iter().try_for_each(|entry| {
            csv.write_record([
                &*entry.position.to_string(),
                &*entry.event_id,
                &*entry.recorded_at.to_rfc3339_opts(SecondsFormat::Millis, true),
                &*entry.r#type,
                &*entry.actor(),
                &*inert(entry.actor_name.as_deref().unwrap_or_default()),
                &*entry.subject,
                &*entry.account_id.map_or_else(String::new, |id| id.to_string()),
                &*inert(&entry.request_id),
                &*inert(entry.reference.as_deref().unwrap_or_default()),
                &*inert(entry.reason.as_deref().unwrap_or_default()),
            ])
        })
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(name: Option<&str>, id: Option<i64>) -> Entry {
        let entry = json!({"position": 17, "event_id": "e", "type": "VouchersRevealed", "actor_type": "credential",
            "actor_id": id, "actor_name": name, "subject": "order/42", "account_id": 5, "request_id": "r",
            "reason": "=<i>", "recorded_at": "2026-01-31T12:00:00Z"});
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn an_action_leads_to_its_actor_its_event_and_its_subject() {
        let markup = rows(2, &[entry(Some("<b>"), Some(3))]).0;
        for link in ["/console/audit?actor=credential%2F3", "/console/events/2/17", "/console/orders/42", "/console/search?q=r"] {
            assert!(markup.contains(link), "{link}: {markup}");
        }
        assert!(!markup.contains("<b>") && markup.contains("Reason or note: =&lt;i&gt;"), "{markup}");
        assert_eq!(beginning(&"ä".repeat(MAX_LISTED + 1), MAX_LISTED), "ä".repeat(MAX_LISTED) + "…");
        assert_eq!((entry(None, Some(3)).actor_title(), entry(None, None).actor()), ("API key 3".into(), "credential".into()));
    }

    #[test]
    fn the_filters_become_a_query_and_stay_in_the_links() {
        let query = Form::parse(b"actor=operator%2F3&from=2026-01-31&to=2026-01-31&before=9");
        let expected = "actor=operator%2F3&since=2026-01-31T00%3A00%3A00Z&until=2026-02-01T00%3A00%3A00Z";
        assert_eq!(filters(&query).unwrap(), expected);
        assert_eq!(
            link("/console/audit", &query, Some("5")),
            "/console/audit?actor=operator%2F3&from=2026-01-31&to=2026-01-31&before=5"
        );
    }

    #[test]
    fn the_other_shards_have_links_that_keep_the_filters() {
        let query = Form::parse(b"type=OrderPlaced&shard_id=2&before=9");
        let part = |shard_ids| Part { entries: vec![], next_before: None, shard_id: 2, shard_ids };
        let markup = content(&query, &part(vec![1, 2])).0;
        assert!(markup.contains("/console/audit?type=OrderPlaced&amp;shard_id=1") && markup.contains("aria-current"), "{markup}");
        assert!(!content(&query, &part(vec![1])).0.contains("aria-current"));
    }

    #[test]
    fn the_actions_of_several_shards_are_merged_by_their_time() {
        let part = |shard_id, minutes: &[u32]| {
            let at = |minute: &u32| {
                let recorded_at = format!("2026-01-31T12:{minute:02}:00Z").parse().unwrap();
                Entry { recorded_at, ..entry(None, None) }
            };
            Part { entries: minutes.iter().map(at).collect(), next_before: None, shard_id, shard_ids: vec![1, 2] }
        };
        let merged = merged(vec![part(2, &[7, 3, 2]), part(1, &[8, 3])], 4);
        assert_eq!(merged.iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [1, 2, 2, 1]);
    }

    #[test]
    fn a_csv_has_no_formulas() {
        let text = String::from_utf8(csv(&[entry(Some("=1+1"), Some(3))], true).unwrap()).unwrap();
        let row = text.lines().nth(1).unwrap();
        assert_eq!(csv(&[], false).unwrap(), b"");
        assert_eq!(row, "17,e,2026-01-31T12:00:00.000Z,VouchersRevealed,credential/3,'=1+1,order/42,5,r,,'=<i>");
    }
}
