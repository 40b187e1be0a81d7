//! Reasons to stop signing: the tree to be signed contradicts one that was signed before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ledger_events::{Position, ShardId};
use uuid::Uuid;

use super::signer_state::Remembered;

/// A contradiction between the log and the trees that were signed. Signing stops until a person has resolved it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the log ends at position {head}, but a tree of {signed} events was signed: \
         the database is an older copy, or the end of the log was cut off"
    )]
    Cut { head: Position, signed: u64 },
    #[error(
        "the tree of the first {size} events differs from the one that was signed: \
         an event at or before position {size} was changed, or the database is an older copy that went on differently"
    )]
    Rewritten { size: u64 },
    #[error("log_head has epoch {found}, but epoch {signed} was seen before: the database is an older copy")]
    Epoch { found: i64, signed: i64 },
    #[error("the tables of the tree are inconsistent at size {size}: the edge does not match the newest checkpoint")]
    Edge { size: u64 },
    #[error("the newest checkpoint, of size {size}, is not signed by a key of --log-key-file")]
    Stranger { size: u64 },
    #[error("the log has no event at position {0}")]
    Gap(Position),
    #[error("node {node} on {host} refuses: {reason}")]
    Elsewhere { node: Uuid, host: String, reason: String },
}

impl Refusal {
    /// Returns the contradiction between the present head and what was signed: the remembered tree, and the one in the tables
    /// of `tree` events. `None` if the log is at least as long as both, and its epoch has not gone back.
    pub fn by_head(head: Position, epoch: i64, tree: u64, remembered: Option<&Remembered>) -> Option<Refusal> {
        let signed = remembered.map_or(tree, |known| known.size.max(tree));
        if u64::try_from(head).unwrap_or_default() < signed {
            return Some(Refusal::Cut { head, signed });
        }
        let known = remembered.filter(|known| epoch < known.epoch)?;
        Some(Refusal::Epoch { found: epoch, signed: known.epoch })
    }

    /// Returns whether another node has found the contradiction.
    pub fn is_of_another(&self) -> bool {
        matches!(self, Refusal::Elsewhere { .. })
    }
}

/// Current refusal of each shard on this node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Standing(Arc<Mutex<BTreeMap<ShardId, Refusal>>>);

impl Standing {
    /// Stores the outcome of a step. Returns true if it differs from the previous one.
    pub fn set(&self, shard: ShardId, refusal: Option<&Refusal>) -> bool {
        let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match refusal {
            Some(refusal) => standing.insert(shard, refusal.clone()),
            None => standing.remove(&shard),
        };
        before.as_ref() != refusal
    }
}
