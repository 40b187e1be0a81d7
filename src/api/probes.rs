//! `/healthz`, `/readyz` and `/metrics`: for those who run the service.

use std::time::Duration;

use poem::{IntoResponse, Response, Route, get};
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Serialize;

use super::browser_headers;
use super::error::{ApiError, Code};
use super::reply::{NoStore, Reply};
use super::state::{State, Tag};
use crate::heartbeat::Pulse;
use crate::ledger::backlog;
use crate::ledger::connect::within;
use crate::ledger::{SchemaError, check_schema};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub const METRICS: &str = "/metrics";
/// How long the database may take to say whether a node is ready.
const ANSWERED: Duration = Duration::from_secs(5);

/// Where each of them is.
pub const PATHS: [&str; 3] = ["/healthz", "/readyz", METRICS];

/// How a node is.
#[derive(Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum ProbeStatus {
    Alive,
    Ready,
}

/// The answer of a probe.
#[derive(Object, Serialize)]
struct Probe {
    /// `alive`, or `ready`.
    status: ProbeStatus,
}

/// Whether a node can work, and how its loops are.
#[derive(Object, Serialize)]
struct Readiness {
    /// `ready`.
    status: ProbeStatus,
    /// The loops of this node, by name. One that has stalled although requests are answered all the same is a reason to look
    /// into the node's log, and to restart the node.
    loops: Vec<LoopState>,
}

/// A loop of a node.
#[derive(Object, Serialize)]
struct LoopState {
    /// What it does, as in the metric `ledger_loop_heartbeat_age_seconds`.
    name: String,
    /// Since its last round began, in seconds; 0 while it waits for work.
    heartbeat_age_seconds: f64,
    /// Whether that is longer than any round takes.
    is_stalled: bool,
}

impl From<Pulse> for LoopState {
    fn from(pulse: Pulse) -> LoopState {
        let is_stalled = pulse.is_stalled();
        LoopState { name: pulse.name, heartbeat_age_seconds: pulse.age.as_secs_f64(), is_stalled }
    }
}

fn fine(status: ProbeStatus) -> NoStore<Reply<Probe>> {
    NoStore(Reply(Probe { status }))
}

/// Metrics in the format of OpenMetrics.
struct OpenMetrics(String);

impl IntoResponse for OpenMetrics {
    fn into_response(self) -> Response {
        Response::builder().content_type(OPEN_METRICS).body(self.0)
    }
}

impl ApiResponse for OpenMetrics {
    fn meta() -> MetaResponses {
        let schema = MetaSchemaRef::Inline(Box::new(MetaSchema::new("string")));
        let content = vec![MetaMediaType { content_type: OPEN_METRICS, schema }];
        let ok = MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers: vec![] };
        MetaResponses { responses: vec![ok] }
    }

    fn register(_: &mut Registry) {}
}

pub struct Probes;

#[OpenApi(tag = "Tag::Probes")]
impl Probes {
    /// Is the process alive
    ///
    /// 200 while the process lives, whatever the database does.
    #[oai(path = "/healthz", method = "get", operation_id = "probe_health")]
    async fn healthz(&self) -> Result<NoStore<Reply<Probe>>, ApiError> {
        Ok(fine(ProbeStatus::Alive))
    }

    /// Can this node work
    ///
    /// 200 when the database answers, its schema is this program's, and the log is append-only for this role; else 503 with
    /// the reason. A loop without which requests fail (`writer`, `gate`, `sessions`) makes it 503
    /// when it has stalled; the others are told in the answer. The database has 5 seconds to answer.
    #[oai(path = "/readyz", method = "get", operation_id = "probe_readiness")]
    async fn readyz(&self, state: State<'_>) -> Result<NoStore<Reply<Readiness>>, ApiError> {
        let pulses = state.ledger.heartbeats().pulses();
        if let Some(Pulse { name, age, .. }) = pulses.iter().find(|pulse| pulse.serves_requests && pulse.is_stalled()) {
            let reason = format!("The loop \"{name}\" of this node has stalled for {} seconds.", age.as_secs());
            return Err(ApiError::new(Code::Unavailable).message(reason));
        }
        match within(ANSWERED, check_schema(state.ledger.pool())).await {
            Ok(()) if state.keyring.current().is_none() => {
                Err(ApiError::new(Code::Unavailable).message("This node does not have the ledger's current master key."))
            }
            Ok(()) => {
                let loops = pulses.into_iter().map(LoopState::from).collect();
                Ok(NoStore(Reply(Readiness { status: ProbeStatus::Ready, loops })))
            }
            Err(SchemaError::Database(error)) => {
                tracing::warn!(%error, "this node is not ready: the database does not answer");
                Err(ApiError::new(Code::Unavailable).message("The database does not answer."))
            }
            Err(reason) => Err(ApiError::new(Code::Unavailable).message(reason.to_string())),
        }
    }

    /// Read the metrics
    ///
    /// For Prometheus: what this node did, and how the ledger is.
    #[oai(path = "/metrics", method = "get", operation_id = "read_metrics")]
    async fn metrics(&self, state: State<'_>) -> Result<OpenMetrics, ApiError> {
        Ok(OpenMetrics(state.metrics.scrape(backlog::query(state.ledger.pool())).await.map_err(ApiError::internal)?))
    }
}

/// The interactive page of a document, complete in itself, and the document.
pub fn add_document(route: Route, page_path: &str, page: String, document_path: &str, document: String) -> Route {
    let route = add_text(route, page_path, "text/html; charset=utf-8", page);
    add_text(route, document_path, super::error::JSON, document)
}

/// A text that is the same for everybody.
pub fn add_text(route: Route, path: &str, content_type: &'static str, text: String) -> Route {
    let policy = content_type.starts_with("text/html").then(|| browser_headers::policy(&text));
    let text = hyper::body::Bytes::from(text);
    let answer = move |_| {
        let mut response = Response::builder().content_type(content_type).body(text.clone());
        browser_headers::protect(policy.as_ref(), &mut response);
        response
    };
    route.at(path, get(poem::endpoint::make_sync(answer)))
}
