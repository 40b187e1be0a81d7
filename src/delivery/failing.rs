//! Deactivation of webhooks whose attempts have only failed for a configured time.
//!
//! Workers count the attempts of each webhook by day. A round compares these counts with those of the round before, in the
//! table `webhook_failures`. So recording a delivery costs nothing more, and no delivery or attempt is read. A webhook counts
//! as failing from the round that first sees more failed attempts and no success. A success or a change of the webhook ends that.
//!
//! Time is what rounds have observed, in the table `webhook_failure_time`: a round adds at most [`MAX_STEP`]. A clock that jumps,
//! and an outage of the nodes, make no webhook older.

use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::{AccountId, Actor, ShardId, WebhookId};
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Heartbeat;
use crate::ledger::commands::DeactivateWebhook;
use crate::ledger::{Ledger, Origin, WriteError, connect};
use crate::telemetry::Metrics;

/// Interval between two rounds.
const EVERY: Duration = Duration::from_secs(60);
/// Pause after a round that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Deadline of one statement, or of a few short ones.
const DEADLINE: Duration = Duration::from_secs(30);
/// Maximum time that a round adds to the observed time.
const MAX_STEP: Duration = Duration::from_secs(120);
/// Key of the advisory lock under which one node at a time observes a shard: "fail" in ASCII.
const LOCK: i32 = 0x6661_696c;

/// A webhook that has only failed for too long.
#[derive(Clone, Copy, Debug, FromRow)]
struct Failing {
    webhook_id: WebhookId,
    account_id: AccountId,
    version: i64,
    failing_since: DateTime<Utc>,
}

/// Job that deactivates failing webhooks. Any number of nodes may run it concurrently.
#[derive(Debug)]
pub struct Deactivator {
    pub ledger: Ledger,
    pub pool: PgPool,
    /// Time for which a webhook must have only failed.
    pub after: Duration,
    pub metrics: Metrics,
}

impl Deactivator {
    pub async fn run(self, stop: CancellationToken) {
        let heartbeat = self.ledger.heartbeats().background("failing webhooks");
        let mut pause = EVERY;
        loop {
            heartbeat.rest();
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
            pause = EVERY;
            for shard in self.ledger.shards() {
                if let Err(error) = self.once(shard, &heartbeat).await {
                    tracing::warn!(shard, %error, "failed to look for failing webhooks; retrying");
                    pause = RETRY;
                }
            }
        }
    }

    /// Runs one round over a shard. Returns the number of webhooks that it has deactivated.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn once(&self, shard: ShardId, heartbeat: &Heartbeat) -> Result<usize, sqlx::Error> {
        heartbeat.beat();
        connect::within(DEADLINE, self.observe(shard)).await?;
        let (mut deactivated, mut last) = (0, WebhookId(i64::MIN));
        // One at a time, so that each is judged by what is true right before its command.
        loop {
            heartbeat.beat();
            let Some(failing) = connect::within(DEADLINE, self.next(shard, last)).await? else { return Ok(deactivated) };
            last = failing.webhook_id;
            heartbeat.beat();
            deactivated += usize::from(self.deactivate(shard, failing).await);
        }
    }

    /// Compares the counts of attempts with those of the round before. Does nothing while another node does so.
    async fn observe(&self, shard: ShardId) -> Result<(), sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let is_alone = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1, $2::smallint)").bind(LOCK).bind(shard);
        if is_alone.fetch_one(&mut *tx).await? {
            sqlx::query(ADVANCE).bind(shard).bind(MAX_STEP).execute(&mut *tx).await?;
            for step in [FORGET, COMPARE, BEGIN] {
                sqlx::query(step).bind(shard).execute(&mut *tx).await?;
            }
        }
        tx.commit().await
    }

    /// Returns the next webhook after another one that has only failed for too long. Its counts and its latest change must still
    /// be those of the last round, so a success or a change since then protects it.
    async fn next(&self, shard: ShardId, after: WebhookId) -> Result<Option<Failing>, sqlx::Error> {
        sqlx::query_as(
            "SELECT f.webhook_id, w.account_id, w.version, clock_timestamp() - (t.observed - f.failing_from) AS failing_since
             FROM webhook_failures f JOIN webhooks w ON w.shard_id = f.shard_id AND w.id = f.webhook_id
             JOIN webhook_failure_time t ON t.shard_id = f.shard_id
             WHERE f.shard_id = $1 AND f.webhook_id > $2 AND w.is_active AND NOT w.is_deleted
               AND t.observed - f.failing_from >= $3
               AND f.changed_at = w.updated_at
               AND f.delivered = (SELECT sum(d.delivered) FROM delivery_days d
                    WHERE d.shard_id = f.shard_id AND d.webhook_id = f.webhook_id AND d.day >= f.from_day)
             ORDER BY f.webhook_id LIMIT 1",
        )
        .bind(shard)
        .bind(after)
        .bind(self.after)
        .fetch_optional(&self.pool)
        .await
    }

    /// Switches a webhook off, unless it was changed meanwhile. Returns whether it is off.
    async fn deactivate(&self, shard: ShardId, failing: Failing) -> bool {
        let Failing { webhook_id, account_id, version, failing_since } = failing;
        let origin = Origin { actor: Actor::Service, request_id: "failing webhooks".to_owned() };
        let command = DeactivateWebhook { account_id, webhook_id, version, failing_since };
        match self.ledger.execute(shard, command, origin).await {
            Ok(_) => {
                tracing::info!(shard, webhook = webhook_id.0, %failing_since, "deactivated a webhook that only failed");
                self.metrics.webhook_deactivated();
                true
            }
            Err(WriteError::Rejected(why)) => {
                tracing::debug!(shard, webhook = webhook_id.0, ?why, "a failing webhook was changed meanwhile");
                false
            }
            Err(error) => {
                tracing::warn!(shard, webhook = webhook_id.0, %error, "failed to deactivate a webhook; retrying in the next round");
                false
            }
        }
    }
}

/// Adds the time since the round before to the observed time.
const ADVANCE: &str = "INSERT INTO webhook_failure_time AS t (shard_id, observed, seen_at) VALUES ($1, '0', clock_timestamp())
    ON CONFLICT (shard_id) DO UPDATE SET seen_at = clock_timestamp(),
        observed = t.observed + greatest(least(clock_timestamp() - t.seen_at, $2), '0')";

/// Forgets webhooks that are off, those without failed attempts for a day, and those that a clock has counted from a later day on.
const FORGET: &str = "DELETE FROM webhook_failures f USING webhooks w, webhook_failure_time t
    WHERE f.shard_id = $1 AND w.shard_id = $1 AND w.id = f.webhook_id AND t.shard_id = $1
      AND (NOT w.is_active OR t.observed - f.failed_at > interval '1 day' OR f.from_day > (clock_timestamp() AT TIME ZONE 'UTC')::date)";

/// Takes over changed counts. A success, or a change of the webhook, ends its failing, and the counts begin with yesterday again.
/// More failures alone begin the failing.
const COMPARE: &str = "WITH today AS (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date - 1 AS yesterday), counted AS (
        SELECT f.webhook_id, w.updated_at, t.observed, today.yesterday, counts.*,
            counts.failed > f.failed AS has_failed, counts.delivered <> f.delivered OR f.changed_at <> w.updated_at AS is_over
        FROM webhook_failures f JOIN webhooks w ON w.shard_id = f.shard_id AND w.id = f.webhook_id
        JOIN webhook_failure_time t ON t.shard_id = f.shard_id CROSS JOIN today
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(d.delivered) FILTER (WHERE d.day >= f.from_day), 0)::bigint AS delivered,
                coalesce(sum(d.attempts - d.delivered) FILTER (WHERE d.day >= f.from_day), 0)::bigint AS failed,
                coalesce(sum(d.delivered) FILTER (WHERE d.day >= today.yesterday), 0)::bigint AS delivered_since_yesterday,
                coalesce(sum(d.attempts - d.delivered) FILTER (WHERE d.day >= today.yesterday), 0)::bigint AS failed_since_yesterday
            FROM delivery_days d WHERE d.shard_id = f.shard_id AND d.webhook_id = f.webhook_id
                AND d.day >= least(f.from_day, today.yesterday)) AS counts
        WHERE f.shard_id = $1)
    UPDATE webhook_failures f
    SET changed_at = c.updated_at,
        from_day = CASE WHEN c.is_over THEN c.yesterday ELSE f.from_day END,
        delivered = CASE WHEN c.is_over THEN c.delivered_since_yesterday ELSE c.delivered END,
        failed = CASE WHEN c.is_over THEN c.failed_since_yesterday ELSE c.failed END,
        failing_from = CASE WHEN c.is_over THEN NULL ELSE coalesce(f.failing_from, c.observed) END,
        failed_at = CASE WHEN c.has_failed THEN c.observed ELSE f.failed_at END
    FROM counted c WHERE f.shard_id = $1 AND f.webhook_id = c.webhook_id AND (c.is_over OR c.has_failed)";

/// Begins to observe the webhooks with failed attempts yesterday or today. None of them is failing yet: a failure may be older
/// than the webhook's latest change.
const BEGIN: &str = "INSERT INTO webhook_failures
        (shard_id, webhook_id, changed_at, from_day, delivered, failed, failed_at)
    SELECT $1, d.webhook_id, w.updated_at, min(today.day) - 1, sum(d.delivered)::bigint, sum(d.attempts - d.delivered)::bigint,
        min(t.observed)
    FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS today
    JOIN webhook_failure_time t ON t.shard_id = $1
    JOIN delivery_days d ON d.shard_id = $1 AND d.day >= today.day - 1
    JOIN webhooks w ON w.shard_id = $1 AND w.id = d.webhook_id AND w.is_active
    GROUP BY d.webhook_id, w.updated_at HAVING sum(d.attempts) > sum(d.delivered)
    ON CONFLICT (shard_id, webhook_id) DO NOTHING";
