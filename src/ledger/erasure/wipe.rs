//! Rewrites the files of the tables that an erasure has changed.
//!
//! Deleting a row leaves its bytes in the table's file, and VACUUM leaves them in the free space of the page. VACUUM FULL
//! writes a new file for the table and its indexes without them. Nobody can use the table in the meantime. It also copies
//! rows that an open transaction may still have to see, so this module first waits for transactions that began before the
//! erasure. A snapshot reaches back to the oldest open transaction of the whole server, so those of other databases count.

use std::time::Duration;

use ledger_database::{Connector, PgConnectOptions, PgConnection};
use sqlx::PgExecutor;

/// Every table that an erasure can change, with the statement that rewrites its file.
const TABLES: [(&str, &str); 16] = [
    ("vault.texts", "VACUUM (FULL) vault.texts"),
    ("vault.vouchers", "VACUUM (FULL) vault.vouchers"),
    ("vault.statement_lines", "VACUUM (FULL) vault.statement_lines"),
    ("vault.data_keys", "VACUUM (FULL) vault.data_keys"),
    ("vault.users", "VACUUM (FULL) vault.users"),
    ("vault.sessions", "VACUUM (FULL) vault.sessions"),
    ("vault.login_sources", "VACUUM (FULL) vault.login_sources"),
    ("vault.refresh_tokens", "VACUUM (FULL) vault.refresh_tokens"),
    ("vault.refresh_token_macs", "VACUUM (FULL) vault.refresh_token_macs"),
    ("vault.session_details", "VACUUM (FULL) vault.session_details"),
    ("vault.two_factor", "VACUUM (FULL) vault.two_factor"),
    ("vault.invitations", "VACUUM (FULL) vault.invitations"),
    ("vault.mails", "VACUUM (FULL) vault.mails"),
    ("public.idempotency_keys", "VACUUM (FULL) public.idempotency_keys"),
    ("public.delivery_state", "VACUUM (FULL) public.delivery_state"),
    ("public.delivery_attempts", "VACUUM (FULL) public.delivery_attempts"),
];

/// Number of checks for older transactions: five minutes, because a backup or a long report of another database may be one.
const CHECKS: usize = 600;
/// Number of attempts to lock a table.
const ATTEMPTS: usize = 60;
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum WipeError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(
        "{holder} began before the erasure and is still open, so {table} would keep the erased data: end it, then run `erase finish`"
    )]
    StillSeen { table: &'static str, holder: String },
    #[error("{0} could not be locked because another session uses it: run `erase finish` when the load is lower")]
    Busy(String),
}

/// Records, in the erasure's transaction, the tables whose files must be rewritten.
pub async fn note(conn: &mut PgConnection, tables: &[&str]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO vault.unwiped (relation, xid) SELECT relation, pg_current_xact_id() FROM unnest($1::text[]) AS touched (relation)
         ON CONFLICT (relation) DO UPDATE SET xid = excluded.xid",
    )
    .bind(tables)
    .execute(conn)
    .await?;
    Ok(())
}

/// Rewrites the files of all recorded tables, as a role that owns them. Returns the rewritten tables. A table that fails
/// stays recorded, and the next call retries it.
pub async fn wipe(options: &PgConnectOptions) -> Result<Vec<&'static str>, WipeError> {
    let options =
        options.clone().application_name("rewards-ledger erase").options([("lock_timeout", "2000"), ("statement_timeout", "0")]);
    let mut conn = Connector::patient(options).connect().await?;
    let noted: Vec<(String, String)> =
        sqlx::query_as("SELECT relation, xid::text FROM vault.unwiped ORDER BY relation").fetch_all(&mut conn).await?;
    let mut wiped = vec![];
    for (table, xid) in noted {
        let Some((name, vacuum)) = TABLES.into_iter().find(|(name, _)| *name == table) else { continue };
        wait_until_unseen(&mut conn, name, &xid).await?;
        rewrite(&mut conn, name, vacuum).await?;
        // A table that was changed again in the meantime stays recorded.
        sqlx::query("DELETE FROM vault.unwiped WHERE relation = $1 AND xid = $2::text::xid8")
            .bind(name)
            .bind(&xid)
            .execute(&mut conn)
            .await?;
        wiped.push(name);
    }
    conn.close().await?;
    Ok(wiped)
}

/// Returns the tables that an erasure has changed and that were not rewritten yet.
pub async fn outstanding(db: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT relation FROM vault.unwiped ORDER BY relation").fetch_all(db).await
}

/// Waits until nothing on the server can see the rows that the erasure's transaction removed from the table.
async fn wait_until_unseen(conn: &mut PgConnection, table: &'static str, xid: &str) -> Result<(), WipeError> {
    let mut checks = 1;
    while let Some(holder) = holder(conn, xid).await? {
        if checks == CHECKS {
            return Err(WipeError::StillSeen { table, holder });
        }
        checks += 1;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Returns a description of one transaction, prepared transaction or replication slot that began before this transaction ended.
async fn holder(conn: &mut PgConnection, xid: &str) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT coalesce(
            (SELECT format('a transaction of process %s (%s) in database %s', pid, coalesce(nullif(application_name, ''), backend_type), datname)
             FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND (age(backend_xid) >= age($1::text::xid8::xid)
                OR (datname = current_database() OR datname IS NULL) AND age(backend_xmin) >= age($1::text::xid8::xid))
             ORDER BY xact_start LIMIT 1),
            (SELECT format('the prepared transaction %L in database %s', gid, database) FROM pg_prepared_xacts
             WHERE age(transaction) >= age($1::text::xid8::xid) ORDER BY prepared LIMIT 1),
            (SELECT format('the replication slot %L', slot_name::text) FROM pg_replication_slots
             WHERE age(xmin) >= age($1::text::xid8::xid) LIMIT 1))",
    )
    .bind(xid)
    .fetch_one(conn)
    .await
}

async fn rewrite(conn: &mut PgConnection, table: &str, vacuum: &'static str) -> Result<(), WipeError> {
    for _ in 0..ATTEMPTS {
        match sqlx::raw_sql(vacuum).execute(&mut *conn).await {
            Ok(_) => return Ok(()),
            Err(error) if error.as_database_error().is_some_and(|e| e.code().as_deref() == Some("55P03")) => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(WipeError::Busy(table.to_owned()))
}

/// Places outside the tables that may still hold erased data.
#[derive(Clone, Debug, ledger_database::FromRow)]
pub struct Remains {
    /// Position up to which the write-ahead log may hold erased data.
    pub wal_until: String,
    pub archive_mode: String,
    /// Smallest amount of write-ahead log that the server keeps.
    pub wal_keep_size: String,
    pub max_wal_size: String,
    pub replication_slots: i64,
}

/// Returns an error when the role lacks the privilege to query this.
pub async fn remains(conn: &mut PgConnection) -> Result<Remains, sqlx::Error> {
    sqlx::query_as(
        "SELECT pg_current_wal_lsn()::text AS wal_until, current_setting('archive_mode') AS archive_mode,
            current_setting('wal_keep_size', true) AS wal_keep_size, current_setting('max_wal_size') AS max_wal_size,
            (SELECT count(*) FROM pg_replication_slots) AS replication_slots",
    )
    .fetch_one(conn)
    .await
}
