//! Waits for an effect of the program by polling, with a timeout.

use std::time::Duration;

use ledger_database::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgExecutor};

use super::program::DEADLINE;

/// Waits until the condition holds. Panics with `what` after longer than anything here should take.
pub async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    until_within(DEADLINE, what, is_so).await;
}

/// Waits until the condition holds. Panics with `what` after this timeout.
pub async fn until_within(patience: Duration, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(patience, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not within {patience:?}: {what}"));
}

/// Waits until a query for one boolean returns true.
pub async fn until_true(what: &str, pool: impl PgExecutor<'_> + Copy, sql: &str) {
    until(what, async || is_true(pool, sql).await).await;
}

pub async fn is_true(pool: impl PgExecutor<'_>, sql: &str) -> bool {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

/// Waits until a connection of this `application_name` waits for a lock in the database.
pub async fn until_locked_out(options: &PgConnectOptions, name: &str) {
    until_so_many_locked_out(1, options, name).await;
}

/// Waits until at least this many connections of this `application_name` wait for a lock in the database.
pub async fn until_so_many_locked_out(count: i64, options: &PgConnectOptions, name: &str) {
    // Only a superuser sees the waits of other roles.
    let mut admin = options.connect().await.unwrap();
    let waits = "SELECT count(*) >= $2 FROM pg_stat_activity WHERE datname = current_database()
                    AND application_name = $1 AND wait_event_type = 'Lock'";
    until(&format!("{name} waits for a lock"), async || {
        sqlx::query_scalar(waits).bind(name).bind(count).fetch_one(&mut admin).await.unwrap()
    })
    .await;
}
