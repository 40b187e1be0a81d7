//! The signed-in user's own login: the password, the second factor, and the sessions.

use chrono::{DateTime, Utc};
use futures::try_join;
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::two_factor::{self, TwoFactor};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, time, time_or_none};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A session, as `GET /client/api/sessions` returns it.
#[derive(Debug, Deserialize)]
struct Session {
    id: i64,
    started_at: Option<DateTime<Utc>>,
    last_used_at: DateTime<Utc>,
    network: Option<String>,
    user_agent: Option<String>,
    is_current: bool,
}

pub fn add(site: Site) -> Site {
    let site = site
        .get("/portal/account", show)
        .post("/portal/account/password", change_password)
        .post("/portal/account/sessions/:id/end", end_session);
    two_factor::add(site)
}

async fn load(visit: &Visit) -> Result<(TwoFactor, List<Session>), Refusal> {
    try_join!(visit.get("/client/api/two-factor"), visit.list("/client/api/sessions", "sessions"))
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let (two_factor, sessions) = load(&visit).await?;
    Ok(page(&visit, two_factor, &sessions.items, None))
}

/// Changes the password. The current session goes on, and all others end.
async fn change_password(visit: Visit) -> PageResult {
    visit.user()?;
    let body = visit.form.json(&[("current_password", Kind::Exact), ("new_password", Kind::Exact)]);
    match visit.change::<Value>(Method::PUT, "/client/api/password", &body).await {
        Ok(_) => Ok(redirect("/portal/account?done=password-changed")),
        Err(refusal) if refusal.is_correctable() => {
            let (two_factor, sessions) = load(&visit).await?;
            Ok(layout::refused(page(&visit, two_factor, &sessions.items, Some(&refusal)), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

async fn end_session(visit: Visit) -> PageResult {
    visit.user()?;
    let path = format!("/client/api/sessions/{}", visit.id("id")?);
    visit.change::<Value>(Method::DELETE, &path, &json!({})).await?;
    Ok(redirect("/portal/account?done=ended"))
}

fn page(visit: &Visit, two_factor: TwoFactor, sessions: &[Session], refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let body = html! {
        (layout::problem(refusal))
        h2 { "Two-factor authentication" }
        p {
            (badge(if two_factor.is_enabled { "active" } else { "inactive" })) " "
            a href=(layout::ENROLMENT) { @if two_factor.is_enabled { "Manage two-factor authentication" } @else { "Set up two-factor authentication" } }
        }
        h2 { "Password" }
        form.card method="post" action="/portal/account/password" {
            (fields.input("current_password", "Present password", "password", ""))
            (fields.input("new_password", "New password", "password", "8 to 128 characters. Your other sessions end."))
            button { "Change the password" }
        }
        h2 { "Sessions" }
        (rows(sessions))
    };
    layout::page(visit, "Your account", &body)
}

fn rows(sessions: &[Session]) -> Markup {
    let columns = [("Program", false), ("Address", false), ("Signed in", false), ("Last used", false), ("Actions", false)];
    let row = |session: &Session| {
        vec![
            html! { (session.user_agent.as_deref().unwrap_or("Unknown")) },
            html! { (session.network.as_deref().unwrap_or("–")) },
            time_or_none(session.started_at),
            time(session.last_used_at),
            html! {
                @if session.is_current { "This session" }
                @else {
                    form method="post" action={ "/portal/account/sessions/" (session.id) "/end" } {
                        button.plain aria-label={ "End session " (session.id) } { "End" }
                    }
                }
            },
        ]
    };
    table::table("Sessions", &columns, &sessions.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_session_has_no_button_and_a_program_cannot_write_markup() {
        let session = |id, is_current| {
            let session = json!({"id": id, "started_at": null, "last_used_at": "2026-01-31T12:00:00Z", "network": null,
                "user_agent": "<script>", "is_current": is_current});
            serde_json::from_value::<Session>(session).unwrap()
        };
        let markup = rows(&[session(5, true), session(6, false)]).0;
        assert!(markup.contains("/portal/account/sessions/6/end") && !markup.contains("sessions/5/end"), "{markup}");
        assert!(!markup.contains("<script>"), "{markup}");
    }
}
