//! Incidents of a shard's transparency log: signed trees whose events are lost.

use serde::{Deserialize, Serialize};

/// A tree of the transparency log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedTree {
    /// Events in it.
    pub size: u64,
    /// Its root, in base64.
    pub root: String,
}

/// Signed events are lost, and an operator lets the log go on under another origin. Under the old one nothing is signed any
/// more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogIncidentRecorded {
    /// The origin that has ended.
    pub origin: String,
    /// The origin under which the log goes on.
    pub next_origin: String,
    /// The greatest tree that a node remembers to be signed under the old origin; none where the node that refused
    /// remembers no tree.
    pub signed: Option<SignedTree>,
    /// The greatest tree under the old origin of which the database has a checkpoint.
    pub kept: Option<SignedTree>,
    /// Why the node refused to sign.
    pub refusal: String,
    /// Salted SHA-256 (hex) of the operator's reason, which stands in the vault.
    pub reason_hash: String,
}

crate::codec::stream_events! {
    /// What can happen to a shard's transparency log. The stream's id is the shard's.
    LogEvent {
        LogIncidentRecorded = 1,
    }
}
