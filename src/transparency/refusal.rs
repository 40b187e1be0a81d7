//! Why the signer signs no more: the tree that it would sign is not the one that it has signed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ledger_events::{Position, ShardId};
use uuid::Uuid;

/// What is inconsistent. Nothing is signed until a person has looked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the log ends at position {head}, and a tree of {signed} events was signed: \
         the database is an older copy, or the end of the log was cut off"
    )]
    Cut { head: Position, signed: u64 },
    #[error(
        "the tree of the first {size} events is not the one that was signed: \
         an event at or before position {size} was changed, or the database is an older copy that went on differently"
    )]
    Rewritten { size: u64 },
    #[error("log_head has epoch {found}, and {signed} was seen before: the database is an older copy")]
    Epoch { found: i64, signed: i64 },
    #[error("the tables of the tree do not agree at size {size}: its edge is not the one of the newest checkpoint")]
    Edge { size: u64 },
    #[error("the newest checkpoint, of size {size}, is not signed by a key of --log-key-file")]
    Stranger { size: u64 },
    #[error("the log has nothing at position {0}")]
    Gap(Position),
    #[error("node {node} on {host} refuses: {reason}")]
    Elsewhere { node: Uuid, host: String, reason: String },
}

impl Refusal {
    /// Whether another node has found it.
    pub fn is_of_another(&self) -> bool {
        matches!(self, Refusal::Elsewhere { .. })
    }
}

/// What keeps this node from signing, by shard. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Standing(Arc<Mutex<BTreeMap<ShardId, Refusal>>>);

impl Standing {
    /// Notes what became of a step; true if that is news.
    pub fn set(&self, shard: ShardId, refusal: Option<&Refusal>) -> bool {
        let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match refusal {
            Some(refusal) => standing.insert(shard, refusal.clone()),
            None => standing.remove(&shard),
        };
        before.as_ref() != refusal
    }
}
