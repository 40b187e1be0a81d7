//! Connections to Postgres that never wait for ever.
//!
//! sqlx waits for an answer without a deadline: in a statement, in the ping with which its pool takes a connection back,
//! and in closing. A network that drops packets, or a proxy that acknowledges bytes and forwards none, stops such a
//! connection for good, and its place in the pool with it. TCP's own timers do not help behind a proxy.
//!
//! [`PgConnection`], [`PgPool`] and [`Transaction`] stand in for sqlx's types of the same names, and are executors as those
//! are. Each wait for the server has a deadline; a connection that misses one is closed hard, which means that its socket
//! is dropped without a word. A [`Connector`] says how long the deadline is: somewhat longer than the server's own
//! `statement_timeout`, so that only a server that is out of reach misses it.
//!
//! After "cached plan must not change result type" (0A000), which a migration under a running node causes, a pool runs
//! the same statement once more on a new connection; [`replanned`] does so for transactions and dedicated connections.

mod connection;
mod pool;
mod transaction;

/// The trait of rows, and its derive.
pub use sqlx::FromRow;
pub use sqlx_macros::FromRow;

pub use connection::{Connector, PgConnection};
pub use pool::{PgPool, PoolConnection};
pub use transaction::Transaction;

/// Whether a prepared statement no longer fits its tables, because a migration changed them. A new connection prepares it
/// anew. Postgres has no code of its own for this: 0A000 stands for everything that is not supported.
pub fn is_plan_outdated(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|refusal| {
        refusal.code().as_deref() == Some("0A000") && refusal.message().contains("cached plan must not change result type")
    })
}

/// Does what asks the database, and once more if a plan was outdated. `ask` acquires its connection itself.
///
/// # Errors
/// What the last attempt ends in.
pub async fn replanned<T, A: Future<Output = Result<T, sqlx::Error>>>(ask: impl Fn() -> A) -> Result<T, sqlx::Error> {
    match ask().await {
        Err(error) if is_plan_outdated(&error) => ask().await,
        outcome => outcome,
    }
}

/// An error that says that the server did not answer in time.
pub(crate) fn missed() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"))
}
