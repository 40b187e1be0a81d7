//! Attempts of a webhook by day, as the workers have counted them.

use chrono::NaiveDate;
use ledger_database::{FromRow, PgPool};
use ledger_events::{ShardId, WebhookId};
use sqlx::PgExecutor;

/// Number of rows per statement of a purge.
const BATCH_ROWS: i64 = 1_000;
/// Number of days that are kept.
pub const KEPT_DAYS: i32 = 400;

/// Attempts of a webhook on one day (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRow)]
pub struct DeliveryDay {
    pub day: NaiveDate,
    pub attempts: i64,
    /// Number of attempts that succeeded.
    pub delivered: i64,
    /// Time of all attempts, in milliseconds.
    pub total_ms: i64,
    /// Time of the longest attempt, in milliseconds.
    pub longest_ms: i32,
}

/// A day of one of several webhooks.
#[derive(FromRow)]
struct OfWebhook {
    webhook_id: WebhookId,
    #[sqlx(flatten)]
    day: DeliveryDay,
}

/// Returns the days of some webhooks from a day on. Days without attempts have no row.
///
/// # Errors
/// Any error of the database.
pub async fn of_webhooks(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    webhooks: &[WebhookId],
    from: NaiveDate,
) -> Result<Vec<(WebhookId, DeliveryDay)>, sqlx::Error> {
    let days: Vec<OfWebhook> = sqlx::query_as(
        "SELECT webhook_id, day, attempts, delivered, total_ms, longest_ms FROM delivery_days
         WHERE shard_id = $1 AND webhook_id = ANY($2) AND day >= $3",
    )
    .bind(shard)
    .bind(webhooks)
    .bind(from)
    .fetch_all(db)
    .await?;
    Ok(days.into_iter().map(|of| (of.webhook_id, of.day)).collect())
}

/// Deletes a batch of old days. Returns the number of deleted rows, and whether there may be more.
///
/// # Errors
/// Any error of the database.
pub async fn purge(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let done = sqlx::query(
        "DELETE FROM delivery_days WHERE (shard_id, webhook_id, day) IN (
            SELECT shard_id, webhook_id, day FROM delivery_days
            WHERE day < (clock_timestamp() AT TIME ZONE 'UTC')::date - $1 ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED)",
    )
    .bind(KEPT_DAYS)
    .bind(BATCH_ROWS)
    .execute(pool)
    .await?;
    Ok((done.rows_affected(), done.rows_affected() == BATCH_ROWS.unsigned_abs()))
}
