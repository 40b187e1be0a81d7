//! `/admin/v1/transactions/:id`: a movement of money in any wallet, with the event that made it.

use ledger_events::TransactionId;
use ledger_projections::wallets;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::state::{State, Tag, not_found};
use crate::api::transactions::Transaction;

/// A transaction with the account that it belongs to, and the place of its event in the log.
#[derive(Object, Serialize)]
struct AnyTransaction {
    #[oai(flatten)]
    #[serde(flatten)]
    transaction: Transaction,
    /// Account that the wallet belongs to.
    account_id: i64,
    /// Shard whose log has the event.
    shard_id: i16,
    /// Position of the event in that log.
    position: i64,
}

pub struct Transactions;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Wallets")]
impl Transactions {
    /// Retrieve a transaction of any wallet
    ///
    /// Returns a movement of money in a wallet of any account, with the position of its event in the log.
    #[oai(path = "/transactions/:id", method = "get", operation_id = "get_any_transaction")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the transaction.
        id: Path<i64>,
    ) -> Result<Reply<AnyTransaction>, ApiError> {
        let shards: Vec<_> = state.ledger.shards().collect();
        let found = wallets::find_any_transaction(state.ledger.pool(), &shards, TransactionId(id.0)).await?;
        let (shard_id, found) = found.ok_or_else(not_found)?;
        let (account_id, position) = (found.account_id.0, found.position);
        Ok(Reply(AnyTransaction { transaction: found.into(), account_id, shard_id, position }))
    }
}
