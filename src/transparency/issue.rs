//! Making receipts.

use std::time::Duration;

use ledger_events::{OrderId, Position, ShardId, TransactionId};
use serde::Deserialize;
use sqlx::PgPool;

use super::TreeError;
use super::receipt::{FORMAT, ProvedEvent, Receipt};
use super::{cosignature, proof, store};
use crate::ledger::reader::{self, Stored};

/// How long a receipt waits for the tree to reach the order's newest event.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Of an order's events, so many are in its receipt: the first. Only reading its codes makes many.
const MOST_EVENTS: i64 = 10_000;

/// What an order's event says of the movement that goes with it.
#[derive(Deserialize)]
struct Named {
    transaction_id: Option<TransactionId>,
}

/// Why there is no receipt.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("the tree has not reached position {0} yet")]
    NotYet(Position),
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

/// The receipt of an order that is there, as of now: all its events, once the tree has them.
///
/// # Errors
/// [`IssueError::NotYet`] when the tree does not grow in time.
pub async fn order_receipt(pool: &PgPool, shard: ShardId, order: OrderId) -> Result<Receipt, IssueError> {
    let mut events = reader::stream_after(pool, shard, "order", order, 0, i64::MAX, MOST_EVENTS).await?;
    let named = |stored: &Stored| serde_json::from_str::<Named>(&stored.data).ok()?.transaction_id;
    let movements: Vec<TransactionId> = events.iter().filter_map(named).collect();
    events.extend(reader::movements(pool, shard, &movements).await?);
    events.sort_unstable_by_key(|stored| stored.position);
    let positions: Vec<Position> = events.iter().map(|stored| stored.position).collect();
    let last = positions.last().copied().unwrap_or_default();
    let published = published_upto(pool, shard, last).await?;
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

/// The newest checkpoint, once it has this position.
async fn published_upto(pool: &PgPool, shard: ShardId, position: Position) -> Result<store::Published, IssueError> {
    let looks = PATIENCE.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..looks {
        let newest = store::newest(pool, shard).await?;
        if let Some(newest) = newest.filter(|newest| i64::try_from(newest.size).is_ok_and(|size| size >= position)) {
            return Ok(newest);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(IssueError::NotYet(position))
}
