//! Orders that wait for vouchers: those that fulfilment has not started on, and those that wait for stock.

use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::{OrderId, Position, ProductId, ShardId};
use rust_decimal::Decimal;

/// An order that waits for vouchers.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Queued {
    pub id: OrderId,
    pub placed_position: Position,
    /// Number of undelivered units.
    pub missing: i32,
}

/// Lists what started orders still wait for: each (product, denomination) pair once.
pub async fn waiting_for(pool: &PgPool, shard: ShardId) -> Result<Vec<(ProductId, Decimal)>, sqlx::Error> {
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
    .fetch_all(pool)
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
