//! Check at start: the schema is current, and the log is append-only for this role.

pub mod contract;
mod files;
pub mod migration;
mod privileges;

use std::time::Duration;

use ledger_database::{PgConnectOptions, PgPool};
use ledger_events::{Position, ShardId};
use sqlx::{Connection, PgExecutor};

use files::MIGRATIONS;
use migration::{PATIENCE, look, run};

use crate::secrets::master_keys::KeyError;

#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("the migration failed: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    #[error(
        "{what}; other sessions have held the lock for {patience:?}; the oldest transactions: {holders}. End them, and run `rewards-ledger migrate` again: it continues where it stopped"
    )]
    Locked { what: String, patience: Duration, holders: String },
    #[error("the role {role} cannot migrate this database, because it lacks {lacking}; deploy/roles.sql grants all of it")]
    Lacking { role: String, lacking: String },
    #[error("the database did not answer within {0:?} whether migrations are missing")]
    Silent(Duration),
    #[error("the schema is at version {found}; this program needs version {needed}: run `rewards-ledger migrate`")]
    Outdated { found: i64, needed: i64 },
    #[error("the log is not append-only: {0}; refusing to work on it")]
    NotAppendOnly(String),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error("an import into shard {shard} stopped at position {position} of {total}: run it again, it continues there")]
    HalfImported { shard: ShardId, position: Position, total: Position },
}

/// Name of an incomplete import's row among the projections' checkpoints. The row has the position that the import must
/// reach. No node may work on a partial log.
pub const IMPORT: &str = "import";

/// Migrates the database's schema to this program's version. A migration itself has no deadline: it may read whole tables.
///
/// # Errors
/// Returns [`SchemaError::Silent`] if the database does not answer the first question in time.
pub async fn migrate(options: &PgConnectOptions) -> Result<(), SchemaError> {
    // A new database has no older nodes, so the contract step can run at once.
    let is_new = pending(options).await?.len() == MIGRATIONS.iter().count();
    if is_new {
        privileges::check(options).await?;
    }
    run(&MIGRATIONS, None, options, PATIENCE).await?;
    if is_new {
        contract::contract(options, PATIENCE).await?;
    }
    Ok(())
}

/// Migrates the database's schema to one version and no further.
pub async fn migrate_to(version: i64, options: &PgConnectOptions) -> Result<(), SchemaError> {
    run(&MIGRATIONS, Some(version), options, PATIENCE).await
}

/// Returns the versions of the migrations that are not applied yet.
pub async fn pending(options: &PgConnectOptions) -> Result<Vec<i64>, SchemaError> {
    let (connection, missing) = look(&MIGRATIONS, None, options).await?;
    connection.close().await?;
    Ok(missing.iter().map(|migration| migration.version).collect())
}

/// Returns an error unless the schema is current and the log is append-only for the role of this pool.
pub async fn check(pool: &PgPool) -> Result<(), SchemaError> {
    let applied: Vec<i64> =
        match sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success ORDER BY version").fetch_all(pool).await {
            Ok(versions) => versions,
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => vec![],
            Err(error) => return Err(error.into()),
        };
    // Version numbers may have gaps, so the greatest one does not prove that all migrations were applied.
    let needed = MIGRATIONS.iter().map(|m| m.version);
    if needed.clone().any(|version| !applied.contains(&version)) {
        let (found, needed) = (applied.last().copied().unwrap_or_default(), needed.max().unwrap_or_default());
        return Err(SchemaError::Outdated { found, needed });
    }
    let problems: Vec<String> = sqlx::query_scalar(
        "SELECT format('role %s may %s the table events', current_user, privilege)
         FROM unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE']) AS privilege
         WHERE CASE privilege WHEN 'UPDATE' THEN has_any_column_privilege('events', privilege) -- of one column is enough
               ELSE has_table_privilege('events', privilege) END
         UNION ALL
         SELECT format('the trigger %s is missing or disabled', expected.name)
         FROM (VALUES ('events_append_only', 27), ('events_no_truncate', 34)) AS expected (name, kind)
         WHERE NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
            WHERE t.tgrelid = 'events'::regclass AND t.tgname = expected.name AND t.tgenabled = 'A' AND t.tgtype = expected.kind
              AND t.tgqual IS NULL AND p.proname = 'refuse_change' AND position('RAISE EXCEPTION' IN p.prosrc) > 0)",
    )
    .fetch_all(pool)
    .await?;
    if let Some(problem) = problems.into_iter().next() {
        return Err(SchemaError::NotAppendOnly(problem));
    }
    match half_imported(pool).await?.first() {
        Some(&(shard, position, total)) => Err(SchemaError::HalfImported { shard, position, total }),
        None => Ok(()),
    }
}

/// Returns the shards with an unfinished import: the position of the log's head, and the position that the import must
/// reach.
pub async fn half_imported(db: impl PgExecutor<'_>) -> Result<Vec<(ShardId, Position, Position)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT h.shard_id, h.position, c.position FROM projection_checkpoints c JOIN log_head h ON h.shard_id = c.shard_id
         WHERE c.projection = $1 ORDER BY h.shard_id",
    )
    .bind(IMPORT)
    .fetch_all(db)
    .await
}
