//! `/healthz`, `/readyz` and `/metrics`: endpoints for the service's operators.

use std::time::Duration;

use poem::{IntoResponse, Response, Route, get};
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Serialize;

use super::browser_headers;
use super::error::{ApiError, Code};
use super::reply::{NoStore, Reply};
use super::state::{ApiState, State, Tag};
use crate::heartbeat::Pulse;
use crate::ledger::backlog;
use crate::ledger::connect::within;
use crate::ledger::{SchemaError, check_schema};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub const METRICS: &str = "/metrics";
/// Timeout of the readiness check's database query.
const ANSWERED: Duration = Duration::from_secs(5);

/// Paths of all probes.
pub const PATHS: [&str; 3] = ["/healthz", "/readyz", METRICS];

/// Health of a node.
#[derive(Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum ProbeStatus {
    Alive,
    Ready,
}

/// The response of the liveness probe.
#[derive(Object, Serialize)]
struct Probe {
    /// Health of the node: `alive`.
    status: ProbeStatus,
}

/// The response of the readiness probe: the node's status and its background loops.
#[derive(Object, Serialize)]
struct Readiness {
    /// Health of the node: `ready`.
    status: ProbeStatus,
    /// Background loops of this node, by name. If one has stalled although the node answers requests, check the node's log
    /// and restart the node.
    loops: Vec<LoopState>,
}

/// State of one background loop of a node.
#[derive(Object, Serialize)]
pub struct LoopState {
    /// Name of the loop, as in the metric `ledger_loop_heartbeat_age_seconds`.
    name: String,
    /// Seconds since the loop's latest round began; 0 while it waits for work.
    heartbeat_age_seconds: f64,
    /// Whether the heartbeat is older than any round takes.
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

/// Metrics in the OpenMetrics format.
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

/// Returns the reason why this node cannot serve requests, if there is one.
pub async fn obstacle(state: &ApiState, pulses: &[Pulse]) -> Option<String> {
    if state.leaving.is_cancelled() {
        return Some("This node is stopping.".to_owned());
    }
    if let Some(reason) = stalled(pulses) {
        return Some(reason);
    }
    match within(ANSWERED, check_schema(state.ledger.pool())).await {
        Ok(()) if state.keyring.current().is_none() => {
            Some("This node does not have the ledger's current master key.".to_owned())
        }
        Ok(()) => None,
        Err(SchemaError::Database(error)) => {
            tracing::warn!(%error, "node is not ready: database does not answer");
            Some("The database does not answer.".to_owned())
        }
        Err(reason) => Some(reason.to_string()),
    }
}

/// Builds the response of the readiness probe.
fn readiness(obstacle: Option<String>, pulses: Vec<Pulse>) -> Result<NoStore<Reply<Readiness>>, ApiError> {
    match obstacle {
        Some(reason) => Err(ApiError::new(Code::Unavailable).message(reason)),
        None => {
            let loops = pulses.into_iter().map(LoopState::from).collect();
            Ok(NoStore(Reply(Readiness { status: ProbeStatus::Ready, loops })))
        }
    }
}

/// Names a loop that requests depend on and that has stalled, if there is one.
fn stalled(pulses: &[Pulse]) -> Option<String> {
    let Pulse { name, age, .. } = pulses.iter().find(|pulse| pulse.serves_requests && pulse.is_stalled())?;
    Some(format!("The loop \"{name}\" of this node has stalled for {} seconds.", age.as_secs()))
}

pub struct Probes;

#[OpenApi(tag = "Tag::Probes")]
impl Probes {
    /// Check liveness
    ///
    /// Returns 200 while the process runs, whatever the state of the database.
    #[oai(path = "/healthz", method = "get", operation_id = "probe_health")]
    async fn healthz(&self) -> Result<NoStore<Reply<Probe>>, ApiError> {
        Ok(fine(ProbeStatus::Alive))
    }

    /// Check readiness
    ///
    /// Returns 200 if this node can serve requests:
    ///
    /// - The database answers within 5 seconds, and its schema matches this program.
    /// - The log is append-only for this database role.
    /// - The node has the ledger's current master key.
    /// - No loop that requests depend on (`writer`, `gate`, `sessions`) has stalled.
    /// - The node is not about to stop.
    ///
    /// Otherwise it returns 503 with the reason. The response with status 200 lists all loops, stalled ones included.
    #[oai(path = "/readyz", method = "get", operation_id = "probe_readiness")]
    async fn readyz(&self, state: State<'_>) -> Result<NoStore<Reply<Readiness>>, ApiError> {
        let pulses = state.ledger.heartbeats().pulses();
        readiness(obstacle(&state, &pulses).await, pulses)
    }

    /// Retrieve metrics
    ///
    /// Returns this node's counters and the state of the ledger, in the OpenMetrics format for Prometheus.
    #[oai(path = "/metrics", method = "get", operation_id = "read_metrics")]
    async fn metrics(&self, state: State<'_>) -> Result<OpenMetrics, ApiError> {
        Ok(OpenMetrics(state.metrics.scrape(backlog::query(state.ledger.pool())).await.map_err(ApiError::internal)?))
    }
}

/// Adds routes for a document and its interactive page, which loads no other resource.
pub fn add_document(route: Route, page_path: &str, page: String, document_path: &str, document: String) -> Route {
    let route = add_text(route, page_path, "text/html; charset=utf-8", page);
    add_text(route, document_path, super::error::JSON, document)
}

/// Adds a route for a static text.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heartbeat::Heartbeats;

    #[tokio::test]
    async fn a_stalled_loop_that_serves_requests_makes_readiness_503_with_its_name() {
        let hearts = Heartbeats::default();
        let (gate, purge) = (hearts.serving("gate"), hearts.background("purge"));
        purge.stall();
        let pulses = hearts.pulses();
        let Ok(NoStore(Reply(ready))) = readiness(stalled(&pulses), pulses) else { panic!("requests need no purge") };
        let shown: Vec<_> = ready.loops.iter().map(|state| (state.name.as_str(), state.is_stalled)).collect();
        assert_eq!(shown, [("gate", false), ("purge", true)]);

        gate.stall();
        let pulses = hearts.pulses();
        let Err(error) = readiness(stalled(&pulses), pulses) else { panic!("requests need the gate") };
        let response = poem::Error::from(error).into_response();
        assert_eq!(response.status(), poem::http::StatusCode::SERVICE_UNAVAILABLE);
        let body = response.into_body().into_string().await.unwrap();
        assert!(body.contains(r#"The loop \"gate\" of this node has stalled for "#), "{body}");
    }
}
