//! The operator's own sign-in: the second factor, the password, and the sessions.

use chrono::{DateTime, Utc};
use futures::try_join;
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, Kind};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{copyable, facts, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Address of the form that removes the second factor.
const REMOVAL: &str = "/console/account/two-factor/remove";

/// The session, as `GET /admin/auth/session` returns it.
#[derive(Debug, Deserialize)]
struct Session {
    operator_id: i64,
    role: String,
    sign_in: String,
    two_factor: bool,
    expires_at: DateTime<Utc>,
}

/// A session of the operator, as `GET /admin/auth/sessions` returns it.
#[derive(Debug, Deserialize)]
struct LiveSession {
    id: i64,
    started_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    is_current: bool,
}

/// A secret for an authenticator app, as `POST /admin/auth/two-factor` returns it.
#[derive(Deserialize)]
struct Enrolment {
    secret: String,
    otpauth_url: Option<String>,
}

#[derive(Deserialize)]
struct Confirmed {
    recovery_codes: Vec<String>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/account", show)
        .post("/console/account/two-factor", begin)
        .post("/console/account/two-factor/confirm", confirm)
        .post(REMOVAL, remove)
        .post("/console/account/password", change_password)
        .post("/console/account/sessions/:id/end", end_session)
}

async fn load(visit: &Visit) -> Result<(Session, List<LiveSession>), Refusal> {
    try_join!(visit.get("/admin/auth/session"), visit.list("/admin/auth/sessions", "sessions"))
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let (session, sessions) = load(&visit).await?;
    Ok(page(&visit, &session, &sessions.items, None))
}

/// Shows the page again, with the refusal of one of its forms.
async fn refused(visit: &Visit, refusal: Refusal) -> PageResult {
    let (session, sessions) = load(visit).await?;
    corrected(refusal, |refusal| layout::refused(page(visit, &session, &sessions.items, Some(refusal)), refusal))
}

fn page(visit: &Visit, session: &Session, sessions: &[LiveSession], refusal: Option<&Refusal>) -> Response {
    let body = html! {
        (layout::problem(refusal))
        (facts(&[
            ("Operator", copyable(&session.operator_id.to_string())),
            ("Role", html! { (words(&session.role)) }),
            ("Signed in by", html! { @if session.sign_in == "password" { "email and password" } @else { "your organisation" } }),
            ("The session ends", time(session.expires_at)),
            ("Second factor", html! { @if session.two_factor { "enrolled" } @else { "not enrolled" } }),
        ]))
        @if session.sign_in == "password" {
            h2 { "Second factor" }
            @if session.two_factor { (removal(refusal.filter(|_| visit.path() == REMOVAL))) }
            @else {
                p { "With a second factor, a stolen password is not enough to sign in. You need an authenticator app." }
                form method="post" action="/console/account/two-factor" { button { "Enrol a second factor" } }
            }
        }
        h2 { "Password" }
        @if session.sign_in == "password" { (password(visit, refusal)) }
        @else { p { "Your organisation signs you in. Change your password there." } }
        h2 { "Sessions" }
        (rows(sessions))
    };
    layout::page(visit, "Your sign-in", &body)
}

fn password(visit: &Visit, refusal: Option<&Refusal>) -> Markup {
    let fields = Filled { form: &visit.form, refusal };
    html! {
        form.card method="post" action="/console/account/password" {
            (fields.input("current_password", "Present password", "password", ""))
            (fields.input("new_password", "New password", "password", "8 to 128 characters. Your other sessions end."))
            button { "Change the password" }
        }
    }
}

fn rows(sessions: &[LiveSession]) -> Markup {
    let columns = [("Signed in", false), ("Ends", false), ("Actions", false)];
    let row = |session: &LiveSession| {
        vec![
            time(session.started_at),
            time(session.expires_at),
            html! {
                @if session.is_current { "This session" }
                @else {
                    form method="post" action={ "/console/account/sessions/" (session.id) "/end" } {
                        button.plain aria-label={ "End session " (session.id) } { "End" }
                    }
                }
            },
        ]
    };
    table::table("Sessions", &columns, &sessions.iter().map(row).collect::<Vec<_>>())
}

fn removal(refusal: Option<&Refusal>) -> Markup {
    let form = Form::default();
    let fields = Filled { form: &form, refusal };
    html! {
        details open[refusal.is_some()] {
            summary { "Remove the second factor" }
            form.card method="post" action=(REMOVAL) {
                p { "Your password alone is then enough to sign in." }
                (fields.input("code", "Code", "text", "Six digits from your authenticator app, or a recovery code."))
                button.danger { "Remove the second factor" }
            }
        }
    }
}

/// Begins to enrol a second factor. The page with its secret is the response, because the secret is shown only once.
async fn begin(visit: Visit) -> PageResult {
    visit.operator()?;
    match visit.change(Method::POST, "/admin/auth/two-factor", &json!({})).await {
        Ok(enrolment) => Ok(enrolment_page(&visit, &enrolment, None)),
        Err(refusal) => refused(&visit, refusal).await,
    }
}

fn enrolment_page(visit: &Visit, enrolment: &Enrolment, refusal: Option<&Refusal>) -> Response {
    let form = Form::default();
    let fields = Filled { form: &form, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "Add this secret to your authenticator app. Then type the code that the app shows." }
        (facts(&[
            ("Secret", copyable(&enrolment.secret)),
        ]))
        @if let Some(url) = &enrolment.otpauth_url { p { a href=(url) { "Open the authenticator app of this device" } } }
        form.card method="post" action="/console/account/two-factor/confirm" {
            input type="hidden" name="secret" value=(enrolment.secret);
            @if let Some(url) = &enrolment.otpauth_url { input type="hidden" name="otpauth_url" value=(url); }
            (fields.input("code", "Code", "text", "Six digits."))
            button { "Confirm" }
        }
    };
    layout::page(visit, "Enrol a second factor", &body)
}

/// Confirms the enrolment. The recovery codes are in the response, because they are shown only once.
async fn confirm(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = visit.form.json(&[("code", Kind::Text)]);
    match visit.change::<Confirmed>(Method::POST, "/admin/auth/two-factor/confirm", &body).await {
        Ok(confirmed) => Ok(recovery_page(&visit, &confirmed)),
        Err(refusal) => {
            let enrolment = enrolment_of(&visit.form);
            corrected(refusal, |refusal| layout::refused(enrolment_page(&visit, &enrolment, Some(refusal)), refusal))
        }
    }
}

/// Reads the enrolment that the form repeats, because the API shows it only once. A URL that opens no authenticator app is
/// dropped.
fn enrolment_of(form: &Form) -> Enrolment {
    let otpauth_url = form.text("otpauth_url").filter(|url| url.starts_with("otpauth://")).map(ToOwned::to_owned);
    Enrolment { secret: form.value("secret").to_owned(), otpauth_url }
}

fn recovery_page(visit: &Visit, confirmed: &Confirmed) -> Response {
    let body = html! {
        p.notice.good role="status" { "The second factor is enrolled. Your other sessions have ended." }
        p { "Keep these recovery codes in a safe place. Each one replaces the authenticator app once. They are not shown again." }
        ul.codes { @for code in &confirmed.recovery_codes { li { (copyable(code)) } } }
        p { a.button href="/console/account" { "I have stored the codes" } }
    };
    layout::page(visit, "Recovery codes", &body)
}

async fn remove(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = visit.form.json(&[("code", Kind::Text)]);
    match visit.change::<Value>(Method::POST, "/admin/auth/two-factor/remove", &body).await {
        Ok(_) => Ok(redirect("/console/account?done=changed")),
        Err(refusal) => refused(&visit, refusal).await,
    }
}

/// Changes the password. The current session goes on, and all others end.
async fn change_password(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = visit.form.json(&[("current_password", Kind::Exact), ("new_password", Kind::Exact)]);
    match visit.change::<Value>(Method::PUT, "/admin/auth/password", &body).await {
        Ok(_) => Ok(redirect("/console/account?done=password-changed")),
        Err(refusal) => refused(&visit, refusal).await,
    }
}

async fn end_session(visit: Visit) -> PageResult {
    visit.operator()?;
    let path = format!("/admin/auth/sessions/{}", visit.id("id")?);
    visit.change::<Value>(Method::DELETE, &path, &json!({})).await?;
    Ok(redirect("/console/account?done=ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_repeats_the_enrolment_with_a_link_to_the_app_alone() {
        let enrolment = enrolment_of(&Form::parse(b"secret=GEZDGNBV&otpauth_url=otpauth%3A%2F%2Ftotp%2Fa%3Fsecret%3DGEZDGNBV"));
        let told = (&*enrolment.secret, enrolment.otpauth_url.as_deref());
        assert_eq!(told, ("GEZDGNBV", Some("otpauth://totp/a?secret=GEZDGNBV")));
        assert_eq!(enrolment_of(&Form::parse(b"otpauth_url=javascript%3Aalert(1)")).otpauth_url, None);
    }

    #[test]
    fn each_session_but_the_own_one_has_a_button() {
        let session = |id, is_current| LiveSession { id, started_at: Utc::now(), expires_at: Utc::now(), is_current };
        let markup = rows(&[session(5, true), session(6, false)]).0;
        assert!(markup.contains("/console/account/sessions/6/end") && !markup.contains("sessions/5/end"), "{markup}");
    }
}
