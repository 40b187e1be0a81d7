//! Keys of the rows on a page, read from indexes alone. The caller looks up the rows afterwards.
//!
//! Run all queries of this module in one snapshot, so that totals and rows agree. The statements are not prepared
//! for reuse, so each plan fits its own values.

use std::ops::Range;

use ledger_database::PgConnection;
use ledger_events::order::OrderStatus;
use ledger_events::{AccountId, Id, Position, ProductId, ShardId, WebhookId};
use sqlx::{Postgres, QueryBuilder};

use super::moves::{Columns, Move, Uncounted};
use crate::page;

/// Limits beyond which another method is cheaper. The result is the same.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// If more events than this are not counted yet, the orders themselves are counted.
    pub uncounted: i64,
    /// Maximum number of groups that one query merges by their indexes.
    pub merged_groups: usize,
    /// If there are more pending deliveries than this, the newest deliveries are searched before all are read,
    /// because a backlog is usually new.
    pub pending: i64,
    /// If more rows than this come before a page, or belong to a product, the excluded rows are counted where that
    /// is less work.
    pub skipped: i64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { uncounted: 10_000, merged_groups: 64, pending: 10_000, skipped: 20_000 }
    }
}

/// A group of an account's rows that are adjacent in an index, with their number.
#[derive(Clone, Debug, PartialEq, Eq, ledger_database::FromRow)]
pub struct Group<K> {
    /// Id of the product or webhook.
    pub id: K,
    /// Order status or event type.
    pub kind: String,
    pub rows: i64,
}

impl<K> Group<K> {
    /// Sums the rows of these groups.
    pub fn rows_of(groups: &[Group<K>]) -> i64 {
        groups.iter().map(|group| group.rows).sum()
    }
}

/// Loads the sizes of an account's order groups, by product and status: the stored counts, and the changes since
/// then.
pub async fn order_groups(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    product: Option<ProductId>,
    status: Option<&str>,
    uncounted: &Uncounted,
) -> Result<Vec<Group<ProductId>>, sqlx::Error> {
    match uncounted {
        Uncounted::Unknown => {
            sqlx::query_as(
            "SELECT product_id AS id, status AS kind, count(*) AS rows FROM orders
             WHERE shard_id = $1 AND account_id = $2 AND ($3::bigint IS NULL OR product_id = $3) AND ($4::text IS NULL OR status = $4)
             GROUP BY 1, 2",
        )
        .bind(shard)
        .bind(account)
        .bind(product)
        .bind(status)
        .fetch_all(conn)
        .await
        }
        Uncounted::Moves(moves) => {
        let Columns { products, statuses, orders, .. } = Columns::new(moves.iter().filter(|one| one.account_id == account));
        sqlx::query_as(
            "SELECT product_id AS id, status AS kind, sum(orders)::bigint AS rows FROM (
                SELECT product_id, status, orders FROM order_counts WHERE shard_id = $1 AND account_id = $2
                UNION ALL
                SELECT * FROM unnest($5::bigint[], $6::text[], $7::bigint[])) AS counts
             WHERE ($3::bigint IS NULL OR product_id = $3) AND ($4::text IS NULL OR status = $4)
             GROUP BY 1, 2 HAVING sum(orders) > 0",
        )
        .bind(shard)
        .bind(account)
        .bind(product)
        .bind(status)
        .bind(products)
        .bind(statuses)
        .bind(orders)
        .fetch_all(conn)
        .await
        }
    }
}

/// Returns the position up to which orders are counted, and the head of the log.
pub async fn counted(conn: &mut PgConnection, shard: ShardId) -> Result<(Position, Position), sqlx::Error> {
    sqlx::query_as(
        "SELECT coalesce(c.position, 0), h.position FROM log_head h LEFT JOIN list_checkpoints c ON c.shard_id = h.shard_id
         WHERE h.shard_id = $1",
    )
    .bind(shard)
    .fetch_one(conn)
    .await
}

/// Counts the orders of all accounts by the stored counts, and the changes since then.
pub async fn orders_of_all(
    conn: &mut PgConnection,
    shard: ShardId,
    product: ProductId,
    status: Option<OrderStatus>,
    moves: &[Move],
) -> Result<i64, sqlx::Error> {
    let Columns { products, statuses, orders, .. } = Columns::new(moves);
    let mut query = QueryBuilder::new("SELECT coalesce(sum(orders), 0)::bigint FROM (");
    query.push("SELECT product_id, status, orders FROM order_counts WHERE shard_id = ").push_bind(shard);
    query.push(" UNION ALL SELECT * FROM unnest(").push_bind(products).push("::bigint[], ").push_bind(statuses);
    query.push("::text[], ").push_bind(orders).push("::bigint[])) AS counts WHERE true");
    page::equals(&mut query, "product_id", Some(product));
    page::equals(&mut query, "status", status.map(OrderStatus::as_str));
    query.build_query_scalar().persistent(false).fetch_one(conn).await
}

/// Loads the sizes of an account's delivery groups, by webhook and event type.
pub async fn delivery_groups(
    conn: &mut PgConnection,
    shard: ShardId,
    account: AccountId,
    webhook: Option<WebhookId>,
    event_type: Option<&str>,
) -> Result<Vec<Group<WebhookId>>, sqlx::Error> {
    sqlx::query_as(
        "SELECT webhook_id AS id, event_type AS kind, deliveries AS rows FROM delivery_counts
         WHERE shard_id = $1 AND account_id = $2 AND deliveries > 0
           AND ($3::bigint IS NULL OR webhook_id = $3) AND ($4::text IS NULL OR event_type = $4)",
    )
    .bind(shard)
    .bind(account)
    .bind(webhook)
    .bind(event_type)
    .fetch_all(conn)
    .await
}

/// A table with an index that keeps groups of rows adjacent.
#[derive(Clone, Copy, Debug)]
pub struct Grouped {
    pub table: &'static str,
    pub id: &'static str,
    pub kind: &'static str,
    pub key: &'static str,
    /// Whether the index contains the account. If not, the id implies it.
    pub has_account: bool,
    /// Further condition of the index.
    pub only: &'static str,
}

pub const ORDER_GROUPS: Grouped =
    Grouped { table: "orders", id: "product_id", kind: "status", key: "placed_position", has_account: true, only: "" };
pub const DELIVERY_GROUPS: Grouped =
    Grouped { table: "deliveries", id: "webhook_id", kind: "event_type", key: "id", has_account: true, only: "" };
/// Deliveries by status, from the worker's record.
const STATES: Grouped =
    Grouped { table: "delivery_state", id: "webhook_id", kind: "event_type", key: "delivery_id", has_account: false, only: "" };
pub const DELIVERED: Grouped = Grouped { only: " AND status = 'delivered'", ..STATES };
pub const FAILED: Grouped = Grouped { only: " AND status = 'failed'", ..STATES };

impl Grouped {
    fn push_where(self, query: &mut QueryBuilder<Postgres>, (shard, account): (ShardId, AccountId)) {
        query.push(" FROM ").push(self.table).push(" WHERE shard_id = ").push_bind(shard).push(self.only);
        if self.has_account {
            query.push(" AND account_id = ").push_bind(account);
        }
    }

    /// Returns the keys on a page of an account's groups, newest first. `within` limits the keys to those after
    /// the first value and up to the second; `total` rows match. `rows` is the range of the page.
    pub async fn keys<K: Id>(
        self,
        conn: &mut PgConnection,
        owner: (ShardId, AccountId),
        groups: &[Group<K>],
        within: (i64, i64),
        (total, rows): (i64, Range<i64>),
        thresholds: &Thresholds,
    ) -> Result<Vec<i64>, sqlx::Error> {
        let Grouped { id, kind, key, .. } = self;
        if groups.len() <= thresholds.merged_groups {
            let branch = |query: &mut QueryBuilder<Postgres>, group: &Group<K>| {
                query.push("SELECT ").push(key).push(" AS key");
                self.push_where(query, owner);
                query.push(" AND ").push(id).push(" = ").push_bind(group.id.number());
                query.push(" AND ").push(kind).push(" = ").push_bind(group.kind.clone());
                query.push(" AND ").push(key).push(" > ").push_bind(within.0);
                query.push(" AND ").push(key).push(" <= ").push_bind(within.1);
            };
            return merged(conn, groups, branch, total, rows).await;
        }
        // Too many groups to plan one by one: read the newest rows of each, up to the end of the page.
        let mut query = QueryBuilder::new("SELECT r.value");
        self.push_groups(&mut query, key, owner, groups, within);
        query.push(" ORDER BY ").push(key).push(" DESC LIMIT ").push_bind(rows.end);
        query.push(") AS r ORDER BY r.value DESC OFFSET ").push_bind(rows.start).push(" LIMIT ").push_bind(rows.end - rows.start);
        query.build_query_scalar().persistent(false).fetch_all(conn).await
    }

    /// Counts the rows of an account's groups with keys after the first value of `within` and up to the second.
    pub async fn count<K: Id>(
        self,
        conn: &mut PgConnection,
        owner: (ShardId, AccountId),
        groups: &[Group<K>],
        within: (i64, i64),
    ) -> Result<i64, sqlx::Error> {
        let mut query = QueryBuilder::new("SELECT coalesce(sum(r.value), 0)::bigint");
        self.push_groups(&mut query, "count(*)", owner, groups, within);
        query.push(") AS r");
        query.build_query_scalar().persistent(false).fetch_one(conn).await
    }

    /// Appends `FROM <the groups> CROSS JOIN LATERAL (SELECT <value> AS value FROM … WHERE …`, without the last parenthesis.
    fn push_groups<K: Id>(
        self,
        query: &mut QueryBuilder<Postgres>,
        value: &'static str,
        owner: (ShardId, AccountId),
        groups: &[Group<K>],
        within: (i64, i64),
    ) {
        let Grouped { id, kind, key, .. } = self;
        let ids: Vec<i64> = groups.iter().map(|group| group.id.number()).collect();
        let kinds: Vec<String> = groups.iter().map(|group| group.kind.clone()).collect();
        query.push(" FROM unnest(").push_bind(ids).push("::bigint[], ").push_bind(kinds);
        query.push("::text[]) AS g (id, kind) CROSS JOIN LATERAL (SELECT ").push(value).push(" AS value");
        self.push_where(query, owner);
        query.push(" AND ").push(id).push(" = g.id AND ").push(kind).push(" = g.kind");
        query.push(" AND ").push(key).push(" > ").push_bind(within.0).push(" AND ").push(key).push(" <= ").push_bind(within.1);
    }
}

/// Merges branches, and returns a range of the `total` keys that they select as `key`, newest first. Each branch
/// reads an index from either end, and the merge starts at the nearer one.
pub async fn merged<T>(
    conn: &mut PgConnection,
    branches: &[T],
    branch: impl Fn(&mut QueryBuilder<Postgres>, &T),
    total: i64,
    rows: Range<i64>,
) -> Result<Vec<i64>, sqlx::Error> {
    let (before, beyond) = (rows.start, (total - rows.end).max(0));
    let wanted = total - beyond - before;
    if branches.is_empty() || wanted <= 0 {
        return Ok(vec![]);
    }
    let skipped = before.min(beyond);
    merged_from(conn, branches, branch, before <= beyond, (skipped, wanted)).await
}

/// Merges branches from the newest or the oldest key on, skips `skipped` keys, and returns the next `wanted` ones,
/// newest first in either case.
pub async fn merged_from<T>(
    conn: &mut PgConnection,
    branches: &[T],
    branch: impl Fn(&mut QueryBuilder<Postgres>, &T),
    is_from_newest: bool,
    (skipped, wanted): (i64, i64),
) -> Result<Vec<i64>, sqlx::Error> {
    let order = if is_from_newest { " ORDER BY key DESC" } else { " ORDER BY key" };
    let mut query = QueryBuilder::new("SELECT key FROM (");
    for (n, part) in branches.iter().enumerate() {
        query.push(if n > 0 { " UNION ALL (" } else { "(" });
        branch(&mut query, part);
        query.push(order).push(")");
    }
    query.push(") AS merged").push(order).push(" OFFSET ").push_bind(skipped).push(" LIMIT ").push_bind(wanted);
    let mut keys: Vec<i64> = query.build_query_scalar().persistent(false).fetch_all(conn).await?;
    keys.sort_unstable_by(|a, b| b.cmp(a));
    Ok(keys)
}
