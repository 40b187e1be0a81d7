//! `/admin/v1/reconciliation/statements`: what a bank or a payment processor says, matched with
//! fundings and payouts, and what people decide about its lines.

mod view;

use std::future::Future;

use ledger_events::ShardId;
use ledger_events::reconciliation::{Decision, Statement, StatementFormat};
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
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Caller, Finance};
use crate::api::readers::{integer, one_of, text};
use crate::api::reply::{Data, Listed, Reply, Stored, render};
use crate::api::state::{State, Tag, listed, not_found, origin, rows_of};
use crate::api::statements::Form;
use crate::ledger::command::{DecideMatch, ImportStatement};
use crate::ledger::{Answer, Command, FIRST_SHARD};
use crate::reconciliation::lines::Columns;
use crate::reconciliation::matching::Tolerance;
use crate::reconciliation::statements::{self as kept, Limits, MAX_BYTES, Source, StatementError};
use crate::secrets::seal::Private;
use view::{BankStatement, LedgerEntry, MatchStatus, MatchSummary, Matched, MatchedStatement, StatementLine, csv};

/// Most of the ledger's side in one answer.
const MOST_MISSING: usize = 1_000;

/// A statement's file.
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
    "CSV with a line of column names: by default `date`, `amount`, `currency`, `reference`, and `direction` and `text` if there are any.",
    "date,amount,currency,reference\n2026-01-31,500.00,EUR,transfer-2026-01\n"
);
file!(
    XmlFile,
    "application/xml",
    "text/xml",
    "ISO 20022 camt.053, of any version.",
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

/// What a line is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Enum)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
enum LineDecision {
    /// A funding: `transaction_id` says which.
    Funding,
    /// A payout: `payout_id` says which.
    Payout,
    /// Nothing of the ledger's, such as a fee of the bank.
    #[default]
    Ignored,
}

/// A decision about a line.
#[derive(Object)]
#[allow(dead_code)] // read through `FromFields`; the schema is made from these
struct DecideLine {
    /// What it is.
    decision: LineDecision,
    /// With `FUNDING`: the funding's wallet movement.
    #[oai(validator(minimum(value = "1")))]
    transaction_id: Option<i64>,
    /// With `PAYOUT`: the payout, which must be `PAID`.
    #[oai(validator(minimum(value = "1")))]
    payout_id: Option<i64>,
    /// Why; sealed.
    #[oai(validator(min_length = 1, max_length = 500))]
    reason: String,
}

impl FromFields for DecideLine {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let decisions =
            [("FUNDING", LineDecision::Funding), ("PAYOUT", LineDecision::Payout), ("IGNORED", LineDecision::Ignored)];
        let decided = Self {
            decision: fields.required("decision", one_of(&decisions)),
            transaction_id: fields.optional("transaction_id", integer(1..=i64::MAX)),
            payout_id: fields.optional("payout_id", integer(1..=i64::MAX)),
            reason: fields.required("reason", text(1..=500)),
        };
        let wanted = [
            ("transaction_id", decided.transaction_id.is_some(), decided.decision == LineDecision::Funding),
            ("payout_id", decided.payout_id.is_some(), decided.decision == LineDecision::Payout),
        ];
        for (field, is_given, is_wanted) in wanted {
            match (is_given, is_wanted) {
                (false, true) => fields.missing(field),
                (true, false) => fields.problem(field, "does not go with the decision"),
                _ => {}
            }
        }
        decided
    }
}

/// Takes a decision back.
#[derive(Object)]
struct RevokeDecision {
    /// Why; sealed.
    #[oai(validator(min_length = 1, max_length = 500))]
    reason: String,
}

impl FromFields for RevokeDecision {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { reason: fields.required("reason", text(1..=500)) }
    }
}

/// A column's name or a form, as a query gives it.
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

async fn statement_of(state: &State<'_>, id: i64) -> Result<Statement, ApiError> {
    statements::find(state.ledger.pool(), FIRST_SHARD, id).await?.ok_or_else(not_found)
}

fn tolerance(days: Option<i64>, amount: Option<String>) -> Result<Tolerance, ApiError> {
    let most = Tolerance::MOST_DAYS;
    let days = days.unwrap_or(Tolerance::DAYS);
    if !(0..=most).contains(&days) {
        return Err(ApiError::invalid("days", format!("must be between 0 and {most}")));
    }
    let amount = amount.map_or(Ok(ledger_events::Money::ZERO), |text| text.parse());
    let amount = amount.ok().filter(|amount| *amount >= ledger_events::Money::ZERO);
    Ok(Tolerance { days, amount: amount.ok_or_else(|| ApiError::invalid("amount", "must be an amount such as 0.50"))? })
}

pub struct BankStatements;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Reconciliation")]
impl BankStatements {
    /// Import a bank's statement
    ///
    /// CSV, whose columns the parameters name, or camt.053, of at most 16 MiB and 50,000 lines. 201
    /// with the new statement; 200 with the one that exists when the file was imported before. Its
    /// lines are sealed.
    #[oai(path = "/reconciliation/statements", method = "post", operation_id = "import_statement")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn import(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        file: File,
        /// CSV: the column of the day, by default `date`.
        date_column: Query<Option<String>>,
        /// CSV: the column of the amount, by default `amount`; below zero it went out, unless there is a direction.
        amount_column: Query<Option<String>>,
        /// CSV: the column of the currency, by default `currency`.
        currency_column: Query<Option<String>>,
        /// CSV: the column of the reference, by default `reference`.
        reference_column: Query<Option<String>>,
        /// CSV: the column that holds `CREDIT` or `DEBIT`, by default `direction`, if it is there.
        direction_column: Query<Option<String>>,
        /// CSV: the column of the payer's words, by default `text`, if it is there.
        text_column: Query<Option<String>>,
        /// CSV: the column of the bank account that a line was booked on, such as its IBAN; by default there is none.
        account_column: Query<Option<String>>,
        /// CSV: the currency of lines that name none, ISO 4217.
        currency: Query<Option<String>>,
        /// CSV: the bank account of lines that name none. Only lines of one account are the same line in two files.
        account: Query<Option<String>>,
        /// CSV: how days are written, by default `%Y-%m-%d`.
        date_format: Query<Option<String>>,
        /// CSV: whether amounts are written as 1.234,56.
        decimal_comma: Query<Option<bool>>,
    ) -> Result<Stored<Data<BankStatement>, 201, 200>, ApiError> {
        let default = Columns::default();
        let currency = currency.0.map(|text| text.parse()).transpose();
        let columns = Columns {
            date: named("date_column", date_column.0, default.date)?,
            amount: named("amount_column", amount_column.0, default.amount)?,
            currency: named("currency_column", currency_column.0, default.currency)?,
            reference: named("reference_column", reference_column.0, default.reference)?,
            direction: named("direction_column", direction_column.0, default.direction)?,
            text: named("text_column", text_column.0, default.text)?,
            account: optional("account_column", account_column.0)?,
            default_currency: currency.map_err(|problem: &str| ApiError::invalid("currency", problem))?,
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
        let imported = kept::store(pool, &state.keyring, &bytes, format, &lines).await?;
        let command = Command::ImportStatement(ImportStatement(imported));
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        let (statement, is_new) = answered!(answer, Answer::Statement { statement, is_new } => (statement, is_new))?;
        let body = render(&BankStatement::from(statement)).map_err(ApiError::internal)?;
        Ok(Stored::new(if is_new { 201 } else { 200 }, body, false))
    }

    /// List imported statements
    ///
    /// Newest first.
    #[oai(path = "/reconciliation/statements", method = "get", operation_id = "list_statements")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Statements on a page: 1 to 100, by default 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<BankStatement>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let found = statements::list(state.ledger.pool(), FIRST_SHARD, rows_of(page)).await?;
        Ok(listed(found, page, BankStatement::from))
    }

    /// Match a statement
    ///
    /// With the fundings and paid payouts of its days, by reference, amount and day, as people's
    /// decisions say or else as the log is now: the same lines and the same log give the same
    /// answer. What a line of any other statement was decided to be is not this one's. As JSON a page of its lines, or with `Accept: text/csv` all of them as CSV.
    #[oai(path = "/reconciliation/statements/:id", method = "get", operation_id = "match_statement")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        accept: Accept,
        /// The statement's id.
        id: Path<i64>,
        /// How many days a line may be from what it is matched with: 0 to 60, by default 5.
        days: Query<Option<i64>>,
        /// How much its amount may differ, by default 0.00.
        amount: Query<Option<String>>,
        /// Only lines of this status.
        status: Query<Option<MatchStatus>>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Lines on a page: 1 to 1,000, by default 100.
        limit: Query<Option<i64>>,
    ) -> Result<Matched, ApiError> {
        let page = Page::of(page.0, limit.0, 100, 1_000)?;
        let tolerance = tolerance(days.0, amount.0)?;
        let statement = statement_of(&state, id.0).await?;
        let shards: Vec<ShardId> = state.ledger.shards().collect();
        let mut matching =
            kept::run(state.ledger.pool(), &state.keyring, &shards, &statement, tolerance, Limits::default()).await?;
        let summary = MatchSummary::of(&matching);
        if let Some(status) = status.0 {
            matching.lines.retain(|(_, found)| MatchStatus::from(found) == status);
        }
        if Form::wanted(&accept) == Form::Csv {
            return Ok(Matched::Csv(id.0, csv(matching).map_err(ApiError::internal)?));
        }
        let within = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let lines = matching.lines.into_iter().skip(within(page.offset())).take(within(page.limit));
        let missing = matching.unmatched.into_iter().take(MOST_MISSING);
        let matched = MatchedStatement {
            statement: statement.into(),
            summary,
            lines: lines.map(|(line, found)| StatementLine::of(line, found)).collect(),
            missing: missing.map(|(candidate, is_ambiguous)| LedgerEntry::of(candidate, is_ambiguous)).collect(),
        };
        Ok(Matched::Json(render(&matched).map_err(ApiError::internal)?))
    }

    /// Decide what a line is
    ///
    /// A funding, a payout that was paid, or nothing of the ledger's. No two lines, of any statements, are
    /// the same funding or payout (409). It is recorded as an event, and
    /// every later match honours it. The same again changes nothing; another decision is 409 until
    /// this one is revoked.
    #[oai(path = "/reconciliation/statements/:id/lines/:line/decide", method = "post", operation_id = "decide_line")]
    async fn decide(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// The statement's id.
        id: Path<i64>,
        /// The line's number.
        line: Path<i32>,
        body: StrictJson<DecideLine>,
    ) -> Result<Reply<BankStatement>, ApiError> {
        let DecideLine { decision, transaction_id, payout_id, reason } = body.0;
        let (decision, field) = match decision {
            LineDecision::Funding => (Decision::Funding { transaction_id: transaction_id.unwrap_or_default() }, "transaction_id"),
            LineDecision::Payout => (Decision::Payout { payout_id: payout_id.unwrap_or_default() }, "payout_id"),
            LineDecision::Ignored => (Decision::Ignored, "decision"),
        };
        let shards: Vec<ShardId> = state.ledger.shards().collect();
        if !kept::exists(state.ledger.pool(), &shards, decision).await? {
            return Err(ApiError::invalid(field, "is unknown, or is no funding or paid payout"));
        }
        let reason = Private::new(reason);
        let command = Command::DecideMatch(DecideMatch { statement_id: id.0, line: line.0, decision, reason });
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, Answer::Statement { statement, .. } => statement)?.into()))
    }

    /// Revoke a decision
    ///
    /// The line is matched again by what it says.
    #[oai(path = "/reconciliation/statements/:id/lines/:line/revoke", method = "post", operation_id = "revoke_decision")]
    async fn revoke(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// The statement's id.
        id: Path<i64>,
        /// The line's number.
        line: Path<i32>,
        body: StrictJson<RevokeDecision>,
    ) -> Result<Reply<BankStatement>, ApiError> {
        let reason = Private::new(body.0.reason);
        let command = Command::RevokeMatchDecision { statement_id: id.0, line: line.0, reason };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, Answer::Statement { statement, .. } => statement)?.into()))
    }
}
