//! Applies migrations one at a time while nodes work.
//!
//! A statement that waits for a table's lock blocks everybody who requests the table after it. Therefore no migration
//! waits for long: it gives up, is rolled back, and is retried after a pause in which other sessions continue.

use std::time::{Duration, Instant};

use ledger_database::PgConnectOptions;
use sqlx::migrate::{Migrate, MigrateError, Migration, Migrator};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::SchemaError;

/// Longest wait of a migration for one lock. Shorter than the server's `deadlock_timeout` (1 s), so that the migration is
/// the one that gives way in a deadlock.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest time to retry a migration, or to wait for another program that migrates.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Deadline for connecting and looking for missing migrations. A node whose database is silent ends with an error, so that
/// its supervisor notices. A migration itself has no deadline: it may read whole tables.
const LOOKED: Duration = Duration::from_secs(15);
/// First pause between attempts. It doubles with each attempt, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Applies the missing migrations, up to a version or to the last. Retries each for the duration of `patience`.
///
/// # Errors
/// Returns [`SchemaError::Locked`] when a lock was not available. Applied migrations stay, and the next run continues.
pub async fn run(
    migrator: &Migrator,
    to: Option<i64>,
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<(), SchemaError> {
    let (mut connection, found) = look(migrator, to, options).await?;
    if !found.is_empty() {
        prepare(migrator, &mut connection, patience).await?;
        // Another program may have applied some of them in the meantime.
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

/// Opens a connection and returns it with the migrations that are not applied yet.
///
/// # Errors
/// Returns [`SchemaError::Silent`] if the database does not answer in time.
pub(super) async fn look<'m>(
    migrator: &'m Migrator,
    to: Option<i64>,
    options: &PgConnectOptions,
) -> Result<(PgConnection, Vec<&'m Migration>), SchemaError> {
    let looked = tokio::time::timeout(LOOKED, async {
        let options = options.clone().application_name("rewards-ledger migrate");
        let mut connection = loop {
            match options.connect().await {
                // The deadline of one attempt is shorter.
                Err(sqlx::Error::Io(error)) if error.kind() == std::io::ErrorKind::TimedOut => {}
                outcome => break outcome?,
            }
        };
        let missing = missing(migrator, to, &mut connection).await?;
        Ok::<_, SchemaError>((connection, missing))
    });
    looked.await.unwrap_or(Err(SchemaError::Silent(LOOKED)))
}

/// Returns the migrations that are not applied yet. Ignores migrations of a newer program: releases only expand the
/// schema that an older one uses, so that the older one can be started again.
async fn missing<'m>(
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

/// Takes the lock that prevents other programs from migrating, until the connection ends.
pub(super) async fn lock(connection: &mut PgConnection, patience: Duration) -> Result<(), SchemaError> {
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    let mut attempts = Attempts::new(patience);
    while let Err(error) = connection.lock().await {
        attempts.pause(error, "another program is migrating this database", connection).await?;
    }
    Ok(())
}

/// Takes the lock, and creates the table of migrations.
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
    let waits_for = format!("migration {} is waiting for a lock", migration.version);
    let mut attempts = Attempts::new(patience);
    loop {
        if migration.no_tx {
            // Such a migration blocks nobody while it waits, even for old transactions.
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

/// Returns the index that a migration without a transaction creates. Such a migration is a single statement, `CREATE
/// [UNIQUE] INDEX CONCURRENTLY IF NOT EXISTS name ON …`.
pub(super) fn index_of(migration: &Migration) -> Option<&str> {
    let statements = migration.sql.as_str().lines().filter(|line| !line.trim_start().starts_with("--"));
    let mut words = statements.flat_map(str::split_whitespace).skip_while(|word| *word != "CONCURRENTLY");
    let expected = ["CONCURRENTLY", "IF", "NOT", "EXISTS"];
    expected.iter().all(|expected| words.next() == Some(expected)).then(|| words.next()).flatten()
}

/// Drops the index that a failed attempt has left: it is invalid, but would count as existing.
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

/// Retries of an operation that needs locks, with exponential backoff.
pub(super) struct Attempts {
    patience: Duration,
    started: Instant,
    pause: Duration,
}

impl Attempts {
    pub(super) fn new(patience: Duration) -> Attempts {
        Attempts { patience, started: Instant::now(), pause: FIRST_PAUSE }
    }

    /// Waits until the next attempt is due.
    ///
    /// # Errors
    /// Returns the error itself if it is not about locks, or [`SchemaError::Locked`] when the time is over.
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
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(())
    }
}

/// Describes the oldest transactions of other sessions. The ones that hold the locks are among them.
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
    fn a_migration_without_a_transaction_creates_one_index_and_is_repeatable() {
        for migration in MIGRATIONS.iter().filter(|migration| migration.no_tx) {
            assert!(index_of(migration).is_some(), "migration {}: see index_of()", migration.version);
            let statements = migration.sql.as_str().lines().filter(|line| !line.trim_start().starts_with("--"));
            let statements = statements.collect::<String>();
            assert_eq!(statements.matches(';').count(), 1, "migration {} is one statement", migration.version);
        }
    }
}
