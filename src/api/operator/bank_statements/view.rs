//! How imported statements and their lines are shown, as JSON and as CSV.

use chrono::NaiveDate;
use ledger_events::reconciliation::{Decision, Statement};
use ledger_events::wallet;
use poem::http::header;
use poem::{IntoResponse, Response};
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiResponse, Enum, Object};
use serde::Serialize;

use crate::api::error::{JSON, documented_header};
use crate::api::reply::{Data, Plural};
use crate::api::scalars::{Money, Timestamp};
use crate::api::transactions::TransactionType;
use crate::reconciliation::lines::Line;
use crate::reconciliation::matching::Candidate;
use crate::reconciliation::statements::{Found, Matching};
use crate::spreadsheet::{self, inert};

/// An imported statement.
#[derive(Object, Serialize)]
pub(super) struct BankStatement {
    /// Its id.
    id: i64,
    /// `csv` or `camt.053`.
    format: String,
    /// How many lines it has.
    line_count: i32,
    /// The first day that a line was booked on.
    first_day: NaiveDate,
    /// The last one.
    last_day: NaiveDate,
    /// How many lines a person has decided about.
    decided_count: i64,
    /// When it was imported.
    created_at: Timestamp,
    /// When somebody last decided about a line.
    updated_at: Timestamp,
}

impl Plural for BankStatement {
    const PLURAL: &'static str = "statements";
}

impl From<Statement> for BankStatement {
    fn from(statement: Statement) -> Self {
        Self {
            id: statement.id,
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

/// What became of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum MatchStatus {
    /// It is a funding or payout of the ledger.
    Matched,
    /// A person said that it is nothing of the ledger's.
    Ignored,
    /// It and another line take each other back.
    Reversed,
    /// The same line was in an earlier statement.
    Duplicate,
    /// A person has to decide.
    Ambiguous,
    /// Nothing of the ledger fits.
    #[default]
    Unmatched,
}

impl From<&Found> for MatchStatus {
    fn from(found: &Found) -> Self {
        match found {
            Found::Matched(_) | Found::Decided(Decision::Funding { .. } | Decision::Payout { .. }) => Self::Matched,
            Found::Decided(Decision::Ignored) => Self::Ignored,
            Found::Ambiguous { .. } => Self::Ambiguous,
            Found::Unmatched => Self::Unmatched,
            Found::Reversed { .. } => Self::Reversed,
            Found::Duplicate => Self::Duplicate,
        }
    }
}

/// A funding or a payout of the ledger.
#[derive(Object, Serialize)]
pub(super) struct LedgerEntry {
    /// Of a funding: its wallet movement.
    transaction_id: Option<i64>,
    /// Of a payout: its id.
    payout_id: Option<i64>,
    /// Whose it is; null where only a person's decision names it.
    account_id: Option<i64>,
    /// Its amount.
    amount: Option<Money>,
    /// ISO 4217.
    currency: Option<String>,
    /// The day it came in or was paid, UTC.
    day: Option<NaiveDate>,
    /// What a line may name it by.
    references: Vec<String>,
    /// Of a funding: its position in the log.
    position: Option<i64>,
    /// Whether a line that a person has to decide about may be it.
    is_ambiguous: bool,
}

fn ids(decision: Decision) -> (Option<i64>, Option<i64>) {
    match decision {
        Decision::Funding { transaction_id } => (Some(transaction_id), None),
        Decision::Payout { payout_id } => (None, Some(payout_id)),
        Decision::Ignored => (None, None),
    }
}

impl LedgerEntry {
    pub(super) fn of(candidate: Candidate, is_ambiguous: bool) -> Self {
        let (transaction_id, payout_id) = ids(candidate.is);
        Self {
            transaction_id,
            payout_id,
            account_id: Some(candidate.account_id),
            amount: Some(candidate.amount.into()),
            currency: Some(candidate.currency.to_string()),
            day: Some(candidate.day),
            references: candidate.references,
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

/// A line of a statement, and what became of it.
#[derive(Object, Serialize)]
pub(super) struct StatementLine {
    /// Its number, from 1.
    line: i32,
    /// When the bank booked it.
    booked_on: NaiveDate,
    /// Which way the money went, seen from the bank's account.
    direction: TransactionType,
    /// More than "0.00".
    amount: Money,
    /// ISO 4217.
    currency: String,
    /// Whether it takes an earlier booking back.
    is_reversal: bool,
    /// The references that the bank gives.
    references: Vec<String>,
    /// What the payer wrote.
    text: Option<String>,
    /// What became of it.
    status: MatchStatus,
    /// Whether a person decided that.
    is_decided: bool,
    /// Why a person has to decide.
    why: Option<String>,
    /// The line that it and this one take each other back with.
    reversed_line: Option<i32>,
    /// The statement that has that line: this one, or one of days near it.
    reversed_statement_id: Option<i64>,
    /// What it is, or may be.
    entries: Vec<LedgerEntry>,
}

impl StatementLine {
    pub(super) fn of(line: Line, found: Found) -> Self {
        let status = MatchStatus::from(&found);
        let is_decided = matches!(found, Found::Decided(_));
        let (reversed_statement_id, reversed_line) = match found {
            Found::Reversed { statement_id, line } => (Some(statement_id), Some(line)),
            _ => (None, None),
        };
        let (entries, why) = match found {
            Found::Matched(candidate) => (vec![LedgerEntry::of(candidate, false)], None),
            Found::Decided(Decision::Ignored) => (vec![], None),
            Found::Decided(decision) => (vec![LedgerEntry::named(decision)], None),
            Found::Ambiguous { candidates, why } => {
                (candidates.into_iter().map(|candidate| LedgerEntry::of(candidate, true)).collect(), Some(why.to_owned()))
            }
            Found::Unmatched | Found::Reversed { .. } | Found::Duplicate => (vec![], None),
        };
        Self {
            line: line.number,
            booked_on: line.booked_on,
            direction: match line.direction {
                wallet::Direction::Credit => TransactionType::Credit,
                wallet::Direction::Debit => TransactionType::Debit,
            },
            amount: line.amount.into(),
            currency: line.currency.to_string(),
            is_reversal: line.is_reversal,
            references: line.references,
            text: line.text,
            status,
            is_decided,
            why,
            reversed_line,
            reversed_statement_id,
            entries,
        }
    }
}

/// How many lines there are of each status.
#[derive(Default, Object, Serialize)]
pub(super) struct MatchSummary {
    /// Lines that are a funding or payout.
    matched: i64,
    /// Lines that are nothing of the ledger's.
    ignored: i64,
    /// Lines that take each other back.
    reversed: i64,
    /// Lines that were in an earlier statement.
    duplicate: i64,
    /// Lines that a person has to decide about.
    ambiguous: i64,
    /// Lines that nothing fits.
    unmatched: i64,
    /// Fundings and payouts of the statement's days and currencies that no line is matched with.
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
    /// How many lines of each status.
    pub(super) summary: MatchSummary,
    /// The page's lines.
    pub(super) lines: Vec<StatementLine>,
    /// The first 1,000 fundings and payouts of the statement's days and currencies that no line is
    /// matched with.
    pub(super) missing: Vec<LedgerEntry>,
}

/// The columns of the CSV. `side` is `STATEMENT` or `LEDGER`.
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
                candidate.day.to_string(),
                if payout_id.is_some() { "DEBIT" } else { "CREDIT" }.to_owned(),
                candidate.amount.to_string(),
                candidate.currency.to_string(),
                inert(&candidate.references.join(" ")).into_owned(),
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

/// A matched statement in the form that was asked for.
pub(super) enum Matched {
    Json(String),
    Csv(i64, Vec<u8>),
}

impl IntoResponse for Matched {
    fn into_response(self) -> Response {
        let response = Response::builder().header(header::VARY, "Accept");
        match self {
            Self::Json(body) => response.content_type(JSON).body(body),
            Self::Csv(id, body) => {
                let response = response.content_type("text/csv; charset=utf-8; header=present");
                response.header(header::CONTENT_DISPOSITION, format!("attachment; filename=\"statement-{id}.csv\"")).body(body)
            }
        }
    }
}

impl ApiResponse for Matched {
    fn meta() -> MetaResponses {
        let text = "A line of column names, all lines of the statement (`side` is `STATEMENT`), and what of the ledger no line is \
                    matched with (`LEDGER`), by RFC 4180.";
        let csv = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
        let content = vec![
            MetaMediaType { content_type: JSON, schema: Data::<MatchedStatement>::schema_ref() },
            MetaMediaType { content_type: "text/csv", schema: MetaSchemaRef::Inline(Box::new(csv)) },
        ];
        let headers = vec![
            documented_header::<Option<String>>("Content-Disposition", "A file's name, for CSV."),
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
