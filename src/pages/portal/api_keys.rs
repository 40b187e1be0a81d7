//! API keys: their list, the creation of one, its revocation, and its signing secret.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::restrictions::{self, Restricted};
use super::webhook::{ALL, Webhook, may, overlap};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, facts, once, time, time_or_none};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;
use ledger_events::user::UserRole;

/// An API key, as `GET /client/api/api-keys` returns it.
#[derive(Debug, Deserialize)]
pub struct ApiKey {
    pub id: i64,
    pub name: String,
    pub key_prefix: String,
    hmac_required: bool,
    pub is_revoked: bool,
    #[serde(flatten)]
    restricted: Restricted,
    last_used_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl ApiKey {
    fn state(&self) -> Markup {
        badge(match () {
            () if self.is_revoked => "revoked",
            () if self.restricted.has_expired(Utc::now()) => "expired",
            () => "active",
        })
    }
}

/// A new API key with its secret.
#[derive(Debug, Deserialize)]
struct Issued {
    api_key: String,
    api_secret: String,
}

#[derive(Debug, Deserialize)]
struct Rotated {
    signing_secret: String,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/api-keys", list)
        .post("/portal/api-keys", create)
        .get("/portal/api-keys/:id/revoke", confirm_revocation)
        .post("/portal/api-keys/:id/revoke", revoke)
        .get("/portal/api-keys/:id/signing-secret", confirm_rotation)
        .post("/portal/api-keys/:id/signing-secret", rotate)
}

async fn load(visit: &Visit) -> Result<List<ApiKey>, Refusal> {
    visit.list(&format!("/client/api/api-keys?{}", visit.query.only(&["page"])), "api_keys").await
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let keys = load(&visit).await?;
    Ok(page(&visit, &keys, None))
}

/// Creates a key, and shows it with its secret. They are in this response alone, so no redirect follows.
async fn create(visit: Visit) -> PageResult {
    visit.user()?;
    let created = async {
        let body = restrictions::body(&visit.form)?;
        visit.change_once::<Issued>("/client/api/api-keys", &visit.form.key(), &body).await
    };
    match created.await {
        Ok(issued) => {
            let body = html! {
                p { "Your program sends the key as " code { "X-API-Key" } " and the secret as " code { "X-API-Secret" } "." }
                (once(&[("API key", &issued.api_key), ("API secret", &issued.api_secret)]))
                p { a.button href="/portal/api-keys" { "All API keys" } }
            };
            Ok(layout::page(&visit, "The new API key", &body))
        }
        Err(refusal) if refusal.code == "E_ALREADY_CREATED" => {
            Ok(layout::sent_before(&visit, "API key", ("/portal/api-keys", "All API keys"), &refusal))
        }
        Err(refusal) if refusal.is_correctable() || refusal.is_undecided() => {
            let keys = load(&visit).await?;
            Ok(layout::refused(page(&visit, &keys, Some(&refusal)), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

fn page(visit: &Visit, keys: &List<ApiKey>, refusal: Option<&Refusal>) -> Response {
    let is_owner = may(visit, UserRole::Owner);
    let fields = Filled { form: &visit.form, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "A program of yours uses an API key to order and to read for this account." }
        @if is_owner {
            details.card open[refusal.is_some() || keys.items.is_empty()] {
                summary { "New API key" }
                form method="post" action="/portal/api-keys" {
                    (fields.input("name", "Name", "text", "For you to recognize it, such as the name of the program."))
                    (restrictions::inputs(&fields))
                    (fields.key())
                    button { "Create the API key" }
                }
            }
        } @else { p.quiet { "To create and revoke keys, you need the role owner." } }
        @if keys.items.is_empty() { (table::empty("You have no API key yet. An owner of the account creates the first one.", None)) }
        @else {
            (rows(&keys.items, is_owner))
            (table::pager(keys, "/portal/api-keys", &visit.query))
        }
    };
    layout::page(visit, "API keys", &body)
}

fn rows(keys: &[ApiKey], is_owner: bool) -> Markup {
    let columns = [
        ("Name", false),
        ("Begins with", false),
        ("Signatures", false),
        ("Restrictions", false),
        ("Last used", false),
        ("Created", false),
        ("Status", false),
        ("Actions", false),
    ];
    let row = |key: &ApiKey| {
        vec![
            html! { (key.name) " " span.quiet { "(" (key.id) ")" } },
            html! { code { (key.key_prefix) } },
            html! { @if key.hmac_required { "Required" } @else { "Optional" } },
            key.restricted.shown(),
            time_or_none(key.last_used_at),
            time(key.created_at),
            key.state(),
            html! { @if is_owner { (actions(key)) } @else { "–" } },
        ]
    };
    table::table("API keys", &columns, &keys.iter().map(row).collect::<Vec<_>>())
}

/// Links to the changes of a key. The signing secret of a revoked key still signs deliveries of linked webhooks.
fn actions(key: &ApiKey) -> Markup {
    let target = |page: &str| format!("/portal/api-keys/{}/{page}", key.id);
    html! {
        a href=(target("signing-secret")) aria-label={ "Rotate the signing secret of " (key.name) } { "Rotate the signing secret" }
        @if !key.is_revoked { " · " a href=(target("revoke")) aria-label={ "Revoke " (key.name) } { "Revoke" } }
    }
}

async fn find(visit: &Visit, id: i64) -> Result<ApiKey, Refusal> {
    visit.get(&format!("/client/api/api-keys/{id}")).await
}

/// Names the webhooks that are linked to a key.
async fn linked(visit: &Visit, id: i64) -> Result<Markup, Refusal> {
    let mut webhooks = visit.list::<Webhook>(ALL, "webhooks").await?.items;
    webhooks.retain(|webhook| webhook.credential_id == Some(id));
    Ok(html! {
        @if webhooks.is_empty() { "None" }
        @else {
            ul.links { @for webhook in &webhooks { li { a href={ "/portal/webhooks/" (webhook.id) } { (webhook.name) } } } }
        }
    })
}

async fn confirm_revocation(visit: Visit) -> PageResult {
    visit.user()?;
    let key = find(&visit, visit.id("id")?).await?;
    let linked = linked(&visit, key.id).await?;
    let consequence = "The next request with this key is refused. This cannot be undone. Linked webhooks keep working.";
    Ok(confirmation(
        &visit,
        &key,
        &linked,
        None,
        &Change { title: "Revoke this API key?", consequence, page: "revoke", button: "Revoke the key" },
    ))
}

async fn revoke(visit: Visit) -> PageResult {
    visit.user()?;
    visit.change::<Value>(Method::DELETE, &format!("/client/api/api-keys/{}", visit.id("id")?), &json!({})).await?;
    Ok(redirect("/portal/api-keys?done=revoked"))
}

/// Texts of the rotation.
const ROTATION: Change = Change {
    title: "Rotate the signing secret?",
    consequence: "Requests with this key, and deliveries of its linked webhooks, are signed with the new secret from then on. \
        For requests, the old one stops at once. The key itself and its API secret stay as they are.",
    page: "signing-secret",
    button: "Replace the signing secret",
};

async fn confirm_rotation(visit: Visit) -> PageResult {
    visit.user()?;
    let key = find(&visit, visit.id("id")?).await?;
    let linked = linked(&visit, key.id).await?;
    Ok(confirmation(&visit, &key, &linked, None, &ROTATION))
}

/// Replaces the signing secret, and shows the new one. It is in this response alone, so no redirect follows.
async fn rotate(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let path = format!("/client/api/api-keys/{id}/rotate-signing-secret");
    let body = visit.form.json(&[("previous_valid_hours", Kind::Number)]);
    match visit.change::<Rotated>(Method::POST, &path, &body).await {
        Ok(Rotated { signing_secret }) => {
            let body = html! {
                p { "It signs the requests with API key " (id) " and the deliveries of its linked webhooks from now on." }
                (once(&[("Signing secret", &signing_secret)]))
                p { a.button href="/portal/api-keys" { "All API keys" } }
            };
            Ok(layout::page(&visit, "The new signing secret", &body))
        }
        Err(refusal) if refusal.is_correctable() => {
            let key = find(&visit, id).await?;
            let linked = linked(&visit, id).await?;
            Ok(layout::refused(confirmation(&visit, &key, &linked, Some(&refusal), &ROTATION), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Texts of a page that confirms a change of a key.
struct Change {
    title: &'static str,
    consequence: &'static str,
    /// Last segment of the page's path.
    page: &'static str,
    button: &'static str,
}

fn confirmation(visit: &Visit, key: &ApiKey, linked: &Markup, refusal: Option<&Refusal>, change: &Change) -> Response {
    let body = html! {
        (layout::problem(refusal))
        (facts(&[
            ("Name", html! { (key.name) }),
            ("Begins with", html! { code { (key.key_prefix) } }),
            ("Restrictions", key.restricted.shown()),
            ("Last used", time_or_none(key.last_used_at)),
            ("Created", time(key.created_at)),
            ("Linked webhooks", linked.clone()),
        ]))
        p { (change.consequence) }
        div.actions {
            @if may(visit, UserRole::Owner) {
                form method="post" action={ "/portal/api-keys/" (key.id) "/" (change.page) } {
                    @if change.page == ROTATION.page { (overlap()) }
                    button.danger { (change.button) }
                }
            } @else { p.quiet { "To do this, you need the role owner." } }
            a.button.plain href="/portal/api-keys" { "Back to the API keys" }
        }
    };
    layout::page(visit, change.title, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(is_revoked: bool) -> ApiKey {
        let key = json!({"id": 5, "name": "<b>", "key_prefix": "3f9a1c0d", "hmac_required": true, "is_revoked": is_revoked,
            "created_at": "2026-01-31T12:00:00Z"});
        serde_json::from_value(key).unwrap()
    }

    #[test]
    fn only_an_owner_sees_the_changes_of_a_key() {
        let (owner, viewer) = (rows(&[key(false)], true).0, rows(&[key(false)], false).0);
        assert!(owner.contains("/portal/api-keys/5/revoke") && !owner.contains("<b>"), "{owner}");
        assert!(!viewer.contains("/portal/api-keys/5"), "{viewer}");
    }

    #[test]
    fn a_revoked_key_is_not_revoked_again() {
        let markup = actions(&key(true)).0;
        assert!(!markup.contains("/revoke") && markup.contains("/signing-secret"), "{markup}");
    }
}
