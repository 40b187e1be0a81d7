//! Descriptions of the fields in which a row differs from the log.

use ledger_events::OrderId;
use ledger_projections::totals::Day;
use ledger_projections::wallets::Transaction;

/// Describes the fields in which a row differs from the log.
pub fn differing(row: &Transaction, movement: &Transaction) -> String {
    let text = |id: Option<OrderId>| id.map_or_else(|| "none".to_owned(), |id| id.to_string());
    let named = |reference: &Option<String>| reference.clone().unwrap_or_else(|| "none".to_owned());
    let fields = [
        ("id", row.id.to_string(), movement.id.to_string()),
        ("wallet", row.wallet_id.to_string(), movement.wallet_id.to_string()),
        ("account", row.account_id.to_string(), movement.account_id.to_string()),
        ("type", row.direction.as_str().to_owned(), movement.direction.as_str().to_owned()),
        ("category", row.category.to_owned(), movement.category.to_owned()),
        ("amount", row.amount.to_string(), movement.amount.to_string()),
        ("balance after", row.balance_after.to_string(), movement.balance_after.to_string()),
        ("currency", row.currency.to_string(), movement.currency.to_string()),
        ("order", text(row.order_id), text(movement.order_id)),
        ("reference", named(&row.reference), named(&movement.reference)),
        ("time", row.created_at.to_rfc3339(), movement.created_at.to_rfc3339()),
    ];
    let differing = fields.into_iter().filter(|(_, row, log)| row != log);
    differing.map(|(field, row, log)| format!("{field} is {row}, the log says {log}")).collect::<Vec<_>>().join("; ")
}

/// Describes the fields in which a day's row differs from the day's events.
pub fn differing_day(walked: &Day, row: &Day) -> Option<String> {
    let (movements, rows) = (&walked.sums, &row.sums);
    let money = |name, row: rust_decimal::Decimal, log| (name, super::Amount(row).to_string(), super::Amount(log).to_string());
    let fields = [
        ("account", row.account_id.to_string(), walked.account_id.to_string()),
        ("currency", row.currency.to_string(), walked.currency.to_string()),
        money("funding", rows.funding, movements.funding),
        money("order debits", rows.order_debits, movements.order_debits),
        money("payout debits", rows.payout_debits, movements.payout_debits),
        money("order refunds", rows.order_refunds, movements.order_refunds),
        money("payout refunds", rows.payout_refunds, movements.payout_refunds),
        money("adjustment credits", rows.adjustment_credits, movements.adjustment_credits),
        money("adjustment debits", rows.adjustment_debits, movements.adjustment_debits),
        ("movements", rows.movements.to_string(), movements.movements.to_string()),
        money("closing balance", row.closing_balance, walked.closing_balance),
        ("first position", row.first_position.to_string(), walked.first_position.to_string()),
        ("last position", row.last_position.to_string(), walked.last_position.to_string()),
    ];
    let differing = fields.into_iter().filter(|(_, row, log)| row != log);
    let text = differing.map(|(field, row, log)| format!("{field} {row}, the log says {log}")).collect::<Vec<_>>().join("; ");
    (!text.is_empty()).then_some(text)
}
