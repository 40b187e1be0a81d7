//! The group-committing writer: one task a shard takes every command that waits, decides all of
//! them in one transaction under the head lock, commits, and answers every caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_events::ShardId;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::batch::Batch;
use super::command::{Reply, Submission, WriteError};
use super::connect;
use super::decide::{DecideError, decide_all};
use super::memory::Memory;
use super::wake::Wake;
use crate::access::seal::Keyring;
use crate::telemetry::Metrics;
use ledger_projections::ProjectionError;

/// Most commands in one transaction.
const BATCH_COMMANDS: usize = 512;
/// How long the database may take for everything before COMMIT, and for COMMIT itself.
const PHASE_DEADLINE: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Between two looks for a commit without an answer. Until one succeeds nothing else is written,
/// so that no batch can run twice.
const RESOLVE_PAUSE: Duration = Duration::from_millis(200);

type Replies = Vec<Result<Reply, WriteError>>;

/// How one run of a batch ended.
enum Run {
    Committed {
        replies: Replies,
        grew: bool,
    },
    /// The database refused it before COMMIT, for what is in it.
    Poisoned(String),
    /// It took too long before COMMIT; nothing happened.
    Slow,
    /// The database could not be asked, or would not now; nothing happened.
    Away(String),
    /// COMMIT was sent and not answered.
    Unknown {
        first_event: Uuid,
        replies: Replies,
    },
}

#[derive(Debug, thiserror::Error)]
enum BatchError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error(transparent)]
    Decide(#[from] DecideError),
}

impl BatchError {
    fn database(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Database(error) | Self::Projection(ProjectionError::Database(error)) => Some(error),
            _ => None,
        }
    }

    /// The database gave a statement up for taking too long.
    fn is_slow(&self) -> bool {
        let code = self.database().and_then(|error| error.as_database_error()?.code());
        code.is_some_and(|code| code == "57014")
    }
}

#[derive(Debug)]
pub struct Writer {
    shard: ShardId,
    options: PgConnectOptions,
    keyring: Arc<Keyring>,
    wake: Wake,
    metrics: Metrics,
    queue: mpsc::Receiver<Submission>,
    connection: Option<PgConnection>,
    memory: Memory,
    plans: connect::Plans,
}

impl Writer {
    pub fn new(
        shard: ShardId,
        options: &PgConnectOptions,
        keyring: Arc<Keyring>,
        wake: Wake,
        metrics: Metrics,
        queue: mpsc::Receiver<Submission>,
    ) -> Writer {
        Writer {
            shard,
            options: connect::writer(options, shard),
            keyring,
            wake,
            metrics,
            queue,
            connection: None,
            memory: Memory::default(),
            plans: connect::Plans::default(),
        }
    }

    /// Until every sender is gone and the queue is empty.
    pub async fn run(mut self) {
        let mut waiting = Vec::with_capacity(BATCH_COMMANDS);
        while self.queue.recv_many(&mut waiting, BATCH_COMMANDS).await > 0 {
            self.execute(std::mem::take(&mut waiting)).await;
        }
        if let Some(connection) = self.connection.take() {
            _ = connection.close().await; // the server notices anyway
        }
    }

    /// Runs a batch to its end: answers every caller, bisecting when the database refuses it.
    async fn execute(&mut self, batch: Vec<Submission>) {
        let mut parts = vec![batch];
        while let Some(mut batch) = parts.pop() {
            batch = give_up_expired(batch);
            if batch.is_empty() {
                continue;
            }
            match self.attempt(&batch).await {
                Run::Committed { replies, grew } => self.finish(batch, replies, grew),
                Run::Poisoned(reason) if batch.len() == 1 => {
                    tracing::error!(shard = self.shard, %reason, "the database refuses a command");
                    answer(batch, |_| Err(WriteError::Refused));
                }
                Run::Poisoned(reason) => {
                    tracing::warn!(shard = self.shard, commands = batch.len(), %reason, "the database refuses a batch: bisecting");
                    parts.extend(halves(batch));
                }
                Run::Slow if batch.len() > 1 => {
                    tracing::warn!(shard = self.shard, commands = batch.len(), "a batch takes too long: bisecting");
                    parts.extend(halves(batch));
                }
                Run::Slow => parts.push(batch),
                Run::Away(reason) => {
                    tracing::warn!(shard = self.shard, %reason, "the database is away: nothing was written");
                    tokio::time::sleep(RETRY_PAUSE).await;
                    parts.push(batch);
                }
                Run::Unknown { first_event, replies } => match self.look_for(first_event, &mut batch).await {
                    true => self.finish(batch, replies, true),
                    false => {
                        // Who was told that the outcome is unknown may have asked again: run no more.
                        batch.retain(|submission| submission.reply.is_some());
                        parts.push(batch);
                    }
                },
            }
        }
    }

    fn finish(&self, batch: Vec<Submission>, replies: Replies, grew: bool) {
        if grew {
            self.wake.committed();
        }
        let mut replies = replies.into_iter();
        answer(batch, |_| replies.next().unwrap_or(Err(WriteError::OutcomeUnknown)));
    }

    async fn attempt(&mut self, batch: &[Submission]) -> Run {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match tokio::time::timeout(PHASE_DEADLINE, self.options.connect()).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => return Run::Away(error.to_string()),
                Err(_) => return Run::Away("no connection in time".to_owned()),
            },
        };
        let memory = std::mem::take(&mut self.memory);
        let prepared = tokio::time::timeout(PHASE_DEADLINE, self.prepare(&mut connection, memory, batch)).await;
        let (decided, replies) = match prepared {
            // The connection is dropped, and with it the transaction: COMMIT was not sent.
            Err(_) => return Run::Slow,
            Ok(Err(error)) if error.is_slow() => return Run::Slow,
            Ok(Err(error)) if error.database().is_some_and(connect::is_passing) => return Run::Away(error.to_string()),
            Ok(Err(error)) => {
                self.roll_back(connection).await;
                return Run::Poisoned(error.to_string());
            }
            Ok(Ok(prepared)) => prepared,
        };
        if decided.is_empty() {
            self.roll_back(connection).await;
            self.memory = decided.into_memory();
            return Run::Committed { replies, grew: false };
        }
        let first_event = decided.appended.first().map(|event| event.moment.event_id);
        match tokio::time::timeout(PHASE_DEADLINE, sqlx::raw_sql("COMMIT").execute(&mut connection)).await {
            Ok(Ok(_)) => {
                self.metrics.committed(batch.len(), decided.appended.len(), decided.locked_at.elapsed());
                self.connection = Some(connection);
                self.memory = decided.into_memory();
                Run::Committed { replies, grew: first_event.is_some() }
            }
            // Whatever the error says, only the log tells whether it was committed. Without an
            // event there is nothing that could be done twice.
            Ok(Err(_)) | Err(_) => match first_event {
                Some(first_event) => Run::Unknown { first_event, replies },
                None => Run::Away("COMMIT was not answered".to_owned()),
            },
        }
    }

    /// Everything before COMMIT.
    async fn prepare(
        &self,
        connection: &mut PgConnection,
        memory: Memory,
        submissions: &[Submission],
    ) -> Result<(Batch, Replies), BatchError> {
        if self.plans.are_stale() {
            sqlx::raw_sql("DISCARD PLANS").execute(&mut *connection).await?;
        }
        let mut batch = Batch::load(connection, self.shard, self.keyring.clone(), memory, submissions).await?;
        let replies = decide_all(&mut batch, submissions)?;
        if !batch.is_empty() {
            batch.write(connection).await?;
        }
        Ok((batch, replies))
    }

    /// Keeps a connection whose transaction is over.
    async fn roll_back(&mut self, mut connection: PgConnection) {
        let rolled_back = tokio::time::timeout(PHASE_DEADLINE, sqlx::raw_sql("ROLLBACK").execute(&mut connection)).await;
        if matches!(rolled_back, Ok(Ok(_))) {
            self.connection = Some(connection);
        }
    }

    /// After a COMMIT without an answer: waits the old backend out at the head lock and looks.
    /// Until this is known nothing else is written; callers whose time is up get 504 meanwhile.
    async fn look_for(&mut self, first_event: Uuid, batch: &mut [Submission]) -> bool {
        tracing::warn!(shard = self.shard, %first_event, "COMMIT was not answered: looking for the batch in the log");
        loop {
            match tokio::time::timeout(PHASE_DEADLINE, self.is_in_log(first_event)).await {
                Ok(Ok(found)) => {
                    tracing::warn!(shard = self.shard, %first_event, found, "the outcome of the unanswered COMMIT is known");
                    return found;
                }
                Ok(Err(_)) | Err(_) => self.connection = None,
            }
            let now = Instant::now();
            for submission in batch.iter_mut().filter(|s| s.deadline <= now) {
                // It keeps its place, so that the replies still match.
                if let Some(reply) = submission.reply.take() {
                    _ = reply.send(Err(WriteError::OutcomeUnknown));
                }
            }
            tokio::time::sleep(RESOLVE_PAUSE).await;
        }
    }

    async fn is_in_log(&mut self, event_id: Uuid) -> Result<bool, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        sqlx::raw_sql("BEGIN").execute(&mut connection).await?;
        sqlx::query("SELECT position FROM log_head WHERE shard_id = $1 FOR UPDATE")
            .bind(self.shard)
            .execute(&mut connection)
            .await?;
        let found: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM events WHERE shard_id = $1 AND event_id = $2)")
            .bind(self.shard)
            .bind(event_id)
            .fetch_one(&mut connection)
            .await?;
        sqlx::raw_sql("ROLLBACK").execute(&mut connection).await?;
        self.connection = Some(connection);
        Ok(found)
    }
}

/// The earlier half on top, so that it runs first.
fn halves(mut batch: Vec<Submission>) -> [Vec<Submission>; 2] {
    let later = batch.split_off(batch.len() / 2);
    [later, batch]
}

/// Leaves out what its caller gave up, and what is past its deadline before anything was sent.
fn give_up_expired(batch: Vec<Submission>) -> Vec<Submission> {
    let now = Instant::now();
    let (live, expired): (Vec<_>, Vec<_>) = batch.into_iter().partition(|s| s.claim.take() && s.deadline > now);
    answer(expired, |_| Err(WriteError::Unavailable));
    live
}

fn answer(batch: Vec<Submission>, mut reply: impl FnMut(&Submission) -> Result<Reply, WriteError>) {
    for submission in batch {
        let reply_now = reply(&submission);
        if let Some(reply) = submission.reply {
            _ = reply.send(reply_now); // a caller that went away does not undo its command
        }
    }
}
