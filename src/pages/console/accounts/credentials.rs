//! The API keys of an account, and the creation of one.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Account, account, page};
use crate::pages::call::{List, Refusal};
use crate::pages::console::parts::{is_admin, needs_admin};
use crate::pages::form::{Form, Kind};
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::zone_field;
use crate::pages::parts::values::{badge, once, time, time_or_none};
use crate::pages::parts::zone::Zone;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Operations that a key can be restricted to.
const SCOPES: [(&str, &str); 4] = [
    ("read", "Read everything but voucher codes"),
    ("orders", "Place and cancel orders, and read voucher codes"),
    ("webhooks", "Manage webhooks"),
    ("payouts", "Manage payouts and beneficiaries"),
];

/// An API key, as `GET /admin/v1/accounts/:id/credentials` returns it.
#[derive(Debug, Deserialize)]
pub struct Credential {
    pub id: i64,
    pub name: String,
    pub key_prefix: String,
    pub is_revoked: bool,
    pub hmac_required: bool,
    pub scopes: Option<Vec<String>>,
    pub expires_at: Option<DateTime<Utc>>,
    pub allowed_networks: Option<Vec<String>>,
    pub last_used_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Credential {
    /// Renders whether requests with the key are accepted.
    pub fn state(&self) -> Markup {
        let has_expired = self.expires_at.is_some_and(|at| at <= Utc::now());
        badge(match (self.is_revoked, has_expired) {
            (true, _) => "revoked",
            (false, true) => "expired",
            (false, false) => "active",
        })
    }
}

/// A new API key with its secret.
#[derive(Debug, Deserialize)]
struct Issued {
    id: i64,
    api_key: String,
    api_secret: String,
}

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id/credentials", list).post("/console/accounts/:id/credentials", create)
}

async fn load(visit: &Visit, id: i64) -> Result<(Account, List<Credential>), Refusal> {
    let path = format!("/admin/v1/accounts/{id}/credentials?{}", visit.query.only(&["page"]));
    futures::try_join!(account(visit, id), visit.list(&path, "credentials"))
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let (account, keys) = load(&visit, visit.id("id")?).await?;
    Ok(list_page(&visit, &account, &keys, None))
}

/// Creates a key, and shows it with its secret. They are in this response alone, so no redirect follows.
async fn create(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let path = format!("/admin/v1/accounts/{id}/credentials");
    let issued = async { visit.change_once::<Issued>(&path, &visit.form.key(), &body(&visit.form)?).await };
    match issued.await {
        Ok(issued) => {
            let account = account(&visit, id).await?;
            let body = html! {
                p { "A program of " (account.name) " sends the key as " code { "X-API-Key" } " and the secret as " code { "X-API-Secret" } "." }
                (once(&[("API key", &issued.api_key), ("API secret", &issued.api_secret)]))
                p { a.button href={ "/console/accounts/" (id) "/credentials/" (issued.id) } { "To the API key" } }
            };
            Ok(page(&visit, &account, "The new API key", &body))
        }
        Err(refusal) if refusal.code == "E_ALREADY_CREATED" => {
            let list = format!("/console/accounts/{id}/credentials");
            Ok(layout::sent_before(&visit, "API key", (&list, "All API keys of the account"), &refusal))
        }
        Err(refusal) if !refusal.is_correctable() && !refusal.is_undecided() => Err(refusal.into()),
        Err(refusal) => {
            let (account, keys) = load(&visit, id).await?;
            Ok(layout::refused(list_page(&visit, &account, &keys, Some(&refusal)), &refusal))
        }
    }
}

/// Builds the body that a form stands for. A key without restrictions has none of their fields.
///
/// # Errors
/// A refusal of the time zone.
fn body(form: &Form) -> Result<Value, Refusal> {
    let zone = Zone::of(form)?;
    let mut body = form.json(&[("name", Kind::Text)]);
    let scopes: Vec<&str> = form.all("scopes").collect();
    if !scopes.is_empty() {
        body["scopes"] = json!(scopes);
    }
    if let Some(day) = form.text("expires_at") {
        // The API refuses at its field what is no day.
        body["expires_at"] = zone.moment(day).into();
    }
    let networks: Vec<&str> =
        form.value("allowed_networks").split([',', ' ', '\n', '\r']).filter(|part| !part.is_empty()).collect();
    if !networks.is_empty() {
        body["allowed_networks"] = json!(networks);
    }
    Ok(body)
}

fn list_page(visit: &Visit, account: &Account, keys: &List<Credential>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let path = format!("/console/accounts/{}/credentials", account.id);
    let body = html! {
        (layout::problem(refusal))
        @if keys.items.is_empty() { (table::empty("The account has no API key yet. Its programs need one to order.", None)) }
        @else {
            (rows(&path, &keys.items))
            (table::pager(keys, &path, &visit.query))
        }
        @if is_admin(visit) {
            details.card open[refusal.is_some() || keys.items.is_empty()] {
                summary { "New API key" }
                form method="post" action=(path) {
                    (fields.input("name", "Name", "text", "For people to recognize it, such as the name of the program."))
                    (fields.ticks("scopes", "Only these operations", "A key without a tick may use all of them.", &SCOPES))
                    (fields.input("expires_at", "Expires on", "date", "Optional. Requests are refused from the beginning of this day."))
                    (zone_field(&fields))
                    (fields.area("allowed_networks", "Allowed networks", "Optional. Networks or addresses, one on a line, such as 203.0.113.0/24."))
                    (fields.key())
                    button { "Create the API key" }
                }
            }
        } @else { (needs_admin("create API keys")) }
    };
    page(visit, account, &format!("API keys of {}", account.name), &body)
}

fn rows(path: &str, keys: &[Credential]) -> Markup {
    let columns = [
        ("Name", false),
        ("Begins with", false),
        ("Created", false),
        ("Last used", false),
        ("Expires", false),
        ("Status", false),
    ];
    let row = |key: &Credential| {
        vec![
            html! { a href={ (path) "/" (key.id) } { (key.name) } },
            html! { code { (key.key_prefix) } },
            time(key.created_at),
            time_or_none(key.last_used_at),
            time_or_none(key.expires_at),
            key.state(),
        ]
    };
    table::table("API keys", &columns, &keys.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_key_with_its_restrictions() {
        let form = Form::parse(
            b"name=Shop&scopes=read&scopes=orders&expires_at=2026-12-31&allowed_networks=10.0.0.0%2F8%0D%0A192.0.2.1",
        );
        let networks = ["10.0.0.0/8", "192.0.2.1"];
        let expected = json!({"name": "Shop", "scopes": ["read", "orders"], "expires_at": "2026-12-31T00:00:00.000Z",
            "allowed_networks": networks});
        assert_eq!(body(&form).unwrap(), expected);
        assert_eq!(body(&Form::parse(b"name=Shop&expires_at=&allowed_networks=")).unwrap(), json!({"name": "Shop"}));
        assert_eq!(body(&Form::parse(b"expires_at=soon")).unwrap()["expires_at"], "soon");
        let there = body(&Form::parse(b"expires_at=2026-12-31&zone=Asia/Tokyo")).unwrap();
        assert_eq!(there["expires_at"], "2026-12-30T15:00:00.000Z");
        assert!(body(&Form::parse(b"zone=Nowhere")).is_err());
    }
}
