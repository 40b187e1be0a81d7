//! Movements that operators make: the funding of a wallet, and the correction of its balance.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde_json::Value;

use super::wallet::{Wallet, wallet};
use super::{may_move, supervised};
use crate::pages::call::Refusal;
use crate::pages::form::Kind;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::parts::values::{figure, money};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

const APPROVAL: &str = "Above the limit of the service, nothing moves until another operator approves.";

pub fn add(site: Site) -> Site {
    site.get("/console/wallets/:id/fund", fund_form)
        .post("/console/wallets/:id/fund", fund)
        .get("/console/wallets/:id/adjust", adjust_form)
        .post("/console/wallets/:id/adjust", adjust)
}

async fn fund_form(visit: Visit) -> PageResult {
    visit.operator()?;
    let wallet = wallet(&visit, visit.id("id")?).await?;
    Ok(fund_page(&visit, &wallet, &Filled { form: &visit.query, refusal: None }))
}

/// Funds a wallet. Its reference makes a repeated form the same funding.
async fn fund(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let body = visit.form.json(&[("amount", Kind::Text), ("reference", Kind::Text), ("note", Kind::Text)]);
    match visit.change::<Value>(Method::POST, &format!("/admin/v1/wallets/{id}/fund"), &body).await {
        Ok(answer) => Ok(supervised(&answer, &format!("/console/wallets/{id}?done=funded"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(mut refusal) => {
            let wallet = wallet(&visit, id).await?;
            if refusal.code == "E_CONFLICT" {
                refusal.message = format!("Nothing has moved. {}", refusal.message);
            }
            let fields = Filled { form: &visit.form, refusal: Some(&refusal) };
            Ok(layout::refused(fund_page(&visit, &wallet, &fields), &refusal))
        }
    }
}

async fn adjust_form(visit: Visit) -> PageResult {
    visit.operator()?;
    let wallet = wallet(&visit, visit.id("id")?).await?;
    Ok(adjust_page(&visit, &wallet, &Filled { form: &visit.query, refusal: None }))
}

/// Corrects a balance. Its key comes from the form, so that a repeated form makes one correction.
async fn adjust(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let body = visit.form.json(&[("type", Kind::Text), ("amount", Kind::Text), ("reason", Kind::Text)]);
    match visit.change_once::<Value>(&format!("/admin/v1/wallets/{id}/adjust"), &visit.form.key(), &body).await {
        Ok(answer) => Ok(supervised(&answer, &format!("/console/wallets/{id}?done=adjusted"))),
        Err(refusal) if refusal.is_correctable() || refusal.is_undecided() => {
            let wallet = wallet(&visit, id).await?;
            let fields = Filled { form: &visit.form, refusal: Some(&refusal) };
            Ok(layout::refused(adjust_page(&visit, &wallet, &fields), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

fn fund_page(visit: &Visit, wallet: &Wallet, fields: &Filled<'_>) -> Response {
    let form = html! {
        form.card method="post" action={ "/console/wallets/" (wallet.id) "/fund" } {
            (fields.input("amount", "Amount", "text", &format!("In {}, such as 500.00.", wallet.currency)))
            (fields.input("reference", "Reference of the payment", "text", "As the bank names it. Each reference counts once, so sending this form again is safe."))
            (fields.input("note", "Note", "text", "Optional, for operators. Stored encrypted."))
            p { (APPROVAL) }
            button { "Fund the wallet" }
        }
    };
    page(visit, wallet, "Fund", &form, fields.refusal)
}

fn adjust_page(visit: &Visit, wallet: &Wallet, fields: &Filled<'_>) -> Response {
    let directions = [("CREDIT", "Credit: add to the balance"), ("DEBIT", "Debit: take from the balance")];
    let form = html! {
        form.card method="post" action={ "/console/wallets/" (wallet.id) "/adjust" } {
            (fields.key())
            (fields.select("type", "Direction", &directions, ""))
            (fields.input("amount", "Amount", "text", &format!("In {}, such as 12.50.", wallet.currency)))
            (fields.input("reason", "Reason", "text", "For operators and auditors. Stored encrypted."))
            p { "The client sees the correction in the statement, without the reason. " (APPROVAL) }
            button { "Adjust the balance" }
        }
    };
    page(visit, wallet, "Adjust", &form, fields.refusal)
}

fn page(visit: &Visit, wallet: &Wallet, action: &str, form: &Markup, refusal: Option<&Refusal>) -> Response {
    let body = html! {
        (layout::problem(refusal))
        div.figures {
            (figure("Balance", &html! {
                a href={ "/console/wallets/" (wallet.id) } { (money(&wallet.balance, &wallet.currency)) }
            }))
            (figure("Account", &html! { a href={ "/console/accounts/" (wallet.account_id) } { (wallet.account_id) } }))
        }
        @if may_move(visit) { (form) } @else { p.quiet { "To move money, you need the role finance." } }
        p.actions { a href={ "/console/wallets/" (wallet.id) } { "Back to the wallet" } }
    };
    layout::page(visit, &format!("{action} wallet {}", wallet.id), &body)
}
