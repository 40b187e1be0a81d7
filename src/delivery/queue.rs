//! The queue of a webhook: its pending deliveries in the order in which their next attempts are due.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::{OrderId, ShardId, WebhookId};
use ledger_projections::page::{self, Listed, Page};
use uuid::Uuid;

use super::overview::MAX_OF_WEBHOOK;

/// Part of a webhook's queue. The overview of operations counts the same deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Deliveries whose attempt is due and that no node is sending.
    Due,
    /// Deliveries with a failed attempt, whether or not the next one is due.
    Retries,
}

/// A delivery in the queue of a webhook.
#[derive(Clone, Debug, FromRow)]
pub struct Queued {
    pub delivery_id: i64,
    pub order_id: OrderId,
    pub event_type: String,
    pub event_id: Uuid,
    pub attempt_count: i16,
    pub next_attempt_at: DateTime<Utc>,
    /// Whether a node is sending the delivery.
    pub is_in_flight: bool,
}

/// Lists a page of a webhook's queue, the delivery that is due first at the start. The list ends after [`MAX_OF_WEBHOOK`] first
/// attempts and as many retries, so its total is the number that the overview shows.
///
/// # Errors
/// Any error of the database.
pub async fn list(
    pool: &PgPool,
    (shard, webhook): (ShardId, WebhookId),
    part: Part,
    Page { number, size }: Page,
) -> Result<Listed<Queued>, sqlx::Error> {
    let offset = Page { number, size }.offset();
    let mut tx = page::snapshot(pool).await?;
    let is_due = part == Part::Due;
    // Each branch is one range of the index of first attempts or of retries, and ends early. The keys are few, so they are all read.
    let keys: Vec<i64> = sqlx::query_scalar(
        "SELECT delivery_id FROM (
            (SELECT s.delivery_id, s.next_attempt_at FROM delivery_state s
             WHERE $3 AND s.shard_id = $1 AND s.webhook_id = $2 AND s.status = 'pending' AND s.attempt_count = 0
               AND s.next_attempt_at <= now() AND coalesce(s.leased_until, '-infinity') < now()
             ORDER BY s.next_attempt_at, s.delivery_id LIMIT $4)
            UNION ALL
            (SELECT s.delivery_id, s.next_attempt_at FROM delivery_state s
             WHERE s.shard_id = $1 AND s.webhook_id = $2 AND s.status = 'pending' AND s.attempt_count > 0
               AND s.next_attempt_at <= CASE WHEN $3 THEN now() ELSE 'infinity' END
               AND (NOT $3 OR coalesce(s.leased_until, '-infinity') < now())
             ORDER BY s.next_attempt_at, s.delivery_id LIMIT $4)) AS queued
         ORDER BY next_attempt_at, delivery_id",
    )
    .bind(shard)
    .bind(webhook)
    .bind(is_due)
    .bind(MAX_OF_WEBHOOK)
    .fetch_all(&mut *tx)
    .await?;
    let total = i64::try_from(keys.len()).unwrap_or(i64::MAX);
    let before = usize::try_from(offset).unwrap_or(usize::MAX);
    let size = usize::try_from(size).unwrap_or_default();
    let wanted: Vec<i64> = keys.into_iter().skip(before).take(size).collect();
    let rows = sqlx::query_as(
        "SELECT s.delivery_id, d.order_id, d.event_type, d.event_id, s.attempt_count, s.next_attempt_at,
            coalesce(s.leased_until >= now(), false) AS is_in_flight
         FROM unnest($2::bigint[]) WITH ORDINALITY AS wanted (id, place)
         JOIN deliveries d ON d.shard_id = $1 AND d.id = wanted.id
         JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = wanted.id ORDER BY wanted.place",
    )
    .bind(shard)
    .bind(wanted)
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(Listed { rows, total })
}
