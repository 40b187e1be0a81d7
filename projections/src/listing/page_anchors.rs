//! Page anchors: the ordinals of some of an account's rows. They turn the number of a row into its key.
//!
//! Run all queries of this module in one snapshot, as in [`super::pages`].

use std::ops::Range;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::order::OrderStatus;
use ledger_events::{AccountId, Position, ShardId};
use sqlx::{Postgres, QueryBuilder};

use super::pages::merged_from;

/// Returns all statuses, for an index in which the status precedes the position.
pub fn any_status() -> [&'static str; 5] {
    OrderStatus::ALL.map(OrderStatus::as_str)
}

/// A table with page anchors.
#[derive(Clone, Copy, Debug)]
pub struct AnchoredTable {
    pub table: &'static str,
    /// Table of the anchors.
    pub anchors: &'static str,
    /// Column that orders the rows; newer rows have greater keys.
    pub key: &'static str,
    /// Conditions on the index columns before the key, one per partition. The rows of each partition are in key
    /// order.
    parts: &'static [&'static str],
}

pub const ORDERS: AnchoredTable = AnchoredTable {
    table: "orders",
    anchors: "order_marks",
    key: "placed_position",
    parts: &[
        " AND status = 'PENDING'",
        " AND status = 'DELAYED'",
        " AND status = 'PARTIALLY_DELIVERED'",
        " AND status = 'DELIVERED'",
        " AND status = 'CANCELLED'",
    ],
};
pub const DELIVERIES: AnchoredTable = AnchoredTable { table: "deliveries", anchors: "delivery_marks", key: "id", parts: &[""] };

/// A range of an account's rows: ordinals after `after` and up to `upto`, with keys after `after_key` and up to
/// `upto_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub after: i64,
    pub upto: i64,
    pub after_key: i64,
    pub upto_key: i64,
}

impl Span {
    pub fn rows(self) -> i64 {
        (self.upto - self.after).max(0)
    }
}

impl AnchoredTable {
    /// Counts all rows of an account: the ordinal of the last anchor, and the index entries after it.
    pub async fn total(self, conn: &mut PgConnection, shard: ShardId, account: AccountId) -> Result<i64, sqlx::Error> {
        let (ordinal, key) = self.anchor(conn, shard, account, i64::MAX).await?;
        let mut query = QueryBuilder::new("SELECT ");
        for (n, part) in self.parts.iter().enumerate() {
            query.push(if n > 0 { " + (SELECT count(*)" } else { "(SELECT count(*)" });
            self.push_part(&mut query, (shard, account), part);
            query.push(" AND ").push(self.key).push(" > ").push_bind(key).push(")");
        }
        let more: i64 = query.build_query_scalar().fetch_one(conn).await?;
        Ok(ordinal + more)
    }

    fn push_part(self, query: &mut QueryBuilder<Postgres>, (shard, account): (ShardId, AccountId), part: &'static str) {
        query.push(" FROM ").push(self.table).push(" WHERE shard_id = ").push_bind(shard);
        query.push(" AND account_id = ").push_bind(account).push(part);
    }

    /// Returns the ordinal and key of the last anchor up to an ordinal, or zeros if there is none.
    pub async fn anchor(
        self,
        conn: &mut PgConnection,
        shard: ShardId,
        account: AccountId,
        upto: i64,
    ) -> Result<(i64, i64), sqlx::Error> {
        let mut query = QueryBuilder::new("SELECT ordinal, key FROM ");
        query.push(self.anchors).push(" WHERE shard_id = ").push_bind(shard).push(" AND account_id = ").push_bind(account);
        query.push(" AND ordinal <= ").push_bind(upto).push(" ORDER BY ordinal DESC LIMIT 1");
        Ok(query.build_query_as().fetch_optional(conn).await?.unwrap_or_default())
    }

    /// Returns the key of the first anchor from an ordinal on.
    async fn key_of_anchor(
        self,
        conn: &mut PgConnection,
        shard: ShardId,
        account: AccountId,
        from: i64,
    ) -> Result<Option<i64>, sqlx::Error> {
        let mut query = QueryBuilder::new("SELECT key FROM ");
        query.push(self.anchors).push(" WHERE shard_id = ").push_bind(shard).push(" AND account_id = ").push_bind(account);
        query.push(" AND ordinal >= ").push_bind(from).push(" ORDER BY ordinal LIMIT 1");
        query.build_query_scalar().fetch_optional(conn).await
    }

    /// Returns the keys of a range of rows of a span, newest first. Row 0 is the newest of the span.
    pub async fn keys(
        self,
        conn: &mut PgConnection,
        shard: ShardId,
        account: AccountId,
        span: Span,
        rows: Range<i64>,
    ) -> Result<Vec<i64>, sqlx::Error> {
        let offset = rows.start;
        if offset >= span.rows() {
            return Ok(vec![]);
        }
        let upto = span.upto - offset;
        let after = (span.upto.saturating_sub(rows.end)).max(span.after);
        let (ordinal, key) = self.anchor(conn, shard, account, after).await?;
        // Start at the end of the span or at the anchor, whichever is nearer.
        let is_from_end = offset <= after - ordinal;
        // Bound the search at both ends, so that an empty partition does not scan further into the index.
        let upto_key = match is_from_end {
            true => span.upto_key,
            false => {
                self.key_of_anchor(&mut *conn, shard, account, upto).await?.map_or(span.upto_key, |key| key.min(span.upto_key))
            }
        };
        let branch = |query: &mut QueryBuilder<Postgres>, part: &&'static str| {
            query.push("SELECT ").push(self.key).push(" AS key");
            self.push_part(query, (shard, account), part);
            query.push(" AND ").push(self.key).push(" > ").push_bind(key);
            query.push(" AND ").push(self.key).push(" <= ").push_bind(upto_key);
        };
        let skipped = if is_from_end { offset } else { after - ordinal };
        merged_from(conn, self.parts, branch, is_from_end, (skipped, upto - after)).await
    }
}

/// Counts the orders that an account placed before a time, and returns the position of the last of them. Time
/// never decreases with position, so these are the oldest orders.
pub async fn orders_before(
    conn: &mut PgConnection,
    shard: ShardId,
    account: AccountId,
    time: DateTime<Utc>,
) -> Result<(i64, Position), sqlx::Error> {
    sqlx::query_as(
        "WITH low AS MATERIALIZED (
            SELECT ordinal, key FROM order_marks WHERE shard_id = $1 AND account_id = $2 AND created_at < $3
            ORDER BY created_at DESC, ordinal DESC LIMIT 1),
         bounds AS MATERIALIZED (
            SELECT coalesce((SELECT ordinal FROM low), 0) AS ordinal, coalesce((SELECT key FROM low), 0) AS after,
                   coalesce((SELECT m.key FROM order_marks m WHERE m.shard_id = $1 AND m.account_id = $2
                             AND m.ordinal > coalesce((SELECT ordinal FROM low), 0) ORDER BY m.ordinal LIMIT 1), 9223372036854775807) AS upto)
         SELECT bounds.ordinal + o.n, coalesce(o.last, bounds.after)
         FROM bounds CROSS JOIN LATERAL
            (SELECT count(*) AS n, max(placed_position) AS last FROM orders
             WHERE shard_id = $1 AND account_id = $2 AND status = ANY($4)
               AND placed_position > bounds.after AND placed_position <= bounds.upto AND created_at < $3) AS o",
    )
    .bind(shard)
    .bind(account)
    .bind(time)
    .bind(any_status())
    .fetch_one(conn)
    .await
}

/// Counts the orders that an account placed before each of these positions. Returns the counts in the order of the positions.
pub async fn orders_before_each(
    conn: &mut PgConnection,
    shard: ShardId,
    account: AccountId,
    positions: &[Position],
) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT coalesce(low.ordinal, 0) + o.n FROM unnest($3::bigint[]) WITH ORDINALITY AS t (position, nr)
         LEFT JOIN LATERAL (SELECT ordinal, key FROM order_marks WHERE shard_id = $1 AND account_id = $2 AND key < t.position
            ORDER BY key DESC LIMIT 1) AS low ON true
         CROSS JOIN LATERAL
            (SELECT count(*) AS n FROM orders
             WHERE shard_id = $1 AND account_id = $2 AND status = ANY($4)
               AND placed_position > coalesce(low.key, 0) AND placed_position < t.position) AS o
         ORDER BY t.nr",
    )
    .bind(shard)
    .bind(account)
    .bind(positions)
    .bind(any_status())
    .fetch_all(conn)
    .await
}

/// Counts the orders of all accounts that were placed within these positions. Reads one anchor of each account, and the index
/// entries after it, for either end.
pub async fn orders_of_all(conn: &mut PgConnection, shard: ShardId, placed: &Range<Position>) -> Result<i64, sqlx::Error> {
    if placed.is_empty() {
        return Ok(0);
    }
    let (mut ends, mut signs) = (vec![placed.end], vec![1_i64]);
    if placed.start > 0 {
        ends.push(placed.start);
        signs.push(-1);
    }
    sqlx::query_scalar(
        "SELECT coalesce(sum(e.sign * (coalesce(low.ordinal, 0) + o.n)), 0)::bigint
         FROM unnest($2::bigint[], $3::bigint[]) AS e (position, sign) CROSS JOIN accounts a
         LEFT JOIN LATERAL (SELECT ordinal, key FROM order_marks WHERE shard_id = $1 AND account_id = a.id AND key < e.position
            ORDER BY key DESC LIMIT 1) AS low ON true
         CROSS JOIN LATERAL
            (SELECT count(*) AS n FROM orders
             WHERE shard_id = $1 AND account_id = a.id AND status = ANY($4)
               AND placed_position > coalesce(low.key, 0) AND placed_position < e.position) AS o
         WHERE a.shard_id = $1",
    )
    .bind(shard)
    .bind(ends)
    .bind(signs)
    .bind(any_status())
    .persistent(false)
    .fetch_one(conn)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partitions_of_orders_match_the_statuses() {
        assert_eq!(ORDERS.parts, any_status().map(|status| format!(" AND status = '{status}'")));
    }
}
