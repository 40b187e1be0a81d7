//! Sessions of the console as their operator sees them.

use chrono::{DateTime, Utc};

use super::{CONSOLE_LIFETIME, Console};
use crate::access::AccessError;

/// Maximum number of sessions in a list, newest first.
const MAX_LISTED: i64 = 100;

/// A session that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct LiveSession {
    pub id: i64,
    pub started_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

impl Console {
    /// Lists the sessions of an operator's user, newest first.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn sessions_of(&self, operator_id: i64) -> Result<Vec<LiveSession>, AccessError> {
        let found: Vec<(i64, DateTime<Utc>)> = sqlx::query_as(
            "SELECT id, expires_at FROM vault.console_sessions WHERE operator_id = $1 AND expires_at > clock_timestamp()
             ORDER BY id DESC LIMIT $2",
        )
        .bind(operator_id)
        .bind(MAX_LISTED)
        .fetch_all(&self.pool)
        .await?;
        let live = |(id, expires_at): (i64, DateTime<Utc>)| {
            let started_at = expires_at - CONSOLE_LIFETIME;
            LiveSession { id, started_at, expires_at }
        };
        Ok(found.into_iter().map(live).collect())
    }

    /// Ends a session of this operator's user. Returns false if the user has no such session.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn end(&self, operator_id: i64, session_id: i64) -> Result<bool, AccessError> {
        let ended = sqlx::query("DELETE FROM vault.console_sessions WHERE id = $1 AND operator_id = $2");
        Ok(ended.bind(session_id).bind(operator_id).execute(&self.pool).await?.rows_affected() > 0)
    }
}
