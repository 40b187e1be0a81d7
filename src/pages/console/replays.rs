//! Replays: the running ones, those of one webhook, the start of one with its count first, and its cancellation.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::Role;
use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, Kind, MOMENT_HINT, address};
use crate::pages::outcome::{PageResult, Stop, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::zone_field;
use crate::pages::parts::values::{badge, time};
use crate::pages::parts::zone::{ZONE, Zone};
use crate::pages::parts::{layout, table};
use crate::pages::shared::counting::{self, Count, hidden};
use crate::pages::shared::replay::progress;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::replay::progress_percent;

const KINDS: [(&str, &str); 2] =
    [("missed", "What never reached the webhook"), ("deliveries", "Everything that it has a delivery of")];
/// Fields of the form.
const FIELDS: &[&str] = &["webhook_id", "kind", "since", ZONE, "per_second"];

/// A replay, as `GET /admin/v1/webhooks/:id/replays` returns it.
#[derive(Debug, Deserialize)]
pub struct Replay {
    id: i64,
    account_id: i64,
    webhook_id: i64,
    kind: String,
    status: String,
    from_position: i64,
    next_position: i64,
    until_position: i64,
    deliveries: i64,
    pending_count: i64,
    delivered_count: i64,
    failed_count: i64,
    created_at: DateTime<Utc>,
}

impl Replay {
    /// Returns the part of the log that the replay has walked, in percent.
    fn progress(&self) -> i64 {
        progress_percent(self.from_position, self.next_position, self.until_position)
    }
}

/// The running replays, as `GET /admin/v1/replays` returns them.
#[derive(Debug, Deserialize)]
struct Running {
    replays: Vec<Replay>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/replays", show)
        .post("/console/replays", start)
        .get("/console/replays/count", begin)
        .post("/console/replays/count", count)
        .post("/console/replays/:id/cancel", cancel)
}

fn path_of(form: &Form) -> Result<String, Refusal> {
    let id: Option<i64> = form.text("webhook_id").and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| Refusal::of_field("webhook_id", "must be the number of a webhook"))?;
    Ok(format!("/admin/v1/webhooks/{id}/replays"))
}

/// Builds the body that a form stands for.
///
/// # Errors
/// A refusal of the time zone.
fn body(form: &Form) -> Result<Value, Refusal> {
    let zone = Zone::of(form)?;
    let mut body = form.json(&[("kind", Kind::Text), ("per_second", Kind::Number)]);
    if let Some(since) = form.text("since") {
        body["since"] = zone.moment(since).into();
    }
    Ok(body)
}

/// Everything that the page shows.
#[derive(Default)]
struct Shown {
    running: Vec<Replay>,
    of_webhook: Option<List<Replay>>,
    count: Option<Count>,
}

async fn load(visit: &Visit, form: &Form) -> Result<Shown, Refusal> {
    let running = visit.get::<Running>("/admin/v1/replays");
    if form.text("webhook_id").is_none() {
        return Ok(Shown { running: running.await?.replays, ..Shown::default() });
    }
    let path = format!("{}?{}", path_of(form)?, form.only(&["page"]));
    let (running, of_webhook) = futures::try_join!(running, visit.list(&path, "replays"))?;
    Ok(Shown { running: running.replays, of_webhook: Some(of_webhook), count: None })
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    match load(&visit, &visit.query).await {
        Ok(shown) => Ok(page(&visit, &shown, &visit.query, None)),
        Err(refusal) => refused(&visit, &visit.query, refusal),
    }
}

fn refused(visit: &Visit, form: &Form, refusal: Refusal) -> PageResult {
    corrected(unknown(refusal), |refusal| layout::refused(page(visit, &Shown::default(), form, Some(refusal)), refusal))
}

/// Leads a browser that reads the address of a count again to the form.
async fn begin(visit: Visit) -> PageResult {
    visit.operator()?;
    Ok(redirect("/console/replays"))
}

/// Counts the events of a replay, part after part of the log.
async fn count(visit: Visit) -> PageResult {
    visit.operator()?;
    let form = &visit.form;
    let counted = async {
        let mut body = body(form)?;
        if let (Some(position), Some(fields)) = (counting::begin(form), body.as_object_mut()) {
            fields.remove("since");
            fields.insert("from_position".to_owned(), position.into());
        }
        let path = path_of(form)?;
        let (shown, count) = futures::try_join!(load(&visit, form), Count::step(&visit, &path, body))?;
        Ok::<_, Refusal>(Shown { count: Some(count), ..shown })
    };
    match counted.await {
        Ok(shown) => Ok(page(&visit, &shown, form, None)),
        Err(refusal) => refused(&visit, form, refusal),
    }
}

/// Puts the refusal of an unknown webhook at its field.
fn unknown(refusal: Refusal) -> Refusal {
    if refusal.code == "E_NOT_FOUND" { Refusal::of_field("webhook_id", "is unknown") } else { refusal }
}

async fn start(visit: Visit) -> PageResult {
    visit.operator()?;
    let started = async {
        let path = path_of(&visit.form)?;
        visit.change::<Value>(Method::POST, &path, &body(&visit.form)?).await
    };
    match started.await {
        Ok(_) => Ok(redirect(&format!("/console/replays?{}&done=replayed", visit.form.only(&["webhook_id"])))),
        Err(refusal) => {
            let refusal = unknown(refusal);
            let shown =
                if refusal.is_correctable() { load(&visit, &visit.form).await.unwrap_or_default() } else { Shown::default() };
            corrected(refusal, |refusal| layout::refused(page(&visit, &shown, &visit.form, Some(refusal)), refusal))
        }
    }
}

async fn cancel(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    match visit.change::<Replay>(Method::POST, &format!("/admin/v1/replays/{id}/cancel"), &json!({})).await {
        Ok(replay) => Ok(redirect(&format!("/console/replays?webhook_id={}&done=replay-cancelled", replay.webhook_id))),
        Err(refusal) => Err(Stop::Refused(refusal)),
    }
}

fn page(visit: &Visit, shown: &Shown, form: &Form, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form, refusal };
    let is_admin = visit.operator().is_ok_and(|operator| operator.may(Role::Admin));
    let body = html! {
        @if shown.count.is_none() { (layout::live(visit)) }
        (layout::problem(refusal))
        p { "A replay delivers past events to a webhook again, with the same bytes, at a limited rate." }
        @if is_admin {
            form.card method="post" action="/console/replays/count" {
                (fields.input("webhook_id", "Webhook number", "text", ""))
                (fields.select("kind", "Events", &KINDS, ""))
                (fields.input("since", "Since", "text", &format!("{MOMENT_HINT} Optional for what never reached the webhook.")))
                (zone_field(&fields))
                (fields.input("per_second", "Deliveries per second", "text", "From 1 to 500. Without a number: 50."))
                button.plain { "Count the events" }
            }
            @if let Some(count) = shown.count { (confirmation(form, count)) }
        } @else {
            form.card method="get" action="/console/replays" {
                (fields.input("webhook_id", "Webhook number", "text", ""))
                button.plain { "Show its replays" }
            }
            p.quiet { "To start or cancel replays, you need the role admin." }
        }
        @if let Some(list) = &shown.of_webhook {
            h2 { "Replays of webhook " (form.value("webhook_id")) }
            @if list.items.is_empty() { p.quiet { "There was no replay of this webhook yet." } }
            @else {
                (rows("Replays of the webhook", &list.items, is_admin))
                (table::pager(list, "/console/replays", &Form::from_pairs(vec![("webhook_id".to_owned(), form.value("webhook_id").to_owned())])))
            }
        }
        h2 { "Running replays" }
        @if shown.running.is_empty() { p.quiet { "No replay is running." } }
        @else { (rows("Running replays", &shown.running, is_admin)) }
    };
    layout::page(visit, "Replays", &body)
}

/// Shows the count, and the button that starts the replay.
fn confirmation(form: &Form, count: Count) -> Markup {
    html! {
        div.card role="status" {
            p { strong { (count.events()) } " would be delivered to webhook " (form.value("webhook_id")) "." }
            @if count.found > 0 || !count.is_complete() {
                (count.progress("/console/replays/count", form, FIELDS))
                form method="post" action="/console/replays" {
                    (hidden(form, FIELDS))
                    button { "Start the replay" }
                }
            }
        }
    }
}

/// Renders a number of a replay's deliveries, which leads to them. `status` may be empty.
fn counted(replay: &Replay, count: i64, status: &str) -> Markup {
    let list = format!("/console/accounts/{}/deliveries", replay.account_id);
    html! { a href=(address(&list, &[("replay_id", &replay.id.to_string()), ("status", status)])) { (count) } }
}

/// Renders replays, whose numbers lead to their deliveries. Running ones can be cancelled if `may_cancel`.
pub fn rows(caption: &str, replays: &[Replay], may_cancel: bool) -> Markup {
    let columns = [
        ("Replay", false),
        ("Webhook", false),
        ("Events", false),
        ("Requested", false),
        ("Log walked", true),
        ("Deliveries", true),
        ("Delivered", true),
        ("Pending", true),
        ("Failed", true),
        ("Status", false),
    ];
    let row = |replay: &Replay| {
        vec![
            html! { "Replay " (replay.id) },
            html! {
                a href={ "/console/replays?webhook_id=" (replay.webhook_id) } { "Webhook " (replay.webhook_id) } " of "
                a href={ "/console/accounts/" (replay.account_id) } { "account " (replay.account_id) }
            },
            html! { @if replay.kind == "missed" { "Missed" } @else { "All with a delivery" } },
            time(replay.created_at),
            progress(replay.id, &replay.status, replay.progress()),
            counted(replay, replay.deliveries, ""),
            counted(replay, replay.delivered_count, "delivered"),
            counted(replay, replay.pending_count, "pending"),
            counted(replay, replay.failed_count, "failed"),
            html! { (badge(&replay.status)) @if may_cancel && replay.status == "RUNNING" { (cancellation(replay)) } },
        ]
    };
    table::table(caption, &columns, &replays.iter().map(row).collect::<Vec<_>>())
}

fn cancellation(replay: &Replay) -> Markup {
    html! {
        details {
            summary { "Cancel replay " (replay.id) }
            form method="post" action={ "/console/replays/" (replay.id) "/cancel" } {
                p { "Its " (replay.pending_count) " pending deliveries fail." }
                button.danger { "Cancel the replay" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(next: i64, status: &str) -> Replay {
        let replay = json!({"id": 9, "account_id": 7, "webhook_id": 3, "kind": "missed", "status": status, "from_position": 100,
            "next_position": next, "until_position": 300, "deliveries": 5, "pending_count": 1, "delivered_count": 4,
            "failed_count": 0, "created_at": "2026-01-31T12:00:00Z"});
        serde_json::from_value(replay).unwrap()
    }

    #[test]
    fn progress_is_the_part_of_the_log_that_is_walked() {
        assert_eq!([100, 150, 300].map(|next| replay(next, "RUNNING").progress()), [0, 25, 100]);
    }

    #[test]
    fn only_running_replays_are_cancelled() {
        assert!(rows("Replays", &[replay(150, "RUNNING")], true).0.contains("/console/replays/9/cancel"));
        assert!(!rows("Replays", &[replay(150, "RUNNING")], false).0.contains("<form"));
        assert!(!rows("Replays", &[replay(300, "COMPLETED")], true).0.contains("<form"));
    }

    #[test]
    fn a_form_becomes_a_replay() {
        let form = Form::parse(b"webhook_id=3&kind=deliveries&since=2026-01-31&per_second=20");
        let expected = json!({"kind": "deliveries", "since": "2026-01-31T00:00:00.000Z", "per_second": 20});
        assert_eq!(body(&form).unwrap(), expected);
        let in_tokyo = body(&Form::parse(b"since=2026-01-31&zone=Asia/Tokyo")).unwrap();
        assert_eq!(in_tokyo, json!({"since": "2026-01-30T15:00:00.000Z"}));
        assert_eq!(path_of(&form).unwrap(), "/admin/v1/webhooks/3/replays");
        assert!(path_of(&Form::parse(b"webhook_id=../x")).is_err());
    }
}
