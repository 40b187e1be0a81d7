//! Requests of a writer to the leader of its shard.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_events::ShardId;
use reqwest::StatusCode;
use tokio::task::{Id, JoinSet};

use super::leader::{Leader, Leaders};
use super::{Answer, PATH, Request, is_handed};
use crate::ledger::submission::Submission;
use crate::response_body;
use crate::secrets::seal::Keyring;

/// Maximum number of requests in flight to a leader. What arrives meanwhile waits, and shares the next request.
const MAX_IN_FLIGHT: usize = 4;
/// Age of an unanswered request from which this node writes new commands itself.
const STALLED: Duration = Duration::from_millis(500);
/// Maximum size of an answer, in bytes: more than that of a full batch with the largest metadata.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// Time for which this node writes commands itself after a request failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Requests of one writer to the leader of its shard.
#[derive(Debug)]
pub struct Handovers {
    shard: ShardId,
    leaders: Leaders,
    keyring: Arc<Keyring>,
    in_flight: JoinSet<Returned>,
    /// Time at which each request in flight was sent, by its task.
    sent_at: HashMap<Id, Instant>,
    paused_until: Option<Instant>,
}

/// Commands that were handed over, and their answer.
#[derive(Debug)]
pub struct Returned {
    pub submissions: Vec<Submission>,
    pub answer: Result<Answer, HandoverError>,
}

/// Reason why handed-over commands have no answer.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The leader did not get the request. Nothing happened.
    #[error("the leader did not take the commands: {0}")]
    NotTaken(String),
    /// The commands may happen.
    #[error("the leader did not answer: {0}")]
    Unanswered(String),
}

impl Handovers {
    pub fn new(shard: ShardId, leaders: Leaders, keyring: Arc<Keyring>) -> Handovers {
        Handovers { shard, leaders, keyring, in_flight: JoinSet::new(), sent_at: HashMap::new(), paused_until: None }
    }

    /// Returns whether the writer may take more commands from its queue now. False only while another request to a leader that
    /// answers is worth waiting for.
    pub fn have_room(&self) -> bool {
        self.in_flight.len() < MAX_IN_FLIGHT || self.leader().is_none()
    }

    /// Returns the leader, if it is another node that answers.
    fn leader(&self) -> Option<Leader> {
        let now = Instant::now();
        let is_stalled = self.sent_at.values().any(|sent_at| now.duration_since(*sent_at) >= STALLED);
        if is_stalled || self.paused_until.is_some_and(|until| until > now) {
            return None;
        }
        self.leaders.elsewhere(self.shard)
    }

    /// Hands commands to the leader if there is one. Returns those that this node decides itself.
    pub fn hand_over(&mut self, submissions: Vec<Submission>) -> Vec<Submission> {
        let Some(leader) = self.leader() else { return submissions };
        let (handed, own): (Vec<_>, Vec<_>) = submissions.into_iter().partition(is_handed);
        if handed.is_empty() {
            return own;
        }
        let (request, keyring) = (Request::new(self.shard, leader.node_id, &handed), self.keyring.clone());
        let task = self.in_flight.spawn(async move {
            let answer = send(&leader, &keyring, &request).await;
            Returned { submissions: handed, answer }
        });
        self.sent_at.insert(task.id(), Instant::now());
        own
    }

    /// Waits for the answer to a request, or until the oldest one has stalled: then there is nothing to conclude, but the leader
    /// gets no more commands. Pends forever if no request is in flight. Cancel-safe.
    pub async fn returned(&mut self) -> Option<Returned> {
        let oldest = self.sent_at.values().min().copied();
        let stalls = async {
            match oldest.map(|oldest| oldest + STALLED) {
                Some(at) if at > Instant::now() => tokio::time::sleep_until(at.into()).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(joined) = self.in_flight.join_next_with_id() => match joined {
                Ok((task, returned)) => {
                    self.sent_at.remove(&task);
                    if returned.answer.is_err() {
                        self.paused_until = Some(Instant::now() + PAUSE);
                    }
                    Some(returned)
                }
                Err(error) => {
                    // Its callers learn that the outcome is unknown, because their channels are closed.
                    self.sent_at.remove(&error.id());
                    tracing::error!(shard = self.shard, %error, "a handover ended unexpectedly");
                    None
                }
            },
            () = stalls => None,
        }
    }

    pub fn are_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }
}

/// Sends commands to a leader, and waits for its answer. Only a node of this ledger can answer. Anything else leaves the outcome
/// open, because somebody between the nodes may have sent it.
pub(super) async fn send(leader: &Leader, keyring: &Keyring, request: &Request) -> Result<Answer, HandoverError> {
    let not_taken = |error: &dyn Error| HandoverError::NotTaken(chain(error));
    let unanswered = |error: &dyn Error| HandoverError::Unanswered(chain(error));
    let url = leader.url.join(PATH).map_err(|error| not_taken(&error))?;
    let sealed = request.seal(keyring).map_err(|error| not_taken(&error))?;
    let mut response = leader.http.post(url).body(sealed).send().await.map_err(|error| match error.is_connect() {
        true => not_taken(&error.without_url()),
        false => unanswered(&error.without_url()),
    })?;
    if response.status() != StatusCode::OK {
        return Err(HandoverError::Unanswered(format!("status {}", response.status())));
    }
    let sealed = response_body::up_to(MAX_ANSWER, &mut response).await.map_err(|error| unanswered(&error.without_url()))?;
    let sealed = sealed.ok_or_else(|| HandoverError::Unanswered("the answer is too long".to_owned()))?;
    request.open_answer(keyring, &sealed).map_err(|error| unanswered(&error))
}

/// Returns an error with its causes, which the errors of HTTP leave out.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
