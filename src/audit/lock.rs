//! Keeps a swap of tables away from whoever compares them: a snapshot from before a swap sees
//! nothing of the rows in the new tables.

use sqlx::PgConnection;

use super::AuditError;

/// The key of the advisory lock: "ledger" and "audit" in ASCII, shortened.
const KEY: i64 = 0x6c65_6467_6175_6469;

/// Held until the connection ends.
pub async fn shared(conn: &mut PgConnection) -> Result<(), AuditError> {
    let is_free: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock_shared($1)").bind(KEY).fetch_one(conn).await?;
    if is_free { Ok(()) } else { Err(AuditError::Busy) }
}

/// Held until the connection ends.
pub async fn exclusive(conn: &mut PgConnection) -> Result<(), AuditError> {
    let is_free: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(KEY).fetch_one(conn).await?;
    if is_free { Ok(()) } else { Err(AuditError::Busy) }
}
