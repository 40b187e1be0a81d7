//! Incidents of a shard's transparency log: the log signed trees whose events are lost.

use serde::{Deserialize, Serialize};

/// A signed tree of the transparency log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedTree {
    /// Number of events in the tree.
    pub size: u64,
    /// Root hash, in base64.
    pub root: String,
}

/// A loss of signed events, after which an operator lets the log continue under another origin. The service signs
/// nothing more under the old origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogIncidentRecorded {
    /// Origin that ends with this event.
    pub origin: String,
    /// Origin under which the log continues.
    pub next_origin: String,
    /// Largest tree that a node remembers as signed under the old origin. `None` if the node that refused to sign
    /// remembers no tree.
    pub signed: Option<SignedTree>,
    /// Largest tree under the old origin that has a checkpoint in the database.
    pub kept: Option<SignedTree>,
    /// Reason why the node refused to sign.
    pub refusal: String,
    /// Salted SHA-256 (hex) of the operator's reason. The vault stores the reason.
    pub reason_hash: String,
}

crate::codec::stream_events! {
    /// Events of a shard's transparency log. The stream id is the shard id.
    LogEvent {
        LogIncidentRecorded = 1,
    }
}
