//! The group-committing writer. One task per shard takes every command that waits, decides all of them, writes the batch in
//! one transaction, and replies to every caller.
//!
//! The state that a decision is based on is exact in one of two ways:
//!
//! - The writer locks the head first, loads rows, decides, and writes before it releases the head.
//! - For pipelined commands, the writer decides on the state that the last batch left in the cache. One statement writes the
//!   batch, only if the head still stands where the last batch left it: then nobody else has written.
//!
//! So the writer decides the next batch while the last one is on its way to the disk ([`pipeline`]). It holds the head for
//! one statement only. Whatever fails there is run again in the first way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_database::{Connector, PgConnectOptions, PgConnection, is_plan_outdated};
use ledger_events::{Position, ShardId};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::batch::Batch;
use super::cache::{HeadState, UnflushedState, WriterCache};
use super::commands::DecideError;
use super::connect;
use super::decide::{decide_all, reads_of};
use super::handover::{Handovers, Leaders};
use super::submission::{Reply, Submission, WriteError};
use super::wake::Wake;
use crate::batching;
use crate::heartbeat::Heartbeat;
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;
use ledger_projections::ProjectionError;

mod handed;
mod parts;
mod pipeline;

use parts::{give_up_expired, halves, parts, reply_all};
use pipeline::{Clock, InFlightBatch, OpenBatch, completion};

/// Maximum number of commands in one transaction.
const BATCH_COMMANDS: usize = 512;
/// Deadline of the database for everything before COMMIT, and for COMMIT itself.
const PHASE_DEADLINE: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two attempts to find out whether a batch was committed. Until one succeeds the writer writes nothing else,
/// so that no batch can run twice.
const RESOLVE_PAUSE: Duration = Duration::from_millis(200);
/// Time without pipelining after another node has written to the shard.
const SHARED: Duration = Duration::from_secs(1);

type Replies = Vec<Result<Reply, WriteError>>;

/// The outcome of one attempt to run a batch.
enum BatchOutcome {
    /// The batch is committed. `grew` says whether it appended events.
    Committed { replies: Replies, grew: bool },
    /// The database refused the batch before COMMIT, because of its content.
    Poisoned(String),
    /// The batch took too long before COMMIT. Nothing happened.
    Slow,
    /// The database was unreachable, or refused to work now. Nothing happened.
    Unavailable(String),
    /// The head does not stand where the cache has it, or the cache may be wrong. Nothing happened.
    HeadConflict,
    /// COMMIT was sent, and its answer is lost. `epoch` is that of the head that the batch was made for.
    Unknown { first_event: Uuid, epoch: i64, events: usize, replies: Replies },
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

    /// Returns whether the database cancelled a statement that took too long.
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
    /// Head of the log when commands were last answered.
    answered_at: watch::Sender<HeadState>,
    connection: Option<PgConnection>,
    plans: connect::Plans,
    /// Loads rows for the open batch while `connection` writes the batch in flight.
    reading: Option<PgConnection>,
    reading_connector: Connector,
    reading_plans: connect::Plans,
    /// State after this writer's last batch, or after the batch in flight.
    cache: Option<(WriterCache, UnflushedState)>,
    clock: Option<Clock>,
    /// Another node writes to this shard, too: until then the writer locks the head first.
    shared_until: Option<Instant>,
    open: Option<OpenBatch>,
    in_flight: Option<InFlightBatch>,
    /// Commands that the leader of the shard decides, if it is another node.
    handovers: Handovers,
}

impl Writer {
    pub fn new(
        shard: ShardId,
        options: &PgConnectOptions,
        keyring: Arc<Keyring>,
        leaders: Leaders,
        wake: Wake,
        metrics: Metrics,
        queue: mpsc::Receiver<Submission>,
    ) -> Writer {
        Writer {
            shard,
            connector: connect::writer(options, shard),
            handovers: Handovers::new(shard, leaders, keyring.clone()),
            keyring,
            wake,
            heartbeat: metrics.heartbeats().serving(format!("writer {shard}")),
            metrics,
            queue,
            answered_at: watch::Sender::default(),
            connection: None,
            plans: connect::Plans::default(),
            reading: None,
            reading_connector: connect::writer_reading(options, shard),
            reading_plans: connect::Plans::default(),
            cache: None,
            clock: None,
            shared_until: None,
            open: None,
            in_flight: None,
        }
    }

    /// Returns the head of the log when commands were last answered, as it changes. It includes what they appended.
    pub fn answered_at(&self) -> watch::Receiver<HeadState> {
        self.answered_at.subscribe()
    }

    /// Runs until every sender is gone and the queue is empty.
    pub async fn run(mut self) {
        let mut waiting = Vec::with_capacity(BATCH_COMMANDS);
        loop {
            match self.in_flight.is_some() || self.handovers.are_in_flight() {
                true => self.heartbeat.beat(),
                false => self.heartbeat.rest(),
            }
            let room = BATCH_COMMANDS - self.open.as_ref().map_or(0, |open| open.submissions.len());
            tokio::select! {
                biased;
                completed = completion(&mut self.in_flight) => self.settle(completed).await,
                // Without an answer the leader has stalled, so this node decides what waits.
                returned = self.handovers.returned() => if let Some(returned) = returned {
                    Box::pin(self.conclude_handed(returned)).await;
                },
                taken = self.queue.recv_many(&mut waiting, room), if room > 0 && self.handovers.have_room() => match taken {
                    0 => break,
                    _ => {
                        self.heartbeat.beat();
                        batching::gather(&mut self.queue, &mut waiting, room).await;
                        let own = self.hand_over(std::mem::take(&mut waiting));
                        self.decide(own).await;
                    }
                },
            }
            if self.in_flight.is_none() {
                self.send_open().await;
            }
        }
        self.settle_handed().await;
        self.settle_all().await;
        for connection in [self.connection.take(), self.reading.take()].into_iter().flatten() {
            _ = connection.close().await; // The server notices a failure anyway.
        }
    }

    /// Runs a batch with the head locked first, until every caller has a reply. Bisects a batch that the database refuses.
    async fn execute(&mut self, batch: Vec<Submission>) {
        self.execute_parts(vec![batch]).await;
    }

    /// Runs parts of a batch, the last part of the list first.
    async fn execute_parts(&mut self, mut parts: Vec<Vec<Submission>>) {
        while let Some(batch) = parts.pop() {
            self.heartbeat.beat();
            let batch = give_up_expired(batch);
            if !batch.is_empty() {
                let outcome = self.attempt(&batch).await;
                parts.extend(self.conclude(batch, outcome).await);
            }
        }
    }

    /// Replies to the callers of a batch, or returns the parts that must run again, the first one last.
    async fn conclude(&mut self, mut batch: Vec<Submission>, outcome: BatchOutcome) -> Vec<Vec<Submission>> {
        match outcome {
            BatchOutcome::Committed { replies, grew } => {
                self.finish(batch, replies, grew);
                vec![]
            }
            BatchOutcome::HeadConflict => vec![batch],
            BatchOutcome::Poisoned(reason) if batch.len() == 1 => {
                tracing::error!(shard = self.shard, %reason, "the database refused a command");
                reply_all(batch, |_| Err(WriteError::Refused));
                vec![]
            }
            BatchOutcome::Poisoned(reason) => {
                tracing::warn!(shard = self.shard, commands = batch.len(), %reason, "the database refused a batch; bisecting");
                halves(batch).into()
            }
            BatchOutcome::Slow if batch.len() > 1 => {
                tracing::warn!(shard = self.shard, commands = batch.len(), "a batch takes too long; bisecting");
                halves(batch).into()
            }
            BatchOutcome::Slow => vec![batch],
            BatchOutcome::Unavailable(reason) => {
                tracing::warn!(shard = self.shard, %reason, "the database is unavailable and nothing was written; retrying");
                tokio::time::sleep(RETRY_PAUSE).await;
                vec![batch]
            }
            BatchOutcome::Unknown { first_event, epoch, events, replies } => {
                match self.look_for(first_event, epoch, &mut batch).await {
                    true => {
                        self.committed(&batch, events, None);
                        self.finish(batch, replies, true);
                        vec![]
                    }
                    false => {
                        // A caller that got 504 may have retried, so its command must not run again.
                        batch.retain(|submission| submission.reply.is_some());
                        vec![batch]
                    }
                }
            }
        }
    }

    fn finish(&self, batch: Vec<Submission>, replies: Replies, grew: bool) {
        if grew {
            self.wake.committed(self.shard);
        }
        let mut replies = replies.into_iter();
        reply_all(batch, |_| replies.next().unwrap_or(Err(WriteError::OutcomeUnknown)));
    }

    async fn attempt(&mut self, batch: &[Submission]) -> BatchOutcome {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match self.connector.connect().await {
                Ok(connection) => connection,
                Err(error) => return BatchOutcome::Unavailable(error.to_string()),
            },
        };
        let cache = self.cache.take().map(|(cache, _)| cache);
        let is_cached = cache.is_some();
        let cache = cache.unwrap_or_default();
        let prepared = tokio::time::timeout(PHASE_DEADLINE, self.prepare(&mut connection, cache, batch)).await;
        let (decided, replies) = match prepared {
            // The connection is dropped, and with it the transaction: COMMIT was not sent.
            Err(_) => return BatchOutcome::Slow,
            Ok(Err(error)) if error.is_slow() => return BatchOutcome::Slow,
            // A new connection prepares the statements anew, at once.
            Ok(Err(error)) if error.database().is_some_and(is_plan_outdated) => return BatchOutcome::HeadConflict,
            Ok(Err(error)) if error.database().is_some_and(connect::is_transient) => {
                return BatchOutcome::Unavailable(error.to_string());
            }
            Ok(Err(error)) => {
                self.end(connection, "ROLLBACK").await;
                // The cache may be what the database refuses: ids that were drawn before a failover, for example, and have
                // been drawn again since.
                return if is_cached { BatchOutcome::HeadConflict } else { BatchOutcome::Poisoned(error.to_string()) };
            }
            Ok(Ok(prepared)) => prepared,
        };
        if decided.is_empty() {
            // The primary may show commits that no standby has, after a crash. Or it may be the old primary, and lack commits
            // of the new one. The head lock makes this commit wait for the standby.
            return match self.end(connection, "COMMIT").await {
                true => {
                    self.metrics.held(decided.locked_at.elapsed());
                    self.keep_cache(decided);
                    BatchOutcome::Committed { replies, grew: false }
                }
                false => BatchOutcome::Unavailable("the answer to COMMIT is lost".to_owned()),
            };
        }
        let first_event = decided.pending.events.first().map(|event| event.moment.event_id);
        match tokio::time::timeout(PHASE_DEADLINE, sqlx::raw_sql("COMMIT").execute(&mut connection)).await {
            Ok(Ok(_)) => {
                self.committed(batch, decided.pending.events.len(), Some(decided.locked_at.elapsed()));
                self.connection = Some(connection);
                self.keep_cache(decided);
                BatchOutcome::Committed { replies, grew: first_event.is_some() }
            }
            // Whatever the error says, only the log shows whether the batch was committed.
            Ok(Err(_)) | Err(_) => unanswered(first_event, decided.head.epoch, decided.pending.events.len(), replies),
        }
    }

    /// Keeps the state after a batch that ran under the head lock.
    fn keep_cache(&mut self, batch: Batch) {
        self.clock = Some(Clock { time: batch.now, read_at: batch.locked_at });
        self.answered_at.send_replace(batch.head_after());
        self.cache = Some((batch.into_cache().0, UnflushedState::default()));
    }

    /// Runs everything before COMMIT.
    async fn prepare(
        &mut self,
        connection: &mut PgConnection,
        cache: WriterCache,
        submissions: &[Submission],
    ) -> Result<(Batch, Replies), BatchError> {
        if self.plans.are_stale() {
            sqlx::raw_sql("DISCARD PLANS").execute(&mut *connection).await?;
        }
        let reads = reads_of(self.shard, submissions);
        let mut batch = Batch::load(connection, self.shard, self.keyring.clone(), cache, reads).await?;
        let replies = decide_all(&mut batch, submissions)?;
        if !batch.is_empty() {
            batch.write(connection).await?;
        }
        Ok((batch, replies))
    }

    /// Ends a transaction that has written nothing, and keeps the connection. Returns false if that fails. The caller must not
    /// cache rows that were read on the connection then, because the next connection may lead to another server.
    async fn end(&mut self, mut connection: PgConnection, how: &'static str) -> bool {
        let ended = tokio::time::timeout(PHASE_DEADLINE, sqlx::raw_sql(how).execute(&mut connection)).await;
        let is_well = matches!(ended, Ok(Ok(_)));
        if is_well {
            self.connection = Some(connection);
        }
        is_well
    }

    /// Finds out whether a batch was committed after the answer to COMMIT was lost. Waits at the head lock until the old
    /// backend is gone, and searches the log. Makes sure that a batch that is not there is never committed later. The writer
    /// writes nothing else meanwhile, and callers whose deadline passes get 504.
    async fn look_for(&mut self, first_event: Uuid, epoch: i64, batch: &mut [Submission]) -> bool {
        tracing::warn!(shard = self.shard, %first_event, "the answer to COMMIT is lost; searching the log for the batch");
        loop {
            self.heartbeat.beat();
            match tokio::time::timeout(PHASE_DEADLINE, self.is_in_log(first_event, epoch)).await {
                Ok(Ok(found)) => {
                    tracing::warn!(shard = self.shard, %first_event, found, "resolved a COMMIT whose answer was lost");
                    return found;
                }
                Ok(Err(_)) | Err(_) => self.connection = None,
            }
            let now = Instant::now();
            for submission in batch.iter_mut().filter(|s| s.deadline <= now) {
                // The submission stays in the batch, so that the replies still match.
                if let Some(reply) = submission.reply.take() {
                    _ = reply.send(Err(WriteError::OutcomeUnknown));
                }
            }
            tokio::time::sleep(RESOLVE_PAUSE).await;
        }
    }

    async fn is_in_log(&mut self, event_id: Uuid, epoch: i64) -> Result<bool, sqlx::Error> {
        let mut connection = self.connector.connect().await?;
        sqlx::raw_sql("BEGIN").execute(&mut connection).await?;
        sqlx::query("SELECT position FROM log_head WHERE shard_id = $1 FOR UPDATE")
            .bind(self.shard)
            .execute(&mut connection)
            .await?;
        let looked = sqlx::query_as(
            "SELECT EXISTS (SELECT FROM events WHERE shard_id = $1 AND event_id = $2), position,
                (SELECT event_id FROM events e WHERE e.shard_id = $1 AND e.position = h.position)
             FROM log_head h WHERE shard_id = $1",
        );
        let (found, position, last_event): (bool, Position, Option<Uuid>) =
            looked.bind(self.shard).bind(event_id).fetch_one(&mut connection).await?;
        if !found {
            // The one statement may still be on its way to the server, where it has locked nothing yet. When it arrives it must
            // not find the head that it was made for. A failover may have lost a raise of the epoch since.
            sqlx::query("UPDATE log_head SET epoch = greatest(epoch, $2) + 1 WHERE shard_id = $1")
                .bind(self.shard)
                .bind(epoch)
                .execute(&mut connection)
                .await?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut connection).await?;
        self.connection = Some(connection);
        self.answered_at.send_replace(HeadState { position, last_event, ..HeadState::default() });
        Ok(found)
    }
}

/// Returns the outcome of a batch whose COMMIT was not answered. Only the log shows whether it was committed; a batch without
/// events cannot do anything twice.
fn unanswered(first_event: Option<Uuid>, epoch: i64, events: usize, replies: Replies) -> BatchOutcome {
    match first_event {
        Some(first_event) => BatchOutcome::Unknown { first_event, epoch, events, replies },
        None => BatchOutcome::Unavailable("the answer to COMMIT is lost".to_owned()),
    }
}
