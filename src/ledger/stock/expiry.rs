//! Vouchers that have expired before an order got them.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::{ProductId, ShardId};

/// An expired voucher whose expiry is not in the log yet.
#[derive(Clone, Debug, FromRow)]
pub struct Expiring {
    pub product_id: ProductId,
    pub reference: String,
}

/// Returns free vouchers that have expired by both the trusted time and the database's clock, earliest first. Returns none
/// before a voucher was loaded with a cost, because programs of the last release cannot read the event.
pub async fn expiring(pool: &PgPool, shard: ShardId, limit: i64) -> Result<Vec<Expiring>, sqlx::Error> {
    sqlx::query_as(
        "SELECT v.product_id, v.reference FROM vault.vouchers v
         WHERE v.shard_id = $1 AND v.order_id IS NULL AND v.expired_at IS NULL AND v.expires_on IS NOT NULL
           AND v.expires_on < (SELECT (least(c.trusted_at, clock_timestamp()) AT TIME ZONE 'UTC')::date FROM trusted_clock c
                WHERE c.is_only)
           AND EXISTS (SELECT FROM stock_costs)
         ORDER BY v.expires_on LIMIT $2",
    )
    .bind(shard)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// Marks free vouchers as expired. If one is not free, which the head lock rules out, the batch fails.
pub async fn expire(conn: &mut PgConnection, shard: ShardId, ids: &[i64], at: DateTime<Utc>) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let expired = sqlx::query(
        "UPDATE vault.vouchers v SET expired_at = $3 FROM unnest($2::bigint[]) AS expired (id)
         WHERE v.shard_id = $1 AND v.id = expired.id AND v.order_id IS NULL AND v.expired_at IS NULL",
    )
    .bind(shard)
    .bind(ids)
    .bind(at)
    .execute(conn)
    .await?;
    match usize::try_from(expired.rows_affected()) {
        Ok(rows) if rows == ids.len() => Ok(()),
        _ => Err(sqlx::Error::Protocol("a voucher to expire is not free".into())),
    }
}
