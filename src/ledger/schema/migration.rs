//! Migrating: one migration at a time, beside nodes that work.
//!
//! A statement that waits for a table's lock keeps everyone out who asks for the table after it. So no migration waits for
//! long: it gives up, is rolled back, and is tried again after a pause in which the others go on.

use std::time::{Duration, Instant};

use sqlx::migrate::{Migrate, MigrateError, Migration, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::SchemaError;

/// Longest wait of a migration for one lock. Shorter than the server's `deadlock_timeout` (1 s): in a
/// deadlock the migration is the one that steps back.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a migration is tried, and how long one waits for another program that migrates.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Pauses between attempts, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Applies what is missing of these migrations, up to a version or to the last, and tries each for so long.
///
/// # Errors
/// [`SchemaError::Locked`] when a lock was not to be had. What was applied before stays, and the next run goes on there.
pub async fn run(
    migrator: &Migrator,
    to: Option<i64>,
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<(), SchemaError> {
    let mut connection = options.clone().application_name("rewards-ledger migrate").connect().await?;
    if !missing(migrator, to, &mut connection).await?.is_empty() {
        prepare(migrator, &mut connection, patience).await?;
        // Another program may have applied some of them meanwhile.
        for migration in missing(migrator, to, &mut connection).await? {
            let started = Instant::now();
            tracing::info!(version = migration.version, description = %migration.description, "applying migration");
            apply(migrator, migration, &mut connection, patience).await?;
            tracing::info!(version = migration.version, took = ?started.elapsed(), "migration applied");
        }
    }
    connection.close().await?;
    Ok(())
}

/// What is not applied yet. Migrations of a newer program are none of this one's business: releases only expand what an older
/// one uses, so that it can be started again.
pub(super) async fn missing<'m>(
    migrator: &'m Migrator,
    to: Option<i64>,
    connection: &mut PgConnection,
) -> Result<Vec<&'m Migration>, SchemaError> {
    let applied = match connection.list_applied_migrations(&migrator.table_name).await {
        Ok(applied) => applied,
        Err(MigrateError::Execute(error)) if has_code(&error, &["42P01"]) => vec![],
        Err(error) => return Err(error.into()),
    };
    let mut missing = vec![];
    for migration in migrator.iter().filter(|migration| to.is_none_or(|to| migration.version <= to)) {
        match applied.iter().find(|applied| applied.version == migration.version) {
            Some(applied) if applied.checksum != migration.checksum => {
                return Err(MigrateError::VersionMismatch(migration.version).into());
            }
            Some(_) => {}
            None => missing.push(migration),
        }
    }
    Ok(missing)
}

/// Takes the lock that keeps other programs from migrating, until the connection ends.
pub(super) async fn lock(connection: &mut PgConnection, patience: Duration) -> Result<(), SchemaError> {
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    let mut attempts = Attempts::new(patience);
    while let Err(error) = connection.lock().await {
        attempts.pause(error, "another program migrates this database", connection).await?;
    }
    Ok(())
}

/// The same, and makes the table of migrations.
async fn prepare(migrator: &Migrator, connection: &mut PgConnection, patience: Duration) -> Result<(), SchemaError> {
    lock(connection, patience).await?;
    connection.ensure_migrations_table(&migrator.table_name).await?;
    match connection.dirty_version(&migrator.table_name).await? {
        Some(version) => Err(MigrateError::Dirty(version).into()),
        None => Ok(()),
    }
}

async fn apply(
    migrator: &Migrator,
    migration: &Migration,
    connection: &mut PgConnection,
    patience: Duration,
) -> Result<(), SchemaError> {
    let waits_for = format!("migration {} waits for a lock", migration.version);
    let mut attempts = Attempts::new(patience);
    loop {
        if migration.no_tx {
            // It keeps nobody out while it waits, for old transactions too.
            drop_remains(migration, connection).await?;
            set_lock_timeout(connection, patience.max(LOCK_TIMEOUT)).await?;
        }
        let outcome = connection.apply(&migrator.table_name, migration).await;
        if migration.no_tx {
            set_lock_timeout(connection, LOCK_TIMEOUT).await?;
        }
        match outcome {
            Ok(_) => return Ok(()),
            Err(error) => attempts.pause(error, &waits_for, connection).await?,
        }
    }
}

pub(super) async fn set_lock_timeout(connection: &mut PgConnection, timeout: Duration) -> Result<(), sqlx::Error> {
    let timeout = format!("{}ms", timeout.as_millis());
    sqlx::query("SELECT set_config('lock_timeout', $1, false)").bind(timeout).execute(connection).await?;
    Ok(())
}

/// The index that a migration without a transaction makes: such a migration is one statement,
/// `CREATE [UNIQUE] INDEX CONCURRENTLY IF NOT EXISTS name ON …`.
pub(super) fn index_of(migration: &Migration) -> Option<&str> {
    let statements = migration.sql.as_str().lines().filter(|line| !line.trim_start().starts_with("--"));
    let mut words = statements.flat_map(str::split_whitespace).skip_while(|word| *word != "CONCURRENTLY");
    let expected = ["CONCURRENTLY", "IF", "NOT", "EXISTS"];
    expected.iter().all(|expected| words.next() == Some(expected)).then(|| words.next()).flatten()
}

/// Drops what an attempt that failed has left of its index: it is invalid, and would count as existing.
async fn drop_remains(migration: &Migration, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let Some(name) = index_of(migration) else { return Ok(()) };
    let remains: Option<String> = sqlx::query_scalar(
        "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_index i
         JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relname = $1 AND n.nspname IN ('public', 'vault') AND NOT i.indisvalid",
    )
    .bind(name)
    .fetch_optional(&mut *connection)
    .await?;
    if let Some(index) = remains {
        tracing::info!(%index, "dropping an index that an earlier attempt left unfinished");
        // Safe: the name comes quoted from the catalogue.
        sqlx::raw_sql(AssertSqlSafe(format!("DROP INDEX CONCURRENTLY IF EXISTS {index}"))).execute(connection).await?;
    }
    Ok(())
}

/// Attempts at something that needs locks.
pub(super) struct Attempts {
    patience: Duration,
    started: Instant,
    pause: Duration,
}

impl Attempts {
    pub(super) fn new(patience: Duration) -> Attempts {
        Attempts { patience, started: Instant::now(), pause: FIRST_PAUSE }
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    /// The error itself if it is not about locks, [`SchemaError::Locked`] when the time is over.
    pub(super) async fn pause(
        &mut self,
        error: MigrateError,
        waits_for: &str,
        connection: &mut PgConnection,
    ) -> Result<(), SchemaError> {
        let is_lock = match &error {
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => has_code(source, &["55P03", "40P01"]),
            _ => false,
        };
        if !is_lock {
            return Err(error.into());
        }
        let holders = holders(connection).await?;
        if self.started.elapsed() >= self.patience {
            return Err(SchemaError::Locked { what: waits_for.to_owned(), patience: self.patience, holders });
        }
        tracing::warn!(%holders, again_in = ?self.pause, "{waits_for}");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// The oldest transactions of others: those whose locks a migration waits for are among them.
async fn holders(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let holders: Option<String> = sqlx::query_scalar(
        "SELECT string_agg(format('pid %s (%s) for %s s', pid, name, seconds), ', ')
         FROM (SELECT pid, coalesce(nullif(application_name, ''), usename, backend_type) AS name,
                round(extract(epoch FROM clock_timestamp() - xact_start)) AS seconds
               FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
               ORDER BY xact_start LIMIT 3) AS oldest",
    )
    .fetch_one(connection)
    .await?;
    Ok(holders.unwrap_or_else(|| "none".to_owned()))
}

pub(super) fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| codes.contains(&&*code))
}

#[cfg(test)]
mod tests {
    use super::super::files::MIGRATIONS;
    use super::*;

    #[test]
    fn a_migration_without_a_transaction_makes_one_index_and_can_be_repeated() {
        for migration in MIGRATIONS.iter().filter(|migration| migration.no_tx) {
            assert!(index_of(migration).is_some(), "migration {}: see index_of()", migration.version);
            let statements = migration.sql.as_str().lines().filter(|line| !line.trim_start().starts_with("--"));
            let statements = statements.collect::<String>();
            assert_eq!(statements.matches(';').count(), 1, "migration {} is one statement", migration.version);
        }
    }
}
