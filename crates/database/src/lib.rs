//! Postgres connections that never wait for ever.
//!
//! sqlx waits for the server without a deadline: in a statement, in the ping when its pool takes a connection back, and on
//! close. A network that drops packets blocks such a connection for good, together with its slot in the pool. So does a
//! proxy that acknowledges bytes without forwarding them. TCP's own timers do not help behind a proxy.
//!
//! [`PgConnection`], [`PgPool`] and [`Transaction`] replace the sqlx types of the same names, and implement the same
//! executor trait. Each wait for the server has a deadline. A connection that misses it is closed hard: its socket is
//! dropped without a goodbye. [`Connector`] sets the deadline. It is somewhat longer than the server's `statement_timeout`,
//! so that only an unreachable server misses it.
//!
//! A migration under a running node causes the error "cached plan must not change result type" (0A000). A pool then runs the
//! same statement once more on a new connection; [`replanned`] does so for transactions and dedicated connections.

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
