//! Events that clients receive, by account. The indexes `events_announced` and `events_announced_further` find them in
//! segments of the log.

use ledger_database::{FromRow, PgConnection};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, Position, ShardId};
use sqlx::PgExecutor;
use uuid::Uuid;

/// Number of positions in a segment of the indexes.
pub const SEGMENT: Position = 1 << 12;

/// An event that an account's webhooks may receive.
#[derive(Clone, Debug, FromRow)]
pub struct Announced {
    pub position: Position,
    pub event_id: Uuid,
    /// Bytes of the envelope, if a webhook received the event and retention has not removed them.
    pub payload: Option<String>,
}

/// Condition of the index of orders' events, word for word.
macro_rules! of_orders {
    () => {
        "stream_type = 'order' AND type IN ('OrderPlaced', 'OrderQueued', 'OrderDelivered', 'OrderPartiallyDelivered', 'OrderCancelled')"
    };
}

/// Condition of the index of all other events, word for word.
macro_rules! further {
    () => {
        "stream_type IN ('payout', 'account') AND type IN ('PayoutRequested', 'PayoutPaid', 'PayoutFailed', 'PayoutCancelled', 'LowBalanceReached')"
    };
}

/// SELECT of the events of a segment that one of the indexes holds.
macro_rules! of_segment {
    ($condition:expr) => {
        concat!(
            "(SELECT position, event_id FROM events
                WHERE shard_id = $1 AND (position >> 12) = s.segment AND (metadata->>'account_id') COLLATE \"C\" = $2
                    AND position > $3 AND position <= $4 AND ",
            $condition,
            " AND type = ANY($5) ORDER BY position LIMIT $6)"
        )
    };
}

/// Statement that looks up the events of each segment of a range.
macro_rules! statement {
    ($of_segment:expr) => {
        concat!(
            "SELECT found.position, found.event_id, envelope.payload
             FROM (SELECT of_segment.position, of_segment.event_id
                FROM generate_series(($3::bigint + 1) >> 12, $4::bigint >> 12) AS s (segment)
                CROSS JOIN LATERAL (",
            $of_segment,
            ") AS of_segment
                ORDER BY of_segment.position LIMIT $6) AS found
             LEFT JOIN LATERAL (SELECT w.payload FROM webhook_envelopes w
                WHERE w.shard_id = $1 AND w.event_id = found.event_id LIMIT 1) AS envelope ON true
             ORDER BY found.position"
        )
    };
}

const OF_ORDERS: &str = statement!(of_segment!(of_orders!()));
const OF_ALL: &str = statement!(concat!(of_segment!(of_orders!()), " UNION ALL ", of_segment!(further!())));

/// Returns the account's first `limit` events of these types after a position and up to another one. Looks up each
/// segment of the range, so the caller keeps the range bounded.
pub async fn announced(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    (after, upto): (Position, Position),
    types: &[WebhookEventType],
    limit: i64,
) -> Result<Vec<Announced>, sqlx::Error> {
    let statement = if types.iter().all(|wanted| wanted.is_of_orders()) { OF_ORDERS } else { OF_ALL };
    sqlx::query_as(statement)
        .bind(shard)
        .bind(account.to_string())
        .bind(after)
        .bind(upto)
        .bind(types.iter().map(|wanted| wanted.announced()).collect::<Vec<_>>())
        .bind(limit)
        .fetch_all(conn)
        .await
}

/// Returns the accounts that have such events after a position and up to another one. Reads all events of the range.
pub async fn announced_to(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    (after, upto): (Position, Position),
) -> Result<Vec<AccountId>, sqlx::Error> {
    let accounts: Vec<Option<String>> = sqlx::query_scalar(concat!(
        "SELECT DISTINCT metadata->>'account_id' FROM events WHERE shard_id = $1 AND position > $2 AND position <= $3 AND (",
        of_orders!(),
        " OR ",
        further!(),
        ")"
    ))
    .bind(shard)
    .bind(after)
    .bind(upto)
    .fetch_all(db)
    .await?;
    Ok(accounts.into_iter().flatten().filter_map(|account| account.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_indexes_hold_every_type_that_webhooks_receive() {
        let of_orders = include_str!("../../../migrations/0032_events_by_account.sql");
        let further = include_str!("../../../migrations/0051_further_events_by_account.sql");
        for (migration, condition) in [(of_orders, of_orders!()), (further, further!())] {
            assert!(migration.contains(condition), "the condition of the index and of the queries differ");
            assert!(migration.contains(&format!("position >> {}", SEGMENT.ilog2())));
        }
        for event_type in WebhookEventType::ALL {
            let condition = if event_type.is_of_orders() { of_orders!() } else { further!() };
            assert!(condition.contains(&format!("'{}'", event_type.announced())), "{event_type:?}");
        }
    }
}
