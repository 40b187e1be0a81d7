//! Retention of delivery data: deletes attempts and payloads after their time, and response bodies over their quota.
//!
//! Deliveries themselves stay. A payload is a fold of the log. A deleted one is derived again, byte for byte, when a client
//! reads it or requests another delivery.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::{ShardId, WebhookId};
use ledger_projections::deliveries;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::heartbeat::{Heartbeat, Heartbeats};
use crate::ledger::{Ledger, ShardWatch, Wake};

/// Rows per statement, so that no transaction is long.
const BATCH_ROWS: i64 = 1_000;
/// Pause between statements, so that other work proceeds.
const PAUSE: Duration = Duration::from_millis(20);
const EVERY: Duration = Duration::from_secs(600);
/// Pause after a round that failed. It doubles with each failure in a row.
const RETRY: Duration = Duration::from_secs(5);
/// Number of rounds, one day's, after which the walk over a shard's envelopes restarts. A replay or a rebuild may have
/// restored payloads.
const ROUNDS: u32 = 144;
/// Minimum number of bytes that a body counts for, so that many small ones are limited too.
const MIN_BODY_BYTES: i64 = 256;
/// Minimum number of stored bytes before a webhook's bodies are trimmed between the rounds, however small the quota is.
const MIN_TRIMMED: u64 = 1024 * 1024;

/// Retention times and quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Retention of attempts of final deliveries, and of their response bodies.
    pub attempts: Duration,
    /// Retention of payloads of events without pending deliveries.
    pub payloads: Duration,
    /// Quota of response bodies per webhook, in bytes. The newest bodies are kept; a deleted webhook keeps none.
    pub response_bodies: u64,
}

/// Counts of deleted data in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub attempts: u64,
    pub payloads: u64,
    pub response_bodies: u64,
}

/// Retention job. Any number of nodes may run it concurrently.
#[derive(Debug)]
pub struct Retention {
    pool: PgPool,
    shards: ShardWatch,
    heartbeats: Heartbeats,
    heartbeat: Heartbeat,
    /// Wakes the projector, which waits while payloads are deleted.
    wake: Wake,
    settings: RetentionSettings,
    walks: HashMap<ShardId, EnvelopeCursor>,
}

/// Position of the walk over a shard's envelopes.
#[derive(Clone, Copy, Debug, Default)]
struct EnvelopeCursor {
    /// Event id of the last envelope that was checked.
    after: Uuid,
    rounds: u32,
}

impl Retention {
    pub fn new(ledger: &Ledger, settings: RetentionSettings) -> Retention {
        Retention {
            pool: ledger.maintenance().clone(),
            shards: ledger.shard_watch().clone(),
            heartbeats: ledger.heartbeats().clone(),
            heartbeat: Heartbeat::default(),
            wake: ledger.wake().clone(),
            settings,
            walks: HashMap::new(),
        }
    }

    /// Runs one round over a shard, in small batches, by the database's clock. A part that fails does not stop the others.
    ///
    /// # Errors
    /// The error of the database from the last part that failed. Earlier ones are logged.
    pub async fn once(&mut self, shard: ShardId) -> Result<Forgotten, sqlx::Error> {
        let now: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&self.pool).await?;
        let attempts = self.forget_attempts(shard, before(now, self.settings.attempts)).await;
        let payloads = self.forget_payloads(shard, before(now, self.settings.payloads)).await;
        let response_bodies = self.trim_response_bodies(shard).await;
        let (mut forgotten, mut failed) = (Forgotten::default(), None);
        for (part, count) in [
            (attempts, &mut forgotten.attempts),
            (payloads, &mut forgotten.payloads),
            (response_bodies, &mut forgotten.response_bodies),
        ] {
            match part {
                Ok(gone) => *count = gone,
                Err(error) => {
                    if let Some(other) = failed.replace(error) {
                        tracing::warn!(shard, error = %other, "retention pass failed; retrying");
                    }
                }
            }
        }
        failed.map_or(Ok(forgotten), Err)
    }

    /// Deletes old attempts, starting with the oldest delivery. Deleted attempts no longer slow down later walks.
    async fn forget_attempts(&self, shard: ShardId, before: DateTime<Utc>) -> Result<u64, sqlx::Error> {
        let (mut after, mut forgotten) = ((i64::MIN, Uuid::nil()), 0);
        loop {
            self.heartbeat.beat();
            let page: Vec<(i64, Uuid, bool, bool)> = sqlx::query_as(
                "SELECT a.delivery_id, a.request_id, a.started_at < $4 AND coalesce(s.status, 'failed') <> 'pending'
                        AND coalesce(s.leased_until < clock_timestamp(), true),
                    coalesce(d.created_at, a.started_at) < $4
                 FROM (SELECT delivery_id, request_id, started_at FROM delivery_attempts WHERE shard_id = $1 AND (delivery_id, request_id) > ($2, $3)
                       ORDER BY delivery_id, request_id LIMIT $5) AS a
                 LEFT JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = a.delivery_id
                 LEFT JOIN deliveries d ON d.shard_id = $1 AND d.id = a.delivery_id
                 ORDER BY a.delivery_id, a.request_id",
            )
            .bind(shard)
            .bind(after.0)
            .bind(after.1)
            .bind(before)
            .bind(BATCH_ROWS)
            .fetch_all(&self.pool)
            .await?;
            let Some(&(delivery_id, request_id, _, is_old)) = page.last() else { return Ok(forgotten) };
            after = (delivery_id, request_id);
            let (ids, requests): (Vec<i64>, Vec<Uuid>) =
                page.iter().filter(|(_, _, is_over, _)| *is_over).map(|(id, request, ..)| (*id, *request)).unzip();
            if !ids.is_empty() {
                forgotten += self.delete_attempts(shard, &ids, &requests, before).await?;
            }
            // A delivery has no attempt before it was created, and later deliveries have greater ids.
            if !is_old || page.len() < usize::try_from(BATCH_ROWS).unwrap_or(usize::MAX) {
                return Ok(forgotten);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes attempts with their response bodies. The body of the delivery, which is that of its latest result, is deleted
    /// with its attempt.
    async fn delete_attempts(
        &self,
        shard: ShardId,
        ids: &[i64],
        requests: &[Uuid],
        before: DateTime<Utc>,
    ) -> Result<u64, sqlx::Error> {
        let deleted: i64 = sqlx::query_scalar(
            "WITH gone AS (
                DELETE FROM delivery_attempts a USING unnest($2::bigint[], $3::uuid[]) AS old (delivery_id, request_id)
                WHERE a.shard_id = $1 AND a.delivery_id = old.delivery_id AND a.request_id = old.request_id AND a.started_at < $4
                RETURNING a.delivery_id),
             emptied AS (
                UPDATE delivery_state s SET response_body = NULL
                WHERE s.shard_id = $1 AND s.delivery_id IN (SELECT delivery_id FROM gone) AND s.response_body IS NOT NULL
                  AND NOT EXISTS (SELECT FROM delivery_attempts a WHERE a.shard_id = $1 AND a.delivery_id = s.delivery_id AND a.started_at >= $4))
             SELECT count(*) FROM gone",
        )
        .bind(shard)
        .bind(ids)
        .bind(requests)
        .bind(before)
        .fetch_one(&self.pool)
        .await?;
        Ok(deleted.unsigned_abs())
    }

    /// Deletes old payloads. Event ids are ordered by time, so the walk ends at the first recent event.
    async fn forget_payloads(&mut self, shard: ShardId, before: DateTime<Utc>) -> Result<u64, sqlx::Error> {
        let mut forgotten = 0;
        let walk = self.walks.entry(shard).or_default();
        if walk.rounds == ROUNDS {
            *walk = EnvelopeCursor::default();
        }
        walk.rounds += 1;
        loop {
            self.heartbeat.beat();
            let page: Vec<(Uuid, bool, bool)> = sqlx::query_as(
                "SELECT event_id, payload IS NOT NULL, created_at < $3 FROM webhook_envelopes
                 WHERE shard_id = $1 AND event_id > $2 ORDER BY event_id LIMIT $4",
            )
            .bind(shard)
            .bind(walk.after)
            .bind(before)
            .bind(BATCH_ROWS)
            .fetch_all(&self.pool)
            .await?;
            let old = page.iter().take_while(|(.., is_old)| *is_old).count();
            let Some((last, ..)) = page[..old].last() else { return Ok(forgotten) };
            let full: Vec<Uuid> = page[..old].iter().filter(|(_, has_payload, _)| *has_payload).map(|(id, ..)| *id).collect();
            if !full.is_empty() {
                let gone = deliveries::forget_payloads(&self.pool, shard, &full).await;
                self.wake.committed(shard);
                forgotten += gone?;
            }
            walk.after = *last;
            if old < page.len() {
                return Ok(forgotten);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn trim_response_bodies(&self, shard: ShardId) -> Result<u64, sqlx::Error> {
        let webhooks: Vec<(WebhookId, bool)> =
            sqlx::query_as("SELECT webhook_id, is_deleted FROM webhook_audience WHERE shard_id = $1 ORDER BY webhook_id")
                .bind(shard)
                .fetch_all(&self.pool)
                .await?;
        let mut trimmed = 0;
        for (webhook, is_deleted) in webhooks {
            // Otherwise a client could get another quota by deleting and re-creating a webhook.
            let quota = if is_deleted { 0 } else { self.settings.response_bodies };
            trimmed += trim(&self.pool, &self.heartbeat, (shard, webhook), quota).await?;
        }
        Ok(trimmed)
    }

    pub async fn run(mut self, stop: CancellationToken) {
        let mut round = tokio::time::interval(EVERY);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.heartbeat = self.heartbeats.background("retention");
        let mut pause = RETRY;
        loop {
            self.heartbeat.rest();
            if stop.run_until_cancelled(round.tick()).await.is_none() {
                return;
            }
            let mut has_failed = false;
            for shard in self.shards.current() {
                self.heartbeat.beat();
                // Every batch is independent: one that a stop interrupts is repeated in the next round.
                match stop.run_until_cancelled(self.once(shard)).await {
                    Some(Ok(forgotten)) if forgotten == Forgotten::default() => {}
                    Some(Ok(Forgotten { attempts, payloads, response_bodies })) => {
                        tracing::info!(shard, attempts, payloads, response_bodies, "deleted delivery data past its retention");
                    }
                    Some(Err(error)) => {
                        tracing::warn!(shard, %error, "retention pass failed; retrying");
                        has_failed = true;
                    }
                    None => return,
                }
            }
            if has_failed {
                round.reset_after(pause);
                pause = EVERY.min(pause * 2);
            } else {
                pause = RETRY;
            }
        }
    }
}

/// Deletes the oldest response bodies of a webhook beyond its quota, those of deliveries and those of failed attempts. The newest
/// deliveries keep theirs, and of a delivery's bodies, the latest. Returns the number of deleted bodies.
async fn trim(
    pool: &PgPool,
    heartbeat: &Heartbeat,
    (shard, webhook): (ShardId, WebhookId),
    quota: u64,
) -> Result<u64, sqlx::Error> {
    let mut trimmed = 0;
    loop {
        heartbeat.beat();
        // A body without an attempt is that of the delivery. `delete_attempts` and an erasure also lock attempts first.
        let done: i64 = sqlx::query_scalar(
            "WITH surplus AS MATERIALIZED (
                SELECT delivery_id, request_id FROM (
                    SELECT delivery_id, request_id, attempt,
                        sum(greatest(bytes, $4)) OVER (ORDER BY delivery_id DESC, attempt DESC NULLS FIRST) AS bytes
                    FROM (
                        SELECT delivery_id, NULL::uuid AS request_id, NULL::smallint AS attempt, octet_length(response_body) AS bytes
                        FROM delivery_state WHERE shard_id = $1 AND webhook_id = $2 AND response_body IS NOT NULL
                        UNION ALL
                        SELECT delivery_id, request_id, attempt, octet_length(response_body)
                        FROM delivery_attempts WHERE shard_id = $1 AND webhook_id = $2 AND response_body IS NOT NULL) AS body
                ) AS summed
                WHERE bytes > $3 ORDER BY delivery_id, attempt LIMIT $5),
             of_attempts AS (
                UPDATE delivery_attempts a SET response_body = NULL FROM surplus
                WHERE a.shard_id = $1 AND a.delivery_id = surplus.delivery_id AND a.request_id = surplus.request_id
                  AND a.response_body IS NOT NULL
                RETURNING a.delivery_id),
             of_deliveries AS (
                UPDATE delivery_state s SET response_body = NULL FROM surplus
                WHERE s.shard_id = $1 AND s.delivery_id = surplus.delivery_id AND surplus.request_id IS NULL
                  AND s.response_body IS NOT NULL
                RETURNING s.delivery_id)
             SELECT (SELECT count(*) FROM of_attempts) + (SELECT count(*) FROM of_deliveries)",
        )
        .bind(shard)
        .bind(webhook)
        .bind(i64::try_from(quota).unwrap_or(i64::MAX))
        .bind(MIN_BODY_BYTES)
        .bind(BATCH_ROWS)
        .fetch_one(pool)
        .await?;
        trimmed += done.unsigned_abs();
        if done < BATCH_ROWS {
            return Ok(trimmed);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Bytes of response bodies of a shard that one worker has stored since the last trim, by webhook. A webhook may store its
/// quota in much less than a round; it is then trimmed at once.
#[derive(Debug)]
pub(super) struct Bodies {
    pool: PgPool,
    shard: ShardId,
    quota: u64,
    heartbeat: Heartbeat,
    stored: HashMap<WebhookId, u64>,
    trims: JoinSet<()>,
}

impl Bodies {
    pub(super) fn new(pool: PgPool, shard: ShardId, quota: u64, heartbeat: Heartbeat) -> Bodies {
        heartbeat.rest();
        Bodies { pool, shard, quota, heartbeat, stored: HashMap::new(), trims: JoinSet::new() }
    }

    /// Counts the bytes of a stored body, and trims the webhook if it has stored its quota.
    pub(super) fn stored(&mut self, webhook: WebhookId, bytes: usize) {
        let stored = self.stored.entry(webhook).or_default();
        *stored += (bytes as u64).max(MIN_BODY_BYTES.unsigned_abs());
        if *stored > self.quota.max(MIN_TRIMMED) {
            self.trim(webhook);
        }
    }

    /// Trims a webhook that stored its quota while another trim ran, if there is one.
    pub(super) fn catch_up(&mut self) {
        let most = self.quota.max(MIN_TRIMMED);
        let over = self.stored.iter().find(|(_, stored)| **stored > most).map(|(of, _)| *of);
        if let Some(webhook) = over {
            self.trim(webhook);
        }
    }

    /// Starts a trim. Only one runs at a time, because the rest of this worker needs connections too.
    fn trim(&mut self, webhook: WebhookId) {
        while self.trims.try_join_next().is_some() {}
        if !self.trims.is_empty() {
            return;
        }
        self.stored.remove(&webhook);
        let (pool, shard, quota, heartbeat) = (self.pool.clone(), self.shard, self.quota, self.heartbeat.clone());
        self.trims.spawn(async move {
            if let Err(error) = trim(&pool, &heartbeat, (shard, webhook), quota).await {
                tracing::warn!(shard, webhook = webhook.0, %error, "failed to trim response bodies; retrying in the next round");
            }
            heartbeat.rest();
        });
    }
}

fn before(now: DateTime<Utc>, age: Duration) -> DateTime<Utc> {
    chrono::TimeDelta::from_std(age).ok().and_then(|age| now.checked_sub_signed(age)).unwrap_or(DateTime::UNIX_EPOCH)
}
