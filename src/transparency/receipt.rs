//! Receipt of an order: its events and wallet movements, the proof that each is in the log, and the signed checkpoint of
//! these proofs. It is a single JSON file that anyone can verify.

mod unambiguous;

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use ledger_events::{OrderId, Position, ShardId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use transparency_log::checkpoint::{CheckpointError, Opened, Trust};
use transparency_log::leaf::{Leaf, LeafError};
use transparency_log::merkle::{self, Hash, MerkleError};
use uuid::Uuid;

use super::proof::Inclusion;
use unambiguous::Unambiguous;

/// Format version that this program writes and reads. Any change of the structure gets a new version.
pub const FORMAT: &str = "rewards-ledger-receipt/1";

/// A receipt that has not been verified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Always [`FORMAT`].
    pub format: String,
    pub order_id: OrderId,
    pub shard_id: ShardId,
    /// Signed note with the root of the tree that all proofs refer to.
    pub checkpoint: String,
    /// The log's public keys, to compare with keys obtained elsewhere. The receipt proves nothing about the keys that it
    /// contains.
    pub verifier_keys: Vec<String>,
    /// The order's events and the movements that they name, by position.
    pub events: Vec<ProvedEvent>,
}

/// An event in readable form, with the canonical bytes and their inclusion proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Read")]
pub struct ProvedEvent {
    #[serde(flatten)]
    pub event: ReadableEvent,
    /// Canonical bytes of the event in base64: the input of the leaf hash. The readable fields only repeat them.
    pub leaf: String,
    /// Sibling hashes in base64, from the leaf upwards.
    pub proof: Vec<String>,
}

/// The content of an event's leaf as readable fields.
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

/// An event of a receipt as it is parsed. Rejects any field that is not verified, at any depth.
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

/// Reason why a receipt is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    #[error("the receipt has the format {0:?}; this program reads only {FORMAT:?}")]
    Format(String),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("position {0}: the leaf is not base64")]
    Encoding(Position),
    #[error("position {position}: {source}")]
    Leaf { position: Position, source: LeafError },
    #[error("position {0}: the readable fields differ from the leaf")]
    Readable(Position),
    #[error("position {position}: {source}")]
    Proof { position: Position, source: MerkleError },
    #[error("position {0}: it belongs to another shard than the receipt")]
    Shard(Position),
    #[error("position {0}: events must be ordered by position, each of them once")]
    Order(Position),
    #[error("position {0}: it is neither an event of the order nor a movement of its money")]
    Foreign(Position),
    #[error("position {position}: version {expected} of the order is missing before it")]
    Version { position: Position, expected: i64 },
    #[error("the wallet movement {0} of the order is missing")]
    Movement(i64),
    #[error("the receipt contains no event of the order")]
    Empty,
}

/// The facts that a valid receipt proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub opened: Opened,
    pub order_id: OrderId,
    /// Number of proved events. `last` is the position of the last one.
    pub events: usize,
    pub last: Position,
}

impl ReadableEvent {
    /// Parses the JSON of a leaf.
    ///
    /// # Errors
    /// Returns an error when `data` or `metadata` is not JSON. In the log, both always are.
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
    /// Combines a leaf and its inclusion proof.
    ///
    /// # Errors
    /// Same as [`ReadableEvent::of`].
    pub fn new(leaf: &Leaf<'_>, inclusion: &Inclusion) -> Result<ProvedEvent, serde_json::Error> {
        Ok(ProvedEvent {
            event: ReadableEvent::of(leaf)?,
            leaf: STANDARD.encode(leaf.to_bytes()),
            proof: inclusion.proof.iter().map(|hash| STANDARD.encode(hash)).collect(),
        })
    }

    /// Checks that the event is in the tree, and that the readable fields match the leaf.
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

    /// Returns the wallet movement that the event names.
    fn transaction_id(&self) -> Option<i64> {
        self.event.data["transaction_id"].as_i64()
    }
}

impl Receipt {
    /// Verifies the whole receipt: the checkpoint's signatures, and each event's bytes, fields and proof. Every event
    /// must belong to the order or move its money. No version of the order up to the last one shown may be missing, and
    /// no movement that one of its events names.
    ///
    /// A valid receipt does not prove that nothing has happened to the order since.
    ///
    /// # Errors
    /// Returns the first problem, with its position.
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
                "order" if event.stream_id == self.order_id.0 => {
                    version += 1;
                    if event.version != version {
                        return Err(ReceiptError::Version { position, expected: version });
                    }
                    named.extend(proved.transaction_id());
                }
                "wallet" if event.data["order_id"].as_i64() == Some(self.order_id.0) => moved.extend(proved.transaction_id()),
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
