//! A matched statement as a workbook: a sheet of its lines, and one of the ledger entries that no line matches.

use rust_xlsxwriter::XlsxError;

use super::{LedgerEntry, StatementLine};
use crate::reconciliation::Amount;
use crate::reconciliation::statements::Matching;
use crate::reconciliation::workbook::{self, Cell, Sheet};

const LINES: [&str; 12] = [
    "line",
    "day",
    "direction",
    "amount",
    "currency",
    "references",
    "text",
    "status",
    "is_decided",
    "transaction_ids",
    "payout_ids",
    "why",
];
const MISSING: [&str; 9] =
    ["day", "direction", "amount", "currency", "references", "is_ambiguous", "transaction_id", "payout_id", "account_id"];

/// Renders a matched statement.
///
/// # Errors
/// If a sheet is too large for the format.
pub fn render(matching: Matching) -> Result<Vec<u8>, XlsxError> {
    let lines = matching.lines.into_iter().map(|(line, found)| {
        let status = found.name();
        of_line(StatementLine::of(line, found), status)
    });
    let missing =
        matching.unmatched.into_iter().map(|(candidate, is_ambiguous)| of_entry(LedgerEntry::of(candidate, is_ambiguous)));
    workbook::render([
        Sheet { name: "Lines", headings: LINES.to_vec(), rows: lines.collect() },
        Sheet { name: "Not in the statement", headings: MISSING.to_vec(), rows: missing.collect() },
    ])
}

fn of_line(line: StatementLine, status: &str) -> Vec<Cell> {
    let ids = |id: fn(&LedgerEntry) -> Option<i64>| {
        let ids: Vec<String> = line.entries.iter().filter_map(id).map(|id| id.to_string()).collect();
        Cell::Text(ids.join(" "))
    };
    vec![
        Cell::Count(line.line.into()),
        Cell::Text(line.booked_on.to_string()),
        Cell::Text(line.direction.as_str().to_owned()),
        Cell::Money(Amount(line.amount.0)),
        Cell::Text(line.currency.clone()),
        Cell::Text(line.references.join(" ")),
        line.text.as_ref().into(),
        Cell::Text(status.to_owned()),
        Cell::Text(line.is_decided.to_string()),
        ids(|entry| entry.transaction_id),
        ids(|entry| entry.payout_id),
        line.why.as_ref().into(),
    ]
}

fn of_entry(entry: LedgerEntry) -> Vec<Cell> {
    let direction = if entry.payout_id.is_some() { "DEBIT" } else { "CREDIT" };
    vec![
        entry.day.into(),
        Cell::Text(direction.to_owned()),
        entry.amount.map_or_else(|| Cell::Text(String::new()), |amount| Cell::Money(Amount(amount.0))),
        entry.currency.into(),
        Cell::Text(entry.references.join(" ")),
        Cell::Text(entry.is_ambiguous.to_string()),
        entry.transaction_id.into(),
        entry.payout_id.into(),
        entry.account_id.into(),
    ]
}
