//! The approvals of large movements: an inbox, one of them with its facts, and the decision about it.

use chrono::{DateTime, Utc};
use ledger_events::Money;
use maud::{Markup, html};
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::may_move;
use super::wallet::{Wallet, wallet};
use crate::pages::call::{List, Refusal};
use crate::pages::console::parts::audit_of;
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, facts, money, time, time_or_none, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Statuses that the list can be limited to. The first one is that of the inbox.
const STATUSES: [(&str, &str); 6] = [
    ("PENDING", "Waiting for a decision"),
    ("GRANTED", "Approved"),
    ("REJECTED", "Rejected"),
    ("EXPIRED", "Expired"),
    ("WITHDRAWN", "Withdrawn"),
    ("ALL", "All"),
];

/// An approval, as `GET /admin/v1/approvals/:id` returns it.
#[derive(Debug, Deserialize)]
pub struct Approval {
    pub id: i64,
    action: String,
    status: String,
    account_id: i64,
    wallet_id: i64,
    pub payout_id: Option<i64>,
    #[serde(rename = "type")]
    direction: Option<String>,
    amount: String,
    currency: String,
    reference: Option<String>,
    note: Option<String>,
    requested_by: String,
    decided_by: Option<String>,
    rejection_reason: Option<String>,
    transaction_id: Option<i64>,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    decided_at: Option<DateTime<Utc>>,
}

impl Approval {
    /// Names the change.
    fn name(&self) -> &'static str {
        match (self.action.as_str(), self.direction.as_deref()) {
            ("FUND", _) => "Funding",
            ("ADJUST", Some("DEBIT")) => "Adjustment, debit",
            ("ADJUST", _) => "Adjustment, credit",
            ("PAYOUT", _) => "Payout as paid",
            _ => "Movement",
        }
    }

    fn is_pending(&self) -> bool {
        self.status == "PENDING"
    }

    /// Returns the balance that the wallet would have. The wallet of a payout was debited when the payout was requested.
    fn balance_after(&self, balance: &str) -> Option<Money> {
        let (balance, amount): (Money, Money) = (balance.parse().ok()?, self.amount.parse().ok()?);
        match (self.action.as_str(), self.direction.as_deref()) {
            ("PAYOUT", _) => Some(balance),
            ("ADJUST", Some("DEBIT")) => balance.checked_sub(amount).ok(),
            _ => balance.checked_add(amount).ok(),
        }
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/approvals", list)
        .get("/console/approvals/:id", show)
        .post("/console/approvals/:id/approve", approve)
        .post("/console/approvals/:id/reject", reject)
        .post("/console/approvals/:id/withdraw", withdraw)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let status = visit.query.text("status").unwrap_or("PENDING");
    let known = STATUSES.iter().find(|(known, _)| *known == status).map_or("PENDING", |(known, _)| known);
    let filter = if known == "ALL" { String::new() } else { format!("status={known}") };
    let path = format!("/admin/v1/approvals?{filter}&{}", visit.query.only(&["wallet_id", "payout_id", "page"]));
    let approvals: List<Approval> = visit.list(&path, "approvals").await?;
    let body = html! {
        (layout::live(&visit))
        p { "Movements above the limit of the service wait here until a second operator decides about them." }
        (filters(&visit))
        @if approvals.items.is_empty() {
            @if known == "PENDING" { (table::empty("Nothing waits for a decision.", Some(("/console/approvals?status=ALL", "Show all approvals")))) }
            @else { (table::empty("There is no such approval.", Some(("/console/approvals", "To the inbox")))) }
        } @else {
            (rows(&visit, &approvals.items))
            (table::pager(&approvals, "/console/approvals", &visit.query))
        }
    };
    Ok(layout::page(&visit, "Approvals", &body))
}

fn filters(visit: &Visit) -> Markup {
    let fields = Filled { form: &visit.query, refusal: None };
    table::filters(
        "/console/approvals",
        &html! {
            (fields.select("status", "Status", &STATUSES, ""))
            (fields.input("wallet_id", "Wallet number", "search", ""))
            (fields.input("payout_id", "Payout number", "search", ""))
        },
    )
}

/// Returns whether the visitor requested the change.
fn is_own(visit: &Visit, approval: &Approval) -> bool {
    visit.operator().is_ok_and(|operator| operator.actor().to_string() == approval.requested_by)
}

fn rows(visit: &Visit, approvals: &[Approval]) -> Markup {
    let columns = [
        ("Approval", false),
        ("Requested", false),
        ("Change", false),
        ("Account", false),
        ("Requested by", false),
        ("Amount", true),
        ("Status", false),
    ];
    let row = |approval: &Approval| {
        vec![
            html! { a href={ "/console/approvals/" (approval.id) } { "Approval " (approval.id) } },
            time(approval.created_at),
            html! { (approval.name()) },
            html! { a href={ "/console/accounts/" (approval.account_id) } { "Account " (approval.account_id) } },
            html! { (words(&approval.requested_by)) @if is_own(visit, approval) { " (you)" } },
            amount(approval),
            badge(&approval.status),
        ]
    };
    table::table("Approvals", &columns, &approvals.iter().map(row).collect::<Vec<_>>())
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    one(&visit, visit.id("id")?, None).await
}

/// Renders an approval as it is now.
async fn one(visit: &Visit, id: i64, refusal: Option<&Refusal>) -> PageResult {
    let approval: Approval = visit.get(&format!("/admin/v1/approvals/{id}")).await?;
    let wallet = wallet(visit, approval.wallet_id).await?;
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        (facts(&known(&approval)))
        @if approval.is_pending() {
            @if is_own(visit, &approval) {
                p.notice.wait { "You requested this change, so you cannot decide about it. Another operator must." }
                @if may_move(visit) { (withdrawal(&approval)) }
            } @else if may_move(visit) { (decision(&approval, &wallet, &Filled { form: &visit.form, refusal })) }
            @else { p.quiet { "To decide about it, you need the role finance." } }
        }
        p.actions {
            a href=(audit_of("subject", &format!("approval/{id}"))) { "The events of this approval in the audit" }
            a href="/console/approvals" { "All approvals" }
        }
    };
    Ok(layout::page(visit, &format!("Approval {id}"), &body))
}

/// Renders the amount of an approval, which leads to the movement, or to the events if nothing has moved.
fn amount(approval: &Approval) -> Markup {
    let behind = match approval.transaction_id {
        Some(transaction) => format!("/console/transactions/{transaction}"),
        None => audit_of("subject", &format!("approval/{}", approval.id)),
    };
    html! { a href=(behind) { (money(&approval.amount, &approval.currency)) } }
}

fn known(approval: &Approval) -> Vec<(&'static str, Markup)> {
    let text = |text: &Option<String>| html! { (text.as_deref().unwrap_or("–")) };
    let note = if approval.action == "ADJUST" { "Reason" } else { "Note" };
    let mut known = vec![
        ("Status", badge(&approval.status)),
        ("Change", html! { (approval.name()) }),
        ("Amount", amount(approval)),
        ("Account", html! { a href={ "/console/accounts/" (approval.account_id) } { "Account " (approval.account_id) } }),
        ("Wallet", html! { a href={ "/console/wallets/" (approval.wallet_id) } { "Wallet " (approval.wallet_id) } }),
    ];
    if let Some(payout) = approval.payout_id {
        known.push(("Payout", html! { a href={ "/console/payouts/" (payout) } { "Payout " (payout) } }));
    }
    known.extend([
        ("Reference", text(&approval.reference)),
        (note, text(&approval.note)),
        ("Requested", time(approval.created_at)),
        ("Requested by", html! { (words(&approval.requested_by)) }),
        (if approval.is_pending() { "Expires" } else { "Would have expired" }, time(approval.expires_at)),
        ("Decided", time_or_none(approval.decided_at)),
        ("Decided by", html! { @if let Some(decider) = &approval.decided_by { (words(decider)) } @else { "–" } }),
        ("Reason of the rejection", text(&approval.rejection_reason)),
    ]);
    if let Some(transaction) = approval.transaction_id {
        known.push(("Made as", html! { a href={ "/console/transactions/" (transaction) } { "Transaction " (transaction) } }));
    }
    known
}

fn withdrawal(approval: &Approval) -> Markup {
    html! {
        details.card {
            summary { "Withdraw this request" }
            form method="post" action={ "/console/approvals/" (approval.id) "/withdraw" } {
                p { "Nothing moves. If the change is still needed, request it again." }
                button.danger { "Withdraw the request" }
            }
        }
    }
}

fn decision(approval: &Approval, wallet: &Wallet, fields: &Filled<'_>) -> Markup {
    let path = format!("/console/approvals/{}", approval.id);
    let is_payout = approval.action == "PAYOUT";
    html! {
        section.card aria-label="Approve" {
            p {
                "The balance of wallet " (wallet.id) " is " (money(&wallet.balance, &wallet.currency)) ". "
                @if is_payout { "The payout was debited when it was requested, so the balance stays." }
                @else if let Some(after) = approval.balance_after(&wallet.balance) {
                    "After the change it is " strong { (money(&after.to_string(), &wallet.currency)) } "."
                }
            }
            form method="post" action={ (path) "/approve" } { button { "Approve" } }
        }
        details.card open[fields.refusal.is_some_and(|refusal| refusal.messages.contains_key("reason"))] {
            summary { "Reject this change" }
            form method="post" action={ (path) "/reject" } {
                p { "Nothing moves. The operator who requested the change can request another one." }
                (fields.input("reason", "Reason", "text", "Optional. Stored encrypted."))
                button.danger { "Reject" }
            }
        }
    }
}

async fn approve(visit: Visit) -> PageResult {
    let body = json!({});
    decide(visit, "approve", &body).await
}

async fn withdraw(visit: Visit) -> PageResult {
    let body = json!({});
    decide(visit, "withdraw", &body).await
}

async fn reject(visit: Visit) -> PageResult {
    let body = visit.form.json(&[("reason", Kind::Text)]);
    decide(visit, "reject", &body).await
}

/// Decides about an approval. If it is decided meanwhile, its page says so.
async fn decide(visit: Visit, decision: &str, body: &Value) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    match visit.change::<Value>(Method::POST, &format!("/admin/v1/approvals/{id}/{decision}"), body).await {
        Ok(_) => Ok(redirect(&format!("/console/approvals/{id}?done={decision}"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => Ok(layout::refused(one(&visit, id, Some(&refusal)).await?, &refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(action: &str, direction: Option<&str>) -> Approval {
        let approval = json!({
            "id": 1, "action": action, "status": "PENDING", "account_id": 2, "wallet_id": 3, "payout_id": null,
            "type": direction, "amount": "30.00", "currency": "EUR", "reference": null, "note": null,
            "requested_by": "operator 3", "decided_by": null, "rejection_reason": null, "transaction_id": null,
            "created_at": "2026-01-31T12:00:00Z", "expires_at": "2026-02-01T12:00:00Z", "decided_at": null
        });
        serde_json::from_value(approval).unwrap()
    }

    #[test]
    fn a_granted_approval_leads_to_its_transaction() {
        let link = |approval: &Approval| {
            let known = known(approval);
            known.into_iter().find(|(name, _)| *name == "Made as").map(|(_, markup)| markup.0)
        };
        let granted = Approval { transaction_id: Some(17), ..approval("FUND", None) };
        assert_eq!(link(&granted).as_deref(), Some("<a href=\"/console/transactions/17\">Transaction 17</a>"));
        assert_eq!(link(&approval("FUND", None)), None);
    }

    #[test]
    fn an_approval_shows_the_balance_that_it_leads_to() {
        let after = |action: &str, direction: Option<&str>| {
            approval(action, direction).balance_after("100.00").map(|balance| balance.to_string())
        };
        assert_eq!(after("FUND", None).as_deref(), Some("130.00"));
        assert_eq!(after("ADJUST", Some("CREDIT")).as_deref(), Some("130.00"));
        assert_eq!(after("ADJUST", Some("DEBIT")).as_deref(), Some("70.00"));
        assert_eq!(after("PAYOUT", None).as_deref(), Some("100.00"));
    }
}
