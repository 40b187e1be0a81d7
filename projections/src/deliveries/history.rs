//! Delivery history of one order: every delivery to webhooks, with every attempt.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_database::PgPool;
use ledger_events::{OrderId, ReplayId, ShardId, WebhookId};
use sqlx::Row;
use uuid::Uuid;

use super::model::Attempt;

/// A delivery of an order's event, with its status.
#[derive(Clone, Debug, FromRow)]
pub struct DeliveryHistory {
    pub id: i64,
    pub event_id: Uuid,
    pub webhook_id: WebhookId,
    /// Id of the replay that made the delivery; 0 if the event itself made it.
    pub replay_id: ReplayId,
    pub event_type: String,
    pub created_at: DateTime<Utc>,
    pub status: String,
    pub attempt_count: i16,
    /// Time at which the next attempt is due. `None` unless the delivery is pending.
    pub next_attempt_at: Option<DateTime<Utc>>,
    #[sqlx(skip)]
    pub attempts: Vec<Attempt>,
}

/// Maximum number of deliveries read per order. The oldest come first.
pub const MAX_ROWS: i64 = 1_000;

/// Lists the deliveries of an order's events, oldest first.
pub async fn of_order(pool: &PgPool, shard: ShardId, order: OrderId) -> Result<Vec<DeliveryHistory>, sqlx::Error> {
    let mut told: Vec<DeliveryHistory> = sqlx::query_as(
        "SELECT d.id, d.event_id, d.webhook_id, d.replay_id, d.event_type, d.created_at, s.status, s.attempt_count,
            CASE WHEN s.status = 'pending' THEN s.next_attempt_at END AS next_attempt_at
         FROM deliveries d JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
         WHERE d.shard_id = $1 AND d.order_id = $2 AND d.account_id =
            (SELECT account_id FROM orders WHERE shard_id = $1 AND id = $2)
         ORDER BY d.id LIMIT $3",
    )
    .bind(shard)
    .bind(order)
    .bind(MAX_ROWS)
    .fetch_all(pool)
    .await?;
    let ids: Vec<i64> = told.iter().map(|told| told.id).collect();
    let mut attempts = attempts(pool, shard, &ids).await?;
    for told in &mut told {
        told.attempts = attempts.remove(&told.id).unwrap_or_default();
    }
    Ok(told)
}

/// Loads all stored attempts of these deliveries, oldest first.
pub(super) async fn attempts(
    pool: &PgPool,
    shard: ShardId,
    deliveries: &[i64],
) -> Result<HashMap<i64, Vec<Attempt>>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT a.delivery_id, a.attempt, a.request_id, a.started_at, a.finished_at, a.response_status, a.response_time_ms, a.error,
            a.finished_at IS NULL AND coalesce(s.leased_until > clock_timestamp(), false)
                AND lead(a.request_id) OVER (PARTITION BY a.delivery_id ORDER BY a.started_at, a.request_id) IS NULL AS is_in_flight
         FROM delivery_attempts a JOIN delivery_state s ON s.shard_id = a.shard_id AND s.delivery_id = a.delivery_id
         WHERE a.shard_id = $1 AND a.delivery_id = ANY($2) ORDER BY a.delivery_id, a.started_at, a.request_id",
    )
    .bind(shard)
    .bind(deliveries)
    .fetch_all(pool)
    .await?;
    let mut attempts: HashMap<i64, Vec<Attempt>> = HashMap::new();
    for row in &rows {
        attempts.entry(row.try_get("delivery_id")?).or_default().push(Attempt::from_row(row)?);
    }
    Ok(attempts)
}
