//! `/admin/v1/orders/:id/receipt`: proof of an order that anyone can check.

use ledger_events::OrderId;
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

/// Receipt of an order: its events and money movements, each with a proof that the log includes it.
#[derive(Object, Serialize)]
struct Receipt {
    /// Format of the receipt: `rewards-ledger-receipt/1`.
    format: String,
    /// Unique identifier of the order.
    order_id: i64,
    /// Shard whose log contains the events.
    shard_id: i16,
    /// Signed checkpoint that the proofs refer to, as a C2SP signed note.
    checkpoint: String,
    /// Public keys of the log. Compare them with keys from a source that you trust.
    verifier_keys: Vec<String>,
    /// Events of the order and of its money movements, by position.
    events: Vec<ProvedEvent>,
}

/// An event in readable form, with its canonical bytes and its inclusion proof.
#[derive(Object, Serialize)]
struct ProvedEvent {
    /// Position of the event in the log.
    position: i64,
    /// Unique identifier of the event.
    event_id: String,
    /// Type of the event's stream: `order` or `wallet`.
    stream_type: String,
    /// Unique identifier of the order or wallet.
    stream_id: i64,
    /// Version of the stream after the event.
    version: i64,
    /// Type of the event, such as `OrderPlaced`.
    #[oai(rename = "type")]
    #[serde(rename = "type")]
    event_type: String,
    /// Version of the payload's schema.
    schema_version: i16,
    /// Time at which the event was recorded.
    recorded_at: Timestamp,
    /// Payload of the event.
    data: Value,
    /// Metadata of the event: the actor that caused it and the request that it belongs to.
    metadata: Value,
    /// Canonical bytes of the event in base64, over which the leaf hash is computed.
    leaf: String,
    /// Inclusion proof: hashes in base64, from the leaf to the root.
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
    /// Retrieve an order's receipt
    ///
    /// Returns a receipt that anyone can check offline with the log's public key. Save `data` to a file and run
    /// `rewards-ledger verify --receipt FILE --key KEY`.
    ///
    /// A new event enters the tree within a second; the response is 503 if it takes longer. With `quorum`, the receipt
    /// uses a checkpoint that this many witnesses have cosigned. Witnesses need a few seconds to cosign.
    ///
    /// A receipt contains all events of the order. An order with more than 10,000 events is refused with 400; export its
    /// stream instead.
    #[oai(path = "/orders/:id/receipt", method = "get", operation_id = "get_order_receipt")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
        /// Number of witnesses that must have cosigned the checkpoint, at most the number of accepted witnesses. Default:
        /// 0.
        quorum: Query<Option<u32>>,
        /// Verifier key of a witness to accept. Repeat the parameter for several witnesses. Default: all configured
        /// witnesses.
        witness: Query<Vec<String>>,
    ) -> Result<Reply<Receipt>, ApiError> {
        let id = OrderId(id.0);
        let quorum = quorum_of(&state, quorum.0, &witness.0)?;
        let shard = state.ledger.shard_of_order(id).await?.ok_or_else(not_found)?;
        let made = order_receipt(state.ledger.pool(), shard, id, &quorum).await.map_err(|error| match error {
            IssueError::NotYet(_) if quorum.count > 0 => ApiError::new(Code::Unavailable)
                .message("Not enough witnesses have cosigned a checkpoint with the order's newest event yet. Retry later."),
            IssueError::NotYet(_) => {
                ApiError::new(Code::Unavailable).message("The tree does not include the order's newest event yet. Retry later.")
            }
            IssueError::TooMany => ApiError::invalid("id", "is an order with more than 10,000 events: export its stream instead"),
            error => ApiError::internal(error),
        })?;
        let receipt::Receipt { format, order_id, shard_id, checkpoint, verifier_keys, events } = made;
        let events = events.into_iter().map(ProvedEvent::from).collect();
        Ok(Reply(Receipt { format, order_id: order_id.0, shard_id, checkpoint, verifier_keys, events }))
    }
}
