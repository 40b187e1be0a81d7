//! `/admin/v1/wallets/:id/statement`: current and past statements of every wallet.

use chrono::{DateTime, Utc};
use ledger_events::WalletId;
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
use crate::ledger::statement::WalletStatement;

/// A wallet's statement with the account and the position of the log that it belongs to.
#[derive(Object, Serialize)]
struct AccountStatement {
    /// Account that the wallet belongs to.
    account_id: i64,
    /// Position of the log that the statement belongs to; null for the current state.
    as_of_position: Option<i64>,
    #[oai(flatten)]
    #[serde(flatten)]
    statement: Statement,
}

/// A statement with its position in a header, because CSV has no other place for it.
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
        let text = "Position of the log that the statement belongs to. Present only with `as_of`.";
        responses::<AccountStatement>(vec![documented_header::<Option<i64>>("X-As-Of-Position", text)])
    }

    fn register(registry: &mut Registry) {
        Data::<AccountStatement>::register(registry);
    }
}

pub struct Statements;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Wallets")]
impl Statements {
    /// Retrieve any wallet's statement
    ///
    /// Returns the statement of a wallet of any account, as JSON or CSV. With `as_of`, it excludes everything recorded
    /// later.
    #[oai(path = "/wallets/:id/statement", method = "get", operation_id = "get_any_statement")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        accept: Accept,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        /// Only transactions at or after this time. Default: the wallet's first transaction.
        from: Query<Option<DateTime<Utc>>>,
        /// Only transactions before this time. Default: now.
        to: Query<Option<DateTime<Utc>>>,
        /// Point in time of the state: a position of the log, an RFC 3339 time, or a date (midnight UTC). A position
        /// means right after its event. Default: the current state.
        as_of: Query<Option<String>>,
        /// Whether to return only balances and sums, which is fast for any period. `transactions` is then empty. Default:
        /// false.
        totals_only: Query<Option<bool>>,
    ) -> Result<OfPosition, ApiError> {
        let id = WalletId(id.0);
        let (from, to) = period(from.0, to.0)?;
        let pool = &state.read_pool();
        let shard = state.ledger.shard_of_wallet(id).await?.ok_or_else(not_found)?;
        let position = as_of_position(pool, shard, as_of.0.as_deref()).await?;
        let wallet = match position {
            Some(position) => crate::ledger::history::wallet_at(pool, shard, id, position).await?,
            None => wallets::find(pool, shard, id).await?,
        };
        let wallet = wallet.ok_or_else(not_found)?;
        let of = Of { account_id: wallet.account_id.0, as_of_position: position };
        let movements = WalletStatement::of(pool, shard, wallet, from, to, position).await?;
        let sending = Sending::new(&accept, pool, movements, (from, to), Some(of));
        let statement = if totals_only.0.unwrap_or_default() { sending.totals_only().await? } else { sending };
        Ok(OfPosition { position, statement })
    }
}
