//! What the worker's record forgets: attempts and payloads after their time, response bodies over
//! their quota. Deliveries themselves stay, and what they delivered is the log's fold: a payload
//! that is gone is made again, byte for byte, when somebody asks for it or has it sent again.

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
use crate::ledger::{Ledger, Wake};

/// Rows that one statement looks at, so that no transaction is long.
const BATCH_ROWS: i64 = 1_000;
/// Between statements, so that the work of others goes on.
const PAUSE: Duration = Duration::from_millis(20);
const EVERY: Duration = Duration::from_secs(600);
/// After so many rounds of a shard, a day's, the walk over its envelopes begins anew: a replay or a rebuild may have
/// brought payloads back.
const ROUNDS: u32 = 144;
/// A body counts for at least so many bytes, so that many small ones have a bound too.
const SMALLEST_BODY: i64 = 256;
/// A webhook's bodies are not trimmed between the rounds for less, however small the quota is.
const LEAST_TRIMMED: u64 = 1024 * 1024;

/// How long what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Attempts of deliveries that are final, and the response body of the latest one.
    pub attempts: Duration,
    /// Payloads of events that nobody is still to be told of.
    pub payloads: Duration,
    /// Response bodies of one webhook, in bytes; the newest are kept. Of one that is deleted none are.
    pub response_bodies: u64,
}

/// What a round took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub attempts: u64,
    pub payloads: u64,
    pub response_bodies: u64,
}

/// Keeps the settings. Any number of them work beside each other.
#[derive(Debug)]
pub struct Retention {
    pool: PgPool,
    heartbeats: Heartbeats,
    heartbeat: Heartbeat,
    /// The projector waits while payloads are taken.
    wake: Wake,
    settings: RetentionSettings,
    walks: HashMap<ShardId, Walk>,
}

/// How far a shard's envelopes were walked.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    /// Up to which event's.
    after: Uuid,
    rounds: u32,
}

impl Retention {
    pub fn new(ledger: &Ledger, settings: RetentionSettings) -> Retention {
        Retention {
            pool: ledger.maintenance().clone(),
            heartbeats: ledger.heartbeats().clone(),
            heartbeat: Heartbeat::default(),
            wake: ledger.wake().clone(),
            settings,
            walks: HashMap::new(),
        }
    }

    /// One round over a shard, in small batches; "now" is the database's. What hinders one part
    /// hinders no other.
    ///
    /// # Errors
    /// The database's: those of all parts but the last to fail are logged.
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
                        tracing::warn!(shard, error = %other, "retention was not kept; the next round will");
                    }
                }
            }
        }
        failed.map_or(Ok(forgotten), Err)
    }

    /// Walks from the oldest delivery's attempts on; what was forgotten before is no longer there to
    /// be walked over.
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
            // A delivery has no attempt before it was made, and later ones have greater ids.
            if !is_old || page.len() < usize::try_from(BATCH_ROWS).unwrap_or(usize::MAX) {
                return Ok(forgotten);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// With the response body, which is the latest attempt's.
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

    /// Event ids are in the order of time: where the first young one is, the old ones end.
    async fn forget_payloads(&mut self, shard: ShardId, before: DateTime<Utc>) -> Result<u64, sqlx::Error> {
        let mut forgotten = 0;
        let walk = self.walks.entry(shard).or_default();
        if walk.rounds == ROUNDS {
            *walk = Walk::default();
        }
        walk.rounds += 1;
        loop {
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
                self.wake.let_go();
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
            // Or who deletes one and makes another has a quota each time.
            let quota = if is_deleted { 0 } else { self.settings.response_bodies };
            trimmed += trim(&self.pool, shard, webhook, quota).await?;
        }
        Ok(trimmed)
    }

    pub async fn run(mut self, shards: Vec<ShardId>, stop: CancellationToken) {
        let mut round = tokio::time::interval(EVERY);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.heartbeat = self.heartbeats.background("retention");
        loop {
            self.heartbeat.rest();
            if stop.run_until_cancelled(round.tick()).await.is_none() {
                return;
            }
            for &shard in &shards {
                self.heartbeat.beat();
                // Every batch stands for itself: one that a stop cuts off is for the next round.
                match stop.run_until_cancelled(self.once(shard)).await {
                    Some(Ok(forgotten)) if forgotten == Forgotten::default() => {}
                    Some(Ok(Forgotten { attempts, payloads, response_bodies })) => {
                        tracing::info!(shard, attempts, payloads, response_bodies, "what was past its retention is gone");
                    }
                    Some(Err(error)) => tracing::warn!(shard, %error, "retention was not kept; the next round will"),
                    None => return,
                }
            }
        }
    }
}

/// Takes the oldest response bodies of a webhook that are over its quota; returns how many.
async fn trim(pool: &PgPool, shard: ShardId, webhook: WebhookId, quota: u64) -> Result<u64, sqlx::Error> {
    let mut trimmed = 0;
    loop {
        let done = sqlx::query(
            "UPDATE delivery_state SET response_body = NULL WHERE shard_id = $1 AND response_body IS NOT NULL AND delivery_id IN (
                SELECT delivery_id FROM (
                    SELECT delivery_id, sum(greatest(octet_length(response_body), $4)) OVER (ORDER BY delivery_id DESC) AS bytes
                    FROM delivery_state WHERE shard_id = $1 AND webhook_id = $2 AND response_body IS NOT NULL) AS body
                WHERE bytes > $3 ORDER BY delivery_id LIMIT $5)",
        )
        .bind(shard)
        .bind(webhook)
        .bind(i64::try_from(quota).unwrap_or(i64::MAX))
        .bind(SMALLEST_BODY)
        .bind(BATCH_ROWS)
        .execute(pool)
        .await?;
        trimmed += done.rows_affected();
        if done.rows_affected() < BATCH_ROWS.unsigned_abs() {
            return Ok(trimmed);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What one worker has stored of response bodies since each webhook's were trimmed: a quota's worth
/// in much less than a round, perhaps, and then it is kept at once.
#[derive(Debug)]
pub(super) struct Bodies {
    pool: PgPool,
    quota: u64,
    stored: HashMap<(ShardId, WebhookId), u64>,
    trims: JoinSet<()>,
}

impl Bodies {
    pub(super) fn new(pool: PgPool, quota: u64) -> Bodies {
        Bodies { pool, quota, stored: HashMap::new(), trims: JoinSet::new() }
    }

    pub(super) fn stored(&mut self, shard: ShardId, webhook: WebhookId, bytes: usize) {
        while self.trims.try_join_next().is_some() {}
        let stored = self.stored.entry((shard, webhook)).or_default();
        *stored += (bytes as u64).max(SMALLEST_BODY.unsigned_abs());
        // One at a time: others of this worker ask for connections, too.
        if *stored <= self.quota.max(LEAST_TRIMMED) || !self.trims.is_empty() {
            return;
        }
        self.stored.remove(&(shard, webhook));
        let (pool, quota) = (self.pool.clone(), self.quota);
        self.trims.spawn(async move {
            if let Err(error) = trim(&pool, shard, webhook, quota).await {
                tracing::warn!(shard, webhook, %error, "response bodies were not trimmed; the next round will");
            }
        });
    }
}

fn before(now: DateTime<Utc>, age: Duration) -> DateTime<Utc> {
    chrono::TimeDelta::from_std(age).ok().and_then(|age| now.checked_sub_signed(age)).unwrap_or(DateTime::UNIX_EPOCH)
}
