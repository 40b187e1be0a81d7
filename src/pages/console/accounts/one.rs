//! One account: its status, its balances, its latest orders, and the blocks of its users' addresses.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde_json::{Value, json};

use super::wallets::{self, Wallet};
use super::{Account, account, page};
use crate::pages::call::{List, Refusal};
use crate::pages::console::ip_blocks::{self, Block};
use crate::pages::console::orders::{self, AccountOrder};
use crate::pages::console::parts::{is_admin, needs_admin};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::values::{badge, copyable, facts, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Number of orders on the page of an account.
const LATEST: u64 = 10;

/// An account with everything that its page shows.
struct Shown {
    account: Account,
    wallets: List<Wallet>,
    orders: List<AccountOrder>,
    blocks: List<Block>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id", show).post("/console/accounts/:id/status", change)
}

async fn load(visit: &Visit, id: i64) -> Result<Shown, Refusal> {
    let (wallets, orders) =
        (format!("/admin/v1/accounts/{id}/wallets?limit=100"), format!("/admin/v1/orders?account_id={id}&limit={LATEST}"));
    let blocks = format!("/admin/v1/ip-blocks?account_id={id}&limit=100");
    let (account, wallets, orders, blocks) = futures::try_join!(
        account(visit, id),
        visit.list(&wallets, "wallets"),
        visit.list(&orders, "orders"),
        visit.list(&blocks, "ip_blocks")
    )?;
    Ok(Shown { account, wallets, orders, blocks })
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let shown = load(&visit, visit.id("id")?).await?;
    Ok(overview(&visit, &shown, None))
}

async fn change(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let body = json!({"status": visit.form.value("status")});
    match visit.change::<Value>(Method::PUT, &format!("/admin/v1/accounts/{id}"), &body).await {
        Ok(_) => Ok(redirect(&format!("/console/accounts/{id}?done=changed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let shown = load(&visit, id).await?;
            Ok(layout::refused(overview(&visit, &shown, Some(&refusal)), &refusal))
        }
    }
}

fn overview(visit: &Visit, shown: &Shown, refusal: Option<&Refusal>) -> Response {
    let Shown { account, wallets, orders, blocks } = shown;
    let body = html! {
        (layout::problem(refusal))
        (facts(&[
            ("Status", badge(&account.status)),
            ("Number", copyable(&account.id.to_string())),
            ("Created", time(account.created_at)),
        ]))
        @if is_admin(visit) { (status_form(account)) } @else { (needs_admin("suspend or activate the account")) }
        h2 { "Balances" }
        @if wallets.items.is_empty() {
            (table::empty("The account has no wallet yet.", Some((&format!("/console/accounts/{}/wallets", account.id), "Open a wallet"))))
        } @else { (wallets::rows(&wallets.items)) }
        h2 { "Latest orders" }
        @if orders.items.is_empty() { (table::empty("The account has not ordered anything yet. Its people order in the portal, its programs through the API.", None)) }
        @else {
            (orders::rows("Latest orders", &orders.items))
            p { a href={ "/console/orders?account_id=" (account.id) } { "All orders of this account" } }
        }
        (ip_blocks::of_account(visit, &blocks.items))
        @if is_admin(visit) { (erasure(account.id)) }
    };
    page(visit, account, &account.name, &body)
}

/// A form that suspends the account, or lifts the suspension.
fn status_form(account: &Account) -> Markup {
    let action = format!("/console/accounts/{}/status", account.id);
    html! {
        @if account.status == "ACTIVE" {
            details.card {
                summary { "Suspend this account" }
                form method="post" action=(action) {
                    p { "The account can still read its data. Every change that it asks for is refused, orders and payouts included, until an admin activates it again." }
                    button.danger name="status" value="SUSPENDED" { "Suspend the account" }
                }
            }
        } @else {
            form.card method="post" action=(action) {
                p { "The account is suspended: it can read its data, but every change is refused." }
                button name="status" value="ACTIVE" { "Activate the account" }
            }
        }
    }
}

/// Says how personal data are erased. That rewrites tables, so it is no operation of the API.
fn erasure(id: i64) -> Markup {
    html! {
        details.card {
            summary { "Erase personal data" }
            p {
                "An erasure rewrites tables, so it is a command beside the database. The account must be suspended first. "
                "This command only counts what would be erased:"
            }
            (copyable(&format!("rewards-ledger erase account {id} --reason REASON --dry-run")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_the_status() {
        let account = |status: &str| {
            let account = json!({"id": 5, "name": "Acme", "status": status, "created_at": "2026-01-31T12:00:00Z"});
            status_form(&serde_json::from_value(account).unwrap()).0
        };
        let (active, suspended) = (account("ACTIVE"), account("SUSPENDED"));
        assert!(active.contains("value=\"SUSPENDED\"") && !active.contains("value=\"ACTIVE\""), "{active}");
        assert!(suspended.contains("value=\"ACTIVE\"") && !suspended.contains("value=\"SUSPENDED\""), "{suspended}");
    }
}
