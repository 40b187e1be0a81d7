//! The pages of links in mails, which need no session: a forgotten password, a new one, and an invitation.

use maud::{Markup, html};
use poem::Response;
use poem::http::StatusCode;
use serde_json::{Value, json};

use crate::pages::call::{Answered, Refusal};
use crate::pages::form::{Form, Kind};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

const REQUEST: &str = "/portal/password-reset";

/// A page where a person with a token from a mail chooses a password.
struct Choice {
    path: &'static str,
    /// Operation of the API that takes the token.
    operation: &'static str,
    title: &'static str,
    text: &'static str,
    button: &'static str,
    /// Notice of the login afterwards.
    done: &'static str,
}

const RESET: Choice = Choice {
    path: "/portal/reset-password",
    operation: "/auth/password-reset/confirm",
    title: "Choose a new password",
    text: "All your sessions end. Then you sign in with the new password.",
    button: "Set the new password",
    done: "password-set",
};

const INVITATION: Choice = Choice {
    path: "/portal/accept-invitation",
    operation: "/auth/invitations/accept",
    title: "Accept the invitation",
    text: "Choose a password. Your email address and the password are your login.",
    button: "Accept the invitation",
    done: "joined",
};

pub fn add(site: Site) -> Site {
    site.get(REQUEST, |visit| async move { Ok(request_page(&visit, &visit.form, None)) })
        .post(REQUEST, request)
        .get(RESET.path, |visit| async move { Ok(choice_page(&visit, &visit.query, &RESET, None)) })
        .post(RESET.path, |visit| choose(visit, &RESET))
        .get(INVITATION.path, |visit| async move { Ok(choice_page(&visit, &visit.query, &INVITATION, None)) })
        .post(INVITATION.path, |visit| choose(visit, &INVITATION))
}

/// Asks for a mail through `POST /auth/password-reset`. The page is the same whether the address is known or not.
async fn request(visit: Visit) -> PageResult {
    let (body, filled) = (visit.form.json(&[("email", Kind::Text)]), visit.form.clone());
    let (response, visit) = visit.forward("/auth/password-reset", &body).await;
    match Answered::read(response).await {
        Ok(_) => Ok(redirect("/portal/password-reset?done=reset-requested")),
        Err(refusal) if refusal.is_correctable() => Ok(layout::refused(request_page(&visit, &filled, Some(&refusal)), &refusal)),
        Err(refusal) => Err(refusal.into()),
    }
}

fn request_page(visit: &Visit, filled: &Form, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: filled, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "We send you a mail with a link, with which you choose a new password within 30 minutes." }
        form.card method="post" action=(REQUEST) {
            (fields.input("email", "Email", "email", ""))
            button { "Send the link" }
        }
        p { a href="/portal/login" { "Back to the login" } }
    };
    layout::page(visit, "Reset your password", &body)
}

/// Uses the token up, with the password that the form has.
async fn choose(visit: Visit, choice: &'static Choice) -> PageResult {
    let (body, filled) = (body(&visit.form), visit.form.clone());
    let (response, visit) = visit.forward(choice.operation, &body).await;
    match Answered::read(response).await {
        Ok(_) => Ok(redirect(&format!("/portal/login?done={}", choice.done))),
        Err(refusal) if refusal.is_correctable() || refusal.status == StatusCode::UNAUTHORIZED => {
            let refusal = of_page(refusal);
            Ok(layout::refused(choice_page(&visit, &filled, choice, Some(&refusal)), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Returns the body of the call. The field has another name, so that a browser offers a new password.
fn body(form: &Form) -> Value {
    json!({ "token": form.value("token"), "password": form.exact("new_password").unwrap_or_default() })
}

/// Shows the problems of the password at the page's field, and those of the token above the form.
fn of_page(mut refusal: Refusal) -> Refusal {
    if let Some(problems) = refusal.messages.remove("password") {
        refusal.messages.insert("new_password".to_owned(), problems);
    }
    if refusal.status == StatusCode::UNAUTHORIZED || refusal.messages.contains_key("token") {
        refusal.message = "The link is not valid any more: it was used, or it has expired.".to_owned();
    }
    refusal
}

fn choice_page(visit: &Visit, filled: &Form, choice: &Choice, refusal: Option<&Refusal>) -> Response {
    let body = html! {
        (layout::problem(refusal))
        @if filled.text("token").is_none() {
            p { "Open the link of the mail as a whole. This address is only its beginning." }
        } @else { (choice_form(filled, choice, refusal)) }
        p { a href=(REQUEST) { "Ask for another link to reset a password" } }
    };
    layout::page(visit, choice.title, &body)
}

fn choice_form(filled: &Form, choice: &Choice, refusal: Option<&Refusal>) -> Markup {
    let fields = Filled { form: filled, refusal };
    html! {
        p { (choice.text) }
        form.card method="post" action=(choice.path) {
            input type="hidden" name="token" value=(filled.value("token"));
            (fields.input("new_password", "New password", "password", "8 to 128 characters. Common passwords are refused."))
            button { (choice.button) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_password_stands_at_its_field_and_a_used_link_above_the_form() {
        let refusal = of_page(Refusal::of_field("password", "is a common password"));
        assert!(refusal.messages.contains_key("new_password"), "{refusal:?}");
        assert_eq!(refusal.message, "Some fields are not valid.");
        let refusal = of_page(Refusal::new(StatusCode::UNAUTHORIZED, "E_INVALID_TOKEN", "The token is invalid."));
        assert!(refusal.message.starts_with("The link is not valid"), "{refusal:?}");
    }
}
