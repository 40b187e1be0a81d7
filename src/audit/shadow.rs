//! The schema `shadow`, in which a rebuild prepares its tables, and the functions for swapping them.

use ledger_database::{Connector, PgConnectOptions, PgConnection};

const FUNCTIONS: &str = include_str!("shadow.sql");

/// Connects with a search path in which unqualified table names refer to the shadow tables. Tables without a shadow are
/// found in `public`.
pub async fn connect(options: &PgConnectOptions, name: &'static str) -> Result<PgConnection, sqlx::Error> {
    let options = options.clone().application_name(name).options([
        ("search_path", "shadow,public"),
        ("timezone", "UTC"),
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
        ("idle_in_transaction_session_timeout", "60000"),
        // A crash ends the rebuild anyway. The swap commits synchronously, which flushes everything before it.
        ("synchronous_commit", "off"),
        ("work_mem", "64MB"),
        ("maintenance_work_mem", "256MB"),
    ]);
    Connector::patient(options).connect().await
}

pub async fn install(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(FUNCTIONS).execute(conn).await?;
    Ok(())
}

/// Creates empty shadow tables. Drops those that an earlier rebuild left behind.
pub async fn prepare(conn: &mut PgConnection, tables: &[&str]) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_temp.prepare(t) FROM unnest($1::name[]) AS t").bind(tables).execute(conn).await?;
    Ok(())
}

/// Creates the indexes that were omitted to speed up the bulk of the fold.
pub async fn finish(conn: &mut PgConnection, table: &str) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_temp.finish($1::name)").bind(table).execute(conn).await?;
    Ok(())
}

pub async fn lock_tables(conn: &mut PgConnection, tables: &[&str]) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_temp.lock_tables($1::name[])").bind(tables).execute(conn).await?;
    Ok(())
}

pub async fn swap(conn: &mut PgConnection, tables: &[&str]) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_temp.swap(t) FROM unnest($1::name[]) AS t").bind(tables).execute(conn).await?;
    Ok(())
}

pub async fn discard(conn: &mut PgConnection, tables: &[&str]) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_temp.discard(t) FROM unnest($1::name[]) AS t").bind(tables).execute(conn).await?;
    Ok(())
}
