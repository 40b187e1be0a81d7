//! Connections to the database: their deadlines, their number, and migrations under open connections.

use std::time::Duration;

use ledger_database::{Connector, PgConnectOptions, PgPool, is_plan_outdated, replanned};
use rewards_ledger::ledger::connect;
use sqlx::AssertSqlSafe;
use tokio::sync::Mutex;

use crate::support::node::{AMPLE_LIMITS, Node};
use crate::support::postgres;
use crate::support::program::{Program, run};
use crate::support::proxy::Proxy;
use crate::support::wait::until;

#[tokio::test]
async fn a_pool_retries_a_statement_with_an_outdated_plan_on_a_new_connection() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let mut admin = options.connect().await.unwrap();
    sqlx::raw_sql("CREATE TABLE changed (one int); INSERT INTO changed VALUES (1)").execute(&mut admin).await.unwrap();
    let select = "SELECT * FROM changed WHERE one = $1";
    let connector = Connector::new(options.clone().application_name("plans"), Duration::from_secs(5));
    let (pool, mut dedicated) = (PgPool::new(connector.clone(), 2), connector.connect().await.unwrap());
    // Both connections of the pool have prepared the statement.
    let (mut one, mut other) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    for connection in [&mut *one, &mut *other, &mut dedicated] {
        sqlx::query(select).bind(1).fetch_one(connection).await.unwrap();
    }
    drop((one, other));
    sqlx::raw_sql("ALTER TABLE changed ADD COLUMN two text DEFAULT 'new'").execute(&mut admin).await.unwrap();

    let refused = sqlx::query(select).bind(1).fetch_one(&mut dedicated).await.unwrap_err();
    assert!(is_plan_outdated(&refused) && connect::is_transient(&refused), "{refused}");
    assert!(dedicated.is_broken(), "the connection must not be used again");
    let rows = sqlx::query_as::<_, (i32, String)>(select).bind(1).fetch_all(&pool).await.unwrap();
    assert_eq!(rows, [(1, "new".to_owned())]);
    sqlx::raw_sql("ALTER TABLE changed ADD COLUMN three int").execute(&mut admin).await.unwrap();
    let streamed: Vec<_> = futures::TryStreamExt::try_collect(sqlx::query(select).bind(1).fetch(&pool)).await.unwrap();
    assert_eq!(streamed.len(), 1);
    sqlx::raw_sql("ALTER TABLE changed ADD COLUMN four int").execute(&mut admin).await.unwrap();
    assert_eq!(sqlx::query(select).bind(1).execute(&pool).await.unwrap().rows_affected(), 1);

    // Three migrations follow each other while a transaction is retried.
    let migrations = Mutex::new((admin, 0..3));
    let asked = async || {
        let mut connection = pool.acquire().await?;
        sqlx::query(select).bind(1).execute(&mut *connection).await?;
        let (admin, left) = &mut *migrations.lock().await;
        if let Some(number) = left.next() {
            let change = format!("ALTER TABLE changed ADD COLUMN again_{number} int");
            sqlx::raw_sql(AssertSqlSafe(change)).execute(admin).await?;
        }
        sqlx::query(select).bind(1).execute(&mut *connection).await
    };
    assert_eq!(replanned(asked).await.unwrap().rows_affected(), 1);
    assert_eq!(migrations.into_inner().1, 3..3);
}

/// The gate has a dedicated connection that every request needs. Another collation changes the result type of its
/// statement.
#[tokio::test]
async fn no_request_fails_when_a_column_that_the_gate_returns_is_changed() {
    let node = Node::with_limits(AMPLE_LIMITS.parse().unwrap()).await;
    let client = node.account("Acme").await;
    let mut admin = node.admin().await;
    let read = async || node.client(&client, "GET", "/orders", serde_json::Value::Null).await.data(200);
    read().await;
    let backend =
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'rewards-ledger gate' AND datname = current_database()";
    let before: i32 = sqlx::query_scalar(backend).fetch_one(&mut admin).await.unwrap();
    let change = "ALTER TABLE rate_windows ALTER COLUMN key TYPE text COLLATE \"POSIX\"";
    sqlx::raw_sql(change).execute(&mut admin).await.unwrap();
    read().await;
    until("the gate continues on a new connection", async || {
        let after: Vec<i32> = sqlx::query_scalar(backend).fetch_all(&mut admin).await.unwrap();
        after.len() == 1 && after[0] != before
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_gives_up_on_a_silent_connection_loses_no_place_in_the_pool() {
    let database = postgres::database().await;
    let (proxy, options) = Proxy::before(&database.url).await;
    let pool = PgPool::new(Connector::new(options.application_name("one"), Duration::from_secs(2)), 1);
    sqlx::query("SELECT 1").execute(&pool).await.unwrap();
    let holding = pool.begin().await.unwrap();
    let silenced = proxy.silence("one").pop().unwrap();
    // The connection owes a rollback that gets no answer, and no caller waits for it.
    drop(holding);
    until("the pool works again", async || sqlx::query("SELECT 1").execute(&pool).await.is_ok()).await;
    until("the silent connection is closed", async || silenced.has_ended()).await;

    // Now in the middle of a statement, whose caller waits.
    let silenced = proxy.silence("one").pop().unwrap();
    let mut connection = pool.acquire().await;
    until("the pool gives a connection", async || {
        if connection.is_err() {
            connection = pool.acquire().await;
        }
        connection.is_ok()
    })
    .await;
    let mut connection = connection.unwrap();
    until("the connection without an answer is closed", async || silenced.has_ended()).await;
    assert_eq!(proxy.silence("one").len(), 1);
    let missed = sqlx::query("SELECT 1").execute(&mut *connection).await.unwrap_err();
    assert!(matches!(&missed, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut), "{missed}");
    let again = sqlx::query("SELECT 1").execute(&mut *connection).await;
    assert!(again.is_err() && connection.is_broken(), "the broken connection is not used a second time");
}

#[tokio::test]
async fn a_node_limits_its_connections_and_refuses_to_start_if_the_database_has_too_few() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &["--database-connections", "25"]).await;
    let client = node.client("1000.00").await;
    let nothing = serde_json::Value::Null;
    let reads = (0..64).map(|_| node.call(&client, "GET", "/orders", None, &nothing));
    for read in futures::future::join_all(reads).await {
        assert_eq!(read.unwrap().0, 200);
    }
    let mut admin = database.url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    let open: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'rewards-ledger%'",
    )
    .fetch_one(&mut admin)
    .await
    .unwrap();
    assert!((8..=25).contains(&open), "{open}");

    for (given, told) in [("24", "needs 25"), ("9999", "the database takes")] {
        let refused = run(node.command().args(["serve", "--listen", "127.0.0.1:0", "--database-connections", given])).await;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("--database-connections") && said.contains(told), "{said}");
    }
}
