//! The tokens of programs that operate the service: their list, the creation of one, and its revocation.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::operators::ROLES;
use super::parts::{audit_of, is_admin, needs_admin};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, once, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A token, as `GET /admin/v1/operator-tokens` returns it.
#[derive(Debug, Deserialize)]
struct Token {
    id: i64,
    name: String,
    role: String,
    created_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
struct Issued {
    token: String,
}

pub fn add(site: Site) -> Site {
    site.get("/console/operator-tokens", list)
        .post("/console/operator-tokens", create)
        .post("/console/operator-tokens/:id/revoke", revoke)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    if !is_admin(&visit) {
        return Ok(layout::page(&visit, "Tokens of programs", &needs_admin("see and manage tokens")));
    }
    let tokens = load(&visit).await?;
    Ok(page(&visit, &tokens, None))
}

async fn load(visit: &Visit) -> Result<List<Token>, Refusal> {
    visit.list("/admin/v1/operator-tokens", "operator_tokens").await
}

/// Creates a token, and shows it. It is in this response alone, so no redirect follows.
async fn create(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = visit.form.json(&[("name", Kind::Text), ("role", Kind::Text)]);
    match visit.change_once::<Issued>("/admin/v1/operator-tokens", &visit.form.key(), &body).await {
        Ok(issued) => {
            let body = html! {
                p { "The program sends it as " code { "Authorization: Bearer <token>" } "." }
                (once(&[("Token", &issued.token)]))
                p { a.button href="/console/operator-tokens" { "All tokens" } }
            };
            Ok(layout::page(&visit, "The new token", &body))
        }
        Err(refusal) if refusal.code == "E_ALREADY_CREATED" => {
            Ok(layout::sent_before(&visit, "token", ("/console/operator-tokens", "All tokens"), &refusal))
        }
        Err(refusal) => again(&visit, refusal).await,
    }
}

async fn revoke(visit: Visit) -> PageResult {
    visit.operator()?;
    let path = format!("/admin/v1/operator-tokens/{}", visit.id("id")?);
    match visit.change::<Value>(Method::DELETE, &path, &json!({})).await {
        Ok(_) => Ok(redirect("/console/operator-tokens?done=token-revoked")),
        Err(refusal) => again(&visit, refusal).await,
    }
}

/// Shows the tokens again with the refusal of a change.
async fn again(visit: &Visit, refusal: Refusal) -> PageResult {
    if !(refusal.is_correctable() || refusal.is_undecided()) || !is_admin(visit) {
        return Err(refusal.into());
    }
    let tokens = load(visit).await?;
    Ok(layout::refused(page(visit, &tokens, Some(&refusal)), &refusal))
}

fn page(visit: &Visit, tokens: &List<Token>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "A program that operates the service sends a token. People sign in instead." }
        p.actions { a.button.plain href="/console/operators" { "Operators" } }
        @if tokens.items.is_empty() { (table::empty("No token was issued yet. A program needs one to call the API for operators.", None)) } @else { (rows(&tokens.items)) }
        details.card open[refusal.is_some()] {
            summary { "New token" }
            form method="post" action="/console/operator-tokens" {
                (fields.input("name", "Name", "text", "For people to recognize the program."))
                (fields.select("role", "Role", &ROLES, ""))
                (fields.key())
                button { "Create the token" }
            }
        }
    };
    layout::page(visit, "Tokens of programs", &body)
}

fn rows(tokens: &[Token]) -> Markup {
    let columns = [("Name", false), ("Role", false), ("Created", false), ("Status", false), ("Revoke", false)];
    let row = |token: &Token| {
        vec![
            html! { a href=(audit_of("actor", &format!("operator/{}", token.id))) { (token.name) } },
            html! { (words(&token.role)) },
            time(token.created_at),
            html! { @match token.revoked_at { Some(at) => { (badge("revoked")) " " (time(at)) }, None => (badge("active")) } },
            html! { @if token.revoked_at.is_none() { (revocation(token)) } @else { "–" } },
        ]
    };
    table::table("Tokens", &columns, &tokens.iter().map(row).collect::<Vec<_>>())
}

fn revocation(token: &Token) -> Markup {
    html! {
        details {
            summary { "Revoke" }
            form method="post" action={ "/console/operator-tokens/" (token.id) "/revoke" } {
                p { "The next request with this token is refused. This cannot be undone." }
                button.danger aria-label={ "Revoke the token " (token.name) } { "Revoke the token" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_token_is_not_revoked_again() {
        let token = |revoked_at: Option<&str>| -> Token {
            let token = json!({"id": 3, "name": "<b>", "role": "auditor", "created_at": "2026-01-31T12:00:00Z",
                "revoked_at": revoked_at});
            serde_json::from_value(token).unwrap()
        };
        let (active, revoked) = (rows(&[token(None)]).0, rows(&[token(Some("2026-01-31T13:00:00Z"))]).0);
        assert!(active.contains("/console/operator-tokens/3/revoke") && !active.contains("<b>"), "{active}");
        assert!(!revoked.contains("/revoke"), "{revoked}");
    }
}
