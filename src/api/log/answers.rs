//! Responses of the transparency log: notes, bytes, proofs and keys.

use std::future::Future;

use ledger_events::log::SignedTree;
use poem::http::{HeaderValue, header};
use poem::{IntoResponse, Request, RequestBody, Response};
use poem_openapi::payload::{ParsePayload, Payload};
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::{ApiResponse, Object, impl_apirequest_for_payload};
use serde::Serialize;

use crate::api::body::read;
use crate::api::error::ApiError;
use crate::api::images::binary;
use crate::api::scalars::Timestamp;
use crate::transparency::incidents::Incident;

const NOTE: &str = "text/plain; charset=utf-8";
/// Maximum size of a cosigned checkpoint, in bytes.
const MAX_NOTE_BYTES: usize = 64 << 10;

/// A signed note, sent unchanged.
pub struct NoteText(pub String);

impl IntoResponse for NoteText {
    fn into_response(self) -> Response {
        Response::builder().content_type(NOTE).body(self.0)
    }
}

impl ApiResponse for NoteText {
    fn meta() -> MetaResponses {
        let schema = MetaSchemaRef::Inline(Box::new(MetaSchema::new("string")));
        let content = vec![MetaMediaType { content_type: NOTE, schema }];
        let ok = MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers: vec![] };
        MetaResponses { responses: vec![ok] }
    }

    fn register(_: &mut Registry) {}
}

impl Payload for NoteText {
    const CONTENT_TYPE: &'static str = "text/plain";

    fn check_content_type(content_type: &str) -> bool {
        content_type.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(Self::CONTENT_TYPE))
    }

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Inline(Box::new(MetaSchema::new("string")))
    }
}

impl ParsePayload for NoteText {
    const IS_REQUIRED: bool = true;

    fn from_request(_: &Request, body: &mut RequestBody) -> impl Future<Output = poem::Result<Self>> + Send {
        let body = body.take();
        async move {
            let text = String::from_utf8(read(body?, MAX_NOTE_BYTES).await?);
            Ok(Self(text.map_err(|_| ApiError::invalid("body", "is not UTF-8"))?))
        }
    }
}

impl_apirequest_for_payload!(NoteText);

/// Raw bytes, sent unchanged.
pub struct Octets(pub Vec<u8>);

impl IntoResponse for Octets {
    fn into_response(self) -> Response {
        Response::builder()
            .content_type("application/octet-stream")
            .header(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
            .body(self.0)
    }
}

impl ApiResponse for Octets {
    fn meta() -> MetaResponses {
        let content = vec![MetaMediaType { content_type: "application/octet-stream", schema: binary() }];
        let ok = MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers: vec![] };
        MetaResponses { responses: vec![ok] }
    }

    fn register(_: &mut Registry) {}
}

/// Proof that an event is included in a tree of the log.
#[derive(Object, Serialize)]
pub struct InclusionProof {
    /// Origin: the name of the log.
    pub origin: String,
    /// Size of the tree. The tree has one leaf per event.
    pub size: i64,
    /// Root hash of the tree, in base64.
    pub root: String,
    /// Position of the event in the log, from 1. The index of its leaf is the position minus 1.
    pub position: i64,
    /// Hash of the leaf, in base64: SHA-256 over a zero byte followed by the event's canonical bytes.
    pub leaf_hash: String,
    /// Hashes of the inclusion proof in base64, from the leaf to the root (RFC 9162, 2.1.3).
    pub proof: Vec<String>,
}

/// Proof that a tree of the log extends an earlier one.
#[derive(Object, Serialize)]
pub struct ConsistencyProof {
    /// Origin: the name of the log.
    pub origin: String,
    /// Size of the earlier tree.
    pub from: i64,
    /// Root hash of the earlier tree, in base64.
    pub from_root: String,
    /// Size of the later tree.
    pub to: i64,
    /// Root hash of the later tree, in base64.
    pub to_root: String,
    /// Hashes of the consistency proof, in base64 (RFC 9162, 2.1.4).
    pub proof: Vec<String>,
}

/// A public key that signs the log's checkpoints.
#[derive(Object, Serialize)]
pub struct LogKey {
    /// Verifier key in the format of C2SP `signed-note`: `<origin>+<key id>+<base64>`.
    pub verifier_key: String,
    /// Size of the first tree that the key signed.
    pub since_size: i64,
    /// Time at which the key first signed.
    pub since: Timestamp,
}

/// Keys that sign this log's checkpoints, and the witnesses that cosign them.
#[derive(Object, Serialize)]
pub struct LogKeys {
    /// Current origin: the name of the log.
    pub origin: String,
    /// Every key that has ever signed a checkpoint, oldest first, so that old checkpoints stay verifiable.
    pub keys: Vec<LogKey>,
    /// Verifier keys of the witnesses whose cosignatures are accepted.
    pub witnesses: Vec<String>,
    /// Incidents in which signed events were lost, oldest first. Each incident ended an origin.
    pub incidents: Vec<LogIncident>,
}

/// A loss of signed events, after which the log continued under another origin.
#[derive(Object, Serialize)]
pub struct LogIncident {
    /// Position of the event that records the incident.
    pub position: i64,
    /// Time at which the incident was recorded.
    pub recorded_at: Timestamp,
    /// Origin that ended with the incident.
    pub origin: String,
    /// Origin under which the log continued.
    pub next_origin: String,
    /// Largest tree known to be signed under the old origin.
    pub signed: Option<LogTree>,
    /// Largest tree under the old origin for which the log still has a checkpoint. A checkpoint agrees with the log if
    /// its tree is not larger and it was signed before the loss.
    pub kept: Option<LogTree>,
}

/// A tree of the log.
#[derive(Object, Serialize)]
pub struct LogTree {
    /// Number of events in the tree.
    pub size: i64,
    /// Root hash of the tree, in base64.
    pub root: String,
}

impl From<Incident> for LogIncident {
    fn from(incident: Incident) -> LogIncident {
        let tree = |tree: SignedTree| LogTree { size: i64::try_from(tree.size).unwrap_or(i64::MAX), root: tree.root };
        LogIncident {
            position: incident.position,
            recorded_at: incident.recorded_at.into(),
            origin: incident.event.origin,
            next_origin: incident.event.next_origin,
            signed: incident.event.signed.map(tree),
            kept: incident.event.kept.map(tree),
        }
    }
}

/// Result of adding cosignatures to a checkpoint.
#[derive(Object, Serialize)]
pub struct AcceptedCosignatures {
    /// Names of the witnesses whose cosignatures were accepted.
    pub witnesses: Vec<String>,
}
