//! A transaction: a movement of money in a wallet, and lists of them.

use chrono::{DateTime, Utc};
use ledger_events::PayoutId;
use ledger_events::payout::reference_code;
use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::form::address;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::day_fields;
use crate::pages::parts::table;
use crate::pages::parts::values::{badge, money, time, words};

const CATEGORIES: [&str; 6] = ["FUNDING", "ORDER", "ORDER_REFUND", "ADJUSTMENT", "PAYOUT", "PAYOUT_REFUND"];
/// Filters of a list that are those of the API.
pub const FILTERS: [&str; 4] = ["type", "category", "order_id", "reference"];

/// A transaction, as the API returns it.
#[derive(Debug, Deserialize)]
pub struct Transaction {
    pub id: i64,
    pub wallet_id: i64,
    #[serde(rename = "type")]
    pub direction: String,
    pub category: String,
    pub amount: String,
    pub balance_after: String,
    pub currency: String,
    pub order_id: Option<i64>,
    pub reference: Option<String>,
    pub description: String,
    pub created_at: DateTime<Utc>,
}

impl Transaction {
    /// Returns the amount with the sign of its effect on the wallet.
    pub fn signed_amount(&self) -> String {
        if self.direction == "DEBIT" { format!("-{}", self.amount) } else { self.amount.clone() }
    }

    /// Links to the order or the payout that caused the movement, on the pages below `pages`. Fundings and adjustments have neither.
    pub fn cause(&self, pages: &str) -> Option<Markup> {
        let order = self.order_id.map(|id| html! { a href={ (pages) "/orders/" (id) } { "Order " (id) } });
        order.or_else(|| self.payout_id().map(|id| html! { a href={ (pages) "/payouts/" (id) } { "Payout " (id) } }))
    }

    /// Returns the payout that caused the movement. Its reference is `PAY-` with the payout's id.
    fn payout_id(&self) -> Option<i64> {
        let is_of_payout = matches!(self.category.as_str(), "PAYOUT" | "PAYOUT_REFUND");
        let id = self.reference.as_deref()?.strip_prefix("PAY-")?;
        id.parse().ok().filter(|_| is_of_payout)
    }
}

/// Links the amount of a payout to its movement in the wallet, on the pages below `pages`.
pub fn of_payout(pages: &str, (wallet, payout): (i64, i64), amount: &Markup) -> Markup {
    let reference = reference_code(PayoutId(payout));
    let list = address(&format!("{pages}/wallets/{wallet}"), &[("category", "PAYOUT"), ("reference", &reference)]);
    html! { a href=(list) { (amount) } }
}

/// The fields of the filters.
pub fn choices(fields: &Filled<'_>) -> Markup {
    let categories: Vec<(&str, String)> =
        std::iter::once(("", "Any".to_owned())).chain(CATEGORIES.map(|category| (category, words(category)))).collect();
    html! {
        (fields.select("type", "Direction", &[("", "Any"), ("CREDIT", "Credit"), ("DEBIT", "Debit")], ""))
        (fields.select("category", "Kind", &categories, ""))
        (fields.input("order_id", "Order number", "search", ""))
        (fields.input("reference", "Reference", "search", ""))
        (day_fields(fields))
    }
}

/// A table of transactions. The number, the amount and the balance of each lead to its page below `pages`, and its cause to the
/// order or the payout.
pub fn rows(caption: &str, transactions: &[Transaction], pages: &str) -> Markup {
    let columns = [
        ("Transaction", false),
        ("Time", false),
        ("Kind", false),
        ("Description", false),
        ("Cause", false),
        ("Amount", true),
        ("Balance", true),
    ];
    let row = |transaction: &Transaction| {
        let leading = |text: Markup| html! { a href={ (pages) "/transactions/" (transaction.id) } { (text) } };
        vec![
            leading(html! { (transaction.id) }),
            time(transaction.created_at),
            badge(&transaction.category),
            html! { (transaction.description) },
            transaction.cause(pages).unwrap_or_else(|| html! { "–" }),
            leading(money(&transaction.signed_amount(), &transaction.currency)),
            leading(money(&transaction.balance_after, &transaction.currency)),
        ]
    };
    table::table(caption, &columns, &transactions.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// A debit of 5.00 EUR.
    pub fn transaction(category: &str, order_id: Option<i64>, reference: &str) -> Transaction {
        let fields = json!({
            "id": 1, "wallet_id": 2, "type": "DEBIT", "category": category, "amount": "5.00", "balance_after": "1.00",
            "currency": "EUR", "order_id": order_id, "reference": reference, "description": "", "created_at": "2026-01-31T12:00:00Z"
        });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_debit_is_negative() {
        let debit = transaction("ORDER", Some(3), "ORD-3");
        assert_eq!(debit.signed_amount(), "-5.00");
        assert_eq!(Transaction { direction: "CREDIT".to_owned(), ..debit }.signed_amount(), "5.00");
    }

    #[test]
    fn only_movements_of_payouts_name_a_payout() {
        assert_eq!(transaction("PAYOUT", None, "PAY-9").payout_id(), Some(9));
        assert_eq!(transaction("PAYOUT_REFUND", None, "PAY-9").payout_id(), Some(9));
        assert_eq!(transaction("FUNDING", None, "PAY-9").payout_id(), None);
        assert_eq!(transaction("PAYOUT", None, "PAY-x").payout_id(), None);
        assert_eq!(transaction("PAYOUT", None, &reference_code(PayoutId(9))).payout_id(), Some(9));
        let of_payout = of_payout("/portal", (3, 9), &html! { "30.00" }).0;
        let movement = "/portal/wallets/3?category=PAYOUT&amp;reference=PAY-0000000009";
        assert!(of_payout.contains(&format!("href=\"{movement}\"")), "{of_payout}");
    }
}
