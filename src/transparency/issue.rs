//! Issuing receipts of orders.

use ledger_database::PgPool;
use ledger_events::{OrderId, Position, ShardId, TransactionId};
use serde::Deserialize;
use transparency_log::quorum::Quorum;

use super::TreeError;
use super::cosignature;
use super::receipt::{FORMAT, ProvedEvent, Receipt};
use super::{proof, store};
use crate::ledger::reader::{self, Stored};

/// Largest number of its own events that an order with a receipt can have, because a receipt is built in memory. An
/// export proves any number of events. In practice only repeated reads of an order's codes produce so many.
pub const MAX_EVENTS: i64 = 10_000;

/// The part of an order's event that names the wallet movement it belongs to.
#[derive(Deserialize)]
struct Named {
    transaction_id: Option<TransactionId>,
}

/// Reason why a receipt cannot be issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("no checkpoint covers position {0} yet")]
    NotYet(Position),
    #[error("the order has more than {MAX_EVENTS} events")]
    TooMany,
    #[error("an event is not JSON: {0}")]
    Event(#[from] serde_json::Error),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<sqlx::Error> for IssueError {
    fn from(error: sqlx::Error) -> IssueError {
        IssueError::Tree(error.into())
    }
}

/// Builds the receipt of an existing order from all its events so far. The events are proved against the newest
/// checkpoint that a quorum has cosigned, once that checkpoint covers them.
///
/// # Errors
/// Returns [`IssueError::NotYet`] when the tree does not cover the events in time, or the witnesses do not cosign it in
/// time. Returns [`IssueError::TooMany`] rather than a partial receipt.
pub async fn order_receipt(pool: &PgPool, shard: ShardId, order: OrderId, quorum: &Quorum) -> Result<Receipt, IssueError> {
    if !reader::stream_after(pool, shard, "order", order.0, MAX_EVENTS, i64::MAX, 1).await?.is_empty() {
        return Err(IssueError::TooMany);
    }
    let mut events = reader::stream_after(pool, shard, "order", order.0, 0, i64::MAX, MAX_EVENTS).await?;
    let named = |stored: &Stored| serde_json::from_str::<Named>(&stored.data).ok()?.transaction_id;
    let movements: Vec<TransactionId> = events.iter().filter_map(named).collect();
    events.extend(reader::movements(pool, shard, &movements).await?);
    events.sort_unstable_by_key(|stored| stored.position);
    let positions: Vec<Position> = events.iter().map(|stored| stored.position).collect();
    let last = positions.last().copied().unwrap_or_default();
    let published = cosignature::covering(pool, shard, last, quorum).await?.ok_or(IssueError::NotYet(last))?;
    let inclusions = proof::inclusions(pool, shard, &positions, published.size).await?;
    let proved = events.iter().zip(&inclusions).map(|(stored, inclusion)| ProvedEvent::new(&stored.leaf(), inclusion));
    let keys = store::keys(pool, shard).await?.into_iter().map(|key| key.verifier_key);
    // Names of keys contain no plus sign, so the text before the first one is the name.
    let verifier_keys = keys.filter(|key| key.split('+').next() == Some(&published.origin)).collect();
    Ok(Receipt {
        format: FORMAT.to_owned(),
        order_id: order,
        shard_id: shard,
        checkpoint: cosignature::with_cosignatures(pool, shard, &published).await?,
        verifier_keys,
        events: proved.collect::<Result<_, _>>()?,
    })
}
