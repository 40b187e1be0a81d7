//! Replays of a webhook: what failed or was missed since a time is counted, and then delivered again.

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, KEY, MOMENT_HINT, address, moment, new_key};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, time};
use crate::pages::parts::{layout, table};
use crate::pages::portal::webhook::{Webhook, may};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::user::UserRole;

/// Parts of the events that a replay can deliver.
const PARTS: [(&str, &str); 3] =
    [("", "What failed, and what was never sent"), ("failed", "Only what failed"), ("missed", "Only what was never sent")];

/// A replay, as `GET /api/v1/webhooks/:id/replays` returns it.
#[derive(Debug, Deserialize)]
struct Replay {
    id: i64,
    status: String,
    deliveries: i64,
    pending_count: i64,
    delivered_count: i64,
    failed_count: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// Result of a count, as `POST /api/v1/webhooks/:id/replays` returns it for a dry run.
#[derive(Debug, Deserialize)]
struct Counted {
    found: i64,
    is_complete: bool,
}

/// A webhook with its replays, and what was counted for the form.
struct Shown {
    webhook: Webhook,
    replays: List<Replay>,
    counted: Option<Counted>,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/webhooks/:id/replays", show).post("/portal/webhooks/:id/replays", start)
}

fn body(form: &Form, dry_run: bool) -> Value {
    let mut body = json!({"since": form.text("since").map(moment), "dry_run": dry_run});
    if let Some(only) = form.text("only") {
        body["only"] = only.into();
    }
    body
}

async fn load(visit: &Visit, id: i64) -> Result<Shown, Refusal> {
    let (webhook, number) = (format!("/api/v1/webhooks/{id}"), visit.query.only(&["page"]));
    let replays = format!("/api/v1/webhooks/{id}/replays?{number}");
    let (webhook, replays) = futures::try_join!(visit.get(&webhook), visit.list(&replays, "replays"))?;
    Ok(Shown { webhook, replays, counted: None })
}

/// Shows the replays. With a time in the query, counts the events first.
async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let mut shown = load(&visit, id).await?;
    if visit.query.text("since").is_none() {
        return Ok(page(&visit, &shown, &beginning(), None));
    }
    let path = format!("/api/v1/webhooks/{id}/replays");
    match visit.change::<Counted>(Method::POST, &path, &body(&visit.query, true)).await {
        Ok(counted) => {
            shown.counted = Some(counted);
            Ok(page(&visit, &shown, &visit.query, None))
        }
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, &shown, &visit.query, Some(refusal)), refusal)),
    }
}

/// Returns the form as it is first shown: since yesterday.
fn beginning() -> Form {
    let yesterday = Utc::now() - TimeDelta::days(1);
    Form::from_pairs(vec![("since".to_owned(), yesterday.format("%Y-%m-%d %H:%M").to_string())])
}

async fn start(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let key = visit.form.key();
    let path = format!("/api/v1/webhooks/{id}/replays");
    match visit.change_once::<Value>(&path, &key, &body(&visit.form, false)).await {
        Ok(_) => Ok(redirect(&format!("/portal/webhooks/{id}/replays?done=replayed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let shown = load(&visit, id).await?;
            Ok(layout::refused(page(&visit, &shown, &visit.form, Some(&refusal)), &refusal))
        }
    }
}

fn page(visit: &Visit, shown: &Shown, form: &Form, refusal: Option<&Refusal>) -> Response {
    let Shown { webhook, replays, counted } = shown;
    let path = format!("/portal/webhooks/{}/replays", webhook.id);
    let fields = Filled { form, refusal };
    let body = html! {
        @if counted.is_none() { (layout::live(visit)) }
        (layout::problem(refusal))
        p { "A replay delivers the events again that never reached “" (webhook.name) "”. Each has the same " code { "event_id" }
            " and the same bytes as before, and five attempts of its own." }
        @if !may(visit, UserRole::Operator) { p.quiet { "To start a replay, you need the role operator or owner." } }
        @else if !webhook.is_active { p.quiet { "The webhook is off. Switch it on first." } }
        @else {
            form.card method="get" action=(path) {
                (fields.input("since", "Since", "text", MOMENT_HINT))
                (fields.select("only", "Events", &PARTS, "Only types that the webhook is subscribed to."))
                button.plain { "Count the events" }
            }
            @if let Some(counted) = counted { (confirmation(&path, form, counted)) }
        }
        h2 { "Replays" }
        @if replays.items.is_empty() { (table::empty("There was no replay of this webhook yet. A replay sends again what failed or was missed.", None)) }
        @else { (rows(&replays.items)) (table::pager(replays, &path, &visit.query)) }
        p.actions { a href={ "/portal/webhooks/" (webhook.id) } { "Back to " (webhook.name) } }
    };
    layout::page(visit, "Deliver again", &body)
}

/// Shows the count, and the button that starts the replay.
fn confirmation(path: &str, form: &Form, counted: &Counted) -> Markup {
    html! {
        div.card role="status" {
            @if counted.found == 0 && counted.is_complete { p { "Nothing failed or was missed since then." } }
            @else {
                p {
                    strong { @if !counted.is_complete { "At least " } (counted.found) @if counted.found == 1 { " event" } @else { " events" } }
                    " will be delivered again, at most 50 in a second."
                }
                form method="post" action=(path) {
                    input type="hidden" name="since" value=(form.value("since"));
                    input type="hidden" name="only" value=(form.value("only"));
                    input type="hidden" name=(KEY) value=(new_key());
                    button { "Start the replay" }
                }
            }
        }
    }
}

/// Renders a number of a replay's deliveries, which leads to them. `status` may be empty.
fn counted(replay: &Replay, count: i64, status: &str) -> Markup {
    let target = address("/portal/webhooks/deliveries", &[("replay_id", &replay.id.to_string()), ("status", status)]);
    html! { a href=(target) { (count) } }
}

/// Renders replays. Their numbers lead to their deliveries.
fn rows(replays: &[Replay]) -> Markup {
    let columns = [
        ("Replay", false),
        ("Requested", false),
        ("Progress", false),
        ("Deliveries", true),
        ("Delivered", true),
        ("Pending", true),
        ("Failed", true),
        ("Status", false),
    ];
    let row = |replay: &Replay| {
        vec![
            html! { "Replay " (replay.id) },
            time(replay.created_at),
            time(replay.updated_at),
            counted(replay, replay.deliveries, ""),
            counted(replay, replay.delivered_count, "delivered"),
            counted(replay, replay.pending_count, "pending"),
            counted(replay, replay.failed_count, "failed"),
            badge(&replay.status),
        ]
    };
    table::table("Replays", &columns, &replays.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_replay() {
        let expected = json!({"since": "2026-01-31T00:00:00.000Z", "only": "failed", "dry_run": true});
        assert_eq!(body(&Form::parse(b"since=2026-01-31&only=failed"), true), expected);
        assert_eq!(body(&Form::parse(b"only="), false), json!({"since": null, "dry_run": false}));
    }

    #[test]
    fn a_replay_of_nothing_is_not_offered() {
        let form = Form::parse(b"since=2026-01-31&only=%22%3E%3Cb%3E");
        let counted = |found, is_complete| confirmation("/path", &form, &Counted { found, is_complete }).0;
        assert!(!counted(0, true).contains("<form"));
        assert!(counted(0, false).contains("At least 0 events") && counted(1, true).contains(">1 event<"));
        assert!(!counted(1, true).contains("<b>"));
    }
}
