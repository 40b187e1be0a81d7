//! One API key of an account: its restrictions, its signatures, and its revocation.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::credentials::Credential;
use super::{Account, account, page};
use crate::pages::call::Refusal;
use crate::pages::console::parts::{audit_of, is_admin, needs_admin};
use crate::pages::outcome::{PageResult, Stop, redirect};
use crate::pages::parts::layout;
use crate::pages::parts::values::{facts, once, time, time_or_none};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

#[derive(Debug, Deserialize)]
struct Signing {
    signing_secret: Option<String>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id/credentials/:key", show)
        .post("/console/accounts/:id/credentials/:key/signatures", require)
        .post("/console/accounts/:id/credentials/:key/revoke", revoke)
}

/// Loads an account with one of its keys.
async fn load(visit: &Visit) -> Result<(Account, Credential), Stop> {
    let (id, key) = (visit.id("id")?, visit.id("key")?);
    let key = format!("/admin/v1/accounts/{id}/credentials/{key}");
    Ok(futures::try_join!(account(visit, id), visit.get(&key))?)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let (account, key) = load(&visit).await?;
    Ok(one(&visit, &account, &key, None))
}

/// Shows the key again with the refusal of a change.
async fn again(visit: &Visit, refusal: Refusal) -> PageResult {
    if !refusal.is_correctable() {
        return Err(refusal.into());
    }
    let (account, key) = load(visit).await?;
    Ok(layout::refused(one(visit, &account, &key, Some(&refusal)), &refusal))
}

/// Requires or waives signatures. A new signing secret is in this response alone, so it is shown without a redirect.
async fn require(visit: Visit) -> PageResult {
    visit.operator()?;
    let (id, key) = (visit.id("id")?, visit.id("key")?);
    let body = json!({"hmac_required": visit.form.value("required") == "yes"});
    let back = format!("/console/accounts/{id}/credentials/{key}");
    match visit.change::<Signing>(Method::PUT, &format!("/admin/v1/credentials/{key}"), &body).await {
        Ok(Signing { signing_secret: Some(secret) }) => {
            let account = account(&visit, id).await?;
            let body = html! {
                p { "Each request with API key " (key) " must now be signed with this secret." }
                (once(&[("Signing secret", &secret)]))
                p { a.button href=(back) { "To the API key" } }
            };
            Ok(page(&visit, &account, "The signing secret", &body))
        }
        Ok(Signing { signing_secret: None }) => Ok(redirect(&format!("{back}?done=changed"))),
        Err(refusal) => again(&visit, refusal).await,
    }
}

async fn revoke(visit: Visit) -> PageResult {
    visit.operator()?;
    let (id, key) = (visit.id("id")?, visit.id("key")?);
    match visit.change::<Value>(Method::DELETE, &format!("/admin/v1/credentials/{key}"), &json!({})).await {
        Ok(_) => Ok(redirect(&format!("/console/accounts/{id}/credentials/{key}?done=revoked"))),
        Err(refusal) => again(&visit, refusal).await,
    }
}

fn one(visit: &Visit, account: &Account, key: &Credential, refusal: Option<&Refusal>) -> Response {
    let listed = |items: &Option<Vec<String>>, all: &str| items.as_ref().map_or_else(|| all.to_owned(), |items| items.join(", "));
    let body = html! {
        (layout::problem(refusal))
        (facts(&[
            ("Status", key.state()),
            ("Begins with", html! { code { (key.key_prefix) } }),
            ("Operations", html! { (listed(&key.scopes, "All")) }),
            ("Networks", html! { (listed(&key.allowed_networks, "Any")) }),
            ("Signatures", html! { @if key.hmac_required { "Required" } @else { "Optional" } }),
            ("Expires", time_or_none(key.expires_at)),
            ("Last used", time_or_none(key.last_used_at)),
            ("Created", time(key.created_at)),
            ("Changed", time(key.updated_at)),
        ]))
        p.actions { a href=(audit_of("actor", &format!("credential/{}", key.id))) { "What this key did" } }
        @if is_admin(visit) { @if !key.is_revoked { (changes(account.id, key)) } }
        @else { (needs_admin("change API keys")) }
    };
    page(visit, account, &format!("API key {}", key.name), &body)
}

fn changes(account: i64, key: &Credential) -> Markup {
    let action = |name: &str| format!("/console/accounts/{account}/credentials/{}/{name}", key.id);
    html! {
        details.card {
            @if key.hmac_required {
                summary { "Waive signatures" }
                form method="post" action=(action("signatures")) {
                    p { "Requests with this key need no signature from the next request on." }
                    input type="hidden" name="required" value="no";
                    button.danger { "Accept unsigned requests" }
                }
            } @else {
                summary { "Require signatures" }
                form method="post" action=(action("signatures")) {
                    p { "Requests with this key that are not signed are refused from the next request on. A key without a signing secret gets one, which is shown once." }
                    input type="hidden" name="required" value="yes";
                    button.danger { "Refuse unsigned requests" }
                }
            }
        }
        details.card {
            summary { "Revoke this API key" }
            form method="post" action=(action("revoke")) {
                p { "The next request with this key is refused. This cannot be undone. Linked webhooks keep working." }
                button.danger { "Revoke the key" }
            }
        }
    }
}
