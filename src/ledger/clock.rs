//! The trusted time, which decides when vouchers expire. It follows the database's clock, but not across a jump.
//!
//! Neither the log's times nor the clock alone can tell the date. The log's times never run back: one event that is
//! recorded while the clock is a year ahead keeps the head there for a year. A clock that is ahead makes good vouchers
//! look expired. Nodes therefore advance a separate time in small steps. They stop at a jump until an operator confirms
//! the clock.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::FromRow;
use ledger_database::PgPool;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Heartbeat;

/// Interval between two steps of the trusted time.
const STEP: Duration = Duration::from_secs(10);
/// Interval between two warnings that the trusted time stands still.
const WARN_EVERY: Duration = Duration::from_secs(300);

/// Day on which vouchers expire, as an SQL expression: the day of the trusted time or of the database's clock, whichever
/// is later. A voucher that expires between the two is held: it is neither assigned nor expired. If the clock was set
/// back, the trusted time counts.
macro_rules! expiry_day {
    () => {
        "(SELECT (greatest(c.trusted_at, clock_timestamp()) AT TIME ZONE 'UTC')::date FROM trusted_clock c WHERE c.is_only)"
    };
}
pub(in crate::ledger) use expiry_day;

/// Readings of the database's clock and of the trusted time.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Reading {
    /// The database's clock.
    pub now: DateTime<Utc>,
    pub trusted_at: DateTime<Utc>,
}

impl Reading {
    /// Returns how far the database's clock is ahead of the trusted time. Negative if the clock was set back.
    pub fn ahead(&self) -> TimeDelta {
        self.now - self.trusted_at
    }
}

/// Reads both times.
pub async fn read(pool: &PgPool) -> Result<Reading, sqlx::Error> {
    sqlx::query_as("SELECT clock_timestamp() AS now, trusted_at FROM trusted_clock WHERE is_only").fetch_one(pool).await
}

/// Advances the trusted time to the database's clock, unless the clock has jumped ahead by more than `max_jump`.
pub async fn advance(pool: &PgPool, max_jump: Duration) -> Result<Reading, sqlx::Error> {
    sqlx::query_as(
        "WITH step AS (
            UPDATE trusted_clock SET trusted_at = clock_timestamp()
            WHERE is_only AND clock_timestamp() > trusted_at AND clock_timestamp() <= trusted_at + make_interval(secs => $1)
            RETURNING trusted_at)
         SELECT clock_timestamp() AS now, coalesce((SELECT trusted_at FROM step), trusted_at) AS trusted_at
         FROM trusted_clock WHERE is_only",
    )
    .bind(max_jump.as_secs_f64())
    .fetch_one(pool)
    .await
}

/// Records an operator's confirmation that the database's clock is correct, with the reason. From now on vouchers expire
/// by it. Writers drop their cached vouchers, as they do after a swap of tables. Their heads are locked in the order of their
/// numbers, as everybody locks several.
pub async fn confirm(pool: &PgPool, reason: &str) -> Result<Reading, sqlx::Error> {
    sqlx::query_as(
        "WITH before AS MATERIALIZED (
            SELECT trusted_at, clock_timestamp()::timestamptz(3) AS now FROM trusted_clock WHERE is_only FOR UPDATE),
         said AS (
            INSERT INTO clock_confirmations (trusted_before, confirmed_at, reason) SELECT trusted_at, now, $1 FROM before),
         heads AS MATERIALIZED (SELECT shard_id FROM log_head ORDER BY shard_id FOR UPDATE),
         forgotten AS (UPDATE log_head h SET epoch = epoch + 1 FROM heads WHERE h.shard_id = heads.shard_id)
         UPDATE trusted_clock c SET trusted_at = before.now FROM before WHERE c.is_only RETURNING before.now, c.trusted_at",
    )
    .bind(reason)
    .fetch_one(pool)
    .await
}

/// Advances the trusted time until stopped. Several nodes can do this at the same time.
pub async fn run(pool: PgPool, max_jump: Duration, heartbeat: Heartbeat, stop: CancellationToken) {
    let mut due = tokio::time::interval(STEP);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warned: Option<Instant> = None;
    while stop.run_until_cancelled(due.tick()).await.is_some() {
        heartbeat.beat();
        let is_quiet = warned.is_some_and(|at| at.elapsed() < WARN_EVERY);
        match advance(&pool, max_jump).await {
            Ok(reading) if reading.ahead() > TimeDelta::from_std(max_jump).unwrap_or(TimeDelta::MAX) => {
                if !is_quiet {
                    warned = Some(Instant::now());
                    tracing::error!(
                        database_clock = %reading.now, trusted_time = %reading.trusted_at,
                        "the database's clock has jumped ahead: vouchers that would expire by it are held; correct the clock, or confirm it with `rewards-ledger clock confirm`"
                    );
                }
            }
            Ok(_) if warned.take().is_some() => tracing::info!("the database's clock is trusted again"),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "failed to advance the trusted time; retrying"),
        }
    }
}
