//! Runs of `verify` and `rebuild` with their progress, so that every node can show them. An operator starts a
//! verification on a node; commands record their own runs.
//!
//! A run has a heartbeat every two seconds. Without one for half a minute it counts as interrupted: its node or command has
//! ended, or has lost the database. An operator stops a verification by ending its row; its next heartbeat finds that out,
//! on whichever node it runs.

use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::{Actor, ShardId};
use ledger_projections::page::{Listed, Page};
use sqlx::types::Json;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::{AuditError, Difference, Progress, Rebuilt, Report};
use crate::ledger::reader::ReadError;
use crate::telemetry;

/// Interval of a run's heartbeats.
const BEAT_EVERY: Duration = Duration::from_secs(2);
/// Time without a heartbeat after which a run counts as interrupted.
pub const LOST_AFTER: Duration = Duration::from_secs(30);
/// Number of differences that a run keeps.
const KEPT_DIFFERENCES: usize = 100;
/// Number of differences that a list shows of each run.
const LISTED_DIFFERENCES: i32 = 5;
/// Largest length of a kept text, in characters.
const KEPT_CHARS: usize = 400;
/// Number of days for which runs are kept.
const KEPT_DAYS: i32 = 90;
/// Key of the advisory lock under which a verification starts: "ledgruns" in ASCII.
const KEY: i64 = 0x6c65_6467_7275_6e73;

/// Work of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    Verify,
    /// Rebuild of a projection, or of all.
    Rebuild(&'a str),
}

impl Kind<'_> {
    fn parts(&self) -> (&'static str, Option<&str>) {
        match self {
            Kind::Verify => ("verify", None),
            Kind::Rebuild(projection) => ("rebuild", Some(projection)),
        }
    }
}

/// Outcome of a run that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    name: &'static str,
    found: i64,
    /// Counts, or the reason of a failure.
    summary: String,
    differences: Vec<String>,
}

impl Outcome {
    fn compared(found: u64, differences: &[Difference], summary: String) -> Outcome {
        Outcome {
            name: if found == 0 { "clean" } else { "differences" },
            found: i64::try_from(found).unwrap_or(i64::MAX),
            summary: shortened(summary),
            differences: differences.iter().take(KEPT_DIFFERENCES).map(|one| shortened(one.without_content())).collect(),
        }
    }

    /// Returns the outcome of a verification.
    pub fn of_verify(result: &Result<Report, AuditError>) -> Outcome {
        match result {
            Ok(report) => Outcome::compared(report.found, &report.differences, report.to_string()),
            Err(error) => Outcome::failed(error),
        }
    }

    /// Returns the outcome of a rebuild.
    pub fn of_rebuild(result: &Result<Rebuilt, AuditError>) -> Outcome {
        match result {
            Ok(rebuilt) => Outcome::compared(rebuilt.found, &rebuilt.differences, rebuilt.to_string()),
            Err(error) => Outcome::failed(error),
        }
    }

    fn failed(error: &AuditError) -> Outcome {
        let summary = match error {
            // The source may quote the event.
            AuditError::Read(ReadError::Codec { position, .. } | ReadError::Metadata { position, .. }) => {
                format!("the event at position {position} cannot be read")
            }
            error => error.to_string(),
        };
        Outcome { name: "failed", summary: shortened(summary), ..Outcome::default() }
    }

    /// Returns the outcome of a run that was given up, because its node stops or its start could not be recorded.
    pub fn stopped() -> Outcome {
        Outcome { name: "stopped", summary: "the run was given up".to_owned(), ..Outcome::default() }
    }
}

/// Returns a text with at most [`KEPT_CHARS`] characters.
fn shortened(text: String) -> String {
    match text.char_indices().nth(KEPT_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Reason why a run was given up before the end of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenUp {
    /// Heartbeats could not be written for so long that the run counts as interrupted.
    #[error("the database did not answer for {:?}", LOST_AFTER)]
    Interrupted,
    /// An operator has stopped the run. Its outcome is recorded.
    #[error("an operator has stopped the run")]
    Stopped,
}

/// Records the start of a command's run. Returns its id.
///
/// # Errors
/// Any error of the database.
pub async fn begin(pool: &PgPool, kind: Kind<'_>) -> Result<i64, sqlx::Error> {
    let (kind, projection) = kind.parts();
    sqlx::query_scalar("INSERT INTO audit_runs (kind, projection, host) VALUES ($1, $2, $3) RETURNING id")
        .bind(kind)
        .bind(projection)
        .bind(telemetry::host())
        .fetch_one(pool)
        .await
}

/// Records the start of a verification by an operator, unless a run is in progress on any node. Returns its id.
///
/// # Errors
/// Any error of the database.
pub async fn begin_alone(pool: &PgPool, actor: Actor) -> Result<Option<i64>, sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(KEY).execute(&mut *tx).await?;
    let id = sqlx::query_scalar(
        "INSERT INTO audit_runs (kind, actor, host) SELECT 'verify', $1, $2
         WHERE NOT EXISTS (SELECT FROM audit_runs WHERE ended_at IS NULL AND beat_at > clock_timestamp() - make_interval(secs => $3))
         RETURNING id",
    )
    .bind(Json(actor))
    .bind(telemetry::host())
    .bind(LOST_AFTER.as_secs_f64())
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(id)
}

/// Does the work of a run, and meanwhile records its progress and its heartbeats.
///
/// # Errors
/// The reason why the work was dropped before its end.
pub async fn follow<T>(
    pool: &PgPool,
    id: i64,
    mut progress: watch::Receiver<Option<Progress>>,
    work: impl Future<Output = T>,
) -> Result<T, GivenUp> {
    let mut due = tokio::time::interval(BEAT_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut beaten = Instant::now();
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            _ = due.tick() => {}
        }
        let latest = *progress.borrow_and_update();
        // The work goes on while the heartbeat is written.
        let written = tokio::select! {
            done = &mut work => return Ok(done),
            written = beat(pool, id, latest) => written,
        };
        match written {
            Ok(true) => beaten = Instant::now(),
            Ok(false) => {
                tracing::info!(run = id, "an operator has stopped the run");
                return Err(GivenUp::Stopped);
            }
            Err(error) if beaten.elapsed() > LOST_AFTER => {
                tracing::error!(run = id, %error, "no heartbeat of the run could be written; giving it up");
                return Err(GivenUp::Interrupted);
            }
            Err(error) => tracing::warn!(run = id, %error, "failed to write a heartbeat of the run; retrying"),
        }
    }
}

/// Writes a heartbeat. Returns whether the run still is in progress.
async fn beat(pool: &PgPool, id: i64, progress: Option<Progress>) -> Result<bool, sqlx::Error> {
    let beaten = sqlx::query(
        "UPDATE audit_runs SET beat_at = clock_timestamp(), stage = $2, shard_id = $3, done = $4, total = $5
         WHERE id = $1 AND ended_at IS NULL",
    )
    .bind(id)
    .bind(progress.map(|progress| progress.stage))
    .bind(progress.map(|progress| progress.shard))
    .bind(progress.map(|progress| progress.done))
    .bind(progress.map(|progress| progress.total))
    .execute(pool)
    .await?;
    Ok(beaten.rows_affected() > 0)
}

/// Records that an operator stops a verification, in a transaction that the caller commits once the log has it too. Returns
/// whether one was in progress. A rebuild ends only where its command runs.
///
/// # Errors
/// Any error of the database.
pub async fn stop(tx: &mut PgConnection, id: i64) -> Result<bool, sqlx::Error> {
    let stopped = sqlx::query(
        "UPDATE audit_runs SET ended_at = clock_timestamp(), outcome = 'stopped', summary = 'an operator stopped the run'
         WHERE id = $1 AND kind = 'verify' AND ended_at IS NULL",
    );
    Ok(stopped.bind(id).execute(tx).await?.rows_affected() > 0)
}

/// Records the end of a run.
///
/// # Errors
/// Any error of the database.
pub async fn end(pool: &PgPool, id: i64, outcome: &Outcome) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE audit_runs SET ended_at = clock_timestamp(), beat_at = clock_timestamp(), outcome = $2, found = $3, summary = $4,
            differences = $5
         WHERE id = $1 AND ended_at IS NULL",
    )
    .bind(id)
    .bind(outcome.name)
    .bind(outcome.found)
    .bind(&outcome.summary)
    .bind(&outcome.differences)
    .execute(pool)
    .await?;
    Ok(())
}

/// A run, as it is stored.
#[derive(Clone, Debug, FromRow)]
pub struct Run {
    pub id: i64,
    /// `verify` or `rebuild`.
    pub kind: String,
    /// Projection of a rebuild.
    pub projection: Option<String>,
    /// Operator who started the run; `None` for a command.
    #[sqlx(json(nullable))]
    pub actor: Option<Actor>,
    pub host: String,
    pub started_at: DateTime<Utc>,
    pub beat_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    pub stage: Option<String>,
    pub shard_id: Option<ShardId>,
    pub done: Option<i64>,
    pub total: Option<i64>,
    /// `running`, `interrupted`, or the outcome.
    pub status: String,
    pub found: i64,
    pub summary: Option<String>,
    /// The first of them, without the content of rows and events.
    pub differences: Vec<String>,
}

impl Run {
    /// Returns the number of differences that `differences` leaves out.
    pub fn left_out(&self) -> i64 {
        self.found - i64::try_from(self.differences.len()).unwrap_or(i64::MAX).min(self.found)
    }
}

/// Columns of [`Run`]. `$1` is [`LOST_AFTER`] in seconds.
macro_rules! run_columns {
    ($differences:literal) => {
        concat!(
            "id, kind, projection, actor, host, started_at, beat_at, ended_at, stage, shard_id, done, total, found, summary, ",
            $differences,
            ", coalesce(outcome, CASE WHEN beat_at > clock_timestamp() - make_interval(secs => $1) THEN 'running' ELSE 'interrupted' END) AS status"
        )
    };
}

/// Lists one page of the runs, newest first, each with its first differences.
///
/// # Errors
/// Any error of the database.
pub async fn list(pool: &PgPool, page: Page) -> Result<Listed<Run>, sqlx::Error> {
    let sql = concat!(
        "SELECT ",
        run_columns!("differences[:$4] AS differences"),
        " FROM audit_runs ORDER BY id DESC LIMIT $2 OFFSET $3"
    );
    let rows = sqlx::query_as(sql)
        .bind(LOST_AFTER.as_secs_f64())
        .bind(page.size)
        .bind((page.number - 1).saturating_mul(page.size))
        .bind(LISTED_DIFFERENCES)
        .fetch_all(pool)
        .await?;
    // Runs are purged after a time, so the table is small.
    let total = sqlx::query_scalar("SELECT count(*) FROM audit_runs").fetch_one(pool).await?;
    Ok(Listed { rows, total })
}

/// Returns a run.
///
/// # Errors
/// Any error of the database.
pub async fn find(pool: &PgPool, id: i64) -> Result<Option<Run>, sqlx::Error> {
    sqlx::query_as(concat!("SELECT ", run_columns!("differences"), " FROM audit_runs WHERE id = $2"))
        .bind(LOST_AFTER.as_secs_f64())
        .bind(id)
        .fetch_optional(pool)
        .await
}

/// Deletes old runs. Returns the number of deleted rows, and that there are no more: people start runs, so they are few.
///
/// # Errors
/// Any error of the database.
pub async fn purge(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let done = sqlx::query("DELETE FROM audit_runs WHERE started_at < clock_timestamp() - make_interval(days => $1)")
        .bind(KEPT_DAYS)
        .execute(pool)
        .await?;
    Ok((done.rows_affected(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_keeps_a_bounded_number_of_short_texts() {
        let gap = |after| Difference::Gap { shard: 1, after, next: after + 2 };
        let table = "t".repeat(10_000);
        let mut all: Vec<Difference> = vec![Difference::Headless { shard: 1, table }];
        all.extend((0..1_000).map(gap));
        let outcome = Outcome::compared(5_000, &all, "ä".repeat(1_000));
        assert_eq!((outcome.found, outcome.differences.len()), (5_000, KEPT_DIFFERENCES));
        let longest = outcome.differences.iter().chain([&outcome.summary]).map(|text| text.chars().count()).max();
        assert_eq!(longest, Some(KEPT_CHARS + 1));
        assert_eq!(outcome.differences[1], gap(0).to_string());
    }
}
