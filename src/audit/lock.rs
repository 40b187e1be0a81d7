//! Keeps a swap of tables away from whoever compares them: a snapshot from before a swap sees
//! nothing of the rows in the new tables.

use ledger_database::PgConnection;
use std::time::Duration;

use super::AuditError;

/// The key of the advisory lock: "ledger" and "audit" in ASCII, shortened.
const KEY: i64 = 0x6c65_6467_6175_6469;

/// How long a server may take to notice that an audit's connection has ended, times `PAUSE`.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// For who compares. Held until [`release`] or the connection's end.
pub async fn shared(conn: &mut PgConnection) -> Result<(), AuditError> {
    acquire(conn, "SELECT pg_try_advisory_lock_shared($1)").await
}

/// For who swaps. Held until [`release`] or the connection's end.
pub async fn exclusive(conn: &mut PgConnection) -> Result<(), AuditError> {
    acquire(conn, "SELECT pg_try_advisory_lock($1)").await
}

/// Said before the connection is closed: the server notices that a moment later, and the next
/// audit may begin at once.
pub async fn release(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("SELECT pg_advisory_unlock_all()").execute(conn).await?;
    Ok(())
}

async fn acquire(conn: &mut PgConnection, attempt: &'static str) -> Result<(), AuditError> {
    for _ in 0..ATTEMPTS {
        if sqlx::query_scalar(attempt).bind(KEY).fetch_one(&mut *conn).await? {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(AuditError::Busy)
}
