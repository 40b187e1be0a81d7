//! Vouchers that operators name: their withdrawal from the stock, and their last day.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, NaiveDate, Utc};
use ledger_database::{PgConnection, PgPool};
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
    pub expires_on: Option<NaiveDate>,
    /// Whether its expiry is recorded.
    pub is_expired: bool,
}

impl NamedVoucher {
    /// Returns why no operator can change the voucher any more, or nothing if it is in the stock.
    pub fn gone(&self) -> Option<Gone> {
        match self {
            NamedVoucher { is_voided: true, .. } => Some(Gone::Voided),
            NamedVoucher { order_id: Some(_), .. } => Some(Gone::Allocated),
            NamedVoucher { is_expired: true, .. } => Some(Gone::Expired),
            _ => None,
        }
    }
}

/// Reason for which a voucher that an operator names stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    #[error("is not in the stock of this product")]
    Unknown,
    #[error("is voided")]
    Voided,
    #[error("is allocated to an order")]
    Allocated,
    #[error("has expired")]
    Expired,
}

/// Finds vouchers by their references.
pub async fn named(
    conn: &mut PgConnection,
    shard: ShardId,
    references: &[&[String]],
) -> Result<HashMap<String, NamedVoucher>, sqlx::Error> {
    type Row = (String, i64, ProductId, Decimal, Option<OrderId>, bool, Option<NaiveDate>, bool);
    let found: Vec<Row> = sqlx::query_as(
        "SELECT v.reference, v.id, v.product_id, v.denomination, nullif(v.order_id, $3), v.voided_at IS NOT NULL, v.expires_on,
            v.expired_at IS NOT NULL
         FROM (SELECT DISTINCT reference FROM unnest($2::text[]) AS r (reference)) AS wanted
         JOIN vault.vouchers v ON v.shard_id = $1 AND v.reference = wanted.reference",
    )
    .bind(shard)
    .bind(references.iter().flat_map(|references| references.iter()).collect::<Vec<_>>())
    .bind(VOIDED)
    .fetch_all(conn)
    .await?;
    let named = |(reference, id, product_id, denomination, order_id, is_voided, expires_on, is_expired): Row| {
        let denomination = denomination.try_into().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        Ok((reference, NamedVoucher { id, product_id, denomination, order_id, is_voided, expires_on, is_expired }))
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
         WHERE v.shard_id = $1 AND v.id = voided.id AND v.order_id IS NULL AND v.expired_at IS NULL",
    )
    .bind(shard)
    .bind(ids)
    .bind(VOIDED)
    .bind(at)
    .execute(conn)
    .await?;
    ensure_all_changed(voided.rows_affected(), ids.len())
}

/// Returns the shards whose stock has vouchers with these references, and the references by shard. If two shards have the same
/// reference, that of a voucher of the product counts.
pub async fn shards_of(
    pool: &PgPool,
    shards: &[ShardId],
    product: ProductId,
    references: &[String],
) -> Result<BTreeMap<ShardId, Vec<String>>, sqlx::Error> {
    let found: Vec<(ShardId, String)> = sqlx::query_as(
        "SELECT DISTINCT ON (v.reference) v.shard_id, v.reference
         FROM unnest($1::smallint[]) AS s (id) CROSS JOIN unnest($2::text[]) AS wanted (reference)
         JOIN vault.vouchers v ON v.shard_id = s.id AND v.reference = wanted.reference
         ORDER BY v.reference, v.product_id <> $3, v.shard_id",
    )
    .bind(shards)
    .bind(references)
    .bind(product)
    .fetch_all(pool)
    .await?;
    let mut by_shard: BTreeMap<ShardId, Vec<String>> = BTreeMap::new();
    for (shard, reference) in found {
        by_shard.entry(shard).or_default().push(reference);
    }
    Ok(by_shard)
}

/// Finds the vouchers, of those with these references in a shard, whose card number a product has in any shard.
pub async fn duplicates(
    conn: &mut PgConnection,
    shard: ShardId,
    product: ProductId,
    references: &[String],
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT v.reference FROM vault.vouchers v CROSS JOIN log_head s
         JOIN vault.vouchers other ON other.shard_id = s.shard_id AND other.product_id = $2 AND other.fingerprint = v.fingerprint
         WHERE v.shard_id = $1 AND v.reference = ANY($3)",
    )
    .bind(shard)
    .bind(product)
    .bind(references)
    .fetch_all(conn)
    .await
}

/// Gives free vouchers to other products. If one is not free, which the head lock rules out, the batch fails.
pub async fn transfer(conn: &mut PgConnection, shard: ShardId, transfers: &[(i64, ProductId)]) -> Result<(), sqlx::Error> {
    if transfers.is_empty() {
        return Ok(());
    }
    let moved = sqlx::query(
        "UPDATE vault.vouchers v SET product_id = r.product_id FROM unnest($2::bigint[], $3::bigint[]) AS r (id, product_id)
         WHERE v.shard_id = $1 AND v.id = r.id AND v.order_id IS NULL AND v.expired_at IS NULL",
    )
    .bind(shard)
    .bind(transfers.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(transfers.iter().map(|(_, product)| *product).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    ensure_all_changed(moved.rows_affected(), transfers.len())
}

/// Sets the last day of free vouchers. If one is not free, which the head lock rules out, the batch fails.
pub async fn set_expiry(conn: &mut PgConnection, shard: ShardId, expiries: &[(i64, NaiveDate)]) -> Result<(), sqlx::Error> {
    if expiries.is_empty() {
        return Ok(());
    }
    let set = sqlx::query(
        "UPDATE vault.vouchers v SET expires_on = r.expires_on FROM unnest($2::bigint[], $3::date[]) AS r (id, expires_on)
         WHERE v.shard_id = $1 AND v.id = r.id AND v.order_id IS NULL",
    )
    .bind(shard)
    .bind(expiries.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(expiries.iter().map(|(_, expires_on)| *expires_on).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    ensure_all_changed(set.rows_affected(), expiries.len())
}

/// Checks that a statement has changed all vouchers that it names.
fn ensure_all_changed(changed: u64, named: usize) -> Result<(), sqlx::Error> {
    match usize::try_from(changed) {
        Ok(changed) if changed == named => Ok(()),
        _ => Err(sqlx::Error::Protocol("a voucher that an operator names is not free".into())),
    }
}
