//! `/admin/v1/reconciliation/statements`: statements of banks and payment processors, matched with fundings and payouts,
//! and people's decisions about their lines.

mod view;

use std::collections::HashMap;
use std::future::Future;

use bank_statements::lines::Columns;
use bank_statements::matching::Tolerance;
use ledger_events::reconciliation::{self, Decision, StatementFormat};
use ledger_events::{PayoutId, StatementId, TransactionId};
use ledger_projections::statements;
use poem::web::Accept;
use poem::{Request, RequestBody};
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{ParsePayload, Payload};
use poem_openapi::registry::{MetaSchema, MetaSchemaRef};
use poem_openapi::{ApiRequest, Enum, Object, OpenApi};

use crate::access::Operator;
use crate::api::body::{StrictJson, read};
use crate::api::error::ApiError;
use crate::api::fields::{Fields, body};
use crate::api::operator::reconciliation::wants_workbook;
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Caller, Finance};
use crate::api::progress::Progress;
use crate::api::readers::{integer, one_of, text};
use crate::api::reply::{Data, Listed, Reply, Stored, render};
use crate::api::state::{State, Tag, listed, not_found, origin, rows_of};
use crate::api::statements::Form;
use crate::ledger::commands::{DecideMatch, ImportStatement};
use crate::ledger::reasons::MAX_REASON;
use crate::ledger::texts::{self, DECISION_REASON};
use crate::ledger::{Command, CommandResult, FIRST_SHARD, commands};
use crate::reconciliation::statements::{self as kept, Limits, MAX_BYTES, Source, StatementError};
use crate::secrets::seal::Secret;
use view::{BankStatement, LedgerEntry, MatchStatus, MatchSummary, Matched, MatchedStatement, StatementLine, csv, workbook};

/// Maximum number of unmatched ledger entries in one response.
const MAX_MISSING: usize = 1_000;

/// File of a statement.
#[derive(ApiRequest)]
enum File {
    Csv(CsvFile),
    Xml(XmlFile),
}

macro_rules! file {
    ($name:ident, $type:literal, $also:literal, $description:literal, $example:expr) => {
        #[doc = $description]
        struct $name(Vec<u8>);

        impl Payload for $name {
            const CONTENT_TYPE: &'static str = $type;

            fn check_content_type(content_type: &str) -> bool {
                let essence = content_type.split(';').next().unwrap_or_default().trim();
                [$type, $also].iter().any(|known| essence.eq_ignore_ascii_case(known))
            }

            fn schema_ref() -> MetaSchemaRef {
                MetaSchemaRef::Inline(Box::new(MetaSchema {
                    description: Some($description),
                    example: Some($example.into()),
                    ..MetaSchema::new("string")
                }))
            }
        }

        impl ParsePayload for $name {
            const IS_REQUIRED: bool = true;

            fn from_request(_: &Request, body: &mut RequestBody) -> impl Future<Output = poem::Result<Self>> + Send {
                let body = body.take();
                async move { Ok(Self(read(body?, MAX_BYTES).await?)) }
            }
        }
    };
}

file!(
    CsvFile,
    "text/csv",
    "text/csv",
    "CSV with a header row. Default columns: `date`, `amount`, `currency`, `reference`, optionally `direction` and `text`.",
    "date,amount,currency,reference\n2026-01-31,500.00,EUR,transfer-2026-01\n"
);
file!(
    XmlFile,
    "application/xml",
    "text/xml",
    "ISO 20022 camt.053, any version.",
    concat!(
        r#"<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"><BkToCstmrStmt><Stmt><Ntry>"#,
        r#"<Amt Ccy="EUR">500.00</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts><Cd>BOOK</Cd></Sts>"#,
        "<BookgDt><Dt>2026-01-31</Dt></BookgDt><NtryDtls><TxDtls><Refs><EndToEndId>transfer-2026-01</EndToEndId></Refs>",
        "</TxDtls></NtryDtls></Ntry></Stmt></BkToCstmrStmt></Document>"
    )
);

impl From<StatementError> for ApiError {
    fn from(error: StatementError) -> ApiError {
        match error {
            StatementError::Database(error) => error.into(),
            StatementError::Lines(_) | StatementError::TooMany(_) => ApiError::invalid("body", error.to_string()),
            StatementError::TooManyLines(_) => ApiError::invalid("days", error.to_string()),
            StatementError::Seal(_) | StatementError::Json(_) | StatementError::Projection(_) | StatementError::Ended(_) => {
                ApiError::internal(error)
            }
        }
    }
}

/// Decision about what a line is.
///
/// - `FUNDING`: the line is the funding in `transaction_id`.
/// - `PAYOUT`: the line is the payout in `payout_id`.
/// - `IGNORED`: the line has no counterpart in the ledger, such as a bank fee.
#[derive(Clone, Copy, Default, PartialEq, Eq, Enum)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
enum LineDecision {
    Funding,
    Payout,
    #[default]
    Ignored,
}

body! {
    /// A person's decision about a line.
    #[derive(Object)]
    struct DecideLine {
        /// Decision about what the line is.
        decision: LineDecision = required(one_of),
        /// Wallet transaction of the funding. Required with `FUNDING`, not allowed otherwise.
        transaction_id: Option<i64> = optional(integer(1..=i64::MAX)),
        /// Payout, which must have the status `PAID`. Required with `PAYOUT`, not allowed otherwise.
        payout_id: Option<i64> = optional(integer(1..=i64::MAX)),
        /// Reason for the decision. Stored encrypted.
        reason: String = required(text(1..=MAX_REASON)),
    }
    check DecideLine::check
}

impl DecideLine {
    /// Checks the rules between fields.
    fn check(&self, fields: &mut Fields<'_>) {
        let wanted = [
            ("transaction_id", self.transaction_id.is_some(), self.decision == LineDecision::Funding),
            ("payout_id", self.payout_id.is_some(), self.decision == LineDecision::Payout),
        ];
        for (field, is_given, is_wanted) in wanted {
            match (is_given, is_wanted) {
                (false, true) => fields.missing(field),
                (true, false) => fields.problem(field, "is not allowed with this decision"),
                _ => {}
            }
        }
    }
}

body! {
    /// Revocation of a decision.
    #[derive(Object)]
    struct RevokeDecision {
        /// Reason for the revocation. Stored encrypted.
        reason: String = required(text(1..=MAX_REASON)),
    }
}

/// Checks the length of a column name or other text from the query.
fn optional(name: &str, value: Option<String>) -> Result<Option<String>, ApiError> {
    match value {
        Some(text) if text.is_empty() || text.chars().count() > 100 => {
            Err(ApiError::invalid(name, "must be 1 to 100 characters long"))
        }
        value => Ok(value),
    }
}

fn named(name: &str, value: Option<String>, default: String) -> Result<String, ApiError> {
    Ok(optional(name, value)?.unwrap_or(default))
}

async fn statement_of(state: &State<'_>, id: StatementId) -> Result<reconciliation::BankStatement, ApiError> {
    statements::find(state.ledger.pool(), FIRST_SHARD, id).await?.ok_or_else(not_found)
}

/// Loads the reasons for the decisions about these lines, by the number of the line. Erased ones are absent.
async fn reasons(
    state: &State<'_>,
    statement: &reconciliation::BankStatement,
    lines: impl Iterator<Item = i32>,
) -> Result<HashMap<i32, String>, ApiError> {
    let decided: Vec<(i32, i64)> = lines.filter_map(|line| Some((line, statement.decisions.get(&line)?.id.0))).collect();
    let wanted: Vec<_> = decided.iter().map(|(_, id)| (DECISION_REASON, *id)).collect();
    let texts = texts::load(state.ledger.pool(), &state.keyring, FIRST_SHARD, &wanted).await?;
    let reason = |(line, id): (i32, i64)| Some((line, texts.get(&(DECISION_REASON, id))?.expose().to_owned()));
    Ok(decided.into_iter().filter_map(reason).collect())
}

fn tolerance(days: Option<i64>, amount: Option<String>) -> Result<Tolerance, ApiError> {
    let most = kept::MAX_DAYS;
    let days = days.unwrap_or(Tolerance::DAYS);
    if !(0..=most).contains(&days) {
        return Err(ApiError::invalid("days", format!("must be between 0 and {most}")));
    }
    let amount = amount.map_or(Ok(ledger_events::Money::ZERO), |text| text.parse());
    let amount = amount.ok().filter(|amount| *amount >= ledger_events::Money::ZERO);
    let amount = amount.ok_or_else(|| ApiError::invalid("amount", "must be an amount such as 0.50"))?;
    Ok(Tolerance { days, amount: amount.decimal() })
}

pub struct BankStatements;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Reconciliation")]
impl BankStatements {
    /// Import a bank's statement
    ///
    /// Imports a CSV or camt.053 file of at most 16 MiB and 50,000 lines. For CSV, the query parameters name the columns.
    /// Returns 201 with the new statement, or 200 with the existing one if the file was imported before. The lines are
    /// stored encrypted.
    #[oai(path = "/reconciliation/statements", method = "post", operation_id = "import_statement")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn import(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        progress: Progress,
        file: File,
        /// CSV: column with the booking date. Default: `date`.
        date_column: Query<Option<String>>,
        /// CSV: column with the amount. Negative amounts are debits, unless there is a direction column. Default:
        /// `amount`.
        amount_column: Query<Option<String>>,
        /// CSV: column with the currency. Default: `currency`.
        currency_column: Query<Option<String>>,
        /// CSV: column with the payment reference. Default: `reference`.
        reference_column: Query<Option<String>>,
        /// CSV: column with `CREDIT` or `DEBIT`. Default: `direction`, if the file has it.
        direction_column: Query<Option<String>>,
        /// CSV: column with the payer's message. Default: `text`, if the file has it.
        text_column: Query<Option<String>>,
        /// CSV: column with the bank account that a line was booked on, such as its IBAN. Default: none.
        account_column: Query<Option<String>>,
        /// CSV: currency of lines that name none, as an ISO 4217 code.
        currency: Query<Option<String>>,
        /// CSV: bank account of lines that name none. Lines in two files count as duplicates only if they have the same
        /// bank account.
        account: Query<Option<String>>,
        /// CSV: format of dates, in `strftime` notation. Default: `%Y-%m-%d`.
        date_format: Query<Option<String>>,
        /// CSV: whether amounts use a decimal comma, such as 1.234,56. Default: false.
        decimal_comma: Query<Option<bool>>,
    ) -> Result<Stored<Data<BankStatement>, 201, 200>, ApiError> {
        let default = Columns::default();
        let currency = currency.0.map(|text| text.parse::<ledger_events::Currency>()).transpose();
        let columns = Columns {
            date: named("date_column", date_column.0, default.date)?,
            amount: named("amount_column", amount_column.0, default.amount)?,
            currency: named("currency_column", currency_column.0, default.currency)?,
            reference: named("reference_column", reference_column.0, default.reference)?,
            direction: named("direction_column", direction_column.0, default.direction)?,
            text: named("text_column", text_column.0, default.text)?,
            account: optional("account_column", account_column.0)?,
            default_currency: currency.map_err(|problem| ApiError::invalid("currency", problem))?.map(String::from),
            default_account: optional("account", account.0)?,
            date_format: named("date_format", date_format.0, default.date_format)?,
            is_decimal_comma: decimal_comma.0.unwrap_or_default(),
            delimiter: None,
        };
        let pool = state.ledger.pool();
        let (bytes, format) = match file {
            File::Csv(CsvFile(bytes)) => (bytes, StatementFormat::Csv),
            File::Xml(XmlFile(bytes)) => (bytes, StatementFormat::Camt053),
        };
        let source = match format {
            StatementFormat::Csv => Source::Csv(&columns),
            StatementFormat::Camt053 => Source::Camt053,
        };
        let lines = kept::read(&bytes, &source).map_err(StatementError::from)?;
        let tell = |written: usize| progress.tell(written, lines.len());
        tell(0);
        let imported = kept::store(pool, &state.keyring, &bytes, format, &lines, tell).await?;
        let command = Command::ImportStatement(ImportStatement(imported));
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        let (statement, is_new) = answered!(answer, CommandResult::Statement { statement, is_new } => (statement, is_new))?;
        let body = render(&BankStatement::from(statement)).map_err(ApiError::internal)?;
        Ok(Stored::new(if is_new { 201 } else { 200 }, body, false))
    }

    /// List imported statements
    ///
    /// Returns all imported statements, newest first.
    #[oai(path = "/reconciliation/statements", method = "get", operation_id = "list_statements")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Statements per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<BankStatement>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let found = statements::list(&state.read_pool(), FIRST_SHARD, rows_of(page)).await?;
        Ok(listed(found, page, BankStatement::from))
    }

    /// Match a statement
    ///
    /// Matches the lines with the fundings and paid payouts of the statement's days, by reference, amount and day.
    /// People's decisions take precedence; everything else follows from the current log, so that the same lines and the
    /// same log give the same result. An entry that was decided to be a line of another statement is not matched again.
    ///
    /// Returns one page of lines as JSON, or all lines as CSV with `Accept: text/csv`, or as a workbook (Office Open XML)
    /// with `Accept: application/vnd.openxmlformats-officedocument.spreadsheetml.sheet`. The workbook has a sheet for the
    /// lines, and one for the ledger entries that no line matches.
    #[oai(path = "/reconciliation/statements/:id", method = "get", operation_id = "match_statement")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        accept: Accept,
        /// Unique identifier of the statement.
        id: Path<i64>,
        /// Maximum difference in days between a line and its ledger entry, 0 to 60. Default: 5.
        days: Query<Option<i64>>,
        /// Maximum difference in amount between a line and its ledger entry. Default: 0.00.
        amount: Query<Option<String>>,
        /// Only lines with this status.
        status: Query<Option<MatchStatus>>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Lines per page, 1 to 1,000. Default: 100.
        limit: Query<Option<i64>>,
    ) -> Result<Matched, ApiError> {
        let page = Page::of(page.0, limit.0, 100, 1_000)?;
        let tolerance = tolerance(days.0, amount.0)?;
        let statement = statement_of(&state, StatementId(id.0)).await?;
        let shards = state.ledger.shards();
        let mut matching =
            kept::run(state.ledger.pool(), &state.keyring, &shards, &statement, tolerance, Limits::default()).await?;
        let summary = MatchSummary::of(&matching);
        if let Some(status) = status.0 {
            matching.lines.retain(|(_, found)| MatchStatus::from(found) == status);
        }
        if wants_workbook(&accept) {
            let file = tokio::task::spawn_blocking(move || workbook::render(matching)).await;
            return Ok(Matched::Workbook(id.0, file.map_err(ApiError::internal)?.map_err(ApiError::internal)?));
        }
        if Form::wanted(&accept) == Form::Csv {
            return Ok(Matched::Csv(id.0, csv(matching).map_err(ApiError::internal)?));
        }
        let within = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let lines: Vec<_> = matching.lines.into_iter().skip(within(page.offset())).take(within(page.limit)).collect();
        let missing = matching.unmatched.into_iter().take(MAX_MISSING);
        let mut reasons = reasons(&state, &statement, lines.iter().map(|(line, _)| line.number)).await?;
        let shown = lines.into_iter().map(|(line, found)| {
            let reason = reasons.remove(&line.number);
            StatementLine::of(line, found).with_reason(reason)
        });
        let matched = MatchedStatement {
            statement: statement.into(),
            summary,
            lines: shown.collect(),
            missing: missing.map(|(candidate, is_ambiguous)| LedgerEntry::of(candidate, is_ambiguous)).collect(),
        };
        Ok(Matched::Json(render(&matched).map_err(ApiError::internal)?))
    }

    /// Decide what a line is
    ///
    /// Records that the line is a funding, a paid payout, or unrelated to the ledger. The decision is recorded as an
    /// event, and every later match honors it. Repeating the same decision has no effect.
    ///
    /// Returns 409 if the line already has another decision, which must be revoked first. Returns 409 if another line, of
    /// any statement, already has the same funding or payout.
    #[oai(path = "/reconciliation/statements/:id/lines/:line/decide", method = "post", operation_id = "decide_line")]
    async fn decide(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the statement.
        id: Path<i64>,
        /// Number of the line in the statement, from 1.
        line: Path<i32>,
        body: StrictJson<DecideLine>,
    ) -> Result<Reply<BankStatement>, ApiError> {
        let DecideLine { decision, transaction_id, payout_id, reason } = body.0;
        let (decision, field) = match decision {
            LineDecision::Funding => {
                (Decision::Funding { transaction_id: TransactionId(transaction_id.unwrap_or_default()) }, "transaction_id")
            }
            LineDecision::Payout => (Decision::Payout { payout_id: PayoutId(payout_id.unwrap_or_default()) }, "payout_id"),
            LineDecision::Ignored => (Decision::Ignored, "decision"),
        };
        let shards = state.ledger.shards();
        if !kept::exists(state.ledger.pool(), &shards, decision).await? {
            return Err(ApiError::invalid(field, "does not exist, or is not a funding or a paid payout"));
        }
        let reason = Secret::new(reason);
        let command = Command::DecideMatch(DecideMatch { statement_id: StatementId(id.0), line: line.0, decision, reason });
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, CommandResult::Statement { statement, .. } => statement)?.into()))
    }

    /// Revoke a decision
    ///
    /// Removes the decision about a line. The line is matched automatically again.
    #[oai(path = "/reconciliation/statements/:id/lines/:line/revoke", method = "post", operation_id = "revoke_decision")]
    async fn revoke(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the statement.
        id: Path<i64>,
        /// Number of the line in the statement, from 1.
        line: Path<i32>,
        body: StrictJson<RevokeDecision>,
    ) -> Result<Reply<BankStatement>, ApiError> {
        let reason = Secret::new(body.0.reason);
        let command = commands::RevokeMatchDecision { statement_id: StatementId(id.0), line: line.0, reason };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, CommandResult::Statement { statement, .. } => statement)?.into()))
    }
}
