//! The payouts of all accounts: their list, one of them, and its settlement.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::approvals::Approval;
use super::{may_move, supervised};
use crate::pages::call::{List, Refusal};
use crate::pages::console::parts::audit_of;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{day_fields, filters};
use crate::pages::parts::values::{badge, facts, money, time, time_or_none, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::transaction::of_payout;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

const STATUSES: [&str; 4] = ["PENDING", "PAID", "FAILED", "CANCELLED"];
/// Filters of the list that are those of the API.
const FILTERS: [&str; 5] = ["status", "account_id", "beneficiary_id", "wallet_id", "client_reference"];

/// A payout, as `GET /admin/v1/payouts/:id` returns it.
#[derive(Debug, Deserialize)]
struct Payout {
    id: i64,
    account_id: i64,
    beneficiary_id: i64,
    wallet_id: i64,
    amount: String,
    currency: String,
    client_reference: Option<String>,
    status: String,
    failure_reason: Option<String>,
    created_at: DateTime<Utc>,
    settled_at: Option<DateTime<Utc>>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/payouts", list)
        .get("/console/payouts/:id", show)
        .post("/console/payouts/:id/paid", paid)
        .post("/console/payouts/:id/failed", failed)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    match load(&visit).await {
        Ok(payouts) => Ok(page(&visit, Some(&payouts), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

async fn load(visit: &Visit) -> Result<List<Payout>, Refusal> {
    let (filters, number) = (filters(&visit.query, &FILTERS)?, visit.query.only(&["page"]));
    visit.list(&format!("/admin/v1/payouts?{filters}&{number}"), "payouts").await
}

fn page(visit: &Visit, payouts: Option<&List<Payout>>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let statuses: Vec<(&str, String)> =
        std::iter::once(("", "Any".to_owned())).chain(STATUSES.map(|status| (status, words(status)))).collect();
    let body = html! {
        (layout::problem(refusal))
        p.actions { a.button.plain href="/console/payouts?status=PENDING" { "Payouts to settle" } }
        (table::filters("/console/payouts", &html! {
            (fields.select("status", "Status", &statuses, ""))
            (fields.input("account_id", "Account number", "search", ""))
            (fields.input("wallet_id", "Wallet number", "search", ""))
            (fields.input("beneficiary_id", "Beneficiary number", "search", ""))
            (fields.input("client_reference", "Client's reference", "search", ""))
            (day_fields(&fields))
        }))
        @if let Some(payouts) = payouts {
            @if payouts.items.is_empty() { (nothing(visit)) }
            @else {
                (rows(&payouts.items))
                (table::pager(payouts, "/console/payouts", &visit.query))
            }
        }
    };
    layout::page(visit, "Payouts", &body)
}

fn nothing(visit: &Visit) -> Markup {
    let kept = visit.query.only(&[&FILTERS[..], &["from", "to", "page"][..]].concat());
    match kept.is_empty() {
        true => table::empty("No client has requested a payout yet. You settle payouts here.", None),
        false => table::empty("No payout matches these filters.", Some(("/console/payouts", "Show all payouts"))),
    }
}

fn rows(payouts: &[Payout]) -> Markup {
    let columns = [
        ("Payout", false),
        ("Requested", false),
        ("Account", false),
        ("Beneficiary", false),
        ("Client's reference", false),
        ("Amount", true),
        ("Status", false),
    ];
    let row = |payout: &Payout| {
        vec![
            html! { a href={ "/console/payouts/" (payout.id) } { "Payout " (payout.id) } },
            time(payout.created_at),
            html! { a href={ "/console/accounts/" (payout.account_id) } { "Account " (payout.account_id) } },
            beneficiary(payout),
            html! { (payout.client_reference.as_deref().unwrap_or("–")) },
            of_payout("/console", (payout.wallet_id, payout.id), &money(&payout.amount, &payout.currency)),
            badge(&payout.status),
        ]
    };
    table::table("Payouts", &columns, &payouts.iter().map(row).collect::<Vec<_>>())
}

/// Links to the payouts of a payout's beneficiary.
fn beneficiary(payout: &Payout) -> Markup {
    let id = payout.beneficiary_id;
    html! { a href={ "/console/payouts?beneficiary_id=" (id) } { "Beneficiary " (id) } }
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    one(&visit, visit.id("id")?, None).await
}

/// Renders a payout as it is now, with the approval that its settlement waits for.
async fn one(visit: &Visit, id: i64, refusal: Option<&Refusal>) -> PageResult {
    let path = format!("/admin/v1/payouts/{id}");
    let pending = format!("/admin/v1/approvals?status=PENDING&payout_id={id}&limit=1");
    let (payout, pending): (Payout, List<Approval>) = futures::try_join!(visit.get(&path), visit.list(&pending, "approvals"))?;
    let approval = pending.items.first();
    let body = html! {
        (layout::problem(refusal))
        (facts(&[
            ("Status", badge(&payout.status)),
            ("Amount", of_payout("/console", (payout.wallet_id, id), &money(&payout.amount, &payout.currency))),
            ("Account", html! { a href={ "/console/accounts/" (payout.account_id) } { "Account " (payout.account_id) } }),
            ("Wallet", html! { a href={ "/console/wallets/" (payout.wallet_id) } { "Wallet " (payout.wallet_id) } }),
            ("Beneficiary", beneficiary(&payout)),
            ("Client's reference", html! { (payout.client_reference.as_deref().unwrap_or("–")) }),
            ("Requested", time(payout.created_at)),
            ("Settled", time_or_none(payout.settled_at)),
            ("Reason of the failure", html! { (payout.failure_reason.as_deref().unwrap_or("–")) }),
        ]))
        @if let Some(approval) = approval {
            p.notice.wait {
                "Its settlement as paid waits for a second operator: "
                a href={ "/console/approvals/" (approval.id) } { "approval " (approval.id) } "."
            }
        } @else if payout.status == "PENDING" {
            @if may_move(visit) { (settlement(&payout, &Filled { form: &visit.form, refusal })) }
            @else { p.quiet { "To settle payouts, you need the role finance." } }
        }
        p.actions {
            a href=(audit_of("subject", &format!("payout/{id}"))) { "The events of this payout in the audit" }
            a href="/console/payouts" { "All payouts" }
        }
    };
    Ok(layout::page(visit, &format!("Payout {id}"), &body))
}

fn settlement(payout: &Payout, fields: &Filled<'_>) -> Markup {
    let path = format!("/console/payouts/{}", payout.id);
    html! {
        details.card {
            summary { "The money was sent" }
            form method="post" action={ (path) "/paid" } {
                p {
                    "Confirm only after you have sent " strong { (money(&payout.amount, &payout.currency)) }
                    ". This is final. Above the limit of the service, another operator must approve it first."
                }
                button { "Settle as paid" }
            }
        }
        details.card open[fields.refusal.is_some_and(|refusal| refusal.messages.contains_key("failure_reason"))] {
            summary { "The money could not be sent" }
            form method="post" action={ (path) "/failed" } {
                p { strong { (money(&payout.amount, &payout.currency)) } " return to wallet " (payout.wallet_id) ". This is final." }
                (fields.input("failure_reason", "Reason", "text", "Optional. The client sees it."))
                button.danger { "Settle as failed" }
            }
        }
    }
}

async fn paid(visit: Visit) -> PageResult {
    settle(visit, |_| json!({"status": "PAID"})).await
}

async fn failed(visit: Visit) -> PageResult {
    settle(visit, |visit| json!({"status": "FAILED", "failure_reason": visit.form.text("failure_reason")})).await
}

/// Settles a payout. If it is settled or cancelled meanwhile, its page says so.
async fn settle(visit: Visit, body: fn(&Visit) -> Value) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    match visit.change::<Value>(Method::PUT, &format!("/admin/v1/payouts/{id}"), &body(&visit)).await {
        Ok(answer) => Ok(supervised(&answer, &format!("/console/payouts/{id}?done=settled"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => Ok(layout::refused(one(&visit, id, Some(&refusal)).await?, &refusal)),
    }
}
