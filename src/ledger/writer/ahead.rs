//! Deciding ahead: the next batch is decided while the one before it is on its way to the disk.

use std::time::{Duration, Instant};

use chrono::{DateTime, SubsecRound, Utc};
use ledger_database::{PgConnection, is_plan_outdated};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::error::Elapsed;
use uuid::Uuid;

use super::{BatchError, PHASE_DEADLINE, Replies, Run, SHARED, Writer, give_up_expired, parts, unanswered};
use crate::ledger::batch::Batch;
use crate::ledger::connect;
use crate::ledger::decide::decide_all;
use crate::ledger::memory::Memory;
use crate::ledger::needs::Needs;
use crate::ledger::submission::Submission;

/// A batch that takes more commands while the one before it is being written.
#[derive(Debug)]
pub(super) struct Open {
    batch: Batch,
    pub(super) submissions: Vec<Submission>,
    replies: Replies,
}

/// A batch that is being written.
#[derive(Debug)]
pub(super) struct Flight {
    submissions: Vec<Submission>,
    replies: Replies,
    first_event: Option<Uuid>,
    events: usize,
    /// Whether it moves the head; else it only looks whether that stands where it should.
    moves: bool,
    task: JoinHandle<Landing>,
}

/// How the statement ended, `Err` if not in time, and its connection; with the database's time when it
/// had the head, and for how long it was held.
pub(super) type Landing = (PgConnection, Result<Result<Option<(DateTime<Utc>, Duration)>, sqlx::Error>, Elapsed>);

/// The database's clock as it was read last. Between two looks the node's own monotonic clock goes
/// on from there, so that no wall clock of a node tells when an event was recorded.
///
/// It stands still while the machine is suspended: what is recorded in the past for it, the statement refuses
/// ([`Write::moving_now`](ledger_projections::write::Write::moving_now)).
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) time: DateTime<Utc>,
    pub(super) read_at: Instant,
}

impl Clock {
    /// So long it is gone by.
    const KEPT: Duration = Duration::from_secs(10);

    pub(super) fn read(time: DateTime<Utc>) -> Clock {
        Clock { time, read_at: Instant::now() }
    }

    /// Never ahead of the database: what was read had gone by already.
    fn now(self) -> Option<DateTime<Utc>> {
        let elapsed = self.read_at.elapsed();
        let now = self.time + chrono::TimeDelta::from_std(elapsed).ok()?;
        (elapsed < Self::KEPT).then_some(now.trunc_subsecs(3))
    }
}

impl Writer {
    /// Decides commands while the batch before them is written, where that can be; else runs them
    /// by themselves, the head locked first.
    pub(super) async fn take_up(&mut self, submissions: Vec<Submission>) {
        let submissions = give_up_expired(submissions);
        if submissions.is_empty() {
            return;
        }
        let is_common = submissions.iter().all(|submission| submission.command.is_common());
        let refused = if is_common { self.admit(submissions).await } else { Err(submissions) };
        if let Err(submissions) = refused {
            self.settle_all().await;
            self.execute_parts(parts(submissions)).await;
        }
    }

    /// Decides commands on what is remembered and adds them to the open batch. Gives them back if
    /// the head has to be locked for them.
    async fn admit(&mut self, submissions: Vec<Submission>) -> Result<(), Vec<Submission>> {
        let needs = Needs::of(&submissions);
        if !self.begin_open() {
            return Err(submissions);
        }
        if self.flight.is_some() && self.open.as_ref().is_some_and(|open| open.batch.lacks_stock(&needs)) {
            // What the batch in flight claims is not in the tables yet.
            let landing = landed(&mut self.flight).await;
            self.settle(landing).await;
            if !self.begin_open() {
                return Err(submissions);
            }
        }
        let Some(mut open) = self.open.take() else { return Err(submissions) };
        let decided = tokio::time::timeout(PHASE_DEADLINE, self.decide_on(&mut open.batch, &submissions)).await;
        match decided {
            Ok(Ok(replies)) if open.batch.expired_answers.is_empty() => {
                open.replies.extend(replies);
                open.submissions.extend(submissions);
                self.open = Some(open);
                Ok(())
            }
            // What was decided may be half done; nothing of it was sent.
            _ => {
                self.reading = None;
                self.memory = None;
                let mut all = open.submissions;
                all.extend(submissions);
                Err(all)
            }
        }
    }

    /// Makes sure that there is an open batch. False if nothing exact is remembered to begin with.
    fn begin_open(&mut self) -> bool {
        if self.open.is_some() {
            return true;
        }
        let is_alone = self.shared_until.is_none_or(|until| until <= Instant::now());
        let Some(now) = self.clock.and_then(Clock::now).filter(|_| is_alone) else { return false };
        let Some((memory, recent)) = self.memory.take() else { return false };
        let recorded_at = memory.recorded_at.max(now);
        let batch = Batch::recall(self.shard, self.keyring.clone(), Memory { recorded_at, ..memory }, recent, now);
        self.open = Some(Open { batch, submissions: vec![], replies: vec![] });
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
        batch.fetch(&mut connection, Needs::of(submissions)).await?;
        self.reading = Some(connection);
        Ok(decide_all(batch, submissions)?)
    }

    /// Sends the open batch, if there is one, and goes on without waiting for it.
    pub(super) async fn send_open(&mut self) {
        let Some(Open { batch, submissions, replies }) = self.open.take() else { return };
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
        let (first_event, events) = (batch.appended.first().map(|event| event.moment.event_id), batch.appended.len());
        let moves = !batch.is_empty();
        // What only inserts has nothing to plan by statistics.
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
        self.memory = Some(batch.into_memory());
        self.flight = Some(Flight { submissions, replies, first_event, events, moves, task });
    }

    /// Answers the batch that has landed. If it was not written, it is run again with the head
    /// locked first, and so is the open batch, which was decided on it.
    pub(super) async fn settle(&mut self, (flight, landing): (Flight, Result<Landing, JoinError>)) {
        let Flight { submissions, replies, first_event, events, moves, .. } = flight;
        let run = match landing {
            Ok((connection, Ok(Ok(Some((now, held)))))) => {
                self.connection = Some(connection);
                self.clock = Some(Clock::read(now));
                if moves {
                    self.metrics.committed(submissions.len(), events, Some(held));
                }
                return self.finish(submissions, replies, first_event.is_some());
            }
            Ok((connection, Ok(Ok(None)))) => {
                self.connection = Some(connection);
                self.shared_until = Some(Instant::now() + SHARED);
                Run::Moved
            }
            Ok((connection, Ok(Err(error)))) => match refusal(&error) {
                Some(run) => {
                    self.connection = Some(connection).filter(|connection| !connection.is_broken());
                    run
                }
                None => unanswered(first_event, events, replies),
            },
            Ok((_, Err(_))) | Err(_) => unanswered(first_event, events, replies),
        };
        self.memory = None;
        let after = self.open.take().map(|open| open.submissions);
        // What was decided and not sent is its callers' again: they need not wait for all of this.
        after.iter().flatten().for_each(|submission| submission.claim.give_back());
        let parts = self.conclude(submissions, run).await;
        self.execute_parts(parts).await;
        if let Some(after) = after {
            self.execute(after).await;
        }
    }

    /// Waits for everything that was begun.
    pub(super) async fn settle_all(&mut self) {
        while self.flight.is_some() || self.open.is_some() {
            if self.flight.is_some() {
                let landing = landed(&mut self.flight).await;
                self.settle(landing).await;
            } else {
                self.send_open().await;
            }
        }
    }
}

/// The batch in flight, once it has landed.
pub(super) async fn landed(flight: &mut Option<Flight>) -> (Flight, Result<Landing, JoinError>) {
    match flight {
        Some(in_flight) => {
            let landing = (&mut in_flight.task).await;
            match flight.take() {
                Some(flight) => (flight, landing),
                None => std::future::pending().await,
            }
        }
        None => std::future::pending().await,
    }
}

/// What a refusal of the one statement means; none if it may have been committed all the same.
fn refusal(error: &sqlx::Error) -> Option<Run> {
    let code = error.as_database_error()?.code()?;
    match &*code {
        // A new connection prepares it anew.
        _ if is_plan_outdated(error) => Some(Run::Away(error.to_string())),
        "57014" => Some(Run::Slow),
        "55P03" | "40001" | "40P01" | connect::READ_ONLY => Some(Run::Away(error.to_string())),
        _ if connect::is_passing(error) => None,
        // It may be what was remembered, and not a command, that the database does not take: an
        // answer without an event, say, that another node has stored meanwhile.
        _ => Some(Run::Moved),
    }
}
