//! `/api/v1/wallets/:id/statement`: a wallet's statement for a period, as JSON or CSV.
//!
//! It is read and sent page by page, so that memory use does not depend on its length.

mod sending;

use chrono::{DateTime, Utc};
use ledger_events::WalletId;
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
use crate::ledger::statement::WalletStatement;
pub(super) use sending::{Form, Of, Sending};

/// Statement of a wallet for a period. `opening_balance` + `total_credits` + `total_refunds` − `total_debits` =
/// `closing_balance`.
#[derive(Object, Serialize)]
pub(super) struct Statement {
    /// Unique identifier of the wallet.
    wallet_id: i64,
    /// Currency of the wallet, as an ISO 4217 code.
    currency: String,
    /// Start of the period; null for the opening of the wallet.
    from: Option<Timestamp>,
    /// End of the period; null for the latest transaction.
    to: Option<Timestamp>,
    /// Balance at the start of the period.
    opening_balance: Money,
    /// Transactions of the period, oldest first.
    transactions: Vec<Transaction>,
    /// Sum of credits in the period, excluding refunds.
    total_credits: Money,
    /// Sum of debits in the period.
    total_debits: Money,
    /// Sum of refunds in the period, for orders and payouts.
    total_refunds: Money,
    /// Balance at the end of the period.
    closing_balance: Money,
}

/// Start and end of a period. `None` means unlimited.
type Period = (Option<DateTime<Utc>>, Option<DateTime<Utc>>);

/// Checks the period from the query.
///
/// # Errors
///
/// 400 if it ends before it begins.
pub(super) fn period(from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> Result<Period, ApiError> {
    let (from, to) = (time("from", from)?, time("to", to)?);
    if from.zip(to).is_some_and(|(from, to)| to < from) {
        return Err(ApiError::invalid("to", "must not be earlier than from"));
    }
    Ok((from, to))
}

/// Describes both formats, JSON and CSV, and their headers for the published document.
pub(super) fn responses<T: Type>(more: Vec<MetaHeader>) -> MetaResponses {
    let text = "CSV (RFC 4180) with a header row, `OPENING_BALANCE`, the transactions, the three sums and \
                `CLOSING_BALANCE`. Text that a spreadsheet would interpret as a formula is prefixed with an apostrophe.";
    let csv = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
    let content = vec![
        MetaMediaType { content_type: JSON, schema: Data::<T>::schema_ref() },
        MetaMediaType { content_type: "text/csv", schema: MetaSchemaRef::Inline(Box::new(csv)) },
    ];
    let mut headers = vec![
        documented_header::<Option<String>>("Content-Disposition", "Suggested file name, for CSV only."),
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
    /// Retrieve a statement
    ///
    /// Returns the balances at the start and the end of a period, and every transaction in between, oldest first. The
    /// response is JSON, or CSV with `Accept: text/csv`. Transactions recorded while the statement is being sent are not
    /// included.
    #[oai(path = "/wallets/:id/statement", method = "get", operation_id = "get_statement")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        accept: Accept,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        /// Only transactions at or after this time. Default: the wallet's first transaction.
        from: Query<Option<DateTime<Utc>>>,
        /// Only transactions before this time. Default: now.
        to: Query<Option<DateTime<Utc>>>,
        /// Whether to return only balances and sums, which is fast for any period. `transactions` is then empty. Default:
        /// false.
        totals_only: Query<Option<bool>>,
    ) -> Result<Sending, ApiError> {
        let caller = caller.0;
        let (from, to) = period(from.0, to.0)?;
        let pool = &state.read_pool();
        let wallet = wallets::find(pool, caller.shard_id, WalletId(id.0)).await?;
        let wallet = wallet.filter(|wallet| wallet.account_id == caller.account_id).ok_or_else(not_found)?;
        let movements = WalletStatement::of(pool, caller.shard_id, wallet, from, to, None).await?;
        let sending = Sending::new(&accept, pool, movements, (from, to), None);
        match totals_only.0.unwrap_or_default() {
            true => sending.totals_only().await,
            false => Ok(sending),
        }
    }
}
