//! What the log answers with: notes, bytes, proofs, keys.

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
/// Of a cosigned checkpoint.
const MOST_NOTE_BYTES: usize = 64 << 10;

/// A signed note, as it is.
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
            let text = String::from_utf8(read(body?, MOST_NOTE_BYTES).await?);
            Ok(Self(text.map_err(|_| ApiError::invalid("body", "is not UTF-8"))?))
        }
    }
}

impl_apirequest_for_payload!(NoteText);

/// Bytes, as they are.
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

/// The proof that an event is in a tree.
#[derive(Object, Serialize)]
pub struct InclusionProof {
    /// Which log it is.
    pub origin: String,
    /// Of the tree, which has a leaf for each event.
    pub size: i64,
    /// The tree's root, in base64.
    pub root: String,
    /// The event's; its leaf has the index before it, from 0.
    pub position: i64,
    /// SHA-256 over a zero byte and the event's canonical bytes, in base64.
    pub leaf_hash: String,
    /// Hashes in base64, from the leaf up (RFC 9162, 2.1.3).
    pub proof: Vec<String>,
}

/// The proof that a tree begins with an earlier one.
#[derive(Object, Serialize)]
pub struct ConsistencyProof {
    /// Which log it is.
    pub origin: String,
    /// The size of the earlier tree.
    pub from: i64,
    /// Its root, in base64.
    pub from_root: String,
    /// The size of the later tree.
    pub to: i64,
    /// Its root, in base64.
    pub to_root: String,
    /// Hashes in base64 (RFC 9162, 2.1.4).
    pub proof: Vec<String>,
}

/// A public key of the log.
#[derive(Object, Serialize)]
pub struct LogKey {
    /// `<origin>+<key id>+<base64>`, as C2SP `signed-note` has it.
    pub verifier_key: String,
    /// The size of the first tree that it signed.
    pub since_size: i64,
    /// When that was.
    pub since: Timestamp,
}

/// Who has signed checkpoints of this log, and who may witness them.
#[derive(Object, Serialize)]
pub struct LogKeys {
    /// Which log it is now.
    pub origin: String,
    /// Every key that has ever signed, the oldest first, so that old checkpoints stay verifiable.
    pub keys: Vec<LogKey>,
    /// Verifier keys of the witnesses whose cosignatures are taken.
    pub witnesses: Vec<String>,
    /// Signed events that were lost, the oldest incident first. Each ended an origin.
    pub incidents: Vec<LogIncident>,
}

/// Signed events were lost, and the log went on under another origin.
#[derive(Object, Serialize)]
pub struct LogIncident {
    /// The position of the event that records it.
    pub position: i64,
    /// When that was.
    pub recorded_at: Timestamp,
    /// The origin that has ended.
    pub origin: String,
    /// The origin under which the log went on.
    pub next_origin: String,
    /// The greatest tree that was known to be signed under the old origin.
    pub signed: Option<LogTree>,
    /// The greatest tree under the old origin that the log still had a checkpoint of. Checkpoints of trees that are not
    /// greater, and were signed before the loss, agree with the log.
    pub kept: Option<LogTree>,
}

/// A tree of the log.
#[derive(Object, Serialize)]
pub struct LogTree {
    /// How many events are in it.
    pub size: i64,
    /// Its root, in base64.
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

/// What was taken of a cosigned checkpoint.
#[derive(Object, Serialize)]
pub struct AcceptedCosignatures {
    /// The names of the witnesses.
    pub witnesses: Vec<String>,
}
