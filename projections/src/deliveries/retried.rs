//! Retries in the log that the projection has not processed yet. Readers of deliveries find them in the log and
//! pass them in. Their deliveries are then shown as pending as soon as the retry is accepted.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_database::PgConnection;
use ledger_events::webhook::{MAX_ATTEMPTS, WebhookEventType};
use ledger_events::{AccountId, OrderId, ReplayId, ShardId, WebhookId};

use super::model::{Delivery, DeliveryFilter, DeliveryStatus, Retry};

/// A delivery that is failed in the worker's record, and pending in the log.
#[derive(Clone, Debug, FromRow)]
pub(super) struct Retried {
    pub id: i64,
    pub webhook_id: WebhookId,
    pub order_id: OrderId,
    pub event_type: String,
    pub replay_id: ReplayId,
    pub created_at: DateTime<Utc>,
    pub requested_at: DateTime<Utc>,
}

impl Retried {
    fn matches(&self, filter: &DeliveryFilter) -> bool {
        filter.webhook_id.is_none_or(|webhook| webhook == self.webhook_id)
            && filter.order_id.is_none_or(|order| order == self.order_id)
            && filter.replay_id.is_none_or(|replay| replay == self.replay_id)
            && filter.event_type.map(WebhookEventType::as_str).is_none_or(|event_type| event_type == self.event_type)
            && filter.created_from.is_none_or(|from| from <= self.created_at)
            && filter.created_to.is_none_or(|to| self.created_at < to)
    }
}

/// Deliveries of an account, by id, that readers see as pending although the worker's record says failed.
#[derive(Clone, Debug, Default)]
pub(super) struct AllRetried(HashMap<i64, Retried>);

impl AllRetried {
    /// Finds the deliveries whose retry is still unprocessed. After processing, a delivery is pending or was
    /// attempted again.
    pub async fn find(
        conn: &mut PgConnection,
        shard: ShardId,
        account: AccountId,
        retries: &[Retry],
    ) -> Result<AllRetried, sqlx::Error> {
        if retries.is_empty() {
            return Ok(AllRetried::default());
        }
        let found: Vec<Retried> = sqlx::query_as(
            "SELECT d.id, d.webhook_id, d.order_id, d.event_type, d.replay_id, d.created_at, r.requested_at
             FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS r (event_id, webhook_id, replay_id, requested_at)
             JOIN deliveries d ON d.shard_id = $1 AND d.event_id = r.event_id AND d.webhook_id = r.webhook_id AND d.replay_id = r.replay_id
             JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = d.id
             WHERE d.account_id = $2 AND s.status = 'failed' AND s.attempt_count < $7",
        )
        .bind(shard)
        .bind(account)
        .bind(retries.iter().map(|r| r.event_id).collect::<Vec<_>>())
        .bind(retries.iter().map(|r| r.webhook_id).collect::<Vec<_>>())
        .bind(retries.iter().map(|r| r.replay_id).collect::<Vec<_>>())
        .bind(retries.iter().map(|r| r.requested_at).collect::<Vec<_>>())
        .bind(MAX_ATTEMPTS)
        .fetch_all(conn)
        .await?;
        Ok(AllRetried(found.into_iter().map(|retried| (retried.id, retried)).collect()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Retried> {
        self.0.values()
    }

    /// Returns the ids of the deliveries that match a filter, ignoring its status.
    pub fn ids(&self, filter: &DeliveryFilter) -> Vec<i64> {
        self.iter().filter(|retried| retried.matches(filter)).map(|retried| retried.id).collect()
    }

    /// Shows a delivery as the projection will: pending, and due since the retry was requested.
    pub fn show(&self, delivery: &mut Delivery) {
        if let Some(retried) = self.0.get(&delivery.id) {
            delivery.status = DeliveryStatus::Pending;
            delivery.next_attempt_at = retried.requested_at;
        }
    }
}
