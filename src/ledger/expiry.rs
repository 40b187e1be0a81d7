//! What is forgotten: idempotency keys, after 24 hours; rate limits' windows and blocks, once they are
//! over.

use ledger_events::ShardId;
use sqlx::PgPool;

/// Rows in one statement, so that no transaction is long.
const BATCH_KEYS: i64 = 1_000;

/// Deletes a batch of the idempotency keys that are older than 24 hours. Returns how many it
/// were, and whether there may be more.
pub async fn purge_idempotency_keys(pool: &PgPool, shard: ShardId) -> Result<(u64, bool), sqlx::Error> {
    let done = sqlx::query(
        "DELETE FROM idempotency_keys WHERE shard_id = $1 AND key_hash IN (
            SELECT key_hash FROM idempotency_keys WHERE shard_id = $1 AND created_at < clock_timestamp() - interval '24 hours'
            LIMIT $2 FOR UPDATE SKIP LOCKED)",
    )
    .bind(shard)
    .bind(BATCH_KEYS)
    .execute(pool)
    .await?;
    Ok((done.rows_affected(), done.rows_affected() == BATCH_KEYS.unsigned_abs()))
}

/// Deletes a batch of windows that have closed. Returns how many it were, and whether there may be
/// more.
pub async fn purge_rate_windows(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let done = sqlx::query(
        "DELETE FROM rate_windows WHERE key IN (
            SELECT key FROM rate_windows WHERE closes_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(BATCH_KEYS)
    .execute(pool)
    .await?;
    Ok((done.rows_affected(), done.rows_affected() == BATCH_KEYS.unsigned_abs()))
}

/// Deletes a batch of blocks that have ended; as above.
pub async fn purge_ip_blocks(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let done = sqlx::query(
        "DELETE FROM ip_blocks WHERE ip IN (
            SELECT ip FROM ip_blocks WHERE ends_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(BATCH_KEYS)
    .execute(pool)
    .await?;
    Ok((done.rows_affected(), done.rows_affected() == BATCH_KEYS.unsigned_abs()))
}
