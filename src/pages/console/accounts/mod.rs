//! The accounts: their list, and the creation of one. The pages of one account share their links.

mod credential;
mod credentials;
mod deliveries;
mod discounts;
mod limits;
mod one;
mod user;
mod users;
mod wallets;
mod webhooks;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;

use super::parts::{is_admin, needs_admin};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Parts of an account that have pages of their own: the last segment of the path, and the name.
const PARTS: [(&str, &str); 8] = [
    ("", "Overview"),
    ("/wallets", "Wallets"),
    ("/discounts", "Discounts"),
    ("/credentials", "API keys"),
    ("/users", "Users"),
    ("/webhooks", "Webhooks"),
    ("/deliveries", "Deliveries"),
    ("/limits", "Limits in use"),
];

/// An account, as `GET /admin/v1/accounts` returns it.
#[derive(Debug, Deserialize)]
pub struct Account {
    id: i64,
    name: String,
    status: String,
    created_at: DateTime<Utc>,
}

pub fn add(site: Site, service_name: Arc<str>) -> Site {
    let site = one::add(site.get("/console/accounts", list).post("/console/accounts", create));
    let site = credential::add(credentials::add(discounts::add(wallets::add(site))));
    limits::add(deliveries::add(webhooks::add(user::add(users::add(site))), service_name))
}

/// Reads an account.
pub async fn account(visit: &Visit, id: i64) -> Result<Account, Refusal> {
    visit.get(&format!("/admin/v1/accounts/{id}")).await
}

/// Renders a page about a part of an account, with links to the other parts.
pub fn page(visit: &Visit, account: &Account, title: &str, body: &Markup) -> Response {
    let start = format!("/console/accounts/{}", account.id);
    let is_here = |part: &str| match part {
        "" => visit.path() == start,
        part => visit.path().strip_prefix(&start).is_some_and(|rest| rest.starts_with(part)),
    };
    let body = html! {
        nav aria-label="Parts of the account" {
            ul.links {
                @for (part, name) in PARTS {
                    li { a href={ (start) (part) } aria-current=[is_here(part).then_some("page")] { (name) } }
                }
                li { a href={ "/console/orders?account_id=" (account.id) } { "Orders" } }
                li { a href={ "/console/audit?account_id=" (account.id) } { "Audit" } }
            }
        }
        (body)
    };
    layout::page(visit, title, &body)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let accounts = load(&visit).await?;
    Ok(list_page(&visit, &accounts, None))
}

async fn load(visit: &Visit) -> Result<List<Account>, Refusal> {
    visit.list(&format!("/admin/v1/accounts?{}", visit.query.only(&["page"])), "accounts").await
}

async fn create(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = visit.form.json(&[("name", Kind::Text)]);
    match visit.change::<Account>(Method::POST, "/admin/v1/accounts", &body).await {
        Ok(account) => Ok(redirect(&format!("/console/accounts/{}?done=created", account.id))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let accounts = load(&visit).await?;
            Ok(layout::refused(list_page(&visit, &accounts, Some(&refusal)), &refusal))
        }
    }
}

fn list_page(visit: &Visit, accounts: &List<Account>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "An account is a client organisation. To find one by its name, " a href="/console/search" { "search" } "." }
        @if is_admin(visit) {
            details.card open[refusal.is_some() || accounts.total == 0] {
                summary { "New account" }
                form method="post" action="/console/accounts" {
                    (fields.input("name", "Name", "text", "For people to recognize the organisation."))
                    button { "Create the account" }
                }
            }
        } @else { (needs_admin("create accounts")) }
        @if accounts.items.is_empty() { (table::empty("There is no account yet. An admin creates the first one.", None)) }
        @else {
            (rows(&accounts.items))
            (table::pager(accounts, "/console/accounts", &visit.query))
        }
    };
    layout::page(visit, "Accounts", &body)
}

fn rows(accounts: &[Account]) -> Markup {
    let columns = [("Account", false), ("Number", true), ("Created", false), ("Status", false)];
    let row = |account: &Account| {
        vec![
            html! { a href={ "/console/accounts/" (account.id) } { (account.name) } },
            html! { (account.id) },
            time(account.created_at),
            badge(&account.status),
        ]
    };
    table::table("Accounts", &columns, &accounts.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_escaped() {
        let account = json!({"id": 5, "name": "<b>", "status": "ACTIVE", "created_at": "2026-01-31T12:00:00Z"});
        let markup = rows(&[serde_json::from_value(account).unwrap()]).0;
        assert!(!markup.contains("<b>") && markup.contains("/console/accounts/5"), "{markup}");
    }
}
