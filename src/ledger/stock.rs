//! The voucher stock in the vault: what is there, what is known already, who gets what.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use ledger_events::{Money, OrderId, ProductId, ShardId};
use rust_decimal::Decimal;
use serde::Deserialize;
use sqlx::{FromRow, PgConnection, PgPool};

use super::command::NewVoucher;
use super::texts::VaultError;
use crate::access::seal::{Keyring, Private};

/// A voucher that can be allocated.
#[derive(Clone, Debug)]
pub struct Voucher {
    pub id: i64,
    pub reference: String,
}

/// A voucher that is about to be added.
#[derive(Debug)]
pub struct NewRow {
    pub id: i64,
    pub product_id: ProductId,
    pub denomination: Money,
    pub reference: String,
    pub fingerprint: [u8; 32],
    pub sealed: Vec<u8>,
    pub expires_on: Option<NaiveDate>,
}

/// What of an upload is in the stock already, or is taken earlier in the batch.
#[derive(Debug, Default)]
pub struct Known {
    pub fingerprints: HashSet<(ProductId, [u8; 32])>,
    pub references: HashSet<String>,
}

/// The kind that a voucher's codes are sealed as.
pub const KIND: &str = "voucher";

/// What finds a card number again without telling it.
pub fn fingerprint(keyring: &Keyring, voucher: &NewVoucher) -> [u8; 32] {
    keyring.fingerprint(KIND, voucher.card_number.expose())
}

pub async fn known(
    conn: &mut PgConnection,
    shard: ShardId,
    keyring: &Keyring,
    uploads: &[(ProductId, &[NewVoucher])],
) -> Result<Known, sqlx::Error> {
    let mut products = Vec::new();
    let mut fingerprints = Vec::new();
    let mut references = Vec::new();
    for (product, vouchers) in uploads {
        for voucher in *vouchers {
            products.push(*product);
            fingerprints.push(fingerprint(keyring, voucher).to_vec());
            references.extend(voucher.reference.as_deref());
        }
    }
    let found: Vec<(ProductId, Vec<u8>)> = sqlx::query_as(
        "SELECT v.product_id, v.fingerprint FROM unnest($2::bigint[], $3::bytea[]) AS new (product_id, fingerprint)
         JOIN vault.vouchers v ON v.shard_id = $1 AND v.product_id = new.product_id AND v.fingerprint = new.fingerprint",
    )
    .bind(shard)
    .bind(products)
    .bind(fingerprints)
    .fetch_all(&mut *conn)
    .await?;
    let taken: Vec<String> =
        sqlx::query_scalar("SELECT v.reference FROM unnest($2::text[]) AS new (reference) JOIN vault.vouchers v ON v.shard_id = $1 AND v.reference = new.reference")
            .bind(shard)
            .bind(references)
            .fetch_all(conn)
            .await?;
    let fingerprints = found.into_iter().filter_map(|(product, print)| Some((product, print.try_into().ok()?))).collect();
    Ok(Known { fingerprints, references: taken.into_iter().collect() })
}

/// As many vouchers of each (product, denomination) as are wanted and there, oldest first; none
/// that expired before `today`.
pub async fn oldest_available(
    conn: &mut PgConnection,
    shard: ShardId,
    wanted: &HashMap<(ProductId, Money), i64>,
    today: NaiveDate,
) -> Result<Vec<((ProductId, Money), Voucher)>, sqlx::Error> {
    let rows: Vec<(ProductId, Decimal, i64, String)> = sqlx::query_as(
        "SELECT w.product_id, w.denomination, v.id, v.reference
         FROM unnest($2::bigint[], $3::numeric[], $4::bigint[]) AS w (product_id, denomination, wanted)
         CROSS JOIN LATERAL
            (SELECT id, reference FROM vault.vouchers
             WHERE shard_id = $1 AND product_id = w.product_id AND denomination = w.denomination AND order_id IS NULL
               AND (expires_on IS NULL OR expires_on >= $5)
             ORDER BY id LIMIT w.wanted) AS v
         ORDER BY v.id",
    )
    .bind(shard)
    .bind(wanted.keys().map(|(product, _)| *product).collect::<Vec<_>>())
    .bind(wanted.keys().map(|(_, denomination)| denomination.decimal()).collect::<Vec<_>>())
    .bind(wanted.values().copied().collect::<Vec<_>>())
    .bind(today)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(product, denomination, id, reference)| {
            let denomination = Money::try_from(denomination).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
            Ok(((product, denomination), Voucher { id, reference }))
        })
        .collect()
}

/// The id of a shard's newest voucher, 0 without any: it grows whenever stock arrives, because ids
/// are drawn under the head lock.
pub async fn newest(pool: &PgPool, shard: ShardId) -> Result<i64, sqlx::Error> {
    let newest: Option<i64> = sqlx::query_scalar("SELECT id FROM vault.vouchers WHERE shard_id = $1 ORDER BY id DESC LIMIT 1")
        .bind(shard)
        .fetch_optional(pool)
        .await?;
    Ok(newest.unwrap_or_default())
}

/// Those of the (product, denomination) pairs that there are vouchers for, with how many, counted
/// up to a limit; expired ones do not count.
pub async fn available_pairs(
    pool: &PgPool,
    shard: ShardId,
    pairs: &[(ProductId, Decimal)],
    limit: i64,
) -> Result<Vec<(ProductId, Decimal, i64)>, sqlx::Error> {
    if pairs.is_empty() {
        return Ok(vec![]);
    }
    sqlx::query_as(
        "SELECT w.product_id, w.denomination, stock.vouchers
         FROM unnest($2::bigint[], $3::numeric[]) AS w (product_id, denomination)
         CROSS JOIN LATERAL
            (SELECT count(*) AS vouchers FROM
                (SELECT FROM vault.vouchers
                 WHERE shard_id = $1 AND product_id = w.product_id AND denomination = w.denomination AND order_id IS NULL
                   AND (expires_on IS NULL OR expires_on >= (clock_timestamp() AT TIME ZONE 'UTC')::date)
                 ORDER BY id LIMIT $4) AS counted) AS stock
         WHERE stock.vouchers > 0",
    )
    .bind(shard)
    .bind(pairs.iter().map(|(product, _)| *product).collect::<Vec<_>>())
    .bind(pairs.iter().map(|(_, denomination)| *denomination).collect::<Vec<_>>())
    .bind(limit)
    .fetch_all(pool)
    .await
}

pub async fn insert(conn: &mut PgConnection, shard: ShardId, rows: &[NewRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO vault.vouchers (shard_id, id, product_id, denomination, reference, fingerprint, sealed, expires_on)
         SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::numeric[], $5::text[], $6::bytea[], $7::bytea[], $8::date[]) AS new",
    )
    .bind(shard)
    .bind(rows.iter().map(|v| v.id).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| v.product_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| v.denomination.decimal()).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| &*v.reference).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| &v.fingerprint[..]).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| &*v.sealed).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| v.expires_on).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Gives vouchers to orders. Errors when one was taken by somebody else, which the head lock
/// rules out.
pub async fn claim(conn: &mut PgConnection, shard: ShardId, claims: &[(i64, OrderId)]) -> Result<(), sqlx::Error> {
    if claims.is_empty() {
        return Ok(());
    }
    let (vouchers, orders): (Vec<i64>, Vec<OrderId>) = claims.iter().copied().unzip();
    let claimed = sqlx::query(
        "UPDATE vault.vouchers v SET order_id = claim.order_id FROM unnest($2::bigint[], $3::bigint[]) AS claim (id, order_id)
         WHERE v.shard_id = $1 AND v.id = claim.id AND v.order_id IS NULL",
    )
    .bind(shard)
    .bind(vouchers)
    .bind(orders)
    .execute(conn)
    .await?;
    if usize::try_from(claimed.rows_affected()).is_ok_and(|n| n == claims.len()) { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
}

/// A voucher that was delivered, with its codes.
#[derive(Clone, Debug)]
pub struct Revealed {
    pub reference: String,
    pub card_number: Private,
    pub pin: Option<Private>,
    pub claim_url: Option<Private>,
    pub expires_on: Option<NaiveDate>,
}

/// What is sealed of a voucher.
#[derive(Deserialize)]
struct Codes {
    card_number: String,
    pin: Option<String>,
    claim_url: Option<String>,
}

/// The vouchers that an order was delivered, oldest first, opened. Reading them is an audited
/// event: append it first (`Command::RevealVouchers`).
pub async fn revealed(pool: &PgPool, keyring: &Keyring, shard: ShardId, order: OrderId) -> Result<Vec<Revealed>, VaultError> {
    let rows: Vec<(i64, String, Vec<u8>, Option<NaiveDate>)> = sqlx::query_as(
        "SELECT id, reference, sealed, expires_on FROM vault.vouchers WHERE shard_id = $1 AND order_id = $2 ORDER BY id",
    )
    .bind(shard)
    .bind(order)
    .fetch_all(pool)
    .await?;
    let open = |(id, reference, sealed, expires_on): (i64, String, Vec<u8>, Option<NaiveDate>)| {
        let codes = keyring.open(KIND, id, &sealed)?;
        let codes: Codes = serde_json::from_slice(&codes).map_err(|_| VaultError::Damaged("a voucher's codes"))?;
        Ok(Revealed {
            reference,
            card_number: Private::new(codes.card_number),
            pin: codes.pin.map(Private::new),
            claim_url: codes.claim_url.map(Private::new),
            expires_on,
        })
    };
    rows.into_iter().map(open).collect()
}

/// How many vouchers of one denomination there are.
#[derive(Clone, Debug, FromRow)]
pub struct Level {
    pub denomination: Decimal,
    /// Not expired, and nobody's yet.
    pub available: i64,
    pub allocated: i64,
}

/// A product's stock over all shards, by denomination.
pub async fn levels(pool: &PgPool, shards: &[ShardId], product: ProductId) -> Result<Vec<Level>, sqlx::Error> {
    sqlx::query_as(
        "SELECT denomination, count(order_id) AS allocated,
            count(*) FILTER (WHERE order_id IS NULL AND (expires_on IS NULL OR expires_on >= current_date)) AS available
         FROM vault.vouchers WHERE shard_id = ANY($1) AND product_id = $2 GROUP BY denomination ORDER BY denomination",
    )
    .bind(shards)
    .bind(product)
    .fetch_all(pool)
    .await
}
