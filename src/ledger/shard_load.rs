//! Load of the shards, and the shard that gets the next account.

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_events::{Position, ShardId};
use sqlx::PgExecutor;

use super::FIRST_SHARD;
use super::clock::expiry_day;

/// Beginning of a statement that has the first position of each shard's last 24 hours as `days (shard_id, first)`. Times never
/// decrease with position, so a bisection reads few events, as `reader::first_at_each` does.
macro_rules! days {
    () => {
        "WITH RECURSIVE search (shard_id, low, high) AS (
            SELECT shard_id, 1::bigint, position + 1 FROM log_head
            UNION ALL
            SELECT shard_id, CASE WHEN is_before THEN found + 1 ELSE low END, CASE WHEN is_before THEN high ELSE middle END
            FROM (SELECT half.shard_id, low, high, middle, next.position AS found,
                    coalesce(next.recorded_at < now() - interval '24 hours' AND next.position < high, false) AS is_before
                  FROM (SELECT shard_id, low, high, low + (high - low) / 2 AS middle FROM search WHERE low < high) AS half
                  LEFT JOIN LATERAL (SELECT e.position, e.recorded_at FROM events e WHERE e.shard_id = half.shard_id
                    AND e.position >= half.middle ORDER BY e.position LIMIT 1) AS next ON true) AS step),
         days AS (SELECT shard_id, low AS first FROM search WHERE low >= high) "
    };
}

/// Tables of a statement that begins with `days!()`: heads as `h`, rows of the first shard, `$1`, as `s`, and numbers of accounts
/// as `a`.
macro_rules! from_shards {
    () => {
        " FROM log_head h JOIN days d ON d.shard_id = h.shard_id LEFT JOIN shards s ON s.shard_id = $1 AND s.id = h.shard_id
         LEFT JOIN (SELECT shard_id, count(*) AS accounts FROM accounts GROUP BY shard_id) AS a ON a.shard_id = h.shard_id "
    };
}

/// Condition of a shard that an event has added, or that every ledger has.
macro_rules! is_announced {
    () => {
        "(h.shard_id = $1 OR s.added_at IS NOT NULL)"
    };
}
pub(in crate::ledger) use is_announced;

/// Load of a shard.
#[derive(Clone, Debug, FromRow)]
pub struct ShardLoad {
    pub shard_id: ShardId,
    /// Whether the first shard's log has the shard. It does not have a head that somebody has made by hand.
    pub is_announced: bool,
    pub draining: bool,
    pub added_at: Option<DateTime<Utc>>,
    pub accounts: i64,
    /// Number of events, which is the position of the last one.
    pub events: Position,
    pub events_last_day: i64,
    /// Orders that wait for vouchers, up to 10,001.
    pub waiting_orders: i64,
    /// Vouchers that an order can get, up to 10,001.
    pub available_vouchers: i64,
    /// Whether a node leads the shard.
    pub has_leader: bool,
}

/// Lists the load of a shard, or of all in the order of their numbers.
pub async fn list(db: impl PgExecutor<'_>, shard: Option<ShardId>) -> Result<Vec<ShardLoad>, sqlx::Error> {
    sqlx::query_as(concat!(
        days!(),
        "SELECT h.shard_id, ",
        is_announced!(),
        " AS is_announced, coalesce(s.draining, false) AS draining, s.added_at, coalesce(a.accounts, 0) AS accounts,
            h.position AS events, h.position + 1 - d.first AS events_last_day,
            (SELECT count(*) FROM (SELECT FROM orders o WHERE o.shard_id = h.shard_id AND o.is_queued
                AND o.status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED') LIMIT 10001) AS waiting) AS waiting_orders,
            (SELECT count(*) FROM (SELECT FROM vault.vouchers v WHERE v.shard_id = h.shard_id AND v.order_id IS NULL
                AND v.expired_at IS NULL AND (v.expires_on IS NULL OR v.expires_on >= ",
        expiry_day!(),
        ") LIMIT 10001) AS available) AS available_vouchers,
            EXISTS (SELECT FROM shard_leaders l WHERE l.shard_id = h.shard_id AND l.expires_at > clock_timestamp())
                AS has_leader",
        from_shards!(),
        "WHERE $2::smallint IS NULL OR h.shard_id = $2 ORDER BY h.shard_id"
    ))
    .bind(FIRST_SHARD)
    .bind(shard)
    .fetch_all(db)
    .await
}

/// Returns the shard that gets the next account: of those in `known`, the one with the fewest events in the last 24 hours, and
/// among equal ones the one with the fewest accounts. Returns none if all of them drain.
pub async fn least_loaded(db: impl PgExecutor<'_>, known: &[ShardId]) -> Result<Option<ShardId>, sqlx::Error> {
    sqlx::query_scalar(concat!(
        days!(),
        "SELECT h.shard_id",
        from_shards!(),
        "WHERE h.shard_id = ANY($2) AND ",
        is_announced!(),
        " AND NOT coalesce(s.draining, false) ORDER BY h.position - d.first, coalesce(a.accounts, 0), h.shard_id LIMIT 1"
    ))
    .bind(FIRST_SHARD)
    .bind(known)
    .fetch_optional(db)
    .await
}

/// Lists the shards that the first shard's log has, in the order of their numbers.
pub async fn announced(db: impl PgExecutor<'_>) -> Result<Vec<ShardId>, sqlx::Error> {
    sqlx::query_scalar(concat!(
        "SELECT h.shard_id FROM log_head h LEFT JOIN shards s ON s.shard_id = $1 AND s.id = h.shard_id WHERE ",
        is_announced!(),
        " ORDER BY h.shard_id"
    ))
    .bind(FIRST_SHARD)
    .fetch_all(db)
    .await
}

/// Returns whether a shard drains, or none if the first shard's log does not have it.
pub async fn is_draining(db: impl PgExecutor<'_>, shard: ShardId) -> Result<Option<bool>, sqlx::Error> {
    sqlx::query_scalar(concat!(
        "SELECT coalesce(s.draining, false) FROM log_head h LEFT JOIN shards s ON s.shard_id = $1 AND s.id = h.shard_id
         WHERE h.shard_id = $2 AND ",
        is_announced!()
    ))
    .bind(FIRST_SHARD)
    .bind(shard)
    .fetch_optional(db)
    .await
}
