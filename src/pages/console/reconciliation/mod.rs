//! Reconciliation: the money of a period with its differences, and the statements of banks.

mod lines;
mod report;
mod statement;
mod statements;

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
            @match self.payout_id {
                Some(payout) => a href={ "/console/payouts/" (payout) } { (self.name()) },
                None => (self.name()),
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
