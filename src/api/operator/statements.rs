//! `/admin/v1/wallets/:id/statement`: any wallet's statement, as it is or as it was.

use chrono::{DateTime, Utc};
use ledger_projections::wallets;
use poem::http::HeaderValue;
use poem::web::Accept;
use poem::{IntoResponse, Response};
use poem_openapi::param::{Path, Query};
use poem_openapi::registry::{MetaResponses, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Serialize;

use super::history::as_of_position;
use crate::access::Operator;
use crate::api::error::{ApiError, documented_header};
use crate::api::principal::Caller;
use crate::api::reply::Data;
use crate::api::state::{State, Tag, not_found};
use crate::api::statements::{Of, Sending, Statement, period, responses};
use crate::ledger::statement::Statement as Movements;

/// A wallet's statement, whose it is, and of when.
#[derive(Object, Serialize)]
struct AccountStatement {
    /// Whose it is.
    account_id: i64,
    /// The position of the log that it is as of; null: as it is now.
    as_of_position: Option<i64>,
    #[oai(flatten)]
    #[serde(flatten)]
    statement: Statement,
}

/// A statement, with its position in a header too: CSV has no other place for it.
struct OfPosition {
    position: Option<i64>,
    statement: Sending,
}

const HEADER: &str = "x-as-of-position";

impl IntoResponse for OfPosition {
    fn into_response(self) -> Response {
        let mut response = self.statement.into_response();
        if let Some(position) = self.position {
            response.headers_mut().insert(HEADER, HeaderValue::from(position));
        }
        response
    }
}

impl ApiResponse for OfPosition {
    fn meta() -> MetaResponses {
        let text = "The position of the log that it is as of, where `as_of` was given.";
        responses::<AccountStatement>(vec![documented_header::<Option<i64>>("X-As-Of-Position", text)])
    }

    fn register(registry: &mut Registry) {
        Data::<AccountStatement>::register(registry);
    }
}

pub struct Statements;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Wallets")]
impl Statements {
    /// Get any wallet's statement
    ///
    /// As the account's own, as JSON or CSV. With `as_of` as it was then: without what was recorded later.
    #[oai(path = "/wallets/:id/statement", method = "get", operation_id = "get_any_statement")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        accept: Accept,
        /// The wallet's id.
        id: Path<i64>,
        /// Movements at this time or later; by default from the wallet's first.
        from: Query<Option<DateTime<Utc>>>,
        /// Movements before this time; by default up to now.
        to: Query<Option<DateTime<Utc>>>,
        /// As it was right after this position of the log, or at this time (RFC 3339, or a date: its midnight, UTC); by default as it is now.
        as_of: Query<Option<String>>,
        /// Only the balances and the sums, at once however long the period is: `transactions` is empty.
        totals_only: Query<Option<bool>>,
    ) -> Result<OfPosition, ApiError> {
        let (from, to) = period(from.0, to.0)?;
        let pool = state.ledger.pool();
        let shard = state.ledger.shard_of_wallet(id.0).await?.ok_or_else(not_found)?;
        let position = as_of_position(pool, shard, as_of.0.as_deref()).await?;
        let wallet = match position {
            Some(position) => crate::ledger::history::wallet_at(pool, shard, id.0, position).await?,
            None => wallets::find(pool, shard, id.0).await?,
        };
        let wallet = wallet.ok_or_else(not_found)?;
        let of = Of { account_id: wallet.account_id, as_of_position: position };
        let movements = Movements::of(pool, shard, wallet, from, to, position).await?;
        let sending = Sending::new(&accept, pool, movements, (from, to), Some(of));
        let statement = if totals_only.0.unwrap_or_default() { sending.totals_only().await? } else { sending };
        Ok(OfPosition { position, statement })
    }
}
