//! The wallets with their balances, and the movements of one wallet with their filters.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::notice::{self, Notice};
use super::statement::Sums;
use super::transactions;
use crate::pages::call::{List, Refusal};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::filters;
use crate::pages::parts::values::{figure, money, time};
use crate::pages::parts::{layout, table};
use crate::pages::shared::transaction::{FILTERS, Transaction, choices};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::user::UserRole;

/// A wallet, as `GET /api/v1/wallets` returns it.
#[derive(Debug, Deserialize)]
struct Wallet {
    id: i64,
    currency: String,
    balance: String,
    updated_at: DateTime<Utc>,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/wallets", list).get("/portal/wallets/:id", show).post("/portal/wallets/:id/notice", set_notice)
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let number = visit.query.only(&["page"]);
    let wallets: List<Wallet> = visit.list(&format!("/api/v1/wallets?{number}"), "wallets").await?;
    let body = html! {
        (layout::live(&visit))
        @if wallets.items.is_empty() {
            (table::empty("You have no wallet yet. The operators of the service open one for each currency.", None))
        } @else {
            (rows(&wallets.items))
            (table::pager(&wallets, "/portal/wallets", &visit.query))
        }
    };
    Ok(layout::page(&visit, "Wallets", &body))
}

fn rows(wallets: &[Wallet]) -> Markup {
    let columns = [("Wallet", false), ("Currency", false), ("Balance", true), ("Last change", false), ("Statement", false)];
    let row = |wallet: &Wallet| {
        vec![
            html! { a href={ "/portal/wallets/" (wallet.id) } { "Wallet " (wallet.id) } },
            html! { (wallet.currency) },
            html! { a href={ "/portal/wallets/" (wallet.id) } { (money(&wallet.balance, &wallet.currency)) } },
            time(wallet.updated_at),
            html! { a href={ "/portal/wallets/" (wallet.id) "/statement" } { "Statement of wallet " (wallet.id) } },
        ]
    };
    table::table("Wallets", &columns, &wallets.iter().map(row).collect::<Vec<_>>())
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let shown = load(&visit, id).await?;
    match movements(&visit, id).await {
        Ok(movements) => Ok(page(&visit, &shown, Some(&movements), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, &shown, None, Some(refusal)), refusal)),
    }
}

/// A wallet with its notice.
struct Shown {
    sums: Sums,
    notice: Notice,
}

async fn load(visit: &Visit, id: i64) -> Result<Shown, Refusal> {
    // The sums until now include the balance, and their call refuses the wallet of another account.
    let (sums, notice) = (format!("/api/v1/wallets/{id}/statement?totals_only=true"), Notice::path(id));
    let (sums, notice) = futures::try_join!(visit.get(&sums), visit.get(&notice))?;
    Ok(Shown { sums, notice })
}

async fn set_notice(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let refusal = match visit.change::<Value>(Method::PUT, &Notice::path(id), &notice::body(&visit.form)).await {
        Ok(_) => return Ok(redirect(&format!("/portal/wallets/{id}?done=notice"))),
        Err(refusal) if !refusal.is_correctable() => return Err(refusal.into()),
        Err(refusal) => refusal,
    };
    let shown = load(&visit, id).await?;
    let movements = movements(&visit, id).await?;
    Ok(layout::refused(page(&visit, &shown, Some(&movements), Some(&refusal)), &refusal))
}

async fn movements(visit: &Visit, id: i64) -> Result<List<Transaction>, Refusal> {
    let (filters, number) = (filters(&visit.query, &FILTERS)?, visit.query.only(&["page"]));
    visit.list(&format!("/api/v1/transactions?wallet_id={id}&{filters}&{number}"), "transactions").await
}

fn page(visit: &Visit, shown: &Shown, movements: Option<&List<Transaction>>, refusal: Option<&Refusal>) -> Response {
    let Shown { sums, notice } = shown;
    // A read has a refusal of the filters, and a change has one of the notice.
    let (of_filters, of_notice) = if visit.is_read() { (refusal, None) } else { (None, refusal) };
    let path = format!("/portal/wallets/{}", sums.wallet_id);
    let may_pay = visit.user().is_ok_and(|user| user.may(UserRole::Owner));
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        div.figures { (figure("Balance", &money(&sums.closing_balance, &sums.currency))) }
        p.actions {
            a.button href={ (path) "/statement" } { "Statement" }
            @if may_pay { a.button.plain href={ "/portal/payouts/request?wallet_id=" (sums.wallet_id) } { "Request a payout" } }
            a.button.plain href={ "/portal/payouts?wallet_id=" (sums.wallet_id) } { "Payouts from this wallet" }
        }
        (notice::card(notice, &sums.currency, visit.user().is_ok_and(|user| user.may(UserRole::Operator)),
            of_notice.map(|refusal| Filled { form: &visit.form, refusal: Some(refusal) })))
        h2 { "Movements" }
        (table::filters(&path, &choices(&Filled { form: &visit.query, refusal: of_filters })))
        @if let Some(movements) = movements {
            @if movements.items.is_empty() { (nothing(visit, &path)) }
            @else {
                (transactions::rows("Movements", &movements.items))
                (table::pager(movements, &path, &visit.query))
            }
        }
    };
    layout::page(visit, &format!("Wallet {}", sums.wallet_id), &body)
}

fn nothing(visit: &Visit, path: &str) -> Markup {
    let kept = visit.query.only(&[&FILTERS[..], &["from", "to", "page"][..]].concat());
    match kept.is_empty() {
        true => table::empty("Nothing has moved yet. The operators of the service add money to the wallet.", None),
        false => table::empty("No movement matches these filters.", Some((path, "Show all movements"))),
    }
}
