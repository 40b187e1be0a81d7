//! One transaction, a movement of money in a wallet, and tables of them.

use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::outcome::PageResult;
use crate::pages::parts::layout;
use crate::pages::parts::values::{badge, facts, money, time, words};
use crate::pages::shared::transaction::{self, Transaction};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A transaction, as `GET /api/v1/transactions/:id` returns it.
#[derive(Debug, Deserialize)]
struct RecordedTransaction {
    #[serde(flatten)]
    transaction: Transaction,
    event_id: String,
}

/// A table of transactions. Each one leads to its page, and to the order or the payout that caused it.
pub fn rows(caption: &str, transactions: &[Transaction]) -> Markup {
    transaction::rows(caption, transactions, "/portal")
}

/// Links to what caused a transaction.
fn cause(transaction: &Transaction) -> Option<Markup> {
    transaction.cause("/portal")
}

pub fn add(site: Site) -> Site {
    site.get("/portal/transactions/:id", show)
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let found: RecordedTransaction = visit.get(&format!("/api/v1/transactions/{}", visit.id("id")?)).await?;
    let RecordedTransaction { transaction, event_id } = found;
    let currency = &transaction.currency;
    let body = html! {
        (facts(&[
            ("Amount", money(&transaction.signed_amount(), currency)),
            ("Kind", badge(&transaction.category)),
            ("Description", html! { (transaction.description) }),
            ("Balance afterwards", money(&transaction.balance_after, currency)),
            ("Wallet", html! { a href={ "/portal/wallets/" (transaction.wallet_id) } { "Wallet " (transaction.wallet_id) } }),
            ("Reference", html! { (transaction.reference.as_deref().unwrap_or("–")) }),
            ("Cause", cause(&transaction).unwrap_or_else(|| html! { (words(&transaction.category)) })),
            ("Time", time(transaction.created_at)),
            ("Event", html! { code { (event_id) } }),
        ]))
        p.quiet { "Support can look up the event by its identifier." }
    };
    Ok(layout::page(&visit, &format!("Transaction {}", transaction.id), &body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::shared::transaction::tests::transaction;

    #[test]
    fn a_movement_leads_to_its_page_and_to_its_cause() {
        let order = transaction("ORDER", Some(3), "ORD-3");
        let payout = transaction("PAYOUT_REFUND", None, "PAY-9");
        let markup = rows("Movements", &[order, payout]).0;
        for link in [
            "/portal/transactions/1\">1<",
            "/portal/transactions/1\"><span class=\"money\">−5.00 ",
            "/portal/orders/3\">Order 3<",
            "/portal/payouts/9\">Payout 9<",
        ] {
            assert!(markup.contains(link), "{link}: {markup}");
        }
        assert!(cause(&transaction("FUNDING", None, "PAY-9")).is_none());
    }
}
