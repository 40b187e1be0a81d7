//! `/api/v1/wallets/:id/statement`: a period of a wallet's life, as JSON or as CSV.
//!
//! It is read and sent page by page, however long it is.

mod sending;

use chrono::{DateTime, Utc};
use ledger_projections::wallets;
use poem::web::Accept;
use poem_openapi::param::{Path, Query};
use poem_openapi::registry::{MetaHeader, MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Serialize;

use super::error::{ApiError, JSON, documented_header};
use super::principal::Caller;
use super::reply::Data;
use super::scalars::{Money, Timestamp};
use super::state::{State, Tag, not_found, time};
use super::transactions::Transaction;
use crate::ledger::statement::Statement as Movements;
pub(super) use sending::{Form, Of, Sending};

/// A wallet's statement: `opening_balance` + `total_credits` + `total_refunds` − `total_debits` =
/// `closing_balance`.
#[derive(Object, Serialize)]
pub(super) struct Statement {
    /// The wallet.
    wallet_id: i64,
    /// ISO 4217.
    currency: String,
    /// When the period begins; null: with the wallet.
    from: Option<Timestamp>,
    /// When the period ended; null: with the latest movement.
    to: Option<Timestamp>,
    /// The balance at the beginning.
    opening_balance: Money,
    /// The movements, oldest first.
    transactions: Vec<Transaction>,
    /// What came in, refunds aside.
    total_credits: Money,
    /// What went out.
    total_debits: Money,
    /// What came back: of orders and of payouts.
    total_refunds: Money,
    /// The balance at the end.
    closing_balance: Money,
}

/// From one time, up to another one; either may be open.
type Period = (Option<DateTime<Utc>>, Option<DateTime<Utc>>);

/// A period that is asked for.
///
/// # Errors
/// 400 for one that ends before it begins.
pub(super) fn period(from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> Result<Period, ApiError> {
    let (from, to) = (time("from", from)?, time("to", to)?);
    if from.zip(to).is_some_and(|(from, to)| to < from) {
        return Err(ApiError::invalid("to", "must not be before from"));
    }
    Ok((from, to))
}

/// Both forms as the document shows them, and the headers that go with them.
pub(super) fn responses<T: Type>(more: Vec<MetaHeader>) -> MetaResponses {
    let text = "A line of column names, `OPENING_BALANCE`, the movements, the three sums and `CLOSING_BALANCE` (RFC 4180). \
                A text that a spreadsheet would take for a formula begins with an apostrophe.";
    let csv = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
    let content = vec![
        MetaMediaType { content_type: JSON, schema: Data::<T>::schema_ref() },
        MetaMediaType { content_type: "text/csv", schema: MetaSchemaRef::Inline(Box::new(csv)) },
    ];
    let mut headers = vec![
        documented_header::<Option<String>>("Content-Disposition", "A file's name, for CSV."),
        documented_header::<String>("Vary", "`Accept`"),
    ];
    headers.extend(more);
    MetaResponses { responses: vec![MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers }] }
}

impl ApiResponse for Sending {
    fn meta() -> MetaResponses {
        responses::<Statement>(vec![])
    }

    fn register(registry: &mut Registry) {
        Data::<Statement>::register(registry);
    }
}

pub struct Statements;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Wallets")]
impl Statements {
    /// Get a statement
    ///
    /// The balance at the beginning and at the end of a period, and every movement between, oldest
    /// first: as JSON, or with `Accept: text/csv` as CSV. What is recorded while it is sent is not in it.
    #[oai(path = "/wallets/:id/statement", method = "get", operation_id = "get_statement")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        accept: Accept,
        /// The wallet's id.
        id: Path<i64>,
        /// Movements at this time or later; by default from the wallet's first.
        from: Query<Option<DateTime<Utc>>>,
        /// Movements before this time; by default up to now.
        to: Query<Option<DateTime<Utc>>>,
        /// Only the balances and the sums, at once however long the period is: `transactions` is empty.
        totals_only: Query<Option<bool>>,
    ) -> Result<Sending, ApiError> {
        let caller = caller.0;
        let (from, to) = period(from.0, to.0)?;
        let pool = state.ledger.pool();
        let wallet = wallets::find(pool, caller.shard_id, id.0).await?;
        let wallet = wallet.filter(|wallet| wallet.account_id == caller.account_id).ok_or_else(not_found)?;
        let movements = Movements::of(pool, caller.shard_id, wallet, from, to, None).await?;
        let sending = Sending::new(&accept, pool, movements, (from, to), None);
        match totals_only.0.unwrap_or_default() {
            true => sending.totals_only().await,
            false => Ok(sending),
        }
    }
}
