use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AccountId, Event, Position, ShardId, StreamType};

/// Where and when an event stands in the log: what `evolve` may know beside the event itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub position: Position,
    pub event_id: Uuid,
    /// The stream's version after this event; the first event makes version 1.
    pub version: i64,
    pub recorded_at: DateTime<Utc>,
}

/// An event as it stands in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub shard_id: ShardId,
    pub moment: Moment,
    pub stream_type: StreamType,
    pub stream_id: i64,
    pub event: Event,
    pub metadata: Metadata,
}

/// Who caused an event and what it belongs to. Opaque ids only: the log may be published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    pub actor: Actor,
    /// Whose event it is; none for the catalogue's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub account_id: Option<AccountId>,
    /// The request's `X-Request-ID`, or the name of the process that acted by itself.
    pub request_id: String,
    /// The first event of the story that this one belongs to; its own id when it begins one.
    pub correlation_id: Uuid,
    /// The event that led to this one, if another did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub causation_id: Option<Uuid>,
    /// SHA-256 (hex) of the idempotency key's scope and text, where there was one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idempotency_key_hash: Option<String>,
}

/// Who acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    Credential(i64),
    User(i64),
    Operator(i64),
    Fulfilment,
    /// The job that carries an operator's replay out.
    Replay,
    Sandbox,
}

impl Actor {
    /// `credential`, `user`, `operator`, `fulfilment`, `replay` or `sandbox`, and which one.
    pub fn kind(self) -> (&'static str, Option<i64>) {
        match self {
            Actor::Credential(id) => ("credential", Some(id)),
            Actor::User(id) => ("user", Some(id)),
            Actor::Operator(id) => ("operator", Some(id)),
            Actor::Fulfilment => ("fulfilment", None),
            Actor::Replay => ("replay", None),
            Actor::Sandbox => ("sandbox", None),
        }
    }
}

/// `credential 3`, `fulfilment`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            (kind, Some(id)) => write!(f, "{kind} {id}"),
            (kind, None) => f.write_str(kind),
        }
    }
}
