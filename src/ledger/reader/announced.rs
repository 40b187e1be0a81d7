//! Order events that clients receive, by account. The index `events_announced` finds them in segments of the log.

use ledger_database::{FromRow, PgConnection};
use ledger_events::{AccountId, Position, ShardId};
use sqlx::PgExecutor;
use uuid::Uuid;

/// Number of positions in a segment of the index.
pub const SEGMENT: Position = 1 << 12;

/// An event that an account's webhooks may receive.
#[derive(Clone, Debug, FromRow)]
pub struct Announced {
    pub position: Position,
    pub event_id: Uuid,
    /// Bytes of the envelope, if a webhook received the event and retention has not removed them.
    pub payload: Option<String>,
}

/// Condition of the index, word for word.
macro_rules! announced {
    () => {
        "stream_type = 'order' AND type IN ('OrderPlaced', 'OrderQueued', 'OrderDelivered', 'OrderPartiallyDelivered', 'OrderCancelled')"
    };
}

/// Returns the account's first `limit` events of these log types after a position and up to another one. Looks up each
/// segment of the range, so the caller keeps the range bounded.
pub async fn announced(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    (after, upto): (Position, Position),
    types: &[&str],
    limit: i64,
) -> Result<Vec<Announced>, sqlx::Error> {
    sqlx::query_as(concat!(
        "SELECT found.position, found.event_id, envelope.payload
         FROM (SELECT of_segment.position, of_segment.event_id
            FROM generate_series(($3::bigint + 1) >> 12, $4::bigint >> 12) AS s (segment)
            CROSS JOIN LATERAL (SELECT position, event_id FROM events
                WHERE shard_id = $1 AND (position >> 12) = s.segment AND (metadata->>'account_id') COLLATE \"C\" = $2
                    AND position > $3 AND position <= $4 AND ",
        announced!(),
        " AND type = ANY($5) ORDER BY position LIMIT $6) AS of_segment
            ORDER BY of_segment.position LIMIT $6) AS found
         LEFT JOIN LATERAL (SELECT w.payload FROM webhook_envelopes w
            WHERE w.shard_id = $1 AND w.event_id = found.event_id LIMIT 1) AS envelope ON true
         ORDER BY found.position"
    ))
    .bind(shard)
    .bind(account.to_string())
    .bind(after)
    .bind(upto)
    .bind(types)
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
        "SELECT DISTINCT metadata->>'account_id' FROM events WHERE shard_id = $1 AND position > $2 AND position <= $3 AND ",
        announced!()
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
    use ledger_events::webhook::WebhookEventType;

    #[test]
    fn the_index_holds_every_type_that_webhooks_receive() {
        let migration = include_str!("../../../migrations/0032_events_by_account.sql");
        assert!(migration.contains(announced!()), "the condition of the index and of the queries differ");
        for event_type in WebhookEventType::ALL {
            assert!(announced!().contains(&format!("'{}'", event_type.announced())), "{event_type:?}");
        }
        assert!(migration.contains(&format!("position >> {}", super::SEGMENT.ilog2())));
    }
}
