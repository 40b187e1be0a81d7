//! Merkle proofs computed from the tiles: inclusion of an event in a tree, and consistency of two trees.

use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use transparency_log::merkle::{self, Hash, Node};

use super::TreeError;
use super::store;

/// Inclusion proof of one event in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inclusion {
    pub leaf_hash: Hash,
    /// Sibling hashes, from the leaf upwards.
    pub proof: Vec<Hash>,
}

/// Returns the inclusion proof of each of these events in the tree of the first `size` events.
///
/// # Errors
/// Returns an error when an event is not in that tree, or a tile is missing.
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

/// Returns the proof that the tree of `to` events extends the tree of `from` events.
///
/// # Errors
/// Returns an error when `from` is greater than `to`, or a tile is missing.
pub async fn consistency(pool: &PgPool, shard: ShardId, from: u64, to: u64) -> Result<Vec<Hash>, TreeError> {
    store::compute(pool, shard, to, move |read| merkle::consistency_proof(from, to, read)).await
}
