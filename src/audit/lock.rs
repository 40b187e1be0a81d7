//! Advisory lock that prevents a swap of tables during a comparison: a snapshot from before the swap sees no rows in the
//! new tables.

use ledger_database::PgConnection;
use std::time::Duration;

use super::AuditError;

/// Key of the advisory lock: "ledgaudi" in ASCII, short for ledger audit.
const KEY: i64 = 0x6c65_6467_6175_6469;

/// Number of attempts, `PAUSE` apart: the time that a server may take to notice the end of an audit's connection.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Takes the shared lock, for comparing tables. Held until [`release`] or the end of the connection.
pub async fn shared(conn: &mut PgConnection) -> Result<(), AuditError> {
    acquire(conn, "SELECT pg_try_advisory_lock_shared($1)").await
}

/// Takes the exclusive lock, for swapping tables. Held until [`release`] or the end of the connection.
pub async fn exclusive(conn: &mut PgConnection) -> Result<(), AuditError> {
    acquire(conn, "SELECT pg_try_advisory_lock($1)").await
}

/// Releases the lock before the connection is closed. The server notices a closed connection with a delay, but the next
/// audit may start immediately.
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
