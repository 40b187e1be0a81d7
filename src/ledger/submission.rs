//! A command on its way through the writer, and the reply to its caller.

use std::time::Instant;

use ledger_events::{Rejection, ShardId};
use tokio::sync::oneshot;

use super::command_result::CommandResult;
use super::commands::Command;
use super::context::{Idempotency, Origin, StoredResponse};
use super::in_flight::{CommandState, InFlightGuard};
use crate::telemetry::traces::{self, OpenSpan, SpanKind, TraceParent, Traces};

/// The reply to a caller whose command was decided.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The command had no idempotency key.
    Result(Box<CommandResult>),
    /// The command had an idempotency key. `is_replay` is true if an earlier request stored the response.
    Stored { response: StoredResponse, is_replay: bool },
}

/// The reason why a caller gets no reply.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Nothing happened: the queue is full, or the database is unavailable.
    #[error("the ledger cannot take this now; nothing happened")]
    Unavailable,
    /// Nothing happened: an earlier request with the same idempotency key is still undecided.
    #[error("a request with the same idempotency key is still undecided")]
    InProgress,
    /// The answer to COMMIT is lost. The command may have happened.
    #[error("the commit's answer never came")]
    OutcomeUnknown,
    /// Nothing happened: the database refused this command.
    #[error("the database refused the command")]
    Refused,
}

impl WriteError {
    /// Returns the error for a caller that came after others with the same idempotency key. `are_given_up` is true if none of
    /// those commands happened or will.
    ///
    /// Otherwise one of them may still be executed, or was in the meantime: then nobody is told that nothing happened.
    pub fn beside(self, are_given_up: bool) -> WriteError {
        match self {
            WriteError::Unavailable if !are_given_up => WriteError::InProgress,
            error => error,
        }
    }
}

/// Part of a command in a trace.
#[derive(Debug)]
pub struct CommandTrace {
    /// Place that the command's events continue: its span, or else that of the request. None outside of a trace.
    pub place: Option<TraceParent>,
    /// Span of the command until it is decided, on a node that exports traces.
    span: Option<OpenSpan>,
}

impl CommandTrace {
    /// Begins the span of a command in the trace of the current task.
    pub fn begin(traces: &Traces, name: &'static str, shard: ShardId) -> CommandTrace {
        let parent = traces::current();
        let mut span = traces.begin(name, SpanKind::Internal, parent);
        if let Some(span) = &mut span {
            span.set("shard", i64::from(shard));
        }
        CommandTrace { place: span.as_ref().map(OpenSpan::place).or(parent), span }
    }

    /// Ends the span with what the caller is told. The text of an error stays out, because it may quote the request.
    pub fn end(&mut self, reply: &Result<Reply, WriteError>) {
        let Some(mut span) = self.span.take() else { return };
        match reply {
            Ok(Reply::Stored { is_replay: true, .. }) => span.set("outcome", "repeated"),
            Ok(_) => span.set("outcome", "committed"),
            Err(WriteError::Rejected(_)) => span.set("outcome", "rejected"),
            Err(WriteError::Unavailable | WriteError::InProgress) => span.fail("unavailable"),
            Err(WriteError::OutcomeUnknown) => span.fail("the outcome is unknown"),
            Err(WriteError::Refused) => span.fail("refused by the database"),
        }
    }
}

/// A command in the writer's queue.
#[derive(Debug)]
pub struct Submission {
    pub command: Command,
    pub origin: Origin,
    pub idempotency: Option<Idempotency>,
    pub trace: CommandTrace,
    pub deadline: Instant,
    /// Whether another node has handed the command over, so that it is decided here.
    pub is_from_node: bool,
    pub state: CommandState,
    /// Keeps the command registered under its idempotency key until it is decided. A caller that gets 504 does not end it.
    pub guard: Option<InFlightGuard>,
    /// None once the caller has its reply.
    pub reply: Option<oneshot::Sender<Result<Reply, WriteError>>>,
}
