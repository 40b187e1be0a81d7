//! Signing in and out.

use maud::html;
use poem::Response;

use crate::pages::call::Refusal;
use crate::pages::form::{Form, Kind};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::sign_in::{log_in, log_out, target};
use crate::pages::visit::Visit;

const START: &str = "/portal";

pub async fn show(visit: Visit) -> PageResult {
    if visit.user().is_ok() {
        return Ok(redirect(&target(START, &visit.query)));
    }
    Ok(form(&visit, &visit.query, None))
}

pub async fn sign_in(visit: Visit) -> PageResult {
    let body = visit.form.json(&[("email", Kind::Text), ("password", Kind::Exact), ("otp", Kind::Text)]);
    log_in(visit, "/auth/login", &body, START, |visit, filled, refusal| form(visit, filled, Some(refusal))).await
}

pub async fn sign_out(visit: Visit) -> PageResult {
    visit.user()?;
    log_out(visit, "/auth/logout", "/portal/login?done=signed-out").await
}

fn form(visit: &Visit, filled: &Form, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: filled, refusal };
    let takes_code = filled.text("otp").is_some() || refusal.is_some_and(|refusal| refusal.code == "E_TWO_FACTOR_REQUIRED");
    let body = html! {
        (layout::problem(refusal))
        form.card method="post" action="/portal/login" {
            input type="hidden" name="to" value=(target(START, filled));
            (fields.input("email", "Email", "email", ""))
            (fields.input("password", "Password", "password", if takes_code { "Type it again, together with the code." } else { "" }))
            @if takes_code {
                (fields.input("otp", "Code", "text", "Six digits from your authenticator app, or a recovery code."))
            }
            button { "Sign in" }
        }
        p { a href="/portal/password-reset" { "I forgot my password" } }
    };
    layout::page(visit, "Sign in", &body)
}
