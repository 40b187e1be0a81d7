//! Recording of attempts' results: many in one statement, each only under the fencing token of its claim.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::PgPool;
use ledger_events::webhook::MAX_ATTEMPTS;
use ledger_events::{ShardId, WebhookId};
use uuid::Uuid;
use webhook_client::sender::Outcome;

use super::claim::{Claimed, MAX_UNKNOWN};
use super::schedule::{Clock, next_attempt_at};
use crate::ledger::connect::DedicatedConnection;

/// Maximum number of deliveries that one statement pulls back.
pub const MAX_REPAIRED: i64 = 5_000;
/// Tolerance before a due time counts as too late. Other nodes may have a somewhat longer schedule.
const LATE: Duration = Duration::from_secs(3600);

/// Attempt that has ended, with times by the database's clock.
#[derive(Debug)]
pub struct Ended {
    pub claimed: Claimed,
    /// Time of sending. It may be later than the claim, because a claimed delivery waits for its turn.
    pub started_at: DateTime<Utc>,
    pub ended_at: DateTime<Utc>,
    /// Duration of the attempt, including the response body.
    pub took: Duration,
    pub outcome: Outcome,
}

impl Ended {
    fn next_attempt_at(&self, base: Duration) -> Option<DateTime<Utc>> {
        next_attempt_at(self.claimed.attempt, self.started_at, self.ended_at, base)
    }

    /// Returns the time from the end of this attempt to the next one; `None` if there is no next one.
    pub fn next_attempt_in(&self, base: Duration) -> Option<Duration> {
        let due = self.next_attempt_at(base).filter(|_| !self.outcome.succeeded())?;
        (due - self.ended_at).to_std().ok()
    }

    /// Returns the webhook and the bytes of each stored copy of the response body. A failed attempt that another one can follow
    /// has one beside that of the delivery.
    pub fn stored_bodies(&self) -> impl Iterator<Item = (WebhookId, usize)> {
        let of_delivery = self.outcome.response_body.as_ref().map(|body| (self.claimed.webhook_id, body.len()));
        let of_attempt = of_delivery.filter(|_| !self.outcome.succeeded() && self.claimed.attempt < MAX_ATTEMPTS);
        of_delivery.into_iter().chain(of_attempt)
    }
}

/// Identity of a claim: the delivery, its fencing token and the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub shard: ShardId,
    pub delivery_id: i64,
    pub webhook_id: WebhookId,
    pub fence: i64,
    pub request_id: Uuid,
}

impl Lease {
    pub fn of(claimed: &Claimed) -> Lease {
        let &Claimed { shard, delivery_id, webhook_id, fence, request_id, .. } = claimed;
        Lease { shard, delivery_id, webhook_id, fence, request_id }
    }
}

/// Records results of one shard. Returns the number of results that were recorded.
///
/// A result whose lease another worker has taken over changes nothing, and neither does one that is recorded already. So the
/// call is idempotent.
///
/// The fencing token alone does not identify the lease: after a failover that lost the claim, another node's claim gets the
/// same token. So the attempt that the claim wrote ahead must exist too, by its `request_id`.
///
/// A 2xx response counts even if the webhook was switched off in the meantime. A failure then leaves the delivery failed,
/// with the attempt counted.
///
/// The body of the latest response stands in `delivery_state`. A failed attempt keeps it too, because the next result replaces it
/// there. A success stores it once.
pub async fn record(
    dedicated: &DedicatedConnection,
    shard: ShardId,
    results: &[Ended],
    base: Duration,
) -> Result<u64, sqlx::Error> {
    // The condition "is leased" is written so that it matches no index but the primary key.
    // All statements lock in the same order, so that no two of them deadlock.
    let mut results: Vec<&Ended> = results.iter().collect();
    results.sort_unstable_by_key(|r| r.claimed.delivery_id);
    let mut connection = dedicated.acquire().await?;
    let recorded = sqlx::query(
        "WITH result AS MATERIALIZED (
            SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::uuid[], $5::smallint[], $6::boolean[], $7::timestamptz[], $8::timestamptz[],
                                 $9::smallint[], $10::integer[], $11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[])
                AS r (delivery_id, fence, request_id, attempt, succeeded, ended_at, next_attempt_at, response_status, response_time_ms, response_body, error,
                      claimed_at, started_at)),
         recorded AS (
            UPDATE delivery_state s
            SET status = CASE WHEN r.succeeded THEN 'delivered' WHEN r.next_attempt_at IS NULL THEN 'failed' ELSE s.status END,
                attempt_count = r.attempt, unknown_count = 0, leased_until = NULL,
                -- A client that requested a retry in the meantime has set the time.
                next_attempt_at = CASE WHEN s.next_attempt_at > r.claimed_at THEN s.next_attempt_at
                    ELSE coalesce(r.next_attempt_at, s.next_attempt_at) END,
                response_status = r.response_status, response_time_ms = r.response_time_ms, response_body = r.response_body,
                delivered_at = CASE WHEN r.succeeded THEN r.ended_at END
            FROM result r
            WHERE s.shard_id = $1 AND s.delivery_id = r.delivery_id AND s.fence = r.fence AND coalesce(s.leased_until, '-infinity') > '-infinity'
              AND (SELECT true FROM delivery_attempts a WHERE a.shard_id = $1 AND a.delivery_id = r.delivery_id AND a.request_id = r.request_id)
            -- Not joined again: without statistics of either side, the planner would compare each row with each.
            RETURNING s.delivery_id, s.webhook_id, r.succeeded, r.request_id, r.started_at, r.ended_at, r.response_status, r.response_time_ms, r.error,
                -- The body of the last result stays with the delivery.
                CASE WHEN NOT r.succeeded AND r.next_attempt_at IS NOT NULL THEN r.response_body END AS earlier_body),
         counted AS (
            INSERT INTO delivery_days AS d (shard_id, webhook_id, day, attempts, delivered, total_ms, longest_ms)
            SELECT $1, webhook_id, (ended_at AT TIME ZONE 'UTC')::date, count(*), count(*) FILTER (WHERE succeeded), sum(response_time_ms),
                max(response_time_ms)
            FROM recorded GROUP BY webhook_id, 3 ORDER BY webhook_id, 3
            ON CONFLICT (shard_id, webhook_id, day) DO UPDATE SET attempts = d.attempts + excluded.attempts,
                delivered = d.delivered + excluded.delivered, total_ms = d.total_ms + excluded.total_ms,
                longest_ms = greatest(d.longest_ms, excluded.longest_ms))
         UPDATE delivery_attempts a
         SET started_at = r.started_at, finished_at = r.ended_at, response_status = r.response_status, response_time_ms = r.response_time_ms,
            error = r.error, response_body = r.earlier_body
         FROM recorded r
         WHERE a.shard_id = $1 AND a.delivery_id = r.delivery_id AND a.request_id = r.request_id",
    )
    .bind(shard)
    .bind(results.iter().map(|r| r.claimed.delivery_id).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.claimed.fence).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.claimed.request_id).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.claimed.attempt).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.outcome.succeeded()).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.ended_at).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.next_attempt_at(base)).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.outcome.response_status.and_then(|s| i16::try_from(s).ok())).collect::<Vec<_>>())
    .bind(results.iter().map(|r| i32::try_from(r.outcome.response_time_ms).unwrap_or(i32::MAX)).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.outcome.response_body.as_deref()).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.outcome.error.as_deref()).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.claimed.clock.at).collect::<Vec<_>>())
    .bind(results.iter().map(|r| r.started_at).collect::<Vec<_>>())
    .execute(&mut *connection)
    .await?;
    connection.keep();
    Ok(recorded.rows_affected())
}

/// Gives back deliveries that were claimed and not sent: ends the lease and deletes the attempt that was written ahead.
pub async fn give_back(pool: &PgPool, shard: ShardId, unsent: &[Claimed]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH unsent AS MATERIALIZED (
            SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::uuid[]) AS u (delivery_id, fence, request_id)),
         returned AS (
            UPDATE delivery_state s SET leased_until = NULL FROM unsent u
            WHERE s.shard_id = $1 AND s.delivery_id = u.delivery_id AND s.fence = u.fence AND coalesce(s.leased_until, '-infinity') > '-infinity'
              AND (SELECT true FROM delivery_attempts a WHERE a.shard_id = $1 AND a.delivery_id = u.delivery_id AND a.request_id = u.request_id))
         DELETE FROM delivery_attempts a USING unsent u
         WHERE a.shard_id = $1 AND a.delivery_id = u.delivery_id AND a.request_id = u.request_id AND a.finished_at IS NULL",
    )
    .bind(shard)
    .bind(unsent.iter().map(|c| c.delivery_id).collect::<Vec<_>>())
    .bind(unsent.iter().map(|c| c.fence).collect::<Vec<_>>())
    .bind(unsent.iter().map(|c| c.request_id).collect::<Vec<_>>())
    .execute(pool)
    .await?;
    Ok(())
}

/// Ends the leases of cancelled sends. Their outcome is unknown, as if this node had crashed, but the next attempt need not
/// wait for the lease to expire.
pub async fn end_leases(pool: &PgPool, clock: &Clock, shard: ShardId, cut: &[Lease]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE delivery_state s SET leased_until = clock_timestamp() + $4
         FROM unnest($2::bigint[], $3::bigint[], $5::uuid[]) AS cut (delivery_id, fence, request_id)
         WHERE s.shard_id = $1 AND s.delivery_id = cut.delivery_id AND s.fence = cut.fence AND coalesce(s.leased_until, '-infinity') > '-infinity'
           AND (SELECT true FROM delivery_attempts a WHERE a.shard_id = $1 AND a.delivery_id = cut.delivery_id AND a.request_id = cut.request_id)",
    )
    .bind(shard)
    .bind(cut.iter().map(|lease| lease.delivery_id).collect::<Vec<_>>())
    .bind(cut.iter().map(|lease| lease.fence).collect::<Vec<_>>())
    .bind(clock.ahead())
    .bind(cut.iter().map(|lease| lease.request_id).collect::<Vec<_>>())
    .execute(pool)
    .await?;
    Ok(())
}

/// Counts attempts as failed whose outcome is still unknown after [`MAX_UNKNOWN`] repetitions, so that every delivery ends.
///
/// Returns the number of such deliveries. The result of the attempt before is cleared, except in that attempt.
pub async fn fail_lost_attempts(pool: &PgPool, clock: &Clock, shard: ShardId, base: Duration) -> Result<u64, sqlx::Error> {
    let written_off = sqlx::query(
        "WITH lost AS MATERIALIZED (
            SELECT delivery_id FROM delivery_state
            WHERE shard_id = $1 AND leased_until < clock_timestamp() + $5 AND unknown_count >= $2 AND status = 'pending'
            LIMIT 1000 FOR UPDATE SKIP LOCKED)
         UPDATE delivery_state s
         SET fence = fence + 1, leased_until = NULL, attempt_count = attempt_count + 1, unknown_count = 0,
             response_status = NULL, response_time_ms = NULL, response_body = NULL,
             status = CASE WHEN attempt_count + 1 >= $3 THEN 'failed' ELSE 'pending' END,
             next_attempt_at = greatest(s.leased_until,
                (SELECT max(a.started_at) FROM delivery_attempts a WHERE a.shard_id = $1 AND a.delivery_id = s.delivery_id)
                + make_interval(secs => $4 * power(2, s.attempt_count)))
         FROM lost WHERE s.shard_id = $1 AND s.delivery_id = lost.delivery_id",
    )
    .bind(shard)
    .bind(MAX_UNKNOWN)
    .bind(MAX_ATTEMPTS)
    .bind(base.as_secs_f64())
    .bind(clock.ahead())
    .execute(pool)
    .await?;
    Ok(written_off.rows_affected())
}

/// Ends the leases of deliveries that failed while in flight and got no result since: their node has died.
pub async fn end_dead_leases(pool: &PgPool, clock: &Clock, shard: ShardId) -> Result<u64, sqlx::Error> {
    let ended = sqlx::query(
        "WITH dead AS MATERIALIZED (
            SELECT delivery_id FROM delivery_state
            WHERE shard_id = $1 AND leased_until < clock_timestamp() + $2 - interval '10 minutes' AND status <> 'pending'
            LIMIT 1000 FOR UPDATE SKIP LOCKED)
         UPDATE delivery_state s SET leased_until = NULL FROM dead WHERE s.shard_id = $1 AND s.delivery_id = dead.delivery_id",
    )
    .bind(shard)
    .bind(clock.ahead())
    .execute(pool)
    .await?;
    Ok(ended.rows_affected())
}

/// Pulls back due times and leases that a clock set back has left too far in the future.
///
/// A time more than an hour beyond the schedule or the longest lease stems from before the clock was set back. It would
/// block claims until then. A first attempt becomes due now, and a later one as if the previous attempt had started now. A
/// lease ends as if it had started now. Returns the number of deliveries, at most [`MAX_REPAIRED`].
pub async fn repair_clock_skew(
    pool: &PgPool,
    clock: &Clock,
    shard: ShardId,
    base: Duration,
    lease: Duration,
) -> Result<u64, sqlx::Error> {
    let now: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp() + $1").bind(clock.ahead()).fetch_one(pool).await?;
    let within = |time: Duration| {
        let then = TimeDelta::from_std(time).ok().and_then(|time| now.checked_add_signed(time));
        then.unwrap_or(DateTime::<Utc>::MAX_UTC)
    };
    let longest = base.saturating_mul(1 << (MAX_ATTEMPTS - 2)).saturating_add(lease);
    let pulled_back = sqlx::query(
        "WITH ahead AS MATERIALIZED (
            -- Three index lookups per webhook.
            SELECT s.delivery_id FROM webhook_audience a CROSS JOIN LATERAL
                ((SELECT delivery_id FROM delivery_state WHERE shard_id = $1 AND webhook_id = a.webhook_id
                    AND status = 'pending' AND attempt_count = 0 AND next_attempt_at > $3 LIMIT $7)
                 UNION ALL
                 (SELECT delivery_id FROM delivery_state WHERE shard_id = $1 AND webhook_id = a.webhook_id
                    AND status = 'pending' AND attempt_count > 0 AND next_attempt_at > $3 LIMIT $7)
                 UNION ALL
                 (SELECT delivery_id FROM delivery_state WHERE shard_id = $1 AND webhook_id = a.webhook_id
                    AND leased_until > $4 LIMIT $7)) AS s
            WHERE a.shard_id = $1 LIMIT $7),
         locked AS MATERIALIZED (
            SELECT s.delivery_id FROM ahead JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = ahead.delivery_id
            FOR UPDATE OF s SKIP LOCKED)
         UPDATE delivery_state s
         SET next_attempt_at = CASE WHEN s.next_attempt_at <= $3 THEN s.next_attempt_at WHEN s.attempt_count = 0 THEN $2
                ELSE $2 + make_interval(secs => $5 * power(2, s.attempt_count - 1)) END,
             leased_until = CASE WHEN s.leased_until > $4 THEN $6 ELSE s.leased_until END
         FROM locked WHERE s.shard_id = $1 AND s.delivery_id = locked.delivery_id",
    )
    .bind(shard)
    .bind(now)
    .bind(within(longest.saturating_add(LATE)))
    .bind(within(lease.saturating_add(LATE)))
    .bind(base.as_secs_f64())
    .bind(within(lease))
    .bind(MAX_REPAIRED)
    .execute(pool)
    .await?;
    Ok(pulled_back.rows_affected())
}
