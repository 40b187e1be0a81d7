#![doc = include_str!("../README.md")]

mod connection;
mod options;
mod pool;
mod statement;
mod transaction;

/// The trait of rows, and its derive.
pub use sqlx::FromRow;
pub use sqlx_macros::FromRow;

pub use connection::{Connector, PgConnection};
pub use options::{PgConnectOptions, SessionTarget, UrlError};
pub use pool::{ConnectionRouter, PgPool, PoolConnection, PoolUsage, PoolWatch};
pub use transaction::Transaction;

/// Returns whether the error means that a prepared statement is outdated, because a migration changed its tables. A new
/// connection prepares the statement again. Postgres has no specific code for this: 0A000 covers every unsupported feature.
pub fn is_plan_outdated(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|refusal| {
        refusal.code().as_deref() == Some("0A000") && refusal.message().contains("cached plan must not change result type")
    })
}

/// An error that tells whether an outdated plan was its cause.
pub trait Replannable {
    fn is_plan_outdated(&self) -> bool;
}

impl Replannable for sqlx::Error {
    fn is_plan_outdated(&self) -> bool {
        is_plan_outdated(self)
    }
}

/// Maximum number of times that a query is repeated after its plan was outdated. Migrations that follow each other outdate the
/// plans of new connections, too.
pub(crate) const MAX_REPEATS: usize = 10;

/// Runs a query or a transaction, and repeats it up to ten times while its plan is outdated. A repeat is safe, because nothing
/// was committed. `ask` acquires its own connection.
///
/// # Errors
/// The error of the last attempt.
pub async fn replanned<T, E: Replannable, A: Future<Output = Result<T, E>>>(ask: impl Fn() -> A) -> Result<T, E> {
    for _ in 0..MAX_REPEATS {
        match ask().await {
            Err(error) if error.is_plan_outdated() => log_outdated(),
            outcome => return outcome,
        }
    }
    ask().await
}

/// Logs that a plan was outdated, before the retry.
pub(crate) fn log_outdated() {
    tracing::debug!("a migration has outdated a plan; retrying on a new connection");
}

/// Returns the error for a server that did not answer before the deadline.
pub(crate) fn missed() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"))
}
