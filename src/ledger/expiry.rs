//! What is forgotten: idempotency keys, after 24 hours; rate limits' windows and blocks, once they are
//! over.

use ledger_database::PgPool;

/// Rows in one statement, so that no transaction is long.
const BATCH_ROWS: i64 = 1_000;

/// Walks over the table of idempotency keys, page after page and again from its beginning, and deletes those that are older
/// than 24 hours. A key's row takes the place of one that was deleted, so its place says nothing of its age, and an
/// index of ages would cost every order an entry.
#[derive(Debug, Default)]
pub struct KeyWalk {
    /// Where it goes on.
    page: i64,
}

/// What a step of a [`KeyWalk`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStep {
    pub deleted: u64,
    /// How many pages the table has.
    pub pages: i64,
    /// Whether the next step begins again.
    pub is_end: bool,
}

impl KeyWalk {
    /// Pages of 8 KiB in one statement.
    pub const STEP_PAGES: i64 = 1_000;

    /// The next pages.
    ///
    /// # Errors
    /// The database's; the walk goes on where it was.
    pub async fn step(&mut self, pool: &PgPool) -> Result<KeyStep, sqlx::Error> {
        let end = self.page + Self::STEP_PAGES;
        let (deleted, pages): (i64, i64) = sqlx::query_as(
            "WITH gone AS (
                DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
                    SELECT ctid FROM idempotency_keys
                    WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND created_at < clock_timestamp() - interval '24 hours'
                    FOR UPDATE SKIP LOCKED))
                RETURNING 1)
             SELECT (SELECT count(*) FROM gone), pg_relation_size('idempotency_keys') / current_setting('block_size')::bigint",
        )
        .bind(format!("({},0)", self.page))
        .bind(format!("({end},0)"))
        .fetch_one(pool)
        .await?;
        let is_end = end >= pages;
        self.page = if is_end { 0 } else { end };
        Ok(KeyStep { deleted: u64::try_from(deleted).unwrap_or_default(), pages, is_end })
    }
}

/// Deletes a batch of windows that have closed. Returns how many it were, and whether there may be
/// more.
pub async fn purge_rate_windows(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let done = sqlx::query(
        "DELETE FROM rate_windows WHERE key IN (
            SELECT key FROM rate_windows WHERE closes_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(BATCH_ROWS)
    .execute(pool)
    .await?;
    Ok((done.rows_affected(), done.rows_affected() == BATCH_ROWS.unsigned_abs()))
}

/// Deletes a batch of blocks that have ended; as above.
pub async fn purge_ip_blocks(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let done = sqlx::query(
        "DELETE FROM ip_blocks WHERE ip IN (
            SELECT ip FROM ip_blocks WHERE ends_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(BATCH_ROWS)
    .execute(pool)
    .await?;
    Ok((done.rows_affected(), done.rows_affected() == BATCH_ROWS.unsigned_abs()))
}
