//! Migrations that need a lock held by others.

use std::time::Duration;

use ledger_database::PgConnectOptions;
use rewards_ledger::ledger::SchemaError;
use rewards_ledger::ledger::schema::migration::{PATIENCE, run};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Connection, Executor, PgConnection, SqlSafeStr};

use crate::support::postgres;
use crate::support::wait::{until, until_locked_out};

fn migrator(sql: &'static str, no_tx: bool) -> Migrator {
    Migrator::with_migrations(vec![Migration::new(9_001, "a test".into(), MigrationType::Simple, sql.into_sql_str(), no_tx)])
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn answer(connection: &mut PgConnection, sql: &'static str) -> bool {
    sqlx::query_scalar(sql).fetch_one(connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_waits_for_a_lock_blocks_no_one() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let (mut holder, mut reader) = (connect(&database.url).await, connect(&database.url).await);
    // A long read holds the lock.
    holder.execute("BEGIN; LOCK TABLE orders IN ACCESS SHARE MODE").await.unwrap();
    let migration = migrator("ALTER TABLE orders ADD COLUMN added text", false);
    let migrated = tokio::spawn(async move { run(&migration, None, &options, PATIENCE).await });
    let options: PgConnectOptions = database.url.parse().unwrap();
    until_locked_out(&options, "rewards-ledger migrate").await;
    // Later readers of the table are answered although the first read continues.
    assert!(answer(&mut reader, "SELECT count(*) = 0 FROM orders").await);
    until_locked_out(&options, "rewards-ledger migrate").await;
    assert!(!migrated.is_finished(), "the migration retries");
    holder.execute("COMMIT").await.unwrap();
    migrated.await.unwrap().unwrap();
    assert!(answer(&mut reader, "SELECT count(added) = 0 FROM orders").await);
    assert!(answer(&mut reader, "SELECT success FROM _sqlx_migrations WHERE version = 9001").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_without_its_lock_names_the_holder_and_continues_later() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let mut holder = connect(&database.url).await;
    holder.execute("SET application_name = 'nightly dump'; BEGIN; LOCK TABLE orders IN ACCESS SHARE MODE").await.unwrap();
    let migration = migrator("CREATE TABLE half_done (id int); ALTER TABLE orders ADD COLUMN added text", false);
    let refused = run(&migration, None, &options, Duration::ZERO).await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, SchemaError::Locked { .. }), "{text}");
    assert!(text.contains("migration 9001 is waiting for a lock") && text.contains("nightly dump"), "{text}");
    assert!(answer(&mut holder, "SELECT to_regclass('half_done') IS NULL").await, "the migration was rolled back");
    holder.execute("COMMIT").await.unwrap();
    run(&migration, None, &options, Duration::ZERO).await.unwrap();
    assert!(answer(&mut holder, "SELECT to_regclass('half_done') IS NOT NULL").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_index_is_built_again() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let mut admin = connect(&database.url).await;
    admin.execute("CREATE TABLE twins (id int); INSERT INTO twins VALUES (1), (1)").await.unwrap();
    let migration = migrator(
        "-- Each number once.
         CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS twins_id_key ON twins (id);",
        true,
    );
    let failed = run(&migration, None, &options, PATIENCE).await.unwrap_err().to_string();
    assert!(failed.contains("9001") && failed.contains("twins_id_key"), "{failed}");
    assert!(answer(&mut admin, "SELECT NOT indisvalid FROM pg_index WHERE indexrelid = 'twins_id_key'::regclass").await);
    admin.execute("DELETE FROM twins; INSERT INTO twins VALUES (1)").await.unwrap();
    run(&migration, None, &options, PATIENCE).await.unwrap();
    assert!(answer(&mut admin, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'twins_id_key'::regclass").await);
    // A second run has nothing to do.
    run(&migration, None, &options, PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_waits_for_old_transactions_while_other_programs_wait_to_migrate() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let (mut holder, mut admin) = (connect(&database.url).await, connect(&database.url).await);
    admin.execute("CREATE TABLE twins (id int)").await.unwrap();
    holder.execute("BEGIN; INSERT INTO twins VALUES (1)").await.unwrap();
    let migrate = || {
        let options = options.clone();
        let migration = migrator("CREATE INDEX CONCURRENTLY IF NOT EXISTS twins_id ON twins (id)", true);
        tokio::spawn(async move { run(&migration, None, &options, PATIENCE).await })
    };
    let first = migrate();
    until("the index waits for the transaction", async || {
        answer(&mut admin, "SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting%')").await
    })
    .await;
    let second = migrate();
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)";
    until("the other program waits for the first", async || answer(&mut admin, waits).await).await;
    holder.execute("COMMIT").await.unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert!(answer(&mut admin, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'twins_id'::regclass").await);
}

#[tokio::test]
async fn a_program_starts_on_the_schema_of_a_newer_one() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    run(&migrator("CREATE TABLE of_the_future (id int)", false), None, &options, PATIENCE).await.unwrap();
    rewards_ledger::ledger::migrate(&options).await.unwrap();
    assert_eq!(rewards_ledger::ledger::pending(&options).await.unwrap(), Vec::<i64>::new());
}
