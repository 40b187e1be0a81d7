//! The part of a node that takes commands from other nodes: it competes for the leases of shards, and decides what the others
//! hand over.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures::future::join_all;
use ledger_events::ShardId;
use poem::error::{BadRequest, ServiceUnavailable};
use poem::http::StatusCode;
use poem::web::Data;
use poem::{Body, EndpointExt, Response, Route, handler, post};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::descriptors::NODES;
use crate::api;
use crate::http;
use crate::ledger::handover::{Answer, Candidate, HandedCommand, HandedKey, MAX_AGE, Outcome, PATH, RENEW_EVERY, Request};
use crate::ledger::{Idempotency, Ledger, Origin};
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;
use crate::telemetry::traces::{self, TraceParent};

/// Maximum size of a request: more than that of a full batch with the largest metadata.
const MAX_BODY: usize = 6 * 1024 * 1024;
/// Maximum number of requests whose bodies are read at a time. Until a body is whole, it may be anybody's.
const MAX_READING: usize = 16;
/// Time for which the ids of requests are remembered: until they are too old on any clock.
const REMEMBERED: Duration = Duration::from_secs(15);
/// Maximum number of connections from one address.
const PER_ADDRESS: usize = 256;
/// Time for which a node goes on to take commands after it gave its leases back. The others learn of it meanwhile.
const LINGER: Duration = RENEW_EVERY.saturating_mul(2);

/// State of the listener for nodes.
#[derive(Clone, Debug)]
pub struct Inbox {
    node_id: Uuid,
    ledger: Ledger,
    keyring: Arc<Keyring>,
    seen: Seen,
    reading: Arc<Semaphore>,
}

impl Inbox {
    /// Returns the listener's state for the node with this id.
    pub fn new(node_id: Uuid, ledger: Ledger, keyring: Arc<Keyring>) -> Inbox {
        Inbox { node_id, ledger, keyring, seen: Seen::default(), reading: Arc::new(Semaphore::new(MAX_READING)) }
    }

    /// Takes commands from other nodes until `stop` is cancelled.
    ///
    /// # Errors
    /// If the listener has no local address.
    async fn serve(self, listener: TcpListener, metrics: Metrics, stop: CancellationToken) -> io::Result<()> {
        let limits = http::Limits { connections: NODES, per_address: PER_ADDRESS, trusted_proxies: Arc::default() };
        let app = Route::new().at(format!("/{PATH}"), post(take)).data(self).map_to_response();
        http::serve(listener.into(), limits, app, metrics, stop).await
    }
}

/// Competes for the leases of shards and takes commands from other nodes, until stopped. Then gives the leases back, and goes on
/// to take commands until the other nodes know.
///
/// # Errors
/// If the listener has no local address.
pub async fn lead(
    candidate: Candidate,
    inbox: Inbox,
    listener: TcpListener,
    metrics: Metrics,
    stop: CancellationToken,
) -> io::Result<()> {
    let no_commands = CancellationToken::new();
    let leases = async {
        candidate.run(stop).await;
        tokio::time::sleep(LINGER).await;
        no_commands.cancel();
        Ok(())
    };
    tokio::try_join!(inbox.serve(listener, metrics, no_commands.clone()), leases).map(drop)
}

/// Ids of the requests that were taken, with the times at which they were.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<HashMap<Uuid, Instant>>>);

impl Seen {
    /// Returns whether a request is new and recent, and remembers it.
    fn admit(&self, id: Uuid, sent_at: DateTime<Utc>) -> bool {
        let now = Instant::now();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= seen.capacity() {
            seen.retain(|_, taken_at| now.duration_since(*taken_at) < REMEMBERED);
        }
        (Utc::now() - sent_at).abs().to_std().is_ok_and(|age| age <= MAX_AGE) && seen.insert(id, now).is_none()
    }
}

/// Decides the commands of another node.
///
/// A refusal is not sealed, so the other node does not believe it: it tells its callers that the outcome is unknown. Its empty
/// requests keep it from handing over what would be refused.
#[handler]
async fn take(inbox: Data<&Inbox>, body: Body) -> poem::Result<Response> {
    let refused = poem::Error::from_status;
    let Inbox { node_id, ledger, keyring, seen, reading } = inbox.0;
    let permit = reading.acquire().await.map_err(ServiceUnavailable)?;
    let sealed = body.into_bytes_limit(MAX_BODY).await.map_err(BadRequest)?;
    let mut request = Request::open(keyring, &ledger.shards(), &sealed).map_err(|_| refused(StatusCode::FORBIDDEN))?;
    drop(permit);
    if request.node_id != *node_id || !seen.admit(request.id, request.sent_at) {
        return Err(refused(StatusCode::CONFLICT));
    }
    let shard = request.shard;
    let commands: Option<Vec<_>> = std::mem::take(&mut request.commands).into_iter().map(with_key).collect();
    let commands = commands.ok_or_else(|| refused(StatusCode::UNPROCESSABLE_ENTITY))?;
    let outcomes = join_all(commands.into_iter().map(|(command, key)| decide(ledger, shard, command, key))).await;
    let answer = Answer { head: ledger.answered_at().of(shard), outcomes };
    let sealed = request.seal_answer(keyring, &answer).map_err(|_| refused(StatusCode::INTERNAL_SERVER_ERROR))?;
    Ok(Response::builder().body(sealed))
}

/// Returns a command with its idempotency key; none if this node cannot render its response.
fn with_key(mut handed: HandedCommand) -> Option<(HandedCommand, Option<Idempotency>)> {
    let Some(HandedKey { key_hash, fingerprint, renderer }) = handed.idempotency.take() else { return Some((handed, None)) };
    let render = api::renderer(&renderer)?;
    Some((handed, Some(Idempotency { key_hash, fingerprint, render, renderer: None })))
}

async fn decide(ledger: &Ledger, shard: ShardId, handed: HandedCommand, key: Option<Idempotency>) -> Outcome {
    let HandedCommand { command, actor, request_id, traceparent, within_ms, .. } = handed;
    let trace = traceparent.as_deref().and_then(TraceParent::parse);
    let (origin, within) = (Origin { actor, request_id }, Duration::from_millis(within_ms));
    traces::within(trace, ledger.submit_handed(shard, command.into(), origin, key, within)).await.into()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_request_is_taken_once_and_only_while_it_is_recent() {
        let (seen, id, now) = (Seen::default(), Uuid::now_v7(), Utc::now());
        assert!(seen.admit(id, now));
        assert!(!seen.admit(id, now), "again");
        for age in [TimeDelta::seconds(10), TimeDelta::seconds(-10)] {
            assert!(!seen.admit(Uuid::now_v7(), now - age), "{age}");
        }
        assert!(seen.admit(Uuid::now_v7(), now - TimeDelta::seconds(1)));
    }
}
