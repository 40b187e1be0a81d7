//! One user of an account: the role, the password, the sessions, and the removal.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde_json::{Value, json};

use super::users::{ROLES, User};
use super::{Account, account, page};
use crate::pages::call::Refusal;
use crate::pages::console::parts::{audit_of, is_admin, needs_admin, sign_in_changes};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, Stop, redirect};
use crate::pages::parts::layout;
use crate::pages::parts::values::{copyable, facts, words};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id/users/:user", show)
        .post("/console/accounts/:id/users/:user", change)
        .post("/console/accounts/:id/users/:user/sessions", end_sessions)
        .post("/console/accounts/:id/users/:user/remove", remove)
}

/// Loads an account with one of its users.
async fn load(visit: &Visit) -> Result<(Account, User), Stop> {
    let (id, user) = (visit.id("id")?, visit.id("user")?);
    let user = format!("/admin/v1/accounts/{id}/users/{user}");
    Ok(futures::try_join!(account(visit, id), visit.get(&user))?)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let (account, user) = load(&visit).await?;
    Ok(one(&visit, &account, &user, None))
}

/// Makes a change, and leads to a page that says so. Shows the user again if the change is refused.
async fn act(visit: &Visit, method: Method, path: &str, body: &Value, to: &str) -> PageResult {
    match visit.change::<Value>(method, path, body).await {
        Ok(_) => Ok(redirect(to)),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let (account, user) = load(visit).await?;
            Ok(layout::refused(one(visit, &account, &user, Some(&refusal)), &refusal))
        }
    }
}

async fn change(visit: Visit) -> PageResult {
    visit.operator()?;
    let (id, user) = (visit.id("id")?, visit.id("user")?);
    let body = visit.form.json(&[("role", Kind::Text), ("password", Kind::Exact)]);
    let to = format!("/console/accounts/{id}/users/{user}?done=changed");
    act(&visit, Method::PUT, &format!("/admin/v1/users/{user}"), &body, &to).await
}

async fn end_sessions(visit: Visit) -> PageResult {
    visit.operator()?;
    let (id, user) = (visit.id("id")?, visit.id("user")?);
    let to = format!("/console/accounts/{id}/users/{user}?done=sessions-ended");
    act(&visit, Method::DELETE, &format!("/admin/v1/users/{user}/sessions"), &json!({}), &to).await
}

async fn remove(visit: Visit) -> PageResult {
    visit.operator()?;
    let (id, user) = (visit.id("id")?, visit.id("user")?);
    let to = format!("/console/accounts/{id}/users?done=removed");
    act(&visit, Method::DELETE, &format!("/admin/v1/users/{user}"), &json!({}), &to).await
}

fn one(visit: &Visit, account: &Account, user: &User, refusal: Option<&Refusal>) -> Response {
    let body = html! {
        (layout::problem(refusal))
        (facts(&[("Role", html! { (words(&user.role)) }), ("Number", copyable(&user.id.to_string()))]))
        p.actions { a href=(audit_of("actor", &format!("user/{}", user.id))) { "What this user did" } }
        @if is_admin(visit) { (changes(visit, account.id, user, refusal)) } @else { (needs_admin("change users")) }
    };
    page(visit, account, &user.name(), &body)
}

fn changes(visit: &Visit, account: i64, user: &User, refusal: Option<&Refusal>) -> Markup {
    let target = format!("/console/accounts/{account}/users/{}", user.id);
    html! {
        (sign_in_changes(visit, &target, "user", &user.role, &ROLES, refusal))
        details.card {
            summary { "End the sessions" }
            form method="post" action={ (target) "/sessions" } {
                p { "All access tokens and portal sessions of the user end with the next request. The user can sign in again." }
                button.danger { "End all sessions" }
            }
        }
        details.card {
            summary { "Remove this user" }
            form method="post" action={ (target) "/remove" } {
                p { "All sessions of the user end with the next request. This cannot be undone. Another user can then have the email address." }
                button.danger { "Remove the user" }
            }
        }
    }
}
