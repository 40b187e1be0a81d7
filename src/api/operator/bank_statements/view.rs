//! Views of imported statements and their lines, as JSON, as CSV and as a workbook.

pub(super) mod workbook;

use bank_statements::lines::{BankLine, Direction};
use chrono::NaiveDate;
use ledger_events::reconciliation::{self, Decision};
use poem::http::header;
use poem::{IntoResponse, Response};
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiResponse, Enum, Object};
use serde::Serialize;

use crate::api::error::{JSON, documented_header};
use crate::api::images::binary;
use crate::api::operator::reconciliation::WORKBOOK;
use crate::api::reply::{Data, Plural};
use crate::api::scalars::{Money, Timestamp};
use crate::api::transactions::TransactionType;
use crate::reconciliation::statements::{Candidate, LineMatch, Matching};
use crate::spreadsheet::{self, inert};

/// An imported statement of a bank or payment processor.
#[derive(Object, Serialize)]
pub(super) struct BankStatement {
    /// Unique identifier of the statement.
    id: i64,
    /// Format of the file: `csv` or `camt.053`.
    format: String,
    /// Number of lines in the statement.
    line_count: i32,
    /// Earliest booking date among the lines.
    first_day: NaiveDate,
    /// Latest booking date among the lines.
    last_day: NaiveDate,
    /// Number of lines with a person's decision.
    decided_count: i64,
    /// Time at which the statement was imported.
    created_at: Timestamp,
    /// Time of the last decision about a line.
    updated_at: Timestamp,
}

impl Plural for BankStatement {
    const PLURAL: &'static str = "statements";
}

impl From<reconciliation::BankStatement> for BankStatement {
    fn from(statement: reconciliation::BankStatement) -> Self {
        Self {
            id: statement.id.0,
            format: statement.imported.format.as_str().to_owned(),
            line_count: statement.imported.lines,
            first_day: statement.imported.first_day,
            last_day: statement.imported.last_day,
            decided_count: i64::try_from(statement.decisions.len()).unwrap_or(i64::MAX),
            created_at: statement.created_at.into(),
            updated_at: statement.updated_at.into(),
        }
    }
}

/// Result of matching a line.
///
/// - `MATCHED`: the line is a funding or payout of the ledger.
/// - `IGNORED`: a person decided that the line has no counterpart in the ledger.
/// - `REVERSED`: the line and another one cancel each other out.
/// - `DUPLICATE`: the same line was in an earlier statement.
/// - `AMBIGUOUS`: the match is unclear, so a person has to decide.
/// - `UNMATCHED`: no entry of the ledger fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum MatchStatus {
    Matched,
    Ignored,
    Reversed,
    Duplicate,
    Ambiguous,
    #[default]
    Unmatched,
}

impl From<&LineMatch> for MatchStatus {
    fn from(found: &LineMatch) -> Self {
        match found {
            LineMatch::Matched(_) | LineMatch::Decided(Decision::Funding { .. } | Decision::Payout { .. }) => Self::Matched,
            LineMatch::Decided(Decision::Ignored) => Self::Ignored,
            LineMatch::Ambiguous { .. } => Self::Ambiguous,
            LineMatch::Unmatched => Self::Unmatched,
            LineMatch::Reversed { .. } => Self::Reversed,
            LineMatch::Duplicate => Self::Duplicate,
        }
    }
}

/// A funding or a payout of the ledger.
#[derive(Object, Serialize)]
pub(super) struct LedgerEntry {
    /// Wallet transaction of the funding; null for a payout.
    transaction_id: Option<i64>,
    /// Unique identifier of the payout; null for a funding.
    payout_id: Option<i64>,
    /// Account that the entry belongs to; null if the entry is known only from a person's decision.
    account_id: Option<i64>,
    /// Amount of the entry; null if the entry is known only from a person's decision.
    amount: Option<Money>,
    /// Currency of the entry, as an ISO 4217 code; null if the entry is known only from a person's decision.
    currency: Option<String>,
    /// UTC day of the funding or of the payment; null if the entry is known only from a person's decision.
    day: Option<NaiveDate>,
    /// References by which a line can name the entry.
    references: Vec<String>,
    /// Position of the funding in the log; null for a payout.
    position: Option<i64>,
    /// Whether the entry is a candidate for an ambiguous line.
    is_ambiguous: bool,
}

fn ids(decision: Decision) -> (Option<i64>, Option<i64>) {
    match decision {
        Decision::Funding { transaction_id } => (Some(transaction_id.0), None),
        Decision::Payout { payout_id } => (None, Some(payout_id.0)),
        Decision::Ignored => (None, None),
    }
}

impl LedgerEntry {
    pub(super) fn of(candidate: Candidate, is_ambiguous: bool) -> Self {
        let (transaction_id, payout_id) = ids(candidate.is);
        Self {
            transaction_id,
            payout_id,
            account_id: Some(candidate.account_id.0),
            amount: Some(Money(candidate.entry.amount)),
            currency: Some(candidate.entry.currency),
            day: Some(candidate.entry.day),
            references: candidate.entry.references,
            position: candidate.position,
            is_ambiguous,
        }
    }

    fn named(decision: Decision) -> Self {
        let (transaction_id, payout_id) = ids(decision);
        Self {
            transaction_id,
            payout_id,
            account_id: None,
            amount: None,
            currency: None,
            day: None,
            references: vec![],
            position: None,
            is_ambiguous: false,
        }
    }
}

/// A line of a statement and the result of matching it.
#[derive(Object, Serialize)]
pub(super) struct StatementLine {
    /// Number of the line in the statement, from 1.
    line: i32,
    /// Date on which the bank booked the line.
    booked_on: NaiveDate,
    /// Direction of the money, from the point of view of the bank account.
    direction: TransactionType,
    /// Amount of the line, always positive.
    amount: Money,
    /// Currency of the line, as an ISO 4217 code.
    currency: String,
    /// Bank account on which the line was booked; null if the statement names none.
    account: Option<String>,
    /// Whether the line reverses an earlier booking.
    is_reversal: bool,
    /// Payment references that the bank gives.
    references: Vec<String>,
    /// Message of the payer.
    text: Option<String>,
    /// Result of matching the line.
    status: MatchStatus,
    /// Whether a person decided the result.
    is_decided: bool,
    /// Reason for the person's decision; null without one, and if the reason was erased.
    decision_reason: Option<String>,
    /// Reason why a person has to decide; null unless the status is `AMBIGUOUS`.
    why: Option<String>,
    /// Number of the line that cancels out this one; null unless the status is `REVERSED`.
    reversed_line: Option<i32>,
    /// Statement of that line: this statement, or another one with nearby dates.
    reversed_statement_id: Option<i64>,
    /// Ledger entry that the line is, or the candidates if the match is ambiguous.
    entries: Vec<LedgerEntry>,
}

impl StatementLine {
    pub(super) fn of(line: BankLine, found: LineMatch) -> Self {
        let status = MatchStatus::from(&found);
        let is_decided = matches!(found, LineMatch::Decided(_));
        let (reversed_statement_id, reversed_line) = match found {
            LineMatch::Reversed { statement_id, line } => (Some(statement_id), Some(line)),
            _ => (None, None),
        };
        let (entries, why) = match found {
            LineMatch::Matched(candidate) => (vec![LedgerEntry::of(candidate, false)], None),
            LineMatch::Decided(Decision::Ignored) => (vec![], None),
            LineMatch::Decided(decision) => (vec![LedgerEntry::named(decision)], None),
            LineMatch::Ambiguous { candidates, why } => {
                (candidates.into_iter().map(|candidate| LedgerEntry::of(candidate, true)).collect(), Some(why.to_owned()))
            }
            LineMatch::Unmatched | LineMatch::Reversed { .. } | LineMatch::Duplicate => (vec![], None),
        };
        Self {
            line: line.number,
            booked_on: line.booked_on,
            direction: match line.direction {
                Direction::Credit => TransactionType::Credit,
                Direction::Debit => TransactionType::Debit,
            },
            amount: Money(line.amount),
            currency: line.currency,
            account: line.account,
            is_reversal: line.is_reversal,
            references: line.references,
            text: line.text,
            status,
            is_decided,
            decision_reason: None,
            why,
            reversed_line,
            reversed_statement_id: reversed_statement_id.map(|id| id.0),
            entries,
        }
    }

    /// Adds the reason for the person's decision.
    pub(super) fn with_reason(self, decision_reason: Option<String>) -> Self {
        Self { decision_reason, ..self }
    }
}

/// Number of lines with each status.
#[derive(Default, Object, Serialize)]
pub(super) struct MatchSummary {
    /// Number of lines that are a funding or payout.
    matched: i64,
    /// Number of lines without a counterpart in the ledger, as decided by a person.
    ignored: i64,
    /// Number of lines that cancel each other out.
    reversed: i64,
    /// Number of lines that were in an earlier statement.
    duplicate: i64,
    /// Number of lines that a person has to decide about.
    ambiguous: i64,
    /// Number of lines that no ledger entry fits.
    unmatched: i64,
    /// Number of fundings and payouts, in the statement's days and currencies, that no line matches.
    missing: i64,
}

impl MatchSummary {
    pub(super) fn of(matching: &Matching) -> Self {
        let mut summary = Self { missing: i64::try_from(matching.unmatched.len()).unwrap_or(i64::MAX), ..Self::default() };
        for (_, found) in &matching.lines {
            *match MatchStatus::from(found) {
                MatchStatus::Matched => &mut summary.matched,
                MatchStatus::Ignored => &mut summary.ignored,
                MatchStatus::Reversed => &mut summary.reversed,
                MatchStatus::Duplicate => &mut summary.duplicate,
                MatchStatus::Ambiguous => &mut summary.ambiguous,
                MatchStatus::Unmatched => &mut summary.unmatched,
            } += 1;
        }
        summary
    }
}

/// A statement matched with the ledger.
#[derive(Object, Serialize)]
pub(super) struct MatchedStatement {
    /// The statement.
    pub(super) statement: BankStatement,
    /// Number of lines with each status, over all pages.
    pub(super) summary: MatchSummary,
    /// Lines of this page.
    pub(super) lines: Vec<StatementLine>,
    /// The first 1,000 fundings and payouts, in the statement's days and currencies, that no line matches.
    pub(super) missing: Vec<LedgerEntry>,
}

/// Columns of the CSV. `side` is `STATEMENT` or `LEDGER`.
const COLUMNS: [&str; 14] = [
    "side",
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
    "account_id",
    "why",
];

pub(super) fn csv(matching: Matching) -> Result<Vec<u8>, csv::Error> {
    let mut out = Vec::new();
    let joined = |texts: &mut dyn Iterator<Item = i64>| texts.map(|id| id.to_string()).collect::<Vec<_>>().join(" ");
    spreadsheet::rows(&mut out, |csv| {
        csv.write_record(COLUMNS)?;
        for (line, found) in matching.lines {
            let (status, direction) = (found.name(), line.direction.as_str());
            let line = StatementLine::of(line, found);
            csv.write_record([
                "STATEMENT".to_owned(),
                line.line.to_string(),
                line.booked_on.to_string(),
                direction.to_owned(),
                format!("{:.2}", line.amount.0),
                line.currency,
                inert(&line.references.join(" ")).into_owned(),
                inert(line.text.as_deref().unwrap_or_default()).into_owned(),
                status.to_owned(),
                line.is_decided.to_string(),
                joined(&mut line.entries.iter().filter_map(|entry| entry.transaction_id)),
                joined(&mut line.entries.iter().filter_map(|entry| entry.payout_id)),
                String::new(),
                line.why.unwrap_or_default(),
            ])?;
        }
        for (candidate, is_ambiguous) in matching.unmatched {
            let (transaction_id, payout_id) = ids(candidate.is);
            let text = |id: Option<i64>| id.map(|id| id.to_string()).unwrap_or_default();
            csv.write_record([
                "LEDGER".to_owned(),
                String::new(),
                candidate.entry.day.to_string(),
                if payout_id.is_some() { "DEBIT" } else { "CREDIT" }.to_owned(),
                candidate.entry.amount.to_string(),
                candidate.entry.currency,
                inert(&candidate.entry.references.join(" ")).into_owned(),
                String::new(),
                if is_ambiguous { "AMBIGUOUS" } else { "UNMATCHED" }.to_owned(),
                "false".to_owned(),
                text(transaction_id),
                text(payout_id),
                candidate.account_id.to_string(),
                String::new(),
            ])?;
        }
        Ok(())
    })?;
    Ok(out)
}

/// A matched statement in the requested format.
pub(super) enum Matched {
    Json(String),
    Csv(i64, Vec<u8>),
    Workbook(i64, Vec<u8>),
}

impl IntoResponse for Matched {
    fn into_response(self) -> Response {
        let response = Response::builder().header(header::VARY, "Accept");
        let file = |id: i64, extension: &str| format!("attachment; filename=\"statement-{id}.{extension}\"");
        match self {
            Self::Json(body) => response.content_type(JSON).body(body),
            Self::Csv(id, body) => {
                let response = response.content_type("text/csv; charset=utf-8; header=present");
                response.header(header::CONTENT_DISPOSITION, file(id, "csv")).body(body)
            }
            Self::Workbook(id, body) => {
                response.content_type(WORKBOOK).header(header::CONTENT_DISPOSITION, file(id, "xlsx")).body(body)
            }
        }
    }
}

impl ApiResponse for Matched {
    fn meta() -> MetaResponses {
        let text = "CSV (RFC 4180) with a header row, all lines of the statement (`side` is `STATEMENT`) and the ledger \
                    entries that no line matches (`side` is `LEDGER`).";
        let csv = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
        let content = vec![
            MetaMediaType { content_type: JSON, schema: Data::<MatchedStatement>::schema_ref() },
            MetaMediaType { content_type: "text/csv", schema: MetaSchemaRef::Inline(Box::new(csv)) },
            MetaMediaType { content_type: WORKBOOK, schema: binary() },
        ];
        let headers = vec![
            documented_header::<Option<String>>("Content-Disposition", "Suggested file name, for CSV and workbooks only."),
            documented_header::<String>("Vary", "`Accept`"),
        ];
        MetaResponses {
            responses: vec![MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers }],
        }
    }

    fn register(registry: &mut Registry) {
        Data::<MatchedStatement>::register(registry);
    }
}
