//! Deletion of expired rows: idempotency keys after 24 hours, and rate-limit windows and IP blocks after they end.

use chrono::TimeDelta;
use ledger_database::PgPool;

/// Number of rows per statement, so that no transaction is long.
const BATCH_ROWS: i64 = 1_000;
/// Time for which the response under an idempotency key is kept at least.
pub const KEY_LIFETIME: TimeDelta = TimeDelta::hours(24);

/// Scans the table of idempotency keys page by page, starting over at its end, and deletes keys older than 24 hours. A
/// new key's row takes the place of a deleted one, so a row's place says nothing about its age. An index by age would
/// cost every order one more index entry.
#[derive(Debug, Default)]
pub struct KeyWalk {
    /// First page of the next step.
    page: i64,
}

/// Result of one step of a [`KeyWalk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStep {
    pub deleted: u64,
    /// Number of pages in the table.
    pub pages: i64,
    /// Whether the next step starts at the beginning of the table.
    pub is_end: bool,
}

impl KeyWalk {
    /// Number of pages of 8 KiB per statement.
    pub const STEP_PAGES: i64 = 1_000;

    /// Deletes the expired keys in the next pages.
    ///
    /// # Errors
    /// Returns the database's error. The next call then repeats the same pages.
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

/// Deletes a batch of rate-limit windows that have closed. Returns the number of deleted rows, and whether there may be
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

/// Deletes a batch of IP blocks that have ended. Returns the number of deleted rows, and whether there may be more.
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
