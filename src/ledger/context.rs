//! The context of a command: the request that it comes from, and what its events have in common.

use std::fmt;

use ledger_events::{AccountId, Actor};
use uuid::Uuid;

use super::command_result::CommandResult;
use crate::telemetry::traces::TraceParent;

/// The actor and the request that a command comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    pub actor: Actor,
    pub request_id: String,
}

/// An HTTP response as it is stored under an idempotency key. A later request with the same key gets the same bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub body: String,
    /// Whether the body shows a secret or personal data, and is sealed at rest.
    pub is_secret: bool,
}

impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// An `Idempotency-Key` with the function that renders the response.
#[derive(Clone, Copy, Debug)]
pub struct Idempotency {
    /// SHA-256 over account, method, path and key.
    pub key_hash: [u8; 32],
    /// SHA-256 over the parsed request.
    pub fingerprint: [u8; 32],
    pub render: fn(&CommandResult) -> Result<StoredResponse, serde_json::Error>,
    /// Name by which another node finds `render`, if the command may be handed over.
    pub renderer: Option<&'static str>,
}

/// Context shared by all events that one command appends.
#[derive(Clone, Copy, Debug)]
pub struct CommandContext<'a> {
    pub origin: &'a Origin,
    pub idempotency: Option<&'a Idempotency>,
    pub account_id: Option<AccountId>,
    pub correlation_id: Option<Uuid>,
    pub causation_id: Option<Uuid>,
    /// Place of the command in its trace, if it belongs to one.
    pub traceparent: Option<TraceParent>,
}

impl CommandContext<'_> {
    /// Sets the account that the events belong to.
    pub fn of_account(self, account_id: AccountId) -> Self {
        CommandContext { account_id: Some(account_id), ..self }
    }

    /// Sets the causation id of the next event. Uses it as the correlation id, too, if there is none yet.
    pub fn after(self, cause: Uuid) -> Self {
        CommandContext { correlation_id: self.correlation_id.or(Some(cause)), causation_id: Some(cause), ..self }
    }

    /// Sets the first event of a correlation, and the event that causes the next one.
    pub fn caused_by(self, correlation_id: Uuid, cause: Uuid) -> Self {
        CommandContext { correlation_id: Some(correlation_id), causation_id: Some(cause), ..self }
    }
}
