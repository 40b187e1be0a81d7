//! A database clock that a test can set.

use ledger_database::PgConnectOptions;
use sqlx::PgConnection;

/// Shifts the database's time by the interval in this table, for every role except the superuser.
const SKEWED: &str = "
    CREATE SCHEMA skewed;
    CREATE TABLE skewed.clock AS SELECT interval '0' AS ahead;
    CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE SECURITY DEFINER
        AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM skewed.clock';
    GRANT USAGE ON SCHEMA skewed TO PUBLIC";

/// Returns options for connections that see a clock controlled by [`set_ahead`].
pub async fn skewed(options: &PgConnectOptions) -> PgConnectOptions {
    let mut admin = options.connect().await.unwrap();
    sqlx::raw_sql(SKEWED).execute(&mut admin).await.unwrap();
    options.clone().options([("search_path", "skewed,pg_catalog,public")])
}

/// Sets the clock ahead of the real time by an interval such as `1 year`.
pub async fn set_ahead(admin: &mut PgConnection, interval: &str) {
    sqlx::query("UPDATE skewed.clock SET ahead = $1::text::interval").bind(interval).execute(admin).await.unwrap();
}
