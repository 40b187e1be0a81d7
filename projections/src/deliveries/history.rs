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
    /// Time of the successful attempt.
    pub delivered_at: Option<DateTime<Utc>>,
    /// Time at which the next attempt is due. `None` unless the delivery is pending.
    pub next_attempt_at: Option<DateTime<Utc>>,
    #[sqlx(skip)]
    pub attempts: Vec<Attempt>,
}

impl DeliveryHistory {
    /// Returns the delivery as it was at a time; `None` before it was created. An attempt that ended later is in flight. One
    /// without a recorded end stays as it is.
    ///
    /// A delivery without later attempts has its present status, unless it was delivered later: the time at which it was switched
    /// off is not kept.
    pub fn as_of(mut self, at: DateTime<Utc>) -> Option<DeliveryHistory> {
        if self.created_at > at {
            return None;
        }
        let ends_later = |attempt: &Attempt| attempt.finished_at.is_some_and(|ended| ended > at);
        let is_later = |attempt: &Attempt| attempt.started_at > at || ends_later(attempt);
        if !self.attempts.iter().any(is_later) && self.delivered_at.is_none_or(|delivered| delivered <= at) {
            return Some(self);
        }
        self.attempts.retain(|attempt| attempt.started_at <= at);
        for attempt in self.attempts.iter_mut().filter(|attempt| ends_later(attempt)) {
            let &mut Attempt { attempt: number, request_id, started_at, .. } = attempt;
            let (finished_at, response_status, response_time_ms, error) = (None, None, None, None);
            *attempt = Attempt {
                attempt: number,
                request_id,
                started_at,
                finished_at,
                response_status,
                response_time_ms,
                error,
                response_body: None,
                is_in_flight: true,
            };
        }
        let is_delivered = self.attempts.iter().any(|attempt| matches!(attempt.response_status, Some(200..=299)));
        self.status = if is_delivered { "delivered" } else { "pending" }.to_owned();
        self.delivered_at = self.delivered_at.filter(|delivered| *delivered <= at);
        // Earlier attempts may have been deleted, or counted without a recorded end.
        let used = |attempt: &Attempt| if attempt.finished_at.is_some() { attempt.attempt } else { attempt.attempt - 1 };
        self.attempt_count = self.attempts.iter().map(used).max().unwrap_or_default();
        self.next_attempt_at = None;
        Some(self)
    }
}

/// Maximum number of deliveries read per order. The oldest come first.
pub const MAX_ROWS: i64 = 1_000;

/// Lists the deliveries of an order's events, oldest first.
pub async fn of_order(pool: &PgPool, shard: ShardId, order: OrderId) -> Result<Vec<DeliveryHistory>, sqlx::Error> {
    let mut told: Vec<DeliveryHistory> = sqlx::query_as(
        "SELECT d.id, d.event_id, d.webhook_id, d.replay_id, d.event_type, d.created_at, s.status, s.attempt_count, s.delivered_at,
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
    let mut attempts = attempts(pool, shard, &ids, false).await?;
    for told in &mut told {
        told.attempts = attempts.remove(&told.id).unwrap_or_default();
    }
    Ok(told)
}

/// Loads all stored attempts of these deliveries, oldest first. Reads their response bodies only if `with_bodies` is set. A
/// failed attempt has its own, and the body of the latest result stands with the delivery.
pub(super) async fn attempts(
    pool: &PgPool,
    shard: ShardId,
    deliveries: &[i64],
    with_bodies: bool,
) -> Result<HashMap<i64, Vec<Attempt>>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT a.delivery_id, a.attempt, a.request_id, a.started_at, a.finished_at, a.response_status, a.response_time_ms, a.error,
            CASE WHEN $3 THEN coalesce(a.response_body, CASE WHEN a.finished_at IS NOT NULL AND a.attempt = s.attempt_count
                THEN s.response_body END) END AS response_body,
            a.finished_at IS NULL AND coalesce(s.leased_until > clock_timestamp(), false)
                AND lead(a.request_id) OVER (PARTITION BY a.delivery_id ORDER BY a.started_at, a.request_id) IS NULL AS is_in_flight
         FROM delivery_attempts a JOIN delivery_state s ON s.shard_id = a.shard_id AND s.delivery_id = a.delivery_id
         WHERE a.shard_id = $1 AND a.delivery_id = ANY($2) ORDER BY a.delivery_id, a.started_at, a.request_id",
    )
    .bind(shard)
    .bind(deliveries)
    .bind(with_bodies)
    .fetch_all(pool)
    .await?;
    let mut attempts: HashMap<i64, Vec<Attempt>> = HashMap::new();
    for row in &rows {
        attempts.entry(row.try_get("delivery_id")?).or_default().push(Attempt::from_row(row)?);
    }
    Ok(attempts)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    /// A delivery of second 0 with two attempts, from second 1 to 3 and from second 5 to 7. The second one succeeds.
    fn delivery() -> DeliveryHistory {
        let at = |second| DateTime::<Utc>::UNIX_EPOCH + TimeDelta::seconds(second);
        let attempt = |number: i16, response_status, error: Option<&str>| Attempt {
            attempt: number,
            request_id: Uuid::nil(),
            started_at: at(i64::from(number) * 4 - 3),
            finished_at: Some(at(i64::from(number) * 4 - 1)),
            response_status: Some(response_status),
            response_time_ms: Some(2_000),
            error: error.map(ToOwned::to_owned),
            response_body: None,
            is_in_flight: false,
        };
        DeliveryHistory {
            id: 1,
            event_id: Uuid::nil(),
            webhook_id: WebhookId(1),
            replay_id: ReplayId(0),
            event_type: "order.created".to_owned(),
            created_at: at(0),
            status: "delivered".to_owned(),
            attempt_count: 2,
            delivered_at: Some(at(7)),
            next_attempt_at: None,
            attempts: vec![attempt(1, 500, Some("HTTP 500")), attempt(2, 200, None)],
        }
    }

    #[test]
    fn a_past_delivery_has_the_attempts_of_its_time() {
        let past = |second| delivery().as_of(DateTime::<Utc>::UNIX_EPOCH + TimeDelta::seconds(second));
        assert!(past(-1).is_none());
        let seen = |second| {
            let past = past(second).unwrap();
            let outcomes: Vec<_> = past.attempts.iter().map(|attempt| (attempt.response_status, attempt.is_in_flight)).collect();
            (past.status, past.attempt_count, outcomes)
        };
        let of = |status: &str, count, outcomes: &[(Option<i16>, bool)]| (status.to_owned(), count, outcomes.to_vec());
        assert_eq!(seen(0), of("pending", 0, &[]));
        assert_eq!(seen(2), of("pending", 0, &[(None, true)]));
        assert_eq!(seen(3), of("pending", 1, &[(Some(500), false)]));
        assert_eq!(seen(6), of("pending", 1, &[(Some(500), false), (None, true)]));
        assert_eq!(seen(7), of("delivered", 2, &[(Some(500), false), (Some(200), false)]));
    }

    #[test]
    fn a_past_delivery_without_its_first_attempts_was_not_delivered_yet() {
        let at = |second| DateTime::<Utc>::UNIX_EPOCH + TimeDelta::seconds(second);
        let without = DeliveryHistory { attempts: vec![], ..delivery() }.as_of(at(3)).unwrap();
        assert_eq!((&*without.status, without.attempt_count, without.delivered_at), ("pending", 0, None));
        let mut second = delivery();
        second.attempts.remove(0);
        assert_eq!(second.as_of(at(6)).unwrap().attempt_count, 1, "the second attempt is in flight");
    }
}
