//! Transaction on a connection with deadlines.

use std::ops::{Deref, DerefMut};

use sqlx::{Database, Postgres, SqlStr};
use sqlx_core::transaction::TransactionManager;

use crate::{PgConnection, PoolConnection};

type Manager = <Postgres as Database>::TransactionManager;

/// Transaction. Dropping it before [`commit`](Transaction::commit) rolls it back.
#[derive(Debug)]
pub struct Transaction<'c> {
    connection: Source<'c>,
    is_open: bool,
}

#[derive(Debug)]
enum Source<'c> {
    Borrowed(&'c mut PgConnection),
    Pooled(PoolConnection),
}

impl Source<'_> {
    fn get(&self) -> &PgConnection {
        match self {
            Source::Borrowed(connection) => connection,
            Source::Pooled(connection) => connection,
        }
    }
}

impl<'c> Transaction<'c> {
    pub(crate) async fn on(connection: &'c mut PgConnection, statement: Option<SqlStr>) -> Result<Transaction<'c>, sqlx::Error> {
        Transaction::begin(Source::Borrowed(connection), statement).await
    }

    async fn begin(connection: Source<'c>, statement: Option<SqlStr>) -> Result<Transaction<'c>, sqlx::Error> {
        let statement = connection.get().beginning(statement);
        // sqlx itself rolls back if this fails or is dropped half-way.
        let mut transaction = Transaction { connection, is_open: false };
        transaction.bounded(|raw| Box::pin(Manager::begin(raw, statement))).await?;
        transaction.is_open = true;
        Ok(transaction)
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// Any error of the database. Unless the server refused the commit, it is unknown whether the transaction committed.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.bounded(|raw| Box::pin(Manager::commit(raw))).await?;
        self.is_open = false;
        Ok(())
    }

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn rollback(mut self) -> Result<(), sqlx::Error> {
        self.bounded(|raw| Box::pin(Manager::rollback(raw))).await?;
        self.is_open = false;
        Ok(())
    }
}

impl Transaction<'static> {
    pub(crate) async fn of_pool(
        connection: PoolConnection,
        statement: Option<SqlStr>,
    ) -> Result<Transaction<'static>, sqlx::Error> {
        Transaction::begin(Source::Pooled(connection), statement).await
    }
}

impl Deref for Transaction<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.get()
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.connection {
            Source::Borrowed(connection) => connection,
            Source::Pooled(connection) => connection,
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.start_rollback();
        }
    }
}
