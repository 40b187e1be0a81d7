//! Compares the bytes of product images with the hashes in the log.

use std::collections::HashMap;

use ledger_database::PgConnection;
use ledger_events::catalogue::Product;
use ledger_events::{ProductId, ShardId};

use super::{Difference, Findings};

/// Checks the bytes of these products' images, in the caller's snapshot.
pub async fn check(
    conn: &mut PgConnection,
    shard: ShardId,
    products: &HashMap<ProductId, Product>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let named = products.values().filter_map(|product| Some((product.id, &*product.image.as_ref()?.set.sha256)));
    let (ids, hashes): (Vec<ProductId>, Vec<&str>) = named.unzip();
    if ids.is_empty() {
        return Ok(());
    }
    let wrong: Vec<(ProductId, bool)> = sqlx::query_as(
        "SELECT named.product_id, i.bytes IS NULL
         FROM unnest($1::bigint[], $2::text[]) AS named (product_id, sha256)
         LEFT JOIN product_images i ON i.product_id = named.product_id AND i.sha256 = decode(named.sha256, 'hex')
         WHERE i.bytes IS NULL OR sha256(i.bytes) <> i.sha256 ORDER BY 1",
    )
    .bind(ids)
    .bind(hashes)
    .fetch_all(conn)
    .await?;
    for (product_id, is_missing) in wrong {
        let problem = if is_missing { "is missing" } else { "does not match its hash" };
        findings.add(Difference::Image { shard, product_id, problem });
    }
    Ok(())
}
