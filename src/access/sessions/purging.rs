//! Deletion of expired sessions.

use chrono::TimeDelta;
use ledger_database::PgPool;

/// Retention of a source network since the user's last successful login from it.
pub(in crate::access) const SOURCE_LIFETIME: TimeDelta = TimeDelta::days(90);
/// Maximum number of rows that one purge deletes from each table.
pub(in crate::access) const PURGED_ROWS: i64 = 1_000;

/// Deletes one batch each of expired refresh tokens, sessions and source networks.
///
/// Returns the number of deleted rows, and whether more may be left. All nodes may run it at the same time.
pub async fn purge(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let tokens = sqlx::query(
        "DELETE FROM vault.refresh_tokens WHERE token_hash IN (
            SELECT token_hash FROM vault.refresh_tokens WHERE expires_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(PURGED_ROWS)
    .execute(pool)
    .await?;
    let sessions = sqlx::query(
        "DELETE FROM vault.sessions WHERE id IN (
            SELECT id FROM vault.sessions WHERE expires_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(PURGED_ROWS)
    .execute(pool)
    .await?;
    let sources = sqlx::query(
        "DELETE FROM vault.login_sources WHERE (user_id, source_hash) IN (
            SELECT user_id, source_hash FROM vault.login_sources WHERE succeeded_at < clock_timestamp() - $2
            LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(PURGED_ROWS)
    .bind(SOURCE_LIFETIME)
    .execute(pool)
    .await?;
    let purged = [tokens, sessions, sources].map(|purged| purged.rows_affected());
    Ok((purged.iter().sum(), purged.iter().any(|rows| *rows >= PURGED_ROWS.unsigned_abs())))
}
