//! The pipeline: the writer decides the next batch while the one before it is on its way to the disk.

use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, SubsecRound, Utc};
use ledger_database::{PgConnection, is_plan_outdated};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::error::Elapsed;
use uuid::Uuid;

use super::{BatchError, BatchOutcome, PHASE_DEADLINE, Replies, SHARED, Writer, give_up_expired, parts, unanswered};
use crate::ledger::batch::Batch;
use crate::ledger::cache::HeadState;
use crate::ledger::connect;
use crate::ledger::decide::{decide_all, reads_of};
use crate::ledger::submission::Submission;

/// A batch that takes more commands while the one before it is in flight.
#[derive(Debug)]
pub(super) struct OpenBatch {
    batch: Batch,
    pub(super) submissions: Vec<Submission>,
    replies: Replies,
}

/// A batch whose statement is on its way.
#[derive(Debug)]
pub(super) struct InFlightBatch {
    submissions: Vec<Submission>,
    replies: Replies,
    first_event: Option<Uuid>,
    /// `log_head.epoch` that the statement expects.
    epoch: i64,
    events: usize,
    /// Head after the batch.
    head_after: HeadState,
    /// Whether the statement moves the head. A batch that writes nothing only locks it, and checks where it stands.
    moves: bool,
    task: JoinHandle<Completion>,
}

/// The connection, and the outcome of the statement: `Err` if it missed its deadline, `None` if the head stands elsewhere.
/// Otherwise the database's time when the statement had the head, and how long it held it.
pub(super) type Completion = (PgConnection, Result<Result<Option<(DateTime<Utc>, Duration)>, sqlx::Error>, Elapsed>);

/// The last reading of the database's clock. Between two readings the node's monotonic clock continues from there, so that no
/// wall clock of a node decides when an event was recorded.
///
/// The monotonic clock stands still while the machine is suspended. The statement refuses a batch that would be recorded in
/// the past for that reason ([`Head::advance_if_recent`](crate::ledger::head::Head::advance_if_recent)).
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) time: DateTime<Utc>,
    pub(super) read_at: Instant,
}

impl Clock {
    /// Maximum age of a reading.
    const MAX_AGE: Duration = Duration::from_secs(10);

    pub(super) fn read(time: DateTime<Utc>) -> Clock {
        Clock { time, read_at: Instant::now() }
    }

    /// Returns the current time, or none if the reading is too old. It is never ahead of the database, whose clock has gone on
    /// since it was read.
    fn now(self) -> Option<DateTime<Utc>> {
        let elapsed = self.read_at.elapsed();
        let now = self.time + chrono::TimeDelta::from_std(elapsed).ok()?;
        (elapsed < Self::MAX_AGE).then_some(now.trunc_subsecs(3))
    }
}

impl Writer {
    /// Decides commands while the batch before them is in flight if possible. Otherwise runs them with the head locked first.
    pub(super) async fn decide(&mut self, submissions: Vec<Submission>) {
        if submissions.is_empty() {
            return;
        }
        let is_pipelined = submissions.iter().all(|submission| submission.command.is_pipelined());
        let refused = if is_pipelined { self.admit(submissions).await } else { Err(submissions) };
        if let Err(submissions) = refused {
            release(&submissions);
            // Boxed, because the state of this rare way is large, and would be a part of every other one's.
            Box::pin(async {
                self.settle_all().await;
                self.execute_parts(parts(submissions)).await;
            })
            .await;
        }
    }

    /// Decides commands on cached state and adds them to the open batch. Returns them if they need the head lock.
    async fn admit(&mut self, mut submissions: Vec<Submission>) -> Result<(), Vec<Submission>> {
        let reads = reads_of(self.shard, &submissions);
        if !self.begin_open() {
            return Err(submissions);
        }
        if self.in_flight.is_some() && self.open.as_ref().is_some_and(|open| open.batch.lacks_stock(&reads)) {
            // Claims of the batch in flight are not in the tables yet.
            release(&submissions);
            let completed = completion(&mut self.in_flight).await;
            self.settle(completed).await;
            submissions = give_up_expired(submissions);
            if !self.begin_open() {
                return Err(submissions);
            }
        }
        let Some(mut open) = self.open.take() else { return Err(submissions) };
        let decided = tokio::time::timeout(PHASE_DEADLINE, self.decide_on(&mut open.batch, &submissions)).await;
        match decided {
            Ok(Ok(replies)) if open.batch.expired_keys.is_empty() => {
                open.replies.extend(replies);
                open.submissions.extend(submissions);
                self.open = Some(open);
                Ok(())
            }
            // The batch may be half decided. Nothing of it was sent.
            _ => {
                self.reading = None;
                self.cache = None;
                let mut all = open.submissions;
                all.extend(submissions);
                Err(all)
            }
        }
    }

    /// Opens a batch unless one is open. Returns false if the cache may not be exact.
    fn begin_open(&mut self) -> bool {
        if self.open.is_some() {
            return true;
        }
        let is_alone = self.shared_until.is_none_or(|until| until <= Instant::now());
        let Some(now) = self.clock.and_then(Clock::now).filter(|_| is_alone) else { return false };
        let Some((mut cache, unflushed)) = self.cache.take() else { return false };
        cache.head.recorded_at = cache.head.recorded_at.max(now);
        let batch = Batch::new(self.shard, self.keyring.clone(), cache, unflushed, now);
        self.open = Some(OpenBatch { batch, submissions: vec![], replies: vec![] });
        true
    }

    async fn decide_on(&mut self, batch: &mut Batch, submissions: &[Submission]) -> Result<Replies, BatchError> {
        let mut connection = match self.reading.take() {
            Some(connection) => connection,
            None => self.reading_connector.connect().await?,
        };
        if self.reading_plans.are_stale() {
            sqlx::raw_sql("DISCARD PLANS").execute(&mut connection).await?;
        }
        batch.fetch(&mut connection, reads_of(self.shard, submissions)).await?;
        self.reading = Some(connection);
        Ok(decide_all(batch, submissions)?)
    }

    /// Sends the open batch, if there is one, without waiting for its completion.
    pub(super) async fn send_open(&mut self) {
        let Some(OpenBatch { batch, submissions, replies }) = self.open.take() else { return };
        let ready = match (batch.statement(), self.connection.take()) {
            (Ok(statement), Some(connection)) => Ok((statement, connection)),
            (Ok(statement), None) => self.connector.connect().await.map(|connection| (statement, connection)).map_err(drop),
            (Err(_), connection) => {
                self.connection = connection;
                Err(())
            }
        };
        let Ok((statement, mut connection)) = ready else {
            return self.execute(submissions).await;
        };
        let (first_event, events) = (batch.pending.events.first().map(|event| event.moment.event_id), batch.pending.events.len());
        let (moves, epoch, head_after) = (!batch.is_empty(), batch.head.epoch, batch.head_after());
        // The plan of a statement that only inserts does not depend on statistics.
        let discards_plans = statement.joins() && self.plans.are_stale();
        let task = tokio::spawn(async move {
            let write = async {
                if discards_plans {
                    sqlx::raw_sql("DISCARD PLANS").execute(&mut connection).await?;
                }
                let sent_at = Instant::now();
                let written = statement.execute(&mut connection).await?;
                Ok(written.map(|written| (written.at, sent_at.elapsed().saturating_sub(written.waited))))
            };
            let outcome = tokio::time::timeout(PHASE_DEADLINE, write).await;
            (connection, outcome)
        });
        self.cache = Some(batch.into_cache());
        self.in_flight = Some(InFlightBatch { submissions, replies, first_event, epoch, events, head_after, moves, task });
    }

    /// Replies to the callers of a completed batch. A batch that was not written runs again with the head locked first, and so
    /// does the open batch, which was decided on it.
    pub(super) async fn settle(&mut self, (in_flight, completed): (InFlightBatch, Result<Completion, JoinError>)) {
        let InFlightBatch { submissions, replies, first_event, epoch, events, head_after, moves, .. } = in_flight;
        let outcome = match completed {
            Ok((connection, Ok(Ok(Some((now, held)))))) => {
                self.connection = Some(connection);
                self.clock = Some(Clock::read(now));
                self.see_head(head_after);
                match moves {
                    true => self.committed(&submissions, events, Some(held)),
                    false => self.metrics.held(held),
                }
                return self.finish(submissions, replies, first_event.is_some());
            }
            Ok((connection, Ok(Ok(None)))) => {
                self.connection = Some(connection);
                self.shared_until = Some(Instant::now() + SHARED);
                BatchOutcome::HeadConflict
            }
            Ok((connection, Ok(Err(error)))) => match refusal(&error) {
                Some(outcome) => {
                    self.connection = Some(connection).filter(|connection| !connection.is_broken());
                    outcome
                }
                None => unanswered(first_event, epoch, events, replies),
            },
            Ok((_, Err(_))) | Err(_) => unanswered(first_event, epoch, events, replies),
        };
        self.cache = None;
        let after = self.open.take().map(|open| open.submissions);
        after.iter().for_each(|submissions| release(submissions));
        let parts = self.conclude(submissions, outcome).await;
        self.execute_parts(parts).await;
        if let Some(after) = after {
            self.execute(after).await;
        }
    }

    /// Counts a committed batch. Its span covers the time for which it held the log's head, and has links to its commands.
    pub(super) fn committed(&self, batch: &[Submission], events: usize, held: Option<Duration>) {
        self.metrics.committed(batch.len(), events, held);
        let traces = self.metrics.traces();
        if traces.is_on() {
            let places = batch.iter().filter_map(|submission| submission.trace.place);
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let attributes = [("shard", self.shard.into()), ("commands", number(batch.len())), ("events", number(events))];
            let now = SystemTime::now();
            let started = held.and_then(|held| now.checked_sub(held)).unwrap_or(now);
            traces.record_shared("batch", places, started, attributes);
        }
    }

    /// Waits until no batch is open or in flight.
    pub(super) async fn settle_all(&mut self) {
        while self.in_flight.is_some() || self.open.is_some() {
            if self.in_flight.is_some() {
                let completed = completion(&mut self.in_flight).await;
                self.settle(completed).await;
            } else {
                self.send_open().await;
            }
        }
    }
}

/// Lets the callers of commands that were not sent give them up, so that they need not wait for the recovery of a batch in
/// flight.
pub(super) fn release(submissions: &[Submission]) {
    submissions.iter().for_each(|submission| submission.state.release());
}

/// Waits for the completion of the batch in flight. Pends forever if there is none.
pub(super) async fn completion(in_flight: &mut Option<InFlightBatch>) -> (InFlightBatch, Result<Completion, JoinError>) {
    match in_flight {
        Some(batch) => {
            let completed = (&mut batch.task).await;
            match in_flight.take() {
                Some(batch) => (batch, completed),
                None => std::future::pending().await,
            }
        }
        None => std::future::pending().await,
    }
}

/// Returns the outcome of a batch whose one statement the database refused. None if it may be committed all the same.
fn refusal(error: &sqlx::Error) -> Option<BatchOutcome> {
    let code = error.as_database_error()?.code()?;
    match &*code {
        // A new connection prepares the statement anew, at once.
        _ if is_plan_outdated(error) => Some(BatchOutcome::HeadConflict),
        "57014" => Some(BatchOutcome::Slow),
        "55P03" | "40001" | "40P01" | connect::READ_ONLY => Some(BatchOutcome::Unavailable(error.to_string())),
        _ if connect::is_transient(error) => None,
        // The cache, and not a command, may be what the database refuses: another node may have stored a response without an
        // event meanwhile, for example.
        _ => Some(BatchOutcome::HeadConflict),
    }
}
