//! One movement of money, with the event that made it.

use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::console::parts::{account, position};
use crate::pages::outcome::PageResult;
use crate::pages::parts::layout;
use crate::pages::parts::values::{badge, facts, money, time};
use crate::pages::shared::transaction::Transaction;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A transaction, as `GET /admin/v1/transactions/:id` returns it.
#[derive(Debug, Deserialize)]
struct AnyTransaction {
    #[serde(flatten)]
    transaction: Transaction,
    account_id: i64,
    note: Option<String>,
    shard_id: i16,
    position: i64,
}

pub fn add(site: Site) -> Site {
    site.get("/console/transactions/:id", show)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let found: AnyTransaction = visit.get(&format!("/admin/v1/transactions/{}", visit.id("id")?)).await?;
    let AnyTransaction { transaction, account_id, note, shard_id, position: at } = found;
    let body = facts(&[
        ("Kind", badge(&transaction.category)),
        ("Amount", money(&transaction.signed_amount(), &transaction.currency)),
        ("Balance after it", money(&transaction.balance_after, &transaction.currency)),
        ("Time", time(transaction.created_at)),
        ("Description", html! { (transaction.description) }),
        ("Note or reason", html! { (note.as_deref().unwrap_or("–")) }),
        ("Cause", cause(&transaction)),
        ("Wallet", html! { a href={ "/console/wallets/" (transaction.wallet_id) } { "Wallet " (transaction.wallet_id) } }),
        ("Account", account(account_id)),
        ("Event", html! { "Position " (position(shard_id, at)) " of shard " (shard_id) }),
    ]);
    Ok(layout::page(&visit, &format!("Transaction {}", transaction.id), &body))
}

/// Links to what caused a movement.
fn cause(movement: &Transaction) -> Markup {
    movement.cause("/console").unwrap_or_else(|| html! { "–" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_movement_leads_to_its_cause() {
        let movement = |category: &str, order_id: Option<i64>, reference: &str| {
            let fields = json!({
                "id": 1, "wallet_id": 2, "type": "DEBIT", "category": category, "amount": "5.00", "balance_after": "1.00", "currency": "EUR",
                "order_id": order_id, "reference": reference, "description": "", "created_at": "2026-01-31T12:00:00Z"
            });
            cause(&serde_json::from_value(fields).unwrap()).0
        };
        assert!(movement("ORDER", Some(3), "ORD-3").contains("/console/orders/3"));
        assert!(movement("PAYOUT_REFUND", None, "PAY-9").contains("/console/payouts/9"));
        assert_eq!(movement("FUNDING", None, "PAY-9"), "–");
    }
}
