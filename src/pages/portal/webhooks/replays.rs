//! Replays of a webhook: what failed or was missed since a time is counted, and then delivered again.

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, KEY, MOMENT_HINT, address, new_key};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::zone_field;
use crate::pages::parts::values::{badge, time};
use crate::pages::parts::zone::{ZONE, Zone};
use crate::pages::parts::{layout, table};
use crate::pages::portal::webhook::{Webhook, may};
use crate::pages::shared::counting::{self, Count, hidden};
use crate::pages::shared::replay::progress;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::user::UserRole;

/// Parts of the events that a replay can deliver.
const PARTS: [(&str, &str); 3] =
    [("", "What failed, and what was never sent"), ("failed", "Only what failed"), ("missed", "Only what was never sent")];

/// Fields of the form.
const FIELDS: &[&str] = &["since", ZONE, "only"];

/// A replay, as `GET /api/v1/webhooks/:id/replays` returns it.
#[derive(Debug, Deserialize)]
struct Replay {
    id: i64,
    status: String,
    progress_percent: i64,
    deliveries: i64,
    pending_count: i64,
    delivered_count: i64,
    failed_count: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// A webhook with its replays, and what was counted for the form.
struct Shown {
    webhook: Webhook,
    replays: List<Replay>,
    count: Option<Count>,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/webhooks/:id/replays", show)
        .post("/portal/webhooks/:id/replays", start)
        .get("/portal/webhooks/:id/replays/count", begin)
        .post("/portal/webhooks/:id/replays/count", count)
}

/// Builds the body that a form stands for.
///
/// # Errors
/// A refusal of the time zone.
fn body(form: &Form) -> Result<Value, Refusal> {
    let zone = Zone::of(form)?;
    let mut body = json!({"since": form.text("since").map(|since| zone.moment(since))});
    if let Some(only) = form.text("only") {
        body["only"] = only.into();
    }
    Ok(body)
}

async fn load(visit: &Visit, id: i64) -> Result<Shown, Refusal> {
    let (webhook, number) = (format!("/api/v1/webhooks/{id}"), visit.query.only(&["page"]));
    let replays = format!("/api/v1/webhooks/{id}/replays?{number}");
    let (webhook, replays) = futures::try_join!(visit.get(&webhook), visit.list(&replays, "replays"))?;
    Ok(Shown { webhook, replays, count: None })
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let shown = load(&visit, visit.id("id")?).await?;
    Ok(page(&visit, &shown, &beginning(), None))
}

/// Leads a browser that reads the address of a count again to the form.
async fn begin(visit: Visit) -> PageResult {
    visit.user()?;
    Ok(redirect(&format!("/portal/webhooks/{}/replays", visit.id("id")?)))
}

/// Counts the events of a replay, part after part of the log.
async fn count(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let mut shown = load(&visit, id).await?;
    let counted = async {
        let mut body = body(&visit.form)?;
        if let Some(position) = counting::begin(&visit.form) {
            body["from_position"] = position.into();
        }
        Count::step(&visit, &format!("/api/v1/webhooks/{id}/replays"), body).await
    };
    match counted.await {
        Ok(count) => {
            shown.count = Some(count);
            Ok(page(&visit, &shown, &visit.form, None))
        }
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, &shown, &visit.form, Some(refusal)), refusal)),
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
    let started = async { visit.change_once::<Value>(&path, &key, &body(&visit.form)?).await };
    match started.await {
        Ok(_) => Ok(redirect(&format!("/portal/webhooks/{id}/replays?done=replayed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let shown = load(&visit, id).await?;
            Ok(layout::refused(page(&visit, &shown, &visit.form, Some(&refusal)), &refusal))
        }
    }
}

fn page(visit: &Visit, shown: &Shown, form: &Form, refusal: Option<&Refusal>) -> Response {
    let Shown { webhook, replays, count } = shown;
    let path = format!("/portal/webhooks/{}/replays", webhook.id);
    let fields = Filled { form, refusal };
    let body = html! {
        @if count.is_none() { (layout::live(visit)) }
        (layout::problem(refusal))
        p { "A replay delivers the events again that never reached “" (webhook.name) "”. Each has the same " code { "event_id" }
            " and the same bytes as before, and five attempts of its own." }
        @if !may(visit, UserRole::Operator) { p.quiet { "To start a replay, you need the role operator or owner." } }
        @else if !webhook.is_active { p.quiet { "The webhook is off. Switch it on first." } }
        @else {
            form.card method="post" action={ (path) "/count" } {
                (fields.input("since", "Since", "text", MOMENT_HINT))
                (zone_field(&fields))
                (fields.select("only", "Events", &PARTS, "Only types that the webhook is subscribed to."))
                button.plain { "Count the events" }
            }
            @if let Some(count) = count { (confirmation(&path, form, count)) }
        }
        h2 { "Replays" }
        @if replays.items.is_empty() { (table::empty("There was no replay of this webhook yet. A replay sends again what failed or was missed.", None)) }
        @else { (rows(&replays.items)) (table::pager(replays, &path, &visit.query)) }
        p.actions { a href={ "/portal/webhooks/" (webhook.id) } { "Back to " (webhook.name) } }
    };
    layout::page(visit, "Deliver again", &body)
}

/// Shows the count, and the button that starts the replay.
fn confirmation(path: &str, form: &Form, count: &Count) -> Markup {
    html! {
        div.card role="status" {
            @if count.found == 0 && count.is_complete() { p { "Nothing failed or was missed since then." } }
            @else {
                p { strong { (count.events()) } " will be delivered again, at most 50 in a second." }
                (count.progress(&format!("{path}/count"), form, FIELDS))
                form method="post" action=(path) {
                    (hidden(form, FIELDS))
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
        ("Last progress", false),
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
            progress(replay.id, &replay.status, replay.progress_percent),
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
        let expected = json!({"since": "2026-01-31T00:00:00.000Z", "only": "failed"});
        assert_eq!(body(&Form::parse(b"since=2026-01-31&only=failed")).unwrap(), expected);
        assert_eq!(body(&Form::parse(b"only=")).unwrap(), json!({"since": null}));
        let in_tokyo = body(&Form::parse(b"since=2026-01-31&zone=Asia/Tokyo")).unwrap();
        assert_eq!(in_tokyo, json!({"since": "2026-01-30T15:00:00.000Z"}));
        assert!(body(&Form::parse(b"zone=Europe/Nowhere")).unwrap_err().messages.contains_key(ZONE));
    }
}
