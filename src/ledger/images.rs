//! Storage of product images. The bytes are outside the log, which refers to them by their hash. They are stored before
//! the event that refers to them. An interrupted upload therefore leaves bytes that nobody sees, and the product's next
//! image deletes them.

pub mod thumbnails;

use ledger_database::PgPool;
use ledger_events::ProductId;

/// Time for which unreferenced bytes are kept: for uploads that are in progress, and for clients that have just read the
/// URL.
const GRACE: &str = "1 hour";

/// Stores an image's bytes under the product and their SHA-256.
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

/// Deletes the product's bytes, and their copies, except those of its current image, given by its SHA-256.
pub async fn forget_others(pool: &PgPool, product: ProductId, sha256: &[u8; 32]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH copies AS (DELETE FROM product_thumbnails WHERE product_id = $1 AND sha256 <> $2)
         DELETE FROM product_images WHERE product_id = $1 AND sha256 <> $2 AND stored_at < now() - $3::text::interval",
    )
    .bind(product)
    .bind(&sha256[..])
    .bind(GRACE)
    .execute(pool)
    .await?;
    Ok(())
}

/// Returns an image's bytes by their SHA-256 in hex.
pub async fn load(pool: &PgPool, product: ProductId, sha256: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
    sqlx::query_scalar("SELECT bytes FROM product_images WHERE product_id = $1 AND sha256 = decode($2, 'hex')")
        .bind(product)
        .bind(sha256)
        .fetch_optional(pool)
        .await
}
