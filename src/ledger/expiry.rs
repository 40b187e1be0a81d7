//! What the ledger forgets: idempotency keys, after 24 hours.

use ledger_events::ShardId;
use sqlx::PgPool;

/// Keys in one statement, so that no transaction is long.
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
