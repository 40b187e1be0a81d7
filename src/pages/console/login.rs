//! Signing in and out.

use maud::html;
use poem::Response;

use crate::pages::call::Refusal;
use crate::pages::form::{Form, Kind};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::sign_in::{log_in, log_out, target};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

const START: &str = "/console";

/// Adds the sign-in, with OpenID Connect if it is configured.
pub fn add(site: Site, has_open_id: bool) -> Site {
    site.get("/console/login", move |visit| show(visit, has_open_id))
        .post("/console/login", move |visit| sign_in(visit, has_open_id))
        .post("/console/logout", sign_out)
}

async fn show(visit: Visit, has_open_id: bool) -> PageResult {
    if visit.operator().is_ok() {
        return Ok(redirect(&target(START, &visit.query)));
    }
    Ok(form(&visit, &visit.query, has_open_id, None))
}

async fn sign_in(visit: Visit, has_open_id: bool) -> PageResult {
    let body = visit.form.json(&[("email", Kind::Text), ("password", Kind::Exact), ("otp", Kind::Text)]);
    let again = |visit: &Visit, filled: &Form, refusal: &Refusal| form(visit, filled, has_open_id, Some(refusal));
    log_in(visit, "/admin/auth/login", &body, START, again).await
}

async fn sign_out(visit: Visit) -> PageResult {
    visit.operator()?;
    log_out(visit, "/admin/auth/logout", "/console/login?done=signed-out").await
}

fn form(visit: &Visit, filled: &Form, has_open_id: bool, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: filled, refusal };
    let body = html! {
        (layout::problem(refusal))
        form.card method="post" action="/console/login" {
            input type="hidden" name="to" value=(target(START, filled));
            (fields.input("email", "Email", "email", ""))
            (fields.input("password", "Password", "password", ""))
            (fields.input("otp", "Code", "text", "Six digits from your authenticator app, or a recovery code, if you have enrolled one."))
            button { "Sign in" }
        }
        @if has_open_id {
            p { a.button href="/console/oidc/start" { "Sign in with your organisation" } }
        }
    };
    layout::page(visit, "Sign in", &body)
}
