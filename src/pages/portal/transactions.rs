//! One transaction, a movement of money in a wallet, and tables of them.

use maud::{Markup, html};

use crate::pages::outcome::PageResult;
use crate::pages::parts::layout;
use crate::pages::parts::values::{badge, facts, money, time, words};
use crate::pages::shared::transaction::{self, Transaction};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A table of transactions. Each one leads to its page, and to the order that caused it.
pub fn rows(caption: &str, transactions: &[Transaction]) -> Markup {
    let number = |transaction: &Transaction| html! { a href={ "/portal/transactions/" (transaction.id) } { (transaction.id) } };
    let cause = |transaction: &Transaction| {
        html! {
            @if let Some(order) = transaction.order_id { a href={ "/portal/orders/" (order) } { "Order " (order) } }
            @else { "–" }
        }
    };
    transaction::rows(caption, transactions, number, cause)
}

pub fn add(site: Site) -> Site {
    site.get("/portal/transactions/:id", show)
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let transaction: Transaction = visit.get(&format!("/api/v1/transactions/{}", visit.id("id")?)).await?;
    let currency = &transaction.currency;
    let body = html! {
        (facts(&[
            ("Amount", money(&transaction.signed_amount(), currency)),
            ("Kind", badge(&transaction.category)),
            ("Description", html! { (transaction.description) }),
            ("Balance afterwards", money(&transaction.balance_after, currency)),
            ("Wallet", html! { a href={ "/portal/wallets/" (transaction.wallet_id) } { "Wallet " (transaction.wallet_id) } }),
            ("Reference", html! { (transaction.reference.as_deref().unwrap_or("–")) }),
            ("Cause", html! {
                @if let Some(order) = transaction.order_id { a href={ "/portal/orders/" (order) } { "Order " (order) } }
                @else { (words(&transaction.category)) }
            }),
            ("Time", time(transaction.created_at)),
        ]))
    };
    Ok(layout::page(&visit, &format!("Transaction {}", transaction.id), &body))
}
