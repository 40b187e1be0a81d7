//! An order's receipt: its events and their wallet movements, the proof that each is in the log, and
//! the signed checkpoint that they are proved against. One JSON file that anyone can check.

mod unambiguous;

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use ledger_events::leaf::{Leaf, LeafError};
use ledger_events::merkle::{self, Hash, MerkleError};
use ledger_events::{OrderId, Position, ShardId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::checkpoint::{CheckpointError, Opened, Trust};
use super::proof::Inclusion;
use unambiguous::Unambiguous;

/// What this program writes; another shape is another format.
pub const FORMAT: &str = "rewards-ledger-receipt/1";

/// A receipt, not checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// [`FORMAT`].
    pub format: String,
    pub order_id: OrderId,
    pub shard_id: ShardId,
    /// The signed note of the tree that everything is proved against.
    pub checkpoint: String,
    /// The log's keys, for whoever has them from elsewhere to compare: a receipt proves nothing
    /// about the keys in it.
    pub verifier_keys: Vec<String>,
    /// By position.
    pub events: Vec<ProvedEvent>,
}

/// An event, readable, and as it is proved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Read")]
pub struct ProvedEvent {
    #[serde(flatten)]
    pub event: ReadableEvent,
    /// The canonical bytes, in base64: what is hashed. The fields above only repeat them.
    pub leaf: String,
    /// Hashes in base64, from the leaf up.
    pub proof: Vec<String>,
}

/// What an event's leaf says, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReadableEvent {
    pub position: Position,
    pub event_id: Uuid,
    pub stream_type: String,
    pub stream_id: i64,
    pub version: i64,
    #[serde(rename = "type")]
    pub event_type: String,
    pub schema_version: i16,
    pub recorded_at: DateTime<Utc>,
    pub data: Value,
    pub metadata: Value,
}

/// An event of a receipt as it is read: with nothing beside what is checked, at any depth.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    position: Position,
    event_id: Uuid,
    stream_type: String,
    stream_id: i64,
    version: i64,
    #[serde(rename = "type")]
    event_type: String,
    schema_version: i16,
    recorded_at: DateTime<Utc>,
    data: Unambiguous,
    metadata: Unambiguous,
    leaf: String,
    proof: Vec<String>,
}

impl From<Read> for ProvedEvent {
    fn from(read: Read) -> ProvedEvent {
        let event = ReadableEvent {
            position: read.position,
            event_id: read.event_id,
            stream_type: read.stream_type,
            stream_id: read.stream_id,
            version: read.version,
            event_type: read.event_type,
            schema_version: read.schema_version,
            recorded_at: read.recorded_at,
            data: read.data.0,
            metadata: read.metadata.0,
        };
        ProvedEvent { event, leaf: read.leaf, proof: read.proof }
    }
}

/// What is wrong with a receipt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    #[error("the receipt has the format {0:?}, this program knows {FORMAT:?}")]
    Format(String),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("position {0}: the leaf is not base64")]
    Encoding(Position),
    #[error("position {position}: {source}")]
    Leaf { position: Position, source: LeafError },
    #[error("position {0}: the readable fields are not what the leaf says")]
    Readable(Position),
    #[error("position {position}: {source}")]
    Proof { position: Position, source: MerkleError },
    #[error("position {0}: it is of another shard than the receipt")]
    Shard(Position),
    #[error("position {0}: it stands where an earlier one should, or twice")]
    Order(Position),
    #[error("position {0}: it is neither an event of the order nor a movement of its money")]
    Foreign(Position),
    #[error("position {position}: version {expected} of the order is left out")]
    Version { position: Position, expected: i64 },
    #[error("the wallet movement {0} of the order is left out")]
    Movement(i64),
    #[error("it holds no event of the order")]
    Empty,
}

/// What a receipt has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub opened: Opened,
    pub order_id: OrderId,
    /// How many events are proved, and the position of the last.
    pub events: usize,
    pub last: Position,
}

impl ReadableEvent {
    /// # Errors
    /// When `data` or `metadata` is not JSON, which the log's columns are.
    pub fn of(leaf: &Leaf<'_>) -> Result<ReadableEvent, serde_json::Error> {
        Ok(ReadableEvent {
            position: leaf.position,
            event_id: leaf.event_id,
            stream_type: leaf.stream_type.to_owned(),
            stream_id: leaf.stream_id,
            version: leaf.version,
            event_type: leaf.event_type.to_owned(),
            schema_version: leaf.schema_version,
            recorded_at: leaf.recorded_at,
            data: serde_json::from_str(leaf.data)?,
            metadata: serde_json::from_str(leaf.metadata)?,
        })
    }
}

impl ProvedEvent {
    /// # Errors
    /// As [`ReadableEvent::of`].
    pub fn new(leaf: &Leaf<'_>, inclusion: &Inclusion) -> Result<ProvedEvent, serde_json::Error> {
        Ok(ProvedEvent {
            event: ReadableEvent::of(leaf)?,
            leaf: STANDARD.encode(leaf.to_bytes()),
            proof: inclusion.proof.iter().map(|hash| STANDARD.encode(hash)).collect(),
        })
    }

    /// Checks that the event is in the tree, and is what it is said to be.
    fn check(&self, shard: ShardId, opened: &Opened) -> Result<(), ReceiptError> {
        let position = self.event.position;
        let bytes = STANDARD.decode(&self.leaf).map_err(|_| ReceiptError::Encoding(position))?;
        let leaf = Leaf::from_bytes(&bytes).map_err(|source| ReceiptError::Leaf { position, source })?;
        if !ReadableEvent::of(&leaf).is_ok_and(|readable| readable == self.event) {
            return Err(ReceiptError::Readable(position));
        }
        if leaf.shard_id != shard {
            return Err(ReceiptError::Shard(position));
        }
        let hash = |text: &String| STANDARD.decode(text).ok().and_then(|bytes| Hash::try_from(bytes).ok());
        let proof: Option<Vec<Hash>> = self.proof.iter().map(hash).collect();
        let proof = proof.ok_or(ReceiptError::Encoding(position))?;
        let index = position.checked_sub(1).and_then(|index| u64::try_from(index).ok()).unwrap_or(u64::MAX);
        let tree = &opened.checkpoint;
        merkle::verify_inclusion(&merkle::leaf_hash(&bytes), index, tree.size, &proof, &tree.root)
            .map_err(|source| ReceiptError::Proof { position, source })
    }

    /// The movement of money that it names.
    fn transaction_id(&self) -> Option<i64> {
        self.event.data["transaction_id"].as_i64()
    }
}

impl Receipt {
    /// Checks everything: the checkpoint's signatures, each event's bytes, fields and proof, that all
    /// of them are the order's or move its money, that no version of the order up to the last one
    /// shown is left out, and no movement that one of them names.
    ///
    /// It does not prove that nothing has happened to the order since.
    ///
    /// # Errors
    /// On the first thing that is wrong, naming the position.
    pub fn check(&self, trust: &Trust) -> Result<Checked, ReceiptError> {
        if self.format != FORMAT {
            return Err(ReceiptError::Format(self.format.clone()));
        }
        let opened = trust.open(&self.checkpoint)?;
        let (mut last, mut version) = (0, 0);
        let (mut named, mut moved) = (BTreeSet::new(), BTreeSet::new());
        for proved in &self.events {
            let event = &proved.event;
            let position = event.position;
            if position <= last {
                return Err(ReceiptError::Order(position));
            }
            last = position;
            proved.check(self.shard_id, &opened)?;
            match event.stream_type.as_str() {
                "order" if event.stream_id == self.order_id => {
                    version += 1;
                    if event.version != version {
                        return Err(ReceiptError::Version { position, expected: version });
                    }
                    named.extend(proved.transaction_id());
                }
                "wallet" if event.data["order_id"].as_i64() == Some(self.order_id) => moved.extend(proved.transaction_id()),
                _ => return Err(ReceiptError::Foreign(position)),
            }
        }
        if version == 0 {
            return Err(ReceiptError::Empty);
        }
        match named.difference(&moved).next() {
            Some(missing) => Err(ReceiptError::Movement(*missing)),
            None => Ok(Checked { opened, order_id: self.order_id, events: self.events.len(), last }),
        }
    }
}

#[cfg(test)]
mod tests;
