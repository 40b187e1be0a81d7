//! Proofs out of the tiles: that an event is in a tree, and that a tree begins with another one.

use ledger_database::PgPool;
use ledger_events::merkle::{self, Hash, Node};
use ledger_events::{Position, ShardId};

use super::TreeError;
use super::store;

/// Where an event stands in a tree, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inclusion {
    pub leaf_hash: Hash,
    /// From the leaf up.
    pub proof: Vec<Hash>,
}

/// The inclusion of each of these events in the tree of the first `size`.
///
/// # Errors
/// When one is not in it, or a tile is missing.
pub async fn inclusions(pool: &PgPool, shard: ShardId, positions: &[Position], size: u64) -> Result<Vec<Inclusion>, TreeError> {
    let indexes: Vec<u64> = positions.iter().map(|position| u64::try_from(position - 1).unwrap_or(u64::MAX)).collect();
    store::compute(pool, shard, size, move |read| {
        let inclusion = |index: &u64| {
            let proof = merkle::inclusion_proof(*index, size, &mut *read)?;
            Ok(Inclusion { leaf_hash: read(Node { level: 0, index: *index })?, proof })
        };
        indexes.iter().map(inclusion).collect()
    })
    .await
}

/// The proof that the tree of `to` events begins with the one of `from`.
///
/// # Errors
/// When `from` is more than `to`, or a tile is missing.
pub async fn consistency(pool: &PgPool, shard: ShardId, from: u64, to: u64) -> Result<Vec<Hash>, TreeError> {
    store::compute(pool, shard, to, move |read| merkle::consistency_proof(from, to, read)).await
}
