//! `/admin/v1/orders/:id/receipt`: what anyone can check about an order.

use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;
use serde_json::Value;

use crate::access::Operator;
use crate::api::error::{ApiError, Code};
use crate::api::log::quorum_of;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, not_found};
use crate::transparency::issue::{IssueError, order_receipt};
use crate::transparency::receipt;

/// An order's events and the movements of its money, each with the proof that it is in the log.
#[derive(Object, Serialize)]
struct Receipt {
    /// `rewards-ledger-receipt/1`.
    format: String,
    /// The order.
    order_id: i64,
    /// Whose log it is.
    shard_id: i16,
    /// The signed checkpoint that everything is proved against: a C2SP signed note.
    checkpoint: String,
    /// The log's public keys. Compare them with those that you have from elsewhere.
    verifier_keys: Vec<String>,
    /// By position.
    events: Vec<ProvedEvent>,
}

/// An event, readable, and as it is proved.
#[derive(Object, Serialize)]
struct ProvedEvent {
    /// Where it stands in the log.
    position: i64,
    /// The event's id.
    event_id: String,
    /// `order` or `wallet`.
    stream_type: String,
    /// The order's or the wallet's id.
    stream_id: i64,
    /// The stream's version after it.
    version: i64,
    /// Such as `OrderPlaced`.
    #[oai(rename = "type")]
    #[serde(rename = "type")]
    event_type: String,
    /// The version of the payload's schema.
    schema_version: i16,
    /// When it was recorded.
    recorded_at: Timestamp,
    /// The payload.
    data: Value,
    /// Who caused it, and what it belongs to.
    metadata: Value,
    /// Its canonical bytes in base64: what is hashed.
    leaf: String,
    /// The inclusion proof: hashes in base64, from the leaf up.
    proof: Vec<String>,
}

impl From<receipt::ProvedEvent> for ProvedEvent {
    fn from(receipt::ProvedEvent { event, leaf, proof }: receipt::ProvedEvent) -> Self {
        Self {
            position: event.position,
            event_id: event.event_id.to_string(),
            stream_type: event.stream_type,
            stream_id: event.stream_id,
            version: event.version,
            event_type: event.event_type,
            schema_version: event.schema_version,
            recorded_at: event.recorded_at.into(),
            data: event.data,
            metadata: event.metadata,
            leaf,
            proof,
        }
    }
}

pub struct Receipts;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Log")]
impl Receipts {
    /// Get an order's receipt
    ///
    /// `data` is a file that anyone can check, offline, with the log's public key:
    /// `rewards-ledger verify --receipt FILE --key KEY`. An event is in it as soon as the tree has it,
    /// which is within a second; 503 if that takes longer. With `quorum` it is proved against a
    /// checkpoint that so many witnesses have cosigned, which takes them some seconds. It has all of
    /// the order's events: an order with more than 10,000 is refused (400), and proved by an export.
    #[oai(path = "/orders/:id/receipt", method = "get", operation_id = "get_order_receipt")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// The order's id.
        id: Path<i64>,
        /// How many witnesses must have cosigned the checkpoint, at most as many as count; by default none.
        quorum: Query<Option<u32>>,
        /// A witness that counts, by its verifier key; may be repeated. By default each that is configured.
        witness: Query<Vec<String>>,
    ) -> Result<Reply<Receipt>, ApiError> {
        let quorum = quorum_of(&state, quorum.0, &witness.0)?;
        let shard = state.ledger.shard_of_order(id.0).await?.ok_or_else(not_found)?;
        let made = order_receipt(state.ledger.pool(), shard, id.0, &quorum).await.map_err(|error| match error {
            IssueError::NotYet(_) if quorum.count > 0 => ApiError::new(Code::Unavailable)
                .message("No checkpoint with the order's newest event has been cosigned by so many witnesses yet."),
            IssueError::NotYet(_) => {
                ApiError::new(Code::Unavailable).message("The tree has not reached the order's newest event yet.")
            }
            IssueError::TooMany => ApiError::invalid("id", "names an order with more than 10,000 events: export its stream"),
            error => ApiError::internal(error),
        })?;
        let receipt::Receipt { format, order_id, shard_id, checkpoint, verifier_keys, events } = made;
        let events = events.into_iter().map(ProvedEvent::from).collect();
        Ok(Reply(Receipt { format, order_id, shard_id, checkpoint, verifier_keys, events }))
    }
}
