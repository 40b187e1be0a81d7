//! The wallets of an account, and the opening of one.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{Account, account, page};
use crate::pages::call::{List, Refusal};
use crate::pages::console::parts::{is_admin, needs_admin};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{money, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A wallet, as `GET /admin/v1/accounts/:id/wallets` returns it.
#[derive(Debug, Deserialize)]
pub struct Wallet {
    id: i64,
    currency: String,
    balance: String,
    updated_at: DateTime<Utc>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id/wallets", list).post("/console/accounts/:id/wallets", open)
}

async fn load(visit: &Visit, id: i64) -> Result<(Account, List<Wallet>), Refusal> {
    let path = format!("/admin/v1/accounts/{id}/wallets?{}", visit.query.only(&["page"]));
    futures::try_join!(account(visit, id), visit.list(&path, "wallets"))
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let (account, wallets) = load(&visit, visit.id("id")?).await?;
    Ok(list_page(&visit, &account, &wallets, None))
}

async fn open(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let mut body = visit.form.json(&[("currency", Kind::Text)]);
    if let Some(currency) = visit.form.text("currency") {
        body["currency"] = currency.to_ascii_uppercase().into();
    }
    match visit.change::<Value>(Method::POST, &format!("/admin/v1/accounts/{id}/wallets"), &body).await {
        Ok(_) => Ok(redirect(&format!("/console/accounts/{id}/wallets?done=created"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let (account, wallets) = load(&visit, id).await?;
            Ok(layout::refused(list_page(&visit, &account, &wallets, Some(&refusal)), &refusal))
        }
    }
}

fn list_page(visit: &Visit, account: &Account, wallets: &List<Wallet>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let path = format!("/console/accounts/{}/wallets", account.id);
    let body = html! {
        (layout::problem(refusal))
        @if wallets.items.is_empty() {
            (table::empty("The account has no wallet yet. It needs one in each currency in which it orders.", None))
        } @else {
            (rows(&wallets.items))
            (table::pager(wallets, &path, &visit.query))
        }
        @if is_admin(visit) {
            details.card open[refusal.is_some() || wallets.items.is_empty()] {
                summary { "Open a wallet" }
                form method="post" action=(path) {
                    (fields.input("currency", "Currency", "text", "Three letters, such as EUR. An account has one wallet in each currency."))
                    button { "Open the wallet" }
                }
            }
        } @else { (needs_admin("open wallets")) }
    };
    page(visit, account, &format!("Wallets of {}", account.name), &body)
}

/// A table of wallets. Each one leads to its page.
pub fn rows(wallets: &[Wallet]) -> Markup {
    let columns = [("Wallet", false), ("Currency", false), ("Balance", true), ("Last change", false)];
    let row = |wallet: &Wallet| {
        vec![
            html! { a href={ "/console/wallets/" (wallet.id) } { "Wallet " (wallet.id) } },
            html! { (wallet.currency) },
            html! { a href={ "/console/wallets/" (wallet.id) } { (money(&wallet.balance, &wallet.currency)) } },
            time(wallet.updated_at),
        ]
    };
    table::table("Wallets", &columns, &wallets.iter().map(row).collect::<Vec<_>>())
}
