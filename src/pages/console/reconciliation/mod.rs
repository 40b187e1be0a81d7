//! Reconciliation: the money of a period with its differences, and the statements of banks.

mod extent;
mod lines;
mod narrowed;
mod report;
mod statement;
mod statements;
mod stock;
mod wallets;

use maud::{Markup, html};
use serde::Deserialize;

use crate::access::Role;
use crate::pages::parts::values::money;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// An imported statement, as `GET /admin/v1/reconciliation/statements` returns it.
#[derive(Debug, Deserialize)]
struct Statement {
    id: i64,
    format: String,
    line_count: i32,
    first_day: String,
    last_day: String,
    decided_count: i64,
    created_at: chrono::DateTime<chrono::Utc>,
}

/// A funding or a payout of the ledger.
#[derive(Clone, Debug, Deserialize)]
struct Entry {
    transaction_id: Option<i64>,
    payout_id: Option<i64>,
    account_id: Option<i64>,
    amount: Option<String>,
    currency: Option<String>,
    day: Option<String>,
    references: Vec<String>,
}

impl Entry {
    /// Names the entry.
    fn name(&self) -> String {
        match (self.transaction_id, self.payout_id) {
            (Some(transaction), _) => format!("Funding, transaction {transaction}"),
            (None, Some(payout)) => format!("Payout {payout}"),
            (None, None) => "Entry".to_owned(),
        }
    }

    /// Renders the entry with links to what is known of it.
    fn render(&self) -> Markup {
        html! {
            @match (self.transaction_id, self.payout_id) {
                (Some(transaction), _) => a href={ "/console/transactions/" (transaction) } { (self.name()) },
                (None, Some(payout)) => a href={ "/console/payouts/" (payout) } { (self.name()) },
                (None, None) => (self.name()),
            }
            @if let (Some(amount), Some(currency)) = (&self.amount, &self.currency) { ", " (money(amount, currency)) }
            @if let Some(day) = &self.day { ", " (day) }
            @if let Some(account) = self.account_id { ", " a href={ "/console/accounts/" (account) } { "account " (account) } }
        }
    }
}

pub fn add(site: Site) -> Site {
    lines::add(statement::add(statements::add(report::add(site))))
}

/// Returns whether the visitor may import statements, and decide about their lines.
fn may_decide(visit: &Visit) -> bool {
    visit.operator().is_ok_and(|operator| operator.may(Role::Finance))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_leads_to_its_movement_or_to_its_payout() {
        let entry = |transaction: Option<i64>, payout: Option<i64>| {
            let entry = json!({"transaction_id": transaction, "payout_id": payout, "account_id": 5, "amount": "5.00", "currency": "EUR",
                "day": "2026-01-31", "references": []});
            serde_json::from_value::<Entry>(entry).unwrap().render().0
        };
        assert!(entry(Some(7), None).contains("href=\"/console/transactions/7\""));
        assert!(entry(None, Some(8)).contains("href=\"/console/payouts/8\""));
    }
}
