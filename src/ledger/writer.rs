//! The group-committing writer: one task a shard takes every command that waits, decides all of
//! them, writes what was decided in one transaction, and answers every caller.
//!
//! What a decision stands on is exact in one of two ways. Either the head is locked first, rows are
//! loaded, and the decisions written before it is let go. Or, for the commands that come by the
//! thousand, decisions are made on what the last batch left in memory, and one statement writes
//! them only if the head still stands where that batch left it: then nobody else has written. So
//! the next batch is decided while the last one is on its way to the disk, and the head is held
//! for no longer than one statement takes (`ahead`). Whatever goes wrong there goes the first way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_database::{Connector, PgConnection};
use ledger_events::ShardId;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::batch::Batch;
use super::connect;
use super::decide::{DecideError, decide_all};
use super::memory::{Memory, Recent};
use super::submission::{Reply, Submission, WriteError};
use super::wake::Wake;
use crate::batching;
use crate::heartbeat::Heartbeat;
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;
use ledger_projections::ProjectionError;

mod ahead;

use ahead::{Clock, Flight, Open, landed};

/// Most commands in one transaction.
const BATCH_COMMANDS: usize = 512;
/// How long the database may take for everything before COMMIT, and for COMMIT itself.
const PHASE_DEADLINE: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Between two looks for a commit without an answer. Until one succeeds nothing else is written,
/// so that no batch can run twice.
const RESOLVE_PAUSE: Duration = Duration::from_millis(200);
/// How long the head is locked first after somebody else was seen to write to the shard.
const SHARED: Duration = Duration::from_secs(1);

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
    /// What was remembered is not what is there, or may not be; nothing happened.
    Moved,
    /// COMMIT was sent and not answered.
    Unknown {
        first_event: Uuid,
        events: usize,
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
    connector: Connector,
    keyring: Arc<Keyring>,
    wake: Wake,
    metrics: Metrics,
    queue: mpsc::Receiver<Submission>,
    heartbeat: Heartbeat,
    connection: Option<PgConnection>,
    plans: connect::Plans,
    /// For what an open batch needs to know while `connection` writes the one before it.
    reading: Option<PgConnection>,
    reading_connector: Connector,
    reading_plans: connect::Plans,
    /// What this writer's last batch, or the one in flight, leaves to the next one.
    memory: Option<(Memory, Recent)>,
    clock: Option<Clock>,
    /// Somebody else writes to this shard, too: until then the head is locked first.
    shared_until: Option<Instant>,
    open: Option<Open>,
    flight: Option<Flight>,
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
            connector: connect::writer(options, shard),
            keyring,
            wake,
            heartbeat: metrics.heartbeats().serving(format!("writer {shard}")),
            metrics,
            queue,
            connection: None,
            plans: connect::Plans::default(),
            reading: None,
            reading_connector: connect::writer_reading(options, shard),
            reading_plans: connect::Plans::default(),
            memory: None,
            clock: None,
            shared_until: None,
            open: None,
            flight: None,
        }
    }

    /// Until every sender is gone and the queue is empty.
    pub async fn run(mut self) {
        let mut waiting = Vec::with_capacity(BATCH_COMMANDS);
        loop {
            match self.flight {
                Some(_) => self.heartbeat.beat(),
                None => self.heartbeat.rest(),
            }
            let room = BATCH_COMMANDS - self.open.as_ref().map_or(0, |open| open.submissions.len());
            tokio::select! {
                biased;
                landing = landed(&mut self.flight) => self.settle(landing).await,
                taken = self.queue.recv_many(&mut waiting, room), if room > 0 => match taken {
                    0 => break,
                    _ => {
                        self.heartbeat.beat();
                        batching::gather(&mut self.queue, &mut waiting, room).await;
                        self.take_up(std::mem::take(&mut waiting)).await;
                    }
                },
            }
            if self.flight.is_none() {
                self.send_open().await;
            }
        }
        self.settle_all().await;
        for connection in [self.connection.take(), self.reading.take()].into_iter().flatten() {
            _ = connection.close().await; // the server notices anyway
        }
    }

    /// Runs a batch to its end, the head locked first: answers every caller, bisecting when the
    /// database refuses it.
    async fn execute(&mut self, batch: Vec<Submission>) {
        self.execute_parts(vec![batch]).await;
    }

    /// The last part first.
    async fn execute_parts(&mut self, mut parts: Vec<Vec<Submission>>) {
        while let Some(batch) = parts.pop() {
            self.heartbeat.beat();
            let batch = give_up_expired(batch);
            if !batch.is_empty() {
                let run = self.attempt(&batch).await;
                parts.extend(self.conclude(batch, run).await);
            }
        }
    }

    /// What follows from how a batch went: answers its callers, or returns what is to be run again,
    /// the last part first.
    async fn conclude(&mut self, mut batch: Vec<Submission>, run: Run) -> Vec<Vec<Submission>> {
        match run {
            Run::Committed { replies, grew } => {
                self.finish(batch, replies, grew);
                vec![]
            }
            Run::Moved => vec![batch],
            Run::Poisoned(reason) if batch.len() == 1 => {
                tracing::error!(shard = self.shard, %reason, "the database refuses a command");
                answer(batch, |_| Err(WriteError::Refused));
                vec![]
            }
            Run::Poisoned(reason) => {
                tracing::warn!(shard = self.shard, commands = batch.len(), %reason, "the database refuses a batch: bisecting");
                halves(batch).into()
            }
            Run::Slow if batch.len() > 1 => {
                tracing::warn!(shard = self.shard, commands = batch.len(), "a batch takes too long: bisecting");
                halves(batch).into()
            }
            Run::Slow => vec![batch],
            Run::Away(reason) => {
                tracing::warn!(shard = self.shard, %reason, "the database is away: nothing was written");
                tokio::time::sleep(RETRY_PAUSE).await;
                vec![batch]
            }
            Run::Unknown { first_event, events, replies } => match self.look_for(first_event, &mut batch).await {
                true => {
                    self.metrics.committed(batch.len(), events, None);
                    self.finish(batch, replies, true);
                    vec![]
                }
                false => {
                    // Who was told that the outcome is unknown may have asked again: run no more.
                    batch.retain(|submission| submission.reply.is_some());
                    vec![batch]
                }
            },
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
            None => match self.connector.connect().await {
                Ok(connection) => connection,
                Err(error) => return Run::Away(error.to_string()),
            },
        };
        let memory = self.memory.take().map(|(memory, _)| memory);
        let is_remembered = memory.is_some();
        let memory = memory.unwrap_or_default();
        let prepared = tokio::time::timeout(PHASE_DEADLINE, self.prepare(&mut connection, memory, batch)).await;
        let (decided, replies) = match prepared {
            // The connection is dropped, and with it the transaction: COMMIT was not sent.
            Err(_) => return Run::Slow,
            Ok(Err(error)) if error.is_slow() => return Run::Slow,
            Ok(Err(error)) if error.database().is_some_and(connect::is_passing) => return Run::Away(error.to_string()),
            Ok(Err(error)) => {
                self.roll_back(connection).await;
                // It may be what was remembered that the database does not take, such as ids that were drawn before a
                // failover and have been drawn again since.
                return if is_remembered { Run::Moved } else { Run::Poisoned(error.to_string()) };
            }
            Ok(Ok(prepared)) => prepared,
        };
        if decided.is_empty() {
            if self.roll_back(connection).await {
                self.remember(decided);
            }
            return Run::Committed { replies, grew: false };
        }
        let first_event = decided.appended.first().map(|event| event.moment.event_id);
        match tokio::time::timeout(PHASE_DEADLINE, sqlx::raw_sql("COMMIT").execute(&mut connection)).await {
            Ok(Ok(_)) => {
                self.metrics.committed(batch.len(), decided.appended.len(), Some(decided.locked_at.elapsed()));
                self.connection = Some(connection);
                self.remember(decided);
                Run::Committed { replies, grew: first_event.is_some() }
            }
            // Whatever the error says, only the log tells whether it was committed. Without an
            // event there is nothing that could be done twice.
            Ok(Err(_)) | Err(_) => unanswered(first_event, decided.appended.len(), replies),
        }
    }

    /// What a batch that was run under the head lock leaves to the next one.
    fn remember(&mut self, batch: Batch) {
        self.clock = Some(Clock { time: batch.now, read_at: batch.locked_at });
        self.memory = Some((batch.into_memory().0, Recent::default()));
    }

    /// Everything before COMMIT.
    async fn prepare(
        &mut self,
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

    /// Keeps a connection whose transaction is over. False if it could not be asked: nothing that was read on it is to be
    /// remembered then, for the next connection may lead to another server.
    async fn roll_back(&mut self, mut connection: PgConnection) -> bool {
        let rolled_back = tokio::time::timeout(PHASE_DEADLINE, sqlx::raw_sql("ROLLBACK").execute(&mut connection)).await;
        let is_well = matches!(rolled_back, Ok(Ok(_)));
        if is_well {
            self.connection = Some(connection);
        }
        is_well
    }

    /// After a COMMIT without an answer: waits the old backend out at the head lock, looks, and sees
    /// to it that what was not committed never will be.
    /// Until this is known nothing else is written; callers whose time is up get 504 meanwhile.
    async fn look_for(&mut self, first_event: Uuid, batch: &mut [Submission]) -> bool {
        tracing::warn!(shard = self.shard, %first_event, "COMMIT was not answered: looking for the batch in the log");
        loop {
            self.heartbeat.beat();
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
        let mut connection = self.connector.connect().await?;
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
        if !found {
            // The one statement may still be on its way to the server, where it has locked nothing
            // yet: when it comes it must not find the head that it was made for.
            sqlx::query("UPDATE log_head SET epoch = epoch + 1 WHERE shard_id = $1")
                .bind(self.shard)
                .execute(&mut connection)
                .await?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut connection).await?;
        self.connection = Some(connection);
        Ok(found)
    }
}

/// Only the log tells whether it was committed. Without an event there is nothing that could be
/// done twice.
fn unanswered(first_event: Option<Uuid>, events: usize, replies: Replies) -> Run {
    match first_event {
        Some(first_event) => Run::Unknown { first_event, events, replies },
        None => Run::Away("COMMIT was not answered".to_owned()),
    }
}

/// One batch, unless there are commands in it that are decided alone: the last part first.
fn parts(submissions: Vec<Submission>) -> Vec<Vec<Submission>> {
    let mut parts: Vec<Vec<Submission>> = vec![];
    for submission in submissions {
        match parts.last_mut() {
            Some(part) if !submission.command.is_alone() && !part.iter().any(|other| other.command.is_alone()) => {
                part.push(submission)
            }
            _ => parts.push(vec![submission]),
        }
    }
    parts.reverse();
    parts
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
