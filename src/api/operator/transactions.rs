//! `/admin/v1/transactions/:id`: a movement of money in any wallet, with the event that made it, and the operator's note.

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
use crate::ledger::texts::{self, NOTE};

/// A transaction with the account that it belongs to, and the place of its event in the log.
#[derive(Object, Serialize)]
struct AnyTransaction {
    #[oai(flatten)]
    #[serde(flatten)]
    transaction: Transaction,
    /// Account that the wallet belongs to.
    account_id: i64,
    /// Note of the funding, or reason for the adjustment; null for other categories, if none was given, and if it was erased.
    note: Option<String>,
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
    /// Returns a movement of money in a wallet of any account, with the note of the operator who made it, and the position of its
    /// event in the log.
    #[oai(path = "/transactions/:id", method = "get", operation_id = "get_any_transaction")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the transaction.
        id: Path<i64>,
    ) -> Result<Reply<AnyTransaction>, ApiError> {
        let (id, pool) = (TransactionId(id.0), state.ledger.pool());
        let shards = state.ledger.shards();
        let found = wallets::find_any_transaction(pool, &shards, id).await?;
        let (shard_id, found) = found.ok_or_else(not_found)?;
        let texts = texts::load(pool, &state.keyring, shard_id, &[(NOTE, id.0)]).await?;
        let note = texts.get(&(NOTE, id.0)).map(|text| text.expose().to_owned());
        let (account_id, position) = (found.account_id.0, found.position);
        Ok(Reply(AnyTransaction { transaction: found.into(), account_id, note, shard_id, position }))
    }
}
