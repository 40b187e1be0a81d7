//! Making receipts.

use ledger_database::PgPool;
use ledger_events::{OrderId, Position, ShardId, TransactionId};
use serde::Deserialize;

use super::TreeError;
use super::cosignature;
use super::quorum::Quorum;
use super::receipt::{FORMAT, ProvedEvent, Receipt};
use super::{proof, store};
use crate::ledger::reader::{self, Stored};

/// An order with more events of its own has no receipt, which is made in memory: an export proves any number of
/// them. Only reading its codes makes many.
pub const MOST_EVENTS: i64 = 10_000;

/// What an order's event says of the movement that goes with it.
#[derive(Deserialize)]
struct Named {
    transaction_id: Option<TransactionId>,
}

/// Why there is no receipt.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("no checkpoint covers position {0} yet")]
    NotYet(Position),
    #[error("the order has more than {MOST_EVENTS} events")]
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

/// The receipt of an order that is there, as of now: all its events, proved against the newest
/// checkpoint of a quorum, once that has them.
///
/// # Errors
/// [`IssueError::NotYet`] when the tree does not grow in time, or the witnesses do not cosign it;
/// [`IssueError::TooMany`] rather than a part of the events.
pub async fn order_receipt(pool: &PgPool, shard: ShardId, order: OrderId, quorum: &Quorum) -> Result<Receipt, IssueError> {
    if !reader::stream_after(pool, shard, "order", order, MOST_EVENTS, i64::MAX, 1).await?.is_empty() {
        return Err(IssueError::TooMany);
    }
    let mut events = reader::stream_after(pool, shard, "order", order, 0, i64::MAX, MOST_EVENTS).await?;
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
    // A name has no plus sign.
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
