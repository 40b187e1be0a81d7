//! Uploaded vouchers that the stock has already, in whichever shard.

use ledger_database::PgConnection;
use ledger_events::ProductId;

use super::{KnownVouchers, NewVoucher, fingerprint};
use crate::secrets::seal::Keyring;

/// Finds the card numbers `$2` of the products `$1` that the stock of any shard has.
///
/// The transfers are found by their type: a product that is bought for each order has an event for each load. LIMIT makes each
/// card number one look-up in each shard with its product. Without it, a table without statistics is searched by the card number
/// alone, which reads every voucher for each new one.
pub const KNOWN: &str = "WITH RECURSIVE shards AS MATERIALIZED (SELECT shard_id FROM log_head),
     transfers AS MATERIALIZED (
        SELECT e.stream_id, e.data FROM shards s CROSS JOIN LATERAL
            (SELECT stream_id, data FROM events WHERE shard_id = s.shard_id AND type = 'VouchersTransferredOut' OFFSET 0) AS e),
     holders (product_id, holder_id) AS (
        SELECT DISTINCT id, id FROM unnest($1::bigint[]) AS p (id)
        UNION
        SELECT h.product_id, (t.data->>'to_product_id')::bigint FROM holders h JOIN transfers t ON t.stream_id = h.holder_id)
     SELECT new.product_id, new.fingerprint FROM unnest($1::bigint[], $2::bytea[]) AS new (product_id, fingerprint)
     JOIN holders h ON h.product_id = new.product_id
     CROSS JOIN LATERAL (SELECT FROM shards s CROSS JOIN LATERAL
            (SELECT FROM vault.vouchers v
             WHERE v.shard_id = s.shard_id AND v.product_id = h.holder_id AND v.fingerprint = new.fingerprint LIMIT 1) AS found
        LIMIT 1) AS held";

/// Finds uploaded vouchers that the stock of any shard has. A voucher that has moved to another product is one of them: a product
/// counts as having the card numbers of every product to which its vouchers have ever moved.
pub async fn known(
    conn: &mut PgConnection,
    keyring: &Keyring,
    uploads: &[(ProductId, &[NewVoucher])],
) -> Result<KnownVouchers, sqlx::Error> {
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
    let found: Vec<(ProductId, Vec<u8>)> = sqlx::query_as(KNOWN).bind(products).bind(fingerprints).fetch_all(&mut *conn).await?;
    let taken: Vec<String> = sqlx::query_scalar(
        "SELECT new.reference FROM unnest($1::text[]) AS new (reference) CROSS JOIN log_head s CROSS JOIN LATERAL
            (SELECT FROM vault.vouchers v WHERE v.shard_id = s.shard_id AND v.reference = new.reference LIMIT 1) AS held",
    )
    .bind(references)
    .fetch_all(conn)
    .await?;
    let fingerprints = found.into_iter().filter_map(|(product, print)| Some((product, print.try_into().ok()?))).collect();
    Ok(KnownVouchers { fingerprints, references: taken.into_iter().collect() })
}
