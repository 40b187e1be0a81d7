//! `/healthz`, `/readyz` and `/metrics`: for those who run the service.

use poem::http::header;
use poem::{IntoResponse, Response, Route, get, handler};
use serde::Serialize;

use super::error::{ApiError, Code};
use super::reply::render;
use super::state::State;
use crate::ledger::{SchemaError, check_schema};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

fn fine(status: &'static str) -> poem::Result<Response> {
    let body = render(&Status { status }).map_err(ApiError::internal)?;
    Ok(Response::builder().content_type(super::error::JSON).header(header::CACHE_CONTROL, "no-store").body(body))
}

/// 200 while the process lives.
#[handler]
async fn healthz() -> poem::Result<Response> {
    fine("alive")
}

/// 200 when the database answers, its schema is this program's, the log is append-only for this
/// role, and this node does not refuse to sign it; else 503 with the reason.
#[handler]
async fn readyz(state: State<'_>) -> poem::Result<Response> {
    match check_schema(state.ledger.pool()).await {
        Ok(()) => match state.public_log.standing.refusal() {
            None => fine("ready"),
            Some((shard, refusal)) => {
                let reason = format!("The transparency log of shard {shard} is not signed: {refusal}.");
                Err(ApiError::new(Code::Unavailable).message(reason).into())
            }
        },
        Err(SchemaError::Database(error)) => {
            tracing::warn!(%error, "this node is not ready: the database does not answer");
            Err(ApiError::new(Code::Unavailable).message("The database does not answer.").into())
        }
        Err(reason) => Err(ApiError::new(Code::Unavailable).message(reason.to_string()).into()),
    }
}

#[handler]
async fn metrics(state: State<'_>) -> poem::Result<Response> {
    let text = state.metrics.scrape(state.ledger.pool()).await.map_err(ApiError::internal)?;
    Ok(text.with_content_type(OPEN_METRICS).into_response())
}

pub fn add(route: Route) -> Route {
    route.at("/healthz", get(healthz)).at("/readyz", get(readyz)).at("/metrics", get(metrics))
}

/// The interactive page of a document, complete in itself, and the document.
pub fn add_document(route: Route, page_path: &str, page: String, document_path: &str, document: String) -> Route {
    let route = add_text(route, page_path, "text/html; charset=utf-8", page);
    add_text(route, document_path, super::error::JSON, document)
}

/// A text that is the same for everybody.
pub fn add_text(route: Route, path: &str, content_type: &'static str, text: String) -> Route {
    let text = hyper::body::Bytes::from(text);
    let answer = move |_| Response::builder().content_type(content_type).body(text.clone());
    route.at(path, get(poem::endpoint::make_sync(answer)))
}
