//! The bytes of product images. They stand outside the log, which names them by their hash, and
//! are stored before the event that names them: an upload that broke off leaves bytes that nobody
//! sees, and that the product's next image takes away.

use ledger_database::PgPool;
use ledger_events::ProductId;

/// Bytes that no event names any more are kept so long: for an upload that is on its way, and for
/// whoever has just read the URL.
const GRACE: &str = "1 hour";

/// Keeps an image's bytes under their SHA-256, for the product.
pub async fn store(pool: &PgPool, product: ProductId, sha256: &[u8; 32], bytes: &[u8]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO product_images (product_id, sha256, bytes) VALUES ($1, $2, $3)
         ON CONFLICT (product_id, sha256) DO UPDATE SET stored_at = now()",
    )
    .bind(product)
    .bind(&sha256[..])
    .bind(bytes)
    .execute(pool)
    .await?;
    Ok(())
}

/// Forgets the product's bytes but for those of its image, given by its SHA-256.
pub async fn forget_others(pool: &PgPool, product: ProductId, sha256: &[u8; 32]) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM product_images WHERE product_id = $1 AND sha256 <> $2 AND stored_at < now() - $3::text::interval")
        .bind(product)
        .bind(&sha256[..])
        .bind(GRACE)
        .execute(pool)
        .await?;
    Ok(())
}

/// An image's bytes, by their SHA-256 in hex.
pub async fn load(pool: &PgPool, product: ProductId, sha256: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
    sqlx::query_scalar("SELECT bytes FROM product_images WHERE product_id = $1 AND sha256 = decode($2, 'hex')")
        .bind(product)
        .bind(sha256)
        .fetch_optional(pool)
        .await
}
