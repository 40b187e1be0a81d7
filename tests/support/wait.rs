//! Waiting for what the program does: it is looked at again and again, and never for ever.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgExecutor};

use super::program::DEADLINE;

/// Until it is so; fails with `what` when that takes longer than anything does here.
pub async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    until_within(DEADLINE, what, is_so).await;
}

/// The same with a patience of its own.
pub async fn until_within(patience: Duration, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(patience, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not within {patience:?}: {what}"));
}

/// Until the database says so: the SQL asks for one boolean.
pub async fn until_true(what: &str, pool: impl PgExecutor<'_> + Copy, sql: &str) {
    until(what, async || is_true(pool, sql).await).await;
}

pub async fn is_true(pool: impl PgExecutor<'_>, sql: &str) -> bool {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

/// Until a connection of this `application_name` waits for a lock in the database.
pub async fn until_locked_out(options: &PgConnectOptions, name: &str) {
    // A superuser's: others are not shown what somebody waits for.
    let mut admin = options.connect().await.unwrap();
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                    AND application_name = $1 AND wait_event_type = 'Lock')";
    until(&format!("{name} waits for a lock"), async || {
        sqlx::query_scalar(waits).bind(name).fetch_one(&mut admin).await.unwrap()
    })
    .await;
}
