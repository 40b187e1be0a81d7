//! A command on its way through the writer: who asks and under which key, who may still give it up, and what
//! comes back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use ledger_events::{Actor, Rejection};
use tokio::sync::oneshot;

use super::answer::Answer;
use super::command::Command;
use super::in_flight::Place;

/// An HTTP answer as it is stored under an idempotency key: an answer to a later request with the
/// same key is this one, byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    pub status: u16,
    pub body: String,
    /// It shows a secret once, so it is sealed at rest.
    pub is_secret: bool,
}

impl fmt::Debug for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendered").field("status", &self.status).finish_non_exhaustive()
    }
}

/// An `Idempotency-Key`, and how the answer is put down.
#[derive(Clone, Copy, Debug)]
pub struct Idempotency {
    /// SHA-256 over account, method, path and key.
    pub key_hash: [u8; 32],
    /// SHA-256 over the parsed request.
    pub fingerprint: [u8; 32],
    pub render: fn(&Answer) -> Result<Rendered, serde_json::Error>,
}

/// What a caller gets back.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The command had no idempotency key.
    Answer(Box<Answer>),
    Rendered {
        rendered: Rendered,
        is_replay: bool,
    },
}

/// Why a caller gets no reply.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Nothing happened: the queue is full, or the database is away.
    #[error("the ledger cannot take this now; nothing happened")]
    Unavailable,
    /// Nothing happened: an earlier request with the same idempotency key is still undecided.
    #[error("a request with the same idempotency key is still undecided")]
    InProgress,
    /// The commit's answer never came.
    #[error("the commit's answer never came")]
    OutcomeUnknown,
    /// Nothing happened: the database refused this very command.
    #[error("the database refused the command")]
    Refused,
}

/// Who asks, and within which request.
#[derive(Clone, Debug)]
pub struct Origin {
    pub actor: Actor,
    pub request_id: String,
}

/// A command in the writer's queue.
#[derive(Debug)]
pub struct Submission {
    pub command: Command,
    pub origin: Origin,
    pub idempotency: Option<Idempotency>,
    pub deadline: Instant,
    pub claim: Claim,
    /// Under its idempotency key, until it is decided: also when its caller is told before that nobody knows.
    pub place: Option<Place>,
    /// None once it was answered.
    pub reply: Option<oneshot::Sender<Result<Reply, WriteError>>>,
}

/// Who decides what becomes of a queued command: the writer that takes it up, or the caller that
/// gives it up at its deadline. Whoever is first.
#[derive(Clone, Debug, Default)]
pub struct Claim(Arc<AtomicU8>);

impl Claim {
    const TAKEN: u8 = 1;
    const GIVEN_UP: u8 = 2;
    const DECIDED: u8 = 3;

    /// For the writer: false when the caller has given the command up, so that it must not run.
    pub fn take(&self) -> bool {
        self.settle(Self::TAKEN)
    }

    /// For the caller: false when the writer is at it, so that its verdict has to be waited for.
    pub fn give_up(&self) -> bool {
        self.settle(Self::GIVEN_UP)
    }

    /// For the writer: the command was not run, and its caller may give it up again.
    pub fn give_back(&self) {
        _ = self.0.compare_exchange(Self::TAKEN, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// For the writer: it has done with the command. One that was given up stays so.
    pub fn decide(&self) {
        _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| (state != Self::GIVEN_UP).then_some(Self::DECIDED));
    }

    /// Whether the command may still happen.
    pub fn is_undecided(&self) -> bool {
        ![Self::GIVEN_UP, Self::DECIDED].contains(&self.0.load(Ordering::Acquire))
    }

    /// Whether the command did not happen and will not.
    pub fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::GIVEN_UP
    }

    fn settle(&self, wanted: u8) -> bool {
        match self.0.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(settled) => settled == wanted,
        }
    }
}
