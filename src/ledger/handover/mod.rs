//! Commands that a node hands to the leader of their shard: what is sent, and how it is protected.
//!
//! Requests and answers are JSON, sealed under the master key. So only nodes of the same ledger can read or write them. An
//! answer is bound to its request, and a request to the node that it is for. A leader refuses requests that are old or that it
//! has seen. Only the commands that come by the thousand are handed over.

mod leader;
mod lease;
mod sender;

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use ledger_events::order::Order;
use ledger_events::{AccountId, Actor, Money, OrderId, Position, ProductId, Rejection, ShardId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::command_result::{CommandResult, OrderView};
use super::commands::{Command, FulfilOrder, PlaceOrder};
use super::context::StoredResponse;
use super::submission::{Reply, Submission, WriteError};
use crate::secrets::seal::{Keyring, SealError, Secret};
pub use leader::Leaders;
pub use lease::{Candidate, RENEW_EVERY};
pub use sender::{HandoverError, Handovers, Returned};

/// Name of this form of requests and answers. A node hands nothing to a leader of another form. It changes with any change of
/// the types in this file, or of what they mean.
pub const FORMAT: &str = "1";
/// Path of the request on a node.
pub const PATH: &str = "commands";
/// Largest difference between the clocks of two nodes at which commands are handed over, with the time of the request. A node
/// whose request has no answer counts on it.
pub const MAX_AGE: Duration = Duration::from_secs(5);

const REQUEST: &str = "handover";

/// Commands for the leader of a shard.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub id: Uuid,
    /// Node that the commands are for. It draws a new id at each start.
    pub node_id: Uuid,
    pub shard: ShardId,
    pub sent_at: DateTime<Utc>,
    pub commands: Vec<HandedCommand>,
}

/// A command with its context.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedCommand {
    pub command: Handed,
    pub actor: Actor,
    pub request_id: String,
    pub idempotency: Option<HandedKey>,
    pub traceparent: Option<String>,
    /// Milliseconds for which the caller waits until the command is given up.
    pub within_ms: u64,
}

/// The commands that are handed over.
#[derive(Debug, Serialize, Deserialize)]
pub enum Handed {
    PlaceOrder {
        account_id: AccountId,
        product_id: ProductId,
        denomination: Money,
        quantity: i32,
        client_reference: Option<String>,
        metadata: Option<HandedSecret>,
    },
    FulfilOrder {
        order_id: OrderId,
    },
}

/// A text that must not appear in logs.
#[derive(Debug)]
pub struct HandedSecret(pub Secret);

impl Serialize for HandedSecret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

impl<'de> Deserialize<'de> for HandedSecret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<HandedSecret, D::Error> {
        String::deserialize(deserializer).map(|text| HandedSecret(Secret::new(text)))
    }
}

/// An idempotency key, with the name of the function that renders its response.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedKey {
    pub key_hash: [u8; 32],
    pub fingerprint: [u8; 32],
    pub renderer: String,
}

/// The leader's answer: an outcome for each command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Last event of the log when the last command was answered.
    pub head: Option<(Position, Uuid)>,
    pub outcomes: Vec<Outcome>,
}

/// Outcome of a command at the leader.
#[derive(Debug, Serialize, Deserialize)]
pub enum Outcome {
    Order {
        order: Box<Order>,
        metadata: Option<HandedSecret>,
        cancel_reason: Option<HandedSecret>,
        is_new: bool,
    },
    Stored {
        status: u16,
        body: HandedSecret,
        is_secret: bool,
        is_replay: bool,
    },
    Rejected(Rejection),
    Unavailable,
    InProgress,
    OutcomeUnknown,
    Refused,
    /// Nothing happened, and the outcome is none of the above: the node decides the command itself.
    Declined,
}

impl Request {
    /// Returns the request for these commands, of which there may be none. [`is_handed`] must hold for each.
    fn new(shard: ShardId, node_id: Uuid, submissions: &[Submission]) -> Request {
        let commands = submissions.iter().filter_map(HandedCommand::of).collect();
        Request { id: Uuid::now_v7(), node_id, shard, sent_at: Utc::now(), commands }
    }

    /// # Errors
    /// If this node does not have the current master key.
    pub fn seal(&self, keyring: &Keyring) -> Result<Vec<u8>, SealError> {
        keyring.seal(REQUEST, self.shard.into(), &plain(self)?)
    }

    /// Opens a request for any of these shards.
    ///
    /// # Errors
    /// If no node of this ledger has sealed it, or it has another form.
    pub fn open(keyring: &Keyring, shards: &[ShardId], sealed: &[u8]) -> Result<Request, SealError> {
        let plain = shards.iter().find_map(|shard| keyring.open(REQUEST, (*shard).into(), sealed).ok());
        serde_json::from_slice(&plain.ok_or(SealError::Unreadable)?).map_err(|_| SealError::Unreadable)
    }

    fn answer_kind(&self) -> String {
        format!("{REQUEST} {}", self.id)
    }

    /// Seals the answer to this request.
    ///
    /// # Errors
    /// If this node does not have the current master key.
    pub fn seal_answer(&self, keyring: &Keyring, answer: &Answer) -> Result<Vec<u8>, SealError> {
        keyring.seal(&self.answer_kind(), self.shard.into(), &plain(answer)?)
    }

    /// Opens the answer to this request.
    ///
    /// # Errors
    /// If it is not the answer of a node of this ledger to this request.
    pub fn open_answer(&self, keyring: &Keyring, sealed: &[u8]) -> Result<Answer, SealError> {
        let plain = keyring.open(&self.answer_kind(), self.shard.into(), sealed)?;
        let answer: Answer = serde_json::from_slice(&plain).map_err(|_| SealError::Unreadable)?;
        if answer.outcomes.len() == self.commands.len() { Ok(answer) } else { Err(SealError::Unreadable) }
    }
}

fn plain(value: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, SealError> {
    serde_json::to_vec(value).map(Zeroizing::new).map_err(|_| SealError::Unreadable)
}

/// Returns whether a command is handed to the leader: one that comes by the thousand, whose response the leader can render, and
/// that no other node has handed over.
pub fn is_handed(submission: &Submission) -> bool {
    let is_rendered = submission.idempotency.is_none_or(|key| key.renderer.is_some());
    !submission.is_from_node && is_rendered && matches!(submission.command, Command::PlaceOrder(_) | Command::FulfilOrder(_))
}

impl HandedCommand {
    fn of(submission: &Submission) -> Option<HandedCommand> {
        let command = match &submission.command {
            Command::PlaceOrder(order) => Handed::PlaceOrder {
                account_id: order.account_id,
                product_id: order.product_id,
                denomination: order.denomination,
                quantity: order.quantity,
                client_reference: order.client_reference.clone(),
                metadata: order.metadata.clone().map(HandedSecret),
            },
            Command::FulfilOrder(order) => Handed::FulfilOrder { order_id: order.order_id },
            _ => return None,
        };
        let idempotency = match submission.idempotency {
            Some(key) => {
                let renderer = key.renderer?.to_owned();
                Some(HandedKey { key_hash: key.key_hash, fingerprint: key.fingerprint, renderer })
            }
            None => None,
        };
        let remaining = submission.deadline.saturating_duration_since(Instant::now());
        Some(HandedCommand {
            command,
            actor: submission.origin.actor,
            request_id: submission.origin.request_id.clone(),
            idempotency,
            traceparent: submission.trace.place.map(|place| place.to_string()),
            within_ms: u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

impl From<Handed> for Command {
    fn from(handed: Handed) -> Command {
        match handed {
            Handed::PlaceOrder { account_id, product_id, denomination, quantity, client_reference, metadata } => {
                let metadata = metadata.map(|metadata| metadata.0);
                PlaceOrder { account_id, product_id, denomination, quantity, client_reference, metadata }.into()
            }
            Handed::FulfilOrder { order_id } => FulfilOrder { order_id }.into(),
        }
    }
}

impl From<Result<Reply, WriteError>> for Outcome {
    fn from(reply: Result<Reply, WriteError>) -> Outcome {
        match reply {
            Ok(Reply::Result(result)) => match *result {
                CommandResult::Order(view) => {
                    let OrderView { order, metadata, cancel_reason, is_new } = *view;
                    let (metadata, cancel_reason) = (metadata.map(HandedSecret), cancel_reason.map(HandedSecret));
                    Outcome::Order { order: Box::new(order), metadata, cancel_reason, is_new }
                }
                // No command that is handed over has another result.
                _ => Outcome::OutcomeUnknown,
            },
            Ok(Reply::Stored { response: StoredResponse { status, body, is_secret }, is_replay }) => {
                Outcome::Stored { status, body: HandedSecret(Secret::new(body)), is_secret, is_replay }
            }
            // Their texts are the program's own.
            Err(WriteError::Rejected(Rejection::Conflict(_) | Rejection::InvalidField { .. })) => Outcome::Declined,
            Err(WriteError::Rejected(rejection)) => Outcome::Rejected(rejection),
            Err(WriteError::Unavailable) => Outcome::Unavailable,
            Err(WriteError::InProgress) => Outcome::InProgress,
            Err(WriteError::OutcomeUnknown) => Outcome::OutcomeUnknown,
            Err(WriteError::Refused) => Outcome::Refused,
        }
    }
}

impl Outcome {
    /// Returns what the caller is told; none if this node must decide the command itself.
    pub fn reply(self) -> Option<Result<Reply, WriteError>> {
        Some(match self {
            Outcome::Order { order, metadata, cancel_reason, is_new } => {
                let (metadata, cancel_reason) = (metadata.map(|text| text.0), cancel_reason.map(|text| text.0));
                let view = OrderView { order: *order, metadata, cancel_reason, is_new };
                Ok(Reply::Result(Box::new(CommandResult::Order(Box::new(view)))))
            }
            Outcome::Stored { status, body, is_secret, is_replay } => {
                let response = StoredResponse { status, body: body.0.expose().to_owned(), is_secret };
                Ok(Reply::Stored { response, is_replay })
            }
            Outcome::Rejected(rejection) => Err(rejection.into()),
            Outcome::Unavailable => Err(WriteError::Unavailable),
            Outcome::InProgress => Err(WriteError::InProgress),
            Outcome::OutcomeUnknown => Err(WriteError::OutcomeUnknown),
            Outcome::Refused => Err(WriteError::Refused),
            Outcome::Declined => return None,
        })
    }
}

#[cfg(test)]
mod tests;
