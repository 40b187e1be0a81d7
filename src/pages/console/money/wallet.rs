//! One wallet of any account: its balance and its movements, and both as CSV.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;
use serde_json::Value;

use super::may_move;
use crate::pages::call::{List, Refusal};
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, file};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{PERIOD, filters, period, rfc3339};
use crate::pages::parts::values::{figure, money, time};
use crate::pages::parts::{layout, table};
use crate::pages::shared::transaction::{self, FILTERS, Transaction, choices};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// A wallet, as `GET /admin/v1/wallets/:id` returns it.
#[derive(Debug, Deserialize)]
pub struct Wallet {
    pub id: i64,
    pub account_id: i64,
    pub currency: String,
    pub balance: String,
    updated_at: DateTime<Utc>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/wallets/:id", show).get("/console/wallets/:id/statement.csv", download)
}

/// Reads a wallet as it is now.
pub async fn wallet(visit: &Visit, id: i64) -> Result<Wallet, Refusal> {
    visit.get(&format!("/admin/v1/wallets/{id}")).await
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let waiting = format!("/admin/v1/approvals?status=PENDING&wallet_id={id}&limit=1");
    let (wallet, waiting): (Wallet, List<Value>) = futures::try_join!(wallet(&visit, id), visit.list(&waiting, "approvals"))?;
    let (movements, refusal) = match movements(&visit, id).await {
        Ok(movements) => (Some(movements), None),
        Err(refusal) => (None, Some(refusal)),
    };
    let page = |refusal: Option<&Refusal>| page(&visit, &wallet, waiting.total, movements.as_ref(), refusal);
    match refusal {
        None => Ok(page(None)),
        Some(refusal) => corrected(refusal, |refusal| layout::refused(page(Some(refusal)), refusal)),
    }
}

async fn movements(visit: &Visit, id: i64) -> Result<List<Transaction>, Refusal> {
    let (filters, number) = (filters(&visit.query, &FILTERS)?, visit.query.only(&["page"]));
    visit.list(&format!("/admin/v1/wallets/{id}/transactions?{filters}&{number}"), "transactions").await
}

/// Renders a wallet. `waiting` is the number of its movements that wait for approval.
fn page(
    visit: &Visit,
    wallet: &Wallet,
    waiting: u64,
    movements: Option<&List<Transaction>>,
    refusal: Option<&Refusal>,
) -> Response {
    let path = format!("/console/wallets/{}", wallet.id);
    let days = visit.query.only(&PERIOD);
    let body = html! {
        (layout::problem(refusal))
        div.figures {
            (figure("Balance", &money(&wallet.balance, &wallet.currency)))
            (figure("Account", &html! { a href={ "/console/accounts/" (wallet.account_id) } { (wallet.account_id) } }))
            (figure("Last change", &time(wallet.updated_at)))
        }
        p.actions {
            @if may_move(visit) {
                a.button href={ (path) "/fund" } { "Fund" }
                a.button.plain href={ (path) "/adjust" } { "Adjust" }
            }
            a.button.plain href={ "/console/payouts?wallet_id=" (wallet.id) } { "Payouts from this wallet" }
            a.button.plain href={ (path) "/statement.csv?" (days) } { "Statement as CSV" }
        }
        @if !may_move(visit) { p.quiet { "To move money, you need the role finance." } }
        @if waiting > 0 {
            p.notice.wait {
                a href={ "/console/approvals?wallet_id=" (wallet.id) } { "Movements that wait for approval: " (waiting) }
            }
        }
        h2 { "Movements" }
        (table::filters(&path, &choices(&Filled { form: &visit.query, refusal })))
        @if let Some(movements) = movements {
            @if movements.items.is_empty() { (nothing(visit, &path)) }
            @else {
                (transaction::rows("Movements", &movements.items, "/console"))
                (table::pager(movements, &path, &visit.query))
            }
        }
    };
    layout::page(visit, &format!("Wallet {}", wallet.id), &body)
}

fn nothing(visit: &Visit, path: &str) -> Markup {
    let kept = visit.query.only(&[&FILTERS[..], &["from", "to", "page"][..]].concat());
    match kept.is_empty() {
        true => table::empty("Nothing has moved yet. Fund the wallet when money has come in for it.", None),
        false => table::empty("No movement matches these filters.", Some((path, "Show all movements"))),
    }
}

/// Returns the chosen days as the query of a statement.
fn between(days: &Form) -> Result<String, Refusal> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, at) in ["from", "to"].into_iter().zip(period(days)?) {
        query.extend_pairs(at.map(|at| (name, rfc3339(at))));
    }
    Ok(query.finish())
}

/// Sends the statement of the chosen days as CSV, part by part. A statement that cannot be read to its end breaks the download
/// off.
async fn download(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let path = format!("/admin/v1/wallets/{id}/statement?{}", between(&visit.query)?);
    let csv = visit.body(&path, "text/csv").await?;
    Ok(file(&format!("statement-{id}.csv"), "text/csv; charset=utf-8; header=present", csv))
}
