//! Heartbeats of the nodes. Each node writes its own every few seconds, so that any node can show all of them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::ShardId;
use sqlx::PgExecutor;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Ledger;
use crate::heartbeat::Pulse;
use crate::telemetry::{Metrics, Minute, host};

/// Interval of a node's heartbeats.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// Time without a heartbeat after which a node counts as lost.
pub const LOST_AFTER: Duration = Duration::from_secs(30);
/// Time for which nodes that have ended, and minutes, are kept.
const KEPT: Duration = Duration::from_secs(3_600);
/// Largest number of nodes that are listed.
const MAX_LISTED: i64 = 100;

/// A node, as it describes itself.
#[derive(Clone, Debug)]
pub struct Me {
    id: Uuid,
    host: String,
    version: &'static str,
    /// Names of the node's roles.
    roles: Vec<String>,
}

impl Me {
    /// Describes a node that starts with these roles.
    pub fn starting(roles: Vec<String>) -> Me {
        Me { id: Uuid::now_v7(), host: host(), version: env!("CARGO_PKG_VERSION"), roles }
    }
}

/// Writes heartbeats until stopped, and then that the node has stopped.
pub async fn run(me: Me, ledger: Ledger, metrics: Metrics, stop: CancellationToken) {
    let heartbeat = ledger.heartbeats().background("node heartbeats");
    let mut due = tokio::time::interval(BEAT_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Minutes before this one are written.
    let mut written: Option<DateTime<Utc>> = None;
    loop {
        heartbeat.beat();
        if stop.run_until_cancelled(due.tick()).await.is_none() {
            break;
        }
        let mut minutes = metrics.minutes();
        minutes.retain(|minute| written.is_none_or(|written| minute.at() >= written) && !minute.is_empty());
        match beat(&ledger, &me, &metrics, &minutes).await {
            Ok(()) => written = minutes.last().map(Minute::at).or(written),
            Err(error) => tracing::warn!(%error, "failed to write the node's heartbeat; retrying"),
        }
    }
    if let Err(error) = stopped(ledger.maintenance(), &me).await {
        tracing::warn!(%error, "failed to write that the node has stopped; other nodes show it as lost");
    }
}

/// Writes a heartbeat and the counts of these minutes, in one statement.
async fn beat(ledger: &Ledger, me: &Me, metrics: &Metrics, minutes: &[Minute]) -> Result<(), sqlx::Error> {
    let stalled: Vec<String> =
        metrics.heartbeats().pulses().into_iter().filter(Pulse::is_stalled).map(|pulse| pulse.name).collect();
    let checked: Vec<ShardId> =
        ledger.shards().into_iter().filter(|shard| metrics.missing_deliveries(*shard).is_some()).collect();
    let count = |value: fn(&Minute) -> u64| {
        let counts = minutes.iter().map(|minute| i64::try_from(value(minute)).unwrap_or(i64::MAX));
        counts.collect::<Vec<_>>()
    };
    sqlx::query(
        "WITH beat AS (
            INSERT INTO nodes (id, host, version, roles, stalled_loops, checked) VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (id) DO UPDATE SET stalled_loops = excluded.stalled_loops, checked = excluded.checked,
                beat_at = clock_timestamp(), stopped_at = NULL)
         INSERT INTO node_minutes (node_id, minute, requests, failures, slow, events, batches, held, taken_up, delivered, failed,
            total_ms, longest_ms)
         SELECT $1, counted.* FROM unnest($7::timestamptz[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
            $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[]) AS counted
         ON CONFLICT (minute, node_id) DO UPDATE SET requests = excluded.requests, failures = excluded.failures, slow = excluded.slow,
            events = excluded.events, batches = excluded.batches, held = excluded.held, taken_up = excluded.taken_up,
            delivered = excluded.delivered, failed = excluded.failed, total_ms = excluded.total_ms, longest_ms = excluded.longest_ms",
    )
    .bind(me.id)
    .bind(&me.host)
    .bind(me.version)
    .bind(&me.roles)
    .bind(stalled)
    .bind(checked)
    .bind(minutes.iter().map(Minute::at).collect::<Vec<_>>())
    .bind(count(|minute| minute.requests))
    .bind(count(|minute| minute.failures))
    .bind(count(|minute| minute.slow))
    .bind(count(|minute| minute.events))
    .bind(count(|minute| minute.batches))
    .bind(count(|minute| minute.held))
    .bind(count(|minute| minute.taken_up))
    .bind(count(|minute| minute.delivered))
    .bind(count(|minute| minute.failed))
    .bind(count(|minute| u64::try_from(minute.took.as_millis()).unwrap_or(u64::MAX)))
    .bind(count(|minute| u64::try_from(minute.longest.as_millis()).unwrap_or(u64::MAX)))
    .execute(ledger.maintenance())
    .await?;
    Ok(())
}

async fn stopped(pool: &PgPool, me: &Me) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE nodes SET stopped_at = clock_timestamp() WHERE id = $1").bind(me.id).execute(pool).await?;
    Ok(())
}

/// A node, as its heartbeats tell.
#[derive(Clone, Debug, FromRow)]
pub struct Node {
    pub id: Uuid,
    pub host: String,
    pub version: String,
    pub roles: Vec<String>,
    pub stalled_loops: Vec<String>,
    /// Shards of which the node knows whether deliveries are missing.
    pub checked: Vec<ShardId>,
    pub started_at: DateTime<Utc>,
    pub beat_at: DateTime<Utc>,
    /// Seconds since the last heartbeat.
    pub beat_age: f64,
    /// Time at which the node has stopped in order.
    pub stopped_at: Option<DateTime<Utc>>,
}

impl Node {
    /// Returns whether the node has ended without saying so, or cannot reach the database.
    pub fn is_lost(&self) -> bool {
        self.stopped_at.is_none() && self.beat_age > LOST_AFTER.as_secs_f64()
    }

    pub fn is_running(&self) -> bool {
        self.stopped_at.is_none() && !self.is_lost()
    }
}

/// Lists the nodes that run, then the lost ones, then those that stopped in the last hour; of each kind the latest start first.
/// At most [`MAX_LISTED`].
///
/// # Errors
/// Any error of the database.
pub async fn list(db: impl PgExecutor<'_>) -> Result<Vec<Node>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, host, version, roles, stalled_loops, checked, started_at, beat_at, stopped_at,
            greatest(0, extract(epoch FROM clock_timestamp() - beat_at))::float8 AS beat_age
         FROM nodes
         ORDER BY stopped_at IS NOT NULL, stopped_at IS NULL AND beat_at < clock_timestamp() - make_interval(secs => $2),
            started_at DESC, id DESC LIMIT $1",
    )
    .bind(MAX_LISTED)
    .bind(LOST_AFTER.as_secs_f64())
    .fetch_all(db)
    .await
}

/// Returns the counts of all nodes in the last hour by minute, oldest first. Minutes without a count are left out.
///
/// # Errors
/// Any error of the database.
pub async fn minutes(db: impl PgExecutor<'_>) -> Result<Vec<Minute>, sqlx::Error> {
    #[derive(FromRow)]
    struct Counted {
        minute: DateTime<Utc>,
        counts: Vec<i64>,
    }
    let found: Vec<Counted> = sqlx::query_as(
        "SELECT minute, ARRAY[sum(requests), sum(failures), sum(slow), sum(events), sum(batches), sum(held), sum(taken_up),
            sum(delivered), sum(failed), sum(total_ms), max(longest_ms)]::bigint[] AS counts
         FROM node_minutes WHERE minute > clock_timestamp() - make_interval(secs => $1) GROUP BY minute ORDER BY minute",
    )
    .bind(KEPT.as_secs_f64())
    .fetch_all(db)
    .await?;
    let minute = |Counted { minute, counts }| {
        let count = |at: usize| counts.get(at).map_or(0, |count: &i64| count.unsigned_abs());
        Minute {
            requests: count(0),
            failures: count(1),
            slow: count(2),
            events: count(3),
            batches: count(4),
            held: count(5),
            taken_up: count(6),
            delivered: count(7),
            failed: count(8),
            took: Duration::from_millis(count(9)),
            longest: Duration::from_millis(count(10)),
            ..Minute::starting_at(minute)
        }
    };
    Ok(found.into_iter().map(minute).collect())
}

/// Deletes nodes that ended more than an hour ago, and older minutes. Returns the number of deleted rows, and that there
/// are no more: both tables are small.
///
/// # Errors
/// Any error of the database.
pub async fn purge(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let done = sqlx::query(
        "WITH minutes AS (DELETE FROM node_minutes WHERE minute < clock_timestamp() - make_interval(secs => $1))
         DELETE FROM nodes WHERE beat_at < clock_timestamp() - make_interval(secs => $1)",
    )
    .bind(KEPT.as_secs_f64())
    .execute(pool)
    .await?;
    Ok((done.rows_affected(), false))
}
