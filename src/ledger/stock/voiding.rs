//! Withdrawal of vouchers from the stock.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::{Money, OrderId, ProductId, ShardId};
use rust_decimal::Decimal;

/// Order of a voided voucher. No order has this id.
const VOIDED: OrderId = OrderId(0);

/// A voucher that an operator names by its reference.
#[derive(Clone, Debug)]
pub struct NamedVoucher {
    pub id: i64,
    pub product_id: ProductId,
    pub denomination: Money,
    pub order_id: Option<OrderId>,
    pub is_voided: bool,
}

/// Finds vouchers by their references.
pub async fn named(
    conn: &mut PgConnection,
    shard: ShardId,
    references: &[&[String]],
) -> Result<HashMap<String, NamedVoucher>, sqlx::Error> {
    let found: Vec<(String, i64, ProductId, Decimal, Option<OrderId>, bool)> = sqlx::query_as(
        "SELECT v.reference, v.id, v.product_id, v.denomination, nullif(v.order_id, $3), v.voided_at IS NOT NULL
         FROM (SELECT DISTINCT reference FROM unnest($2::text[]) AS r (reference)) AS wanted
         JOIN vault.vouchers v ON v.shard_id = $1 AND v.reference = wanted.reference",
    )
    .bind(shard)
    .bind(references.iter().flat_map(|references| references.iter()).collect::<Vec<_>>())
    .bind(VOIDED)
    .fetch_all(conn)
    .await?;
    let named = |(reference, id, product_id, denomination, order_id, is_voided): (_, _, _, Decimal, _, _)| {
        let denomination = denomination.try_into().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        Ok((reference, NamedVoucher { id, product_id, denomination, order_id, is_voided }))
    };
    found.into_iter().map(named).collect()
}

/// Withdraws free vouchers from the stock. If one is not free, which the head lock rules out, the batch fails.
pub async fn void(conn: &mut PgConnection, shard: ShardId, ids: &[i64], at: DateTime<Utc>) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let voided = sqlx::query(
        "UPDATE vault.vouchers v SET order_id = $3, voided_at = $4 FROM unnest($2::bigint[]) AS voided (id)
         WHERE v.shard_id = $1 AND v.id = voided.id AND v.order_id IS NULL",
    )
    .bind(shard)
    .bind(ids)
    .bind(VOIDED)
    .bind(at)
    .execute(conn)
    .await?;
    match usize::try_from(voided.rows_affected()) {
        Ok(rows) if rows == ids.len() => Ok(()),
        _ => Err(sqlx::Error::Protocol("a voucher to void is not free".into())),
    }
}
