//! Orders that wait for vouchers: those that fulfilment has not started on, and those that wait for stock.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::{OrderId, Position, ProductId, ShardId};
use rust_decimal::Decimal;
use sqlx::PgExecutor;

/// An order that waits for vouchers.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Queued {
    pub id: OrderId,
    pub placed_position: Position,
    /// Number of undelivered units.
    pub missing: i32,
}

/// Lists what started orders still wait for: each (product, denomination) pair once.
pub async fn waiting_for(db: impl PgExecutor<'_>, shard: ShardId) -> Result<Vec<(ProductId, Decimal)>, sqlx::Error> {
    // Loose index scan: one step per pair, however many orders wait.
    sqlx::query_as(
        "WITH RECURSIVE pairs AS (
            (SELECT product_id, denomination FROM orders
             WHERE shard_id = $1 AND is_queued AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
             ORDER BY product_id, denomination LIMIT 1)
            UNION ALL
            SELECT next.product_id, next.denomination FROM pairs CROSS JOIN LATERAL
            (SELECT product_id, denomination FROM orders
             WHERE shard_id = $1 AND is_queued AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
               AND (product_id, denomination) > (pairs.product_id, pairs.denomination)
             ORDER BY product_id, denomination LIMIT 1) AS next)
         SELECT product_id, denomination FROM pairs",
    )
    .bind(shard)
    .fetch_all(db)
    .await
}

/// Lists the oldest started orders that wait for one product and denomination.
pub async fn oldest_waiting(
    pool: &PgPool,
    shard: ShardId,
    product: ProductId,
    denomination: Decimal,
    limit: i64,
) -> Result<Vec<Queued>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, placed_position, quantity - delivered_quantity AS missing FROM orders
         WHERE shard_id = $1 AND is_queued AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
           AND product_id = $2 AND denomination = $3 ORDER BY placed_position LIMIT $4",
    )
    .bind(shard)
    .bind(product)
    .bind(denomination)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// A started order that waits for vouchers, with the time since which it does.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct WaitingSince {
    pub shard_id: ShardId,
    pub product_id: ProductId,
    pub denomination: Decimal,
    pub placed_at: DateTime<Utc>,
    /// Number of undelivered units.
    pub missing: i64,
}

/// Lists the oldest started orders that wait for each (product, denomination) pair in each of the shards, up to a limit for each
/// pair in a shard. Those of a pair in a shard are in the order of their positions.
pub async fn waiting_since(
    db: impl PgExecutor<'_>,
    shards: &[ShardId],
    pairs: &[(ProductId, Decimal)],
    limit: i64,
) -> Result<Vec<WaitingSince>, sqlx::Error> {
    if pairs.is_empty() {
        return Ok(vec![]);
    }
    sqlx::query_as(
        "SELECT s.id AS shard_id, w.product_id, w.denomination, o.placed_at, o.missing
         FROM unnest($1::smallint[]) AS s (id) CROSS JOIN unnest($2::bigint[], $3::numeric[]) AS w (product_id, denomination)
         CROSS JOIN LATERAL
            (SELECT placed_position, created_at AS placed_at, (quantity - delivered_quantity)::bigint AS missing FROM orders
             WHERE shard_id = s.id AND is_queued AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
               AND product_id = w.product_id AND denomination = w.denomination ORDER BY placed_position LIMIT $4) AS o
         ORDER BY s.id, o.placed_position",
    )
    .bind(shards)
    .bind(pairs.iter().map(|(product, _)| *product).collect::<Vec<_>>())
    .bind(pairs.iter().map(|(_, denomination)| *denomination).collect::<Vec<_>>())
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Finds, for each (product, denomination), the oldest started order that still waits, except the orders in
/// `except`. No younger order may be served before it.
pub async fn first_in_line(
    conn: &mut PgConnection,
    shard: ShardId,
    products: &[ProductId],
    denominations: &[Decimal],
    except: &[OrderId],
) -> Result<Vec<(ProductId, Decimal, Position)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT wanted.product_id, wanted.denomination, first.placed_position
         FROM unnest($2::bigint[], $3::numeric[]) AS wanted (product_id, denomination)
         CROSS JOIN LATERAL
            (SELECT o.placed_position FROM orders o
             WHERE o.shard_id = $1 AND o.is_queued AND o.status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
               AND o.product_id = wanted.product_id AND o.denomination = wanted.denomination AND o.id <> ALL($4)
             ORDER BY o.placed_position LIMIT 1) AS first",
    )
    .bind(shard)
    .bind(products)
    .bind(denominations)
    .bind(except)
    .fetch_all(conn)
    .await
}
