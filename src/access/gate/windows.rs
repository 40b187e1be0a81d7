//! Rate limit windows of one account, as the gate has counted them.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::AccountId;

use crate::access::limits::Rule;

/// Maximum number of windows that are returned.
const MAX_WINDOWS: i64 = 1_000;

/// A window that is open.
#[derive(Clone, Debug, FromRow)]
pub struct OpenWindow {
    pub rule: String,
    /// Kind of caller that the window counts: `account`, `credential` or `user`.
    pub subject: String,
    pub subject_id: i64,
    pub ceiling: i32,
    pub used: i32,
    pub opened_at: DateTime<Utc>,
    pub closes_at: DateTime<Utc>,
}

/// Returns the open windows of these rules for an account, its valid API keys and its users. Each is found by its key.
///
/// Failed logins are not among them: they are counted under hashes.
///
/// # Errors
/// Any error of the database.
pub async fn of_account(pool: &PgPool, account: AccountId, rules: &[Rule]) -> Result<Vec<OpenWindow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT r.rule, s.subject, s.subject_id, w.ceiling, w.used, w.opened_at, w.closes_at
         FROM (SELECT 'account' AS subject, $1::bigint AS subject_id
            UNION ALL (SELECT 'credential', id FROM credentials WHERE account_id = $1 AND NOT is_revoked)
            UNION ALL (SELECT 'user', id FROM users WHERE account_id = $1 AND NOT is_removed)) AS s
         CROSS JOIN unnest($2::text[]) AS r (rule)
         CROSS JOIN LATERAL (SELECT ceiling, used, opened_at, closes_at FROM rate_windows
            WHERE key = r.rule || ' ' || s.subject || ' ' || s.subject_id AND closes_at > clock_timestamp() LIMIT 1) AS w
         ORDER BY s.subject, s.subject_id, r.rule LIMIT $3",
    )
    .bind(account)
    .bind(rules.iter().map(|rule| rule.name()).collect::<Vec<_>>())
    .bind(MAX_WINDOWS)
    .fetch_all(pool)
    .await
}
