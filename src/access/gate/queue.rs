//! The queue in front of the database: one statement serves all requests that wait.

use std::sync::Arc;
use std::time::Duration;

use ledger_database::replanned;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::Verdict;
use super::request::GateRequest;
use super::statement::answer;
use crate::access::AccessError;
use crate::batching;
use crate::heartbeat::Heartbeat;
use crate::ledger::connect::{self, DedicatedConnection};
use crate::secrets::seal::Keyring;

/// Maximum number of requests in one statement, and maximum that may wait.
const BATCH_REQUESTS: usize = 1_024;
const QUEUE_REQUESTS: usize = 8_192;
/// Longest time that a request waits for the database before the gate refuses it.
const DEADLINE: Duration = Duration::from_secs(10);
/// Timeout of one statement: slightly longer than the database's own statement timeout.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(6);

#[derive(Debug)]
struct WaitingRequest {
    request: GateRequest,
    reply: oneshot::Sender<Result<Verdict, AccessError>>,
}

/// Handle to the queue's task. Cheap to clone. The task ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub(super) struct GateQueue(mpsc::Sender<WaitingRequest>);

impl GateQueue {
    pub fn start(dedicated: DedicatedConnection, keyring: Arc<Keyring>, heartbeat: Heartbeat, tasks: &TaskTracker) -> GateQueue {
        let (requests, waiting) = mpsc::channel(QUEUE_REQUESTS);
        tasks.spawn(answer_all(dedicated, keyring, heartbeat, waiting));
        GateQueue(requests)
    }

    /// Queues a request and waits for its verdict.
    pub async fn put(&self, request: GateRequest) -> Result<Verdict, AccessError> {
        let (reply, answer) = oneshot::channel();
        self.0.try_send(WaitingRequest { request, reply }).map_err(|_| AccessError::Unavailable)?;
        match tokio::time::timeout(DEADLINE, answer).await {
            Ok(Ok(verdict)) => verdict,
            _ => Err(AccessError::Unavailable),
        }
    }
}

async fn answer_all(
    dedicated: DedicatedConnection,
    keyring: Arc<Keyring>,
    heartbeat: Heartbeat,
    mut waiting: mpsc::Receiver<WaitingRequest>,
) {
    let mut batch = Vec::with_capacity(BATCH_REQUESTS);
    loop {
        heartbeat.rest();
        if waiting.recv_many(&mut batch, BATCH_REQUESTS).await == 0 {
            return;
        }
        heartbeat.beat();
        batching::gather(&mut waiting, &mut batch, BATCH_REQUESTS).await;
        let requests: Vec<GateRequest> = batch.iter().map(|waiting| waiting.request).collect();
        match connect::within(STATEMENT_TIMEOUT, replanned(|| answer(&dedicated, &keyring, &requests, None))).await {
            Ok(verdicts) => {
                for (waiting, verdict) in batch.drain(..).zip(verdicts) {
                    _ = waiting.reply.send(Ok(verdict)); // the caller may have stopped waiting
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to look up API keys and rate limits");
                for waiting in batch.drain(..) {
                    _ = waiting.reply.send(Err(AccessError::Unavailable));
                }
            }
        }
    }
}
