#![doc = include_str!("../README.md")]

mod connection;
mod pool;
mod transaction;

/// The trait of rows, and its derive.
pub use sqlx::FromRow;
pub use sqlx_macros::FromRow;

pub use connection::{Connector, PgConnection};
pub use pool::{PgPool, PoolConnection};
pub use transaction::Transaction;

/// Returns whether the error means that a prepared statement is outdated, because a migration changed its tables. A new
/// connection prepares the statement again. Postgres has no specific code for this: 0A000 covers every unsupported feature.
pub fn is_plan_outdated(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|refusal| {
        refusal.code().as_deref() == Some("0A000") && refusal.message().contains("cached plan must not change result type")
    })
}

/// Runs a query, and runs it once more if its plan was outdated. `ask` acquires its own connection.
///
/// # Errors
/// The error of the last attempt.
pub async fn replanned<T, A: Future<Output = Result<T, sqlx::Error>>>(ask: impl Fn() -> A) -> Result<T, sqlx::Error> {
    match ask().await {
        Err(error) if is_plan_outdated(&error) => ask().await,
        outcome => outcome,
    }
}

/// Returns the error for a server that did not answer before the deadline.
pub(crate) fn missed() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"))
}
