use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AccountId, CredentialId, Event, Position, ShardId, StreamType, UserId};

/// Place and time of an event in the log. `evolve` sees this and the event, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub position: Position,
    pub event_id: Uuid,
    /// Version of the stream after this event. The first event makes version 1.
    pub version: i64,
    pub recorded_at: DateTime<Utc>,
}

/// An event as the log stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub shard_id: ShardId,
    pub moment: Moment,
    pub stream_type: StreamType,
    pub stream_id: i64,
    pub event: Event,
    pub metadata: Metadata,
}

/// Actor and context of an event. Contains opaque ids only, because the log may be published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    pub actor: Actor,
    /// Account that the event belongs to. `None` for events of the catalogue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub account_id: Option<AccountId>,
    /// `X-Request-ID` of the request, or the name of the background process that acted.
    pub request_id: String,
    /// Id of the first event in the chain that this event belongs to. The first event carries its own id.
    pub correlation_id: Uuid,
    /// Id of the event that directly caused this one, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub causation_id: Option<Uuid>,
    /// SHA-256 (hex) of the scope and text of the idempotency key, if the request had one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idempotency_key_hash: Option<String>,
    /// `traceparent` of the command, if it belongs to a trace. It is not checked again when it is read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
}

/// Party that caused an event. The number is the id of the credential, user or operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    Credential(CredentialId),
    User(UserId),
    Operator(i64),
    Fulfilment,
    /// Background job that carries out a webhook replay.
    Replay,
    Sandbox,
    /// Any other background job.
    Service,
}

impl Actor {
    /// Returns the kind (`credential`, `user`, `operator`, `fulfilment`, `replay`, `sandbox` or `service`) and the id, if the
    /// kind has one.
    pub fn kind(self) -> (&'static str, Option<i64>) {
        match self {
            Actor::Credential(id) => ("credential", Some(id.0)),
            Actor::User(id) => ("user", Some(id.0)),
            Actor::Operator(id) => ("operator", Some(id)),
            Actor::Fulfilment => ("fulfilment", None),
            Actor::Replay => ("replay", None),
            Actor::Sandbox => ("sandbox", None),
            Actor::Service => ("service", None),
        }
    }
}

/// Formats the actor as its kind and id: `credential 3`, `fulfilment`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            (kind, Some(id)) => write!(f, "{kind} {id}"),
            (kind, None) => f.write_str(kind),
        }
    }
}
