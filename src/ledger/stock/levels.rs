//! Number of vouchers in the stock, and thresholds for warnings.

use std::collections::BTreeSet;

use ledger_database::{FromRow, PgPool};
use ledger_events::{Money, ProductId, ShardId};
use rust_decimal::Decimal;
use sqlx::PgExecutor;

use crate::ledger::clock::expiry_day;

/// Condition of the vouchers in a state, with the day as `day.today`.
macro_rules! in_state {
    (available) => {
        "order_id IS NULL AND expired_at IS NULL AND (expires_on IS NULL OR expires_on >= day.today)"
    };
    (allocated) => {
        "order_id IS NOT NULL AND voided_at IS NULL"
    };
    (expired) => {
        "order_id IS NULL AND (expires_on < day.today OR expired_at IS NOT NULL)"
    };
    (voided) => {
        "voided_at IS NOT NULL"
    };
}
pub(super) use in_state;

/// The number of vouchers of one denomination.
#[derive(Clone, Debug, FromRow)]
pub struct Level {
    pub denomination: Decimal,
    /// Free vouchers that have not expired.
    pub available: i64,
    pub allocated: i64,
    /// Free vouchers that have expired, or are about to: they are not given to orders.
    pub expired: i64,
    pub voided: i64,
}

/// Returns a product's stock over all shards, by denomination.
pub async fn levels(pool: &PgPool, shards: &[ShardId], product: ProductId) -> Result<Vec<Level>, sqlx::Error> {
    sqlx::query_as(concat!(
        "SELECT denomination, count(*) FILTER (WHERE ",
        in_state!(allocated),
        ") AS allocated, count(*) FILTER (WHERE ",
        in_state!(available),
        ") AS available, count(*) FILTER (WHERE ",
        in_state!(expired),
        ") AS expired, count(*) FILTER (WHERE ",
        in_state!(voided),
        ") AS voided
         FROM vault.vouchers CROSS JOIN (SELECT ",
        expiry_day!(),
        " AS today) AS day
         WHERE shard_id = ANY($1) AND product_id = $2 GROUP BY denomination ORDER BY denomination"
    ))
    .bind(shards)
    .bind(product)
    .fetch_all(pool)
    .await
}

/// Returns the denominations of which fewer vouchers are available than their threshold. Counts no further than the
/// threshold.
///
/// Only an index-only scan makes the planner read the few products with thresholds by their index. So the statement looks up
/// the thresholds by the product's id.
pub async fn low(db: impl PgExecutor<'_>, shards: &[ShardId]) -> Result<BTreeSet<(ProductId, Money)>, sqlx::Error> {
    let low: Vec<(ProductId, Decimal)> = sqlx::query_as(concat!(
        "SELECT t.product_id, t.denomination
         FROM (SELECT p.id AS product_id, (s.value->>'denomination')::numeric AS denomination, (s.value->>'least')::integer AS least
            FROM (SELECT id FROM products WHERE details->'stock_thresholds' IS NOT NULL) AS p
            CROSS JOIN LATERAL json_array_elements((SELECT t.details->'stock_thresholds' FROM products t WHERE t.id = p.id)) AS s) AS t
         WHERE (SELECT count(*) FROM
            (SELECT FROM vault.vouchers
             WHERE shard_id = ANY($1) AND product_id = t.product_id AND denomination = t.denomination AND order_id IS NULL
               AND expired_at IS NULL AND (expires_on IS NULL OR expires_on >= ",
        expiry_day!(),
        ") LIMIT t.least) AS counted) < t.least"
    ))
    .bind(shards)
    .fetch_all(db)
    .await?;
    let pair = |(product, denomination): (ProductId, Decimal)| {
        Ok((product, denomination.try_into().map_err(|error| sqlx::Error::Decode(Box::new(error)))?))
    };
    low.into_iter().map(pair).collect()
}
