//! Overview of all deliveries for operators: queues, endpoints that fail, and attempts by day.

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::PgExecutor;

use super::days::DeliveryDay;

/// Upper limit for counting a webhook's deliveries.
pub const MAX_OF_WEBHOOK: i64 = 1_000;
/// Upper limit for counting the deliveries that failed for good in a day.
pub const MAX_FAILED: i64 = 1_001;
/// Number of days of attempts.
const DAYS: i32 = 14;

/// Deliveries of a shard beside those that are due. Each count ends at a limit.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct DeliveryQueue {
    pub shard_id: ShardId,
    /// Number of leased deliveries.
    pub in_flight: i64,
    /// Number of expired leases: the worker that held them has recorded no outcome.
    pub expired: i64,
    /// Number of deliveries that have failed for good.
    pub dead: i64,
    /// Time of an attempt of the oldest delivery with attempts. Retention deletes older ones.
    pub oldest_attempt_at: Option<DateTime<Utc>>,
}

/// Counts the deliveries of every shard, each state no further than `counted`.
///
/// # Errors
/// Any error of the database.
pub async fn queues(db: impl PgExecutor<'_>, counted: i64) -> Result<Vec<DeliveryQueue>, sqlx::Error> {
    sqlx::query_as(
        "SELECT h.shard_id,
            (SELECT count(*) FROM (SELECT FROM delivery_state s WHERE s.shard_id = h.shard_id AND s.leased_until IS NOT NULL
                AND s.leased_until >= clock_timestamp() LIMIT $1) AS leased) AS in_flight,
            (SELECT count(*) FROM (SELECT FROM delivery_state s WHERE s.shard_id = h.shard_id AND s.leased_until IS NOT NULL
                AND s.leased_until < clock_timestamp() LIMIT $1) AS expired) AS expired,
            (SELECT count(*) FROM (SELECT FROM delivery_state s WHERE s.shard_id = h.shard_id AND s.status = 'failed' LIMIT $1) AS failed) AS dead,
            (SELECT a.started_at FROM delivery_attempts a WHERE a.shard_id = h.shard_id ORDER BY a.delivery_id, a.request_id LIMIT 1)
                AS oldest_attempt_at
         FROM log_head h ORDER BY h.shard_id",
    )
    .bind(counted)
    .fetch_all(db)
    .await
}

/// A webhook whose deliveries fail and are retried.
#[derive(Clone, Debug, FromRow)]
pub struct FailingWebhook {
    pub webhook_id: WebhookId,
    pub account_id: AccountId,
    /// Number of deliveries that wait for another attempt, at most [`MAX_OF_WEBHOOK`].
    pub waiting: i64,
    /// Largest number of failed attempts of such a delivery.
    pub attempts: i16,
    /// Time of the next attempt.
    pub next_attempt_at: DateTime<Utc>,
    /// Latest attempt of the delivery whose next attempt is the first; without one if retention has deleted it.
    pub started_at: Option<DateTime<Utc>>,
    pub response_status: Option<i16>,
    pub response_time_ms: Option<i32>,
    /// Reason why no response came.
    pub error: Option<String>,
}

/// Returns the webhooks with failed attempts of pending deliveries, the one with the most first. Takes one step of an index
/// per webhook, and counts no further than [`MAX_OF_WEBHOOK`].
///
/// # Errors
/// Any error of the database.
pub async fn failing(db: impl PgExecutor<'_>, limit: i64) -> Result<Vec<FailingWebhook>, sqlx::Error> {
    sqlx::query_as(
        "WITH RECURSIVE webhook AS (
            (SELECT shard_id, webhook_id FROM delivery_state WHERE status = 'pending' AND attempt_count > 0
             ORDER BY shard_id, webhook_id LIMIT 1)
            UNION ALL
            SELECT next.shard_id, next.webhook_id FROM webhook CROSS JOIN LATERAL
            (SELECT s.shard_id, s.webhook_id FROM delivery_state s WHERE s.status = 'pending' AND s.attempt_count > 0
               AND (s.shard_id, s.webhook_id) > (webhook.shard_id, webhook.webhook_id)
             ORDER BY s.shard_id, s.webhook_id LIMIT 1) AS next)
         SELECT webhook.webhook_id, a.account_id, retries.waiting, retries.attempts, retries.next_attempt_at, latest.started_at,
            latest.response_status, latest.response_time_ms, latest.error
         FROM webhook JOIN webhook_audience a ON a.shard_id = webhook.shard_id AND a.webhook_id = webhook.webhook_id
         CROSS JOIN LATERAL
            (SELECT count(*) AS waiting, max(attempt_count) AS attempts, min(next_attempt_at) AS next_attempt_at,
                (array_agg(delivery_id ORDER BY next_attempt_at))[1] AS delivery_id FROM
                (SELECT delivery_id, attempt_count, next_attempt_at FROM delivery_state s
                 WHERE s.shard_id = webhook.shard_id AND s.webhook_id = webhook.webhook_id AND s.status = 'pending' AND s.attempt_count > 0
                 ORDER BY s.next_attempt_at LIMIT $1) AS counted) AS retries
         LEFT JOIN LATERAL
            (SELECT t.started_at, t.response_status, t.response_time_ms, t.error FROM delivery_attempts t
             WHERE t.shard_id = webhook.shard_id AND t.delivery_id = retries.delivery_id AND t.finished_at IS NOT NULL
             ORDER BY t.started_at DESC LIMIT 1) AS latest ON true
         WHERE retries.waiting > 0 ORDER BY retries.waiting DESC, webhook.webhook_id LIMIT $2",
    )
    .bind(MAX_OF_WEBHOOK)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// A webhook with due deliveries that are not in flight.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct DueWebhook {
    pub webhook_id: WebhookId,
    pub account_id: AccountId,
    /// Number of these deliveries: at most [`MAX_OF_WEBHOOK`] first attempts and as many retries.
    pub due: i64,
}

/// Returns the webhooks with due deliveries, the one with the most first. Takes two steps of an index per webhook with pending
/// deliveries, and counts no further than [`MAX_OF_WEBHOOK`].
///
/// # Errors
/// Any error of the database.
pub async fn due(db: impl PgExecutor<'_>, limit: i64) -> Result<Vec<DueWebhook>, sqlx::Error> {
    sqlx::query_as(
        "WITH RECURSIVE first_attempt AS (
            (SELECT shard_id, webhook_id FROM delivery_state WHERE status = 'pending' AND attempt_count = 0
             ORDER BY shard_id, webhook_id LIMIT 1)
            UNION ALL
            SELECT next.shard_id, next.webhook_id FROM first_attempt AS before CROSS JOIN LATERAL
            (SELECT s.shard_id, s.webhook_id FROM delivery_state s WHERE s.status = 'pending' AND s.attempt_count = 0
               AND (s.shard_id, s.webhook_id) > (before.shard_id, before.webhook_id)
             ORDER BY s.shard_id, s.webhook_id LIMIT 1) AS next),
         retry AS (
            (SELECT shard_id, webhook_id FROM delivery_state WHERE status = 'pending' AND attempt_count > 0
             ORDER BY shard_id, webhook_id LIMIT 1)
            UNION ALL
            SELECT next.shard_id, next.webhook_id FROM retry AS before CROSS JOIN LATERAL
            (SELECT s.shard_id, s.webhook_id FROM delivery_state s WHERE s.status = 'pending' AND s.attempt_count > 0
               AND (s.shard_id, s.webhook_id) > (before.shard_id, before.webhook_id)
             ORDER BY s.shard_id, s.webhook_id LIMIT 1) AS next)
         SELECT webhook.webhook_id, a.account_id, waiting.due
         FROM (SELECT shard_id, webhook_id FROM first_attempt UNION SELECT shard_id, webhook_id FROM retry) AS webhook
         JOIN webhook_audience a ON a.shard_id = webhook.shard_id AND a.webhook_id = webhook.webhook_id
         CROSS JOIN LATERAL
            (SELECT (SELECT count(*) FROM (SELECT FROM delivery_state s
                WHERE s.shard_id = webhook.shard_id AND s.webhook_id = webhook.webhook_id AND s.status = 'pending' AND s.attempt_count = 0
                  AND s.next_attempt_at <= now() AND coalesce(s.leased_until, '-infinity') < now() LIMIT $1) AS counted)
              + (SELECT count(*) FROM (SELECT FROM delivery_state s
                WHERE s.shard_id = webhook.shard_id AND s.webhook_id = webhook.webhook_id AND s.status = 'pending' AND s.attempt_count > 0
                  AND s.next_attempt_at <= now() AND coalesce(s.leased_until, '-infinity') < now() LIMIT $1) AS counted) AS due) AS waiting
         WHERE waiting.due > 0 ORDER BY waiting.due DESC, webhook.webhook_id LIMIT $2",
    )
    .bind(MAX_OF_WEBHOOK)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// A webhook with deliveries that have failed for good.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct FailedWebhook {
    pub webhook_id: WebhookId,
    pub account_id: AccountId,
    /// Number of those that failed in the last 24 hours.
    pub failed: i64,
    /// Number of all of them, at most [`MAX_OF_WEBHOOK`].
    pub failed_in_all: i64,
    /// Time at which the last attempt of the latest one was due, never in the future: a delivery whose webhook is switched off
    /// fails before its next attempt is due.
    pub failed_at: DateTime<Utc>,
}

/// Returns the webhooks of the latest [`MAX_FAILED`] deliveries that have failed for good, the one with the most in the last
/// 24 hours first.
///
/// # Errors
/// Any error of the database.
pub async fn failed(db: impl PgExecutor<'_>, limit: i64) -> Result<Vec<FailedWebhook>, sqlx::Error> {
    sqlx::query_as(
        "SELECT failed.webhook_id, failed.account_id, failed.failed, failed.failed_at,
            (SELECT count(*) FROM (SELECT FROM delivery_state s WHERE s.shard_id = failed.shard_id AND s.webhook_id = failed.webhook_id
                AND s.status = 'failed' LIMIT $3) AS counted) AS failed_in_all
         FROM (SELECT webhook.shard_id, webhook.webhook_id, a.account_id, webhook.failed, webhook.failed_at FROM
                (SELECT shard_id, webhook_id, count(*) FILTER (WHERE next_attempt_at > now() - interval '24 hours') AS failed,
                    least(max(next_attempt_at), now()) AS failed_at
                 FROM (SELECT shard_id, webhook_id, next_attempt_at FROM delivery_state WHERE status = 'failed'
                     ORDER BY next_attempt_at DESC LIMIT $1) AS latest
                 GROUP BY shard_id, webhook_id) AS webhook
             JOIN webhook_audience a ON a.shard_id = webhook.shard_id AND a.webhook_id = webhook.webhook_id
             ORDER BY webhook.failed DESC, webhook.failed_at DESC, webhook.webhook_id LIMIT $2) AS failed
         ORDER BY failed.failed DESC, failed.failed_at DESC, failed.webhook_id",
    )
    .bind(MAX_FAILED)
    .bind(limit)
    .bind(MAX_OF_WEBHOOK)
    .fetch_all(db)
    .await
}

/// Returns the attempts of all webhooks by day (UTC), oldest first. Days without attempts are left out.
///
/// # Errors
/// Any error of the database.
pub async fn days(db: impl PgExecutor<'_>) -> Result<Vec<DeliveryDay>, sqlx::Error> {
    sqlx::query_as(
        "SELECT day, sum(attempts)::bigint AS attempts, sum(delivered)::bigint AS delivered, sum(total_ms)::bigint AS total_ms,
            max(longest_ms) AS longest_ms
         FROM delivery_days WHERE day > (clock_timestamp() AT TIME ZONE 'UTC')::date - $1 GROUP BY day ORDER BY day",
    )
    .bind(DAYS)
    .fetch_all(db)
    .await
}
