//! The attempts to deliver events to a webhook.

use maud::{Markup, html};
use poem::Response;

use crate::pages::call::Refusal;
use crate::pages::outcome::PageResult;
use crate::pages::parts::period::during;
use crate::pages::parts::{layout, table};
use crate::pages::portal::webhook::Webhook;
use crate::pages::shared::attempts::{self, AttemptList, ListedAttempt, Part};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

pub fn add(site: Site) -> Site {
    site.get("/portal/webhooks/:id/attempts", list)
}

fn path(webhook: i64) -> String {
    format!("/portal/webhooks/{webhook}/attempts")
}

/// Returns the address of the attempts of a webhook that ended on a day (UTC), such as `2026-01-31`.
pub fn of_day(webhook: i64, day: &str) -> String {
    during(&path(webhook), &format!("{day}T00:00"), &format!("{day}T23:59"))
}

fn listed<'a>(path: &'a str, visit: &'a Visit) -> AttemptList<'a> {
    AttemptList { path, query: &visit.query, is_of_all: false }
}

async fn load(visit: &Visit, webhook: i64) -> Result<Part<ListedAttempt>, Refusal> {
    visit.get(&format!("/api/v1/webhooks/{webhook}/attempts?{}", listed(&path(webhook), visit).filters()?)).await
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let own = format!("/api/v1/webhooks/{id}");
    let (webhook, part) = futures::join!(visit.get::<Webhook>(&own), load(&visit, id));
    let webhook = webhook?;
    match part {
        Ok(part) => Ok(page(&visit, &webhook, Some(&part), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, &webhook, None, Some(refusal)), refusal)),
    }
}

fn page(visit: &Visit, webhook: &Webhook, part: Option<&Part<ListedAttempt>>, refusal: Option<&Refusal>) -> Response {
    let (path, back) = (path(webhook.id), format!("/portal/webhooks/{}", webhook.id));
    let none = ("No attempt is listed yet. Order something, or send a test.", Some((&*back, &*webhook.name)));
    let body = html! {
        (layout::problem(refusal))
        p {
            "Attempts to deliver events to “" (webhook.name) "”. The latest come first. A period has those that ended in it, as the \
             plot of the webhook counts them."
        }
        (listed(&path, visit).form(refusal))
        @if let Some(part) = part {
            (listed(&path, visit).content(part, rows, none))
        }
        p.actions { a href=(back) { "Back to " (webhook.name) } }
    };
    layout::page(visit, "Delivery attempts", &body)
}

fn rows(attempts: &[ListedAttempt]) -> Markup {
    let columns = [("Ended", false), ("Delivery", false), ("Event", false)];
    let row = |listed: &ListedAttempt| {
        let mut row = vec![
            attempts::at(listed),
            html! { a href={ "/portal/webhooks/deliveries/" (listed.delivery_id) } { "Delivery " (listed.delivery_id) } },
            html! { (listed.event_type) },
        ];
        row.extend(attempts::result(listed));
        row
    };
    let columns = [&columns[..], &attempts::RESULT].concat();
    table::table("Attempts", &columns, &attempts.iter().map(row).collect::<Vec<_>>())
}
