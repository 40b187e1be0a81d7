//! Postgres for tests: one temporary server per test binary, a database from a migrated template per test, and
//! separate servers for tests that kill them.
//!
//! It needs only installed server programs, or the network to download them, and works as root and as an ordinary
//! user. The server ends with the process, however that ends.

use std::fmt::Debug;
use std::path::PathBuf;

use embedded_postgres::{Server, Settings};
use rewards_ledger::embedded;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::wait::until;

const TEMPLATE: &str = "ledger_template";

/// Migrates a database. Every test database gets its schema from this one call site.
async fn migrate(url: &str) -> Result<(), impl Debug> {
    rewards_ledger::ledger::migrate(&url.parse().expect("a database URL")).await
}

/// A migrated database for one test, which is dropped with this value.
#[derive(Debug)]
#[must_use = "the database is dropped with this value"]
pub struct TestDatabase {
    /// URL for the database's owner, a superuser.
    pub url: String,
    name: String,
    unused: mpsc::UnboundedSender<String>,
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // The database is dropped in the background. When the process ends, the whole server goes anyway.
        let _ = self.unused.send(std::mem::take(&mut self.name));
    }
}

/// Creates an empty database with the current schema.
pub async fn database() -> TestDatabase {
    let shared = shared().await;
    let (answer, answered) = oneshot::channel();
    shared.wanted.send(answer).expect("the thread of the test server runs");
    let name = answered.await.expect("the thread of the test server answers").expect("a database is made from the template");
    TestDatabase { url: shared.server.url_of(&name), name, unused: shared.unused.clone() }
}

/// Returns the settings of a server in a temporary directory. `LEDGER_TEST_POSTGRES` names the directory of its programs.
pub fn settings(durable: bool) -> Settings {
    let programs = std::env::var_os("LEDGER_TEST_POSTGRES").map(PathBuf::from);
    Settings { programs, ..embedded::temporary(durable).expect("a temporary directory for a server") }
}

/// Starts a separate server without a schema. A durable one has the settings of production. The server and its data
/// are removed when the value is dropped or stopped.
pub async fn own_server(durable: bool) -> Server {
    Server::start(settings(durable)).await.expect("a server for one test")
}

/// Makes new connections to a database read-only, or writable again. When they become read-only, every existing
/// connection but `admin` is closed. Otherwise existing connections stay as they are.
pub async fn set_read_only(admin: &mut PgConnection, is_read_only: bool) {
    let name: String =
        sqlx::query_scalar("SELECT quote_ident(current_database())").fetch_one(&mut *admin).await.expect("its name");
    let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = {is_read_only}");
    execute(admin, set).await.expect("the setting is made");
    if is_read_only {
        // Signal all connections first, then wait for them.
        let others = "SELECT array_agg(pid) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let others: Option<Vec<i32>> =
            sqlx::query_scalar(others).fetch_one(&mut *admin).await.expect("the other connections are signalled");
        let is_there = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ANY ($1))";
        until("the other connections are closed", async || {
            !sqlx::query_scalar::<_, bool>(is_there).bind(&others).fetch_one(&mut *admin).await.expect("the list of connections")
        })
        .await;
    }
}

/// Returns the directory of the server programs that the tests use.
pub async fn programs() -> PathBuf {
    // Ask the server, because not every user may inspect a process of another user.
    let mut admin = PgConnection::connect(&shared().await.server.url_of("postgres")).await.expect("a connection");
    let programs: String = sqlx::query_scalar("SELECT setting FROM pg_config WHERE name = 'BINDIR'")
        .fetch_one(&mut admin)
        .await
        .expect("the directory of the server's programs");
    programs.into()
}

struct Shared {
    server: Server,
    wanted: mpsc::UnboundedSender<Wanted>,
    unused: mpsc::UnboundedSender<String>,
}

/// Channel on which a test gets the name of its database.
type Wanted = oneshot::Sender<Result<String, sqlx::Error>>;

struct Requests {
    wanted: mpsc::UnboundedReceiver<Wanted>,
    unused: mpsc::UnboundedReceiver<String>,
}

async fn shared() -> &'static Shared {
    // A failure is kept as well, so that not every test waits for it again.
    static SHARED: OnceCell<Result<Shared, String>> = OnceCell::const_new();
    let shared = SHARED
        .get_or_init(|| async {
            let (started, start) = oneshot::channel();
            // Each test has an async runtime that ends with the test, and a connection belongs to its runtime.
            // Connections that outlive a test therefore need a separate thread.
            std::thread::Builder::new()
                .name("test-databases".to_owned())
                .spawn(move || serve(started))
                .expect("a thread for the test server");
            start.await.unwrap_or_else(|_| Err("its thread has panicked".to_owned()))
        })
        .await;
    match shared {
        Ok(shared) => shared,
        Err(error) => panic!("no server for tests: {error}"),
    }
}

fn serve(started: oneshot::Sender<Result<Shared, String>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime for the test server");
    runtime.block_on(async {
        match start().await {
            Ok((server, admin)) => {
                let (wanted, wanted_by) = mpsc::unbounded_channel();
                let (unused, unused_names) = mpsc::unbounded_channel();
                let requests = Requests { wanted: wanted_by, unused: unused_names };
                let _ = started.send(Ok(Shared { server, wanted, unused }));
                answer(admin, requests).await;
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    });
}

/// Starts the server with its template, and opens a connection for administration.
async fn start() -> Result<(Server, PgConnection), String> {
    let text = |error: &dyn Debug| format!("{error:?}");
    let server = Server::start(settings(false)).await.map_err(|error| error.to_string())?;
    let mut admin = PgConnection::connect(&server.url_of("postgres")).await.map_err(|error| text(&error))?;
    let create = format!("CREATE DATABASE {TEMPLATE} IS_TEMPLATE true");
    execute(&mut admin, create).await.map_err(|error| text(&error))?;
    migrate(&server.url_of(TEMPLATE)).await.map_err(|error| text(&error))?;
    // A template can be copied only while no one is connected to it.
    for statement in [
        format!("ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false"),
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'"),
    ] {
        execute(&mut admin, statement).await.map_err(|error| text(&error))?;
    }
    Ok((server, admin))
}

/// Keeps one database ready, so that a test rarely waits for the copy. Drops databases of finished tests while no
/// test waits.
async fn answer(mut admin: PgConnection, mut requests: Requests) {
    let strategy = strategy(&mut admin).await;
    let mut number = 0;
    let mut ready = create(&mut admin, &mut number, strategy).await;
    loop {
        tokio::select! {
            biased;
            Some(answer) = requests.wanted.recv() => {
                let _ = answer.send(ready);
                ready = create(&mut admin, &mut number, strategy).await;
            }
            Some(name) = requests.unused.recv() => {
                // The test may have left connections open. A failed drop costs only disk space.
                let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                let _ = execute(&mut admin, drop).await;
            }
            else => return,
        }
    }
}

/// Copying files takes less than half the time of the default strategy. Before version 15 it was the only one.
async fn strategy(admin: &mut PgConnection) -> &'static str {
    let version = sqlx::query_scalar("SELECT current_setting('server_version_num')::int").fetch_one(admin).await;
    match version {
        Ok(150_000_i32..) => "STRATEGY file_copy",
        _ => "",
    }
}

async fn create(admin: &mut PgConnection, number: &mut u32, strategy: &str) -> Result<String, sqlx::Error> {
    *number += 1;
    let name = format!("t_{number}");
    let create = format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE} {strategy}");
    execute(admin, create).await?;
    Ok(name)
}

async fn execute(connection: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}
