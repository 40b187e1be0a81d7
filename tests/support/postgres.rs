//! Postgres for tests: one throw-away server per test binary, a database from a migrated template
//! per test, and servers of a test's own for those that kill them.
//!
//! Needs installed server programs (or the network, to download them) and nothing else; works as
//! root and as an ordinary user. The server ends with the process, however that ends.

use std::fmt::Debug;
use std::path::PathBuf;

use rewards_ledger::postgres::{Server, Settings, start_throwaway};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::wait::until;

const TEMPLATE: &str = "ledger_template";

/// How every test's database comes to its schema: the one call site.
async fn migrate(url: &str) -> Result<(), impl Debug> {
    rewards_ledger::ledger::migrate(&url.parse().expect("a database URL")).await
}

/// A migrated database of its own for one test, dropped with this value.
#[derive(Debug)]
#[must_use = "the database is dropped with this value"]
pub struct TestDatabase {
    /// The URL of the database's owner, a superuser.
    pub url: String,
    name: String,
    unused: mpsc::UnboundedSender<String>,
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // Done beside the tests; at the process's end all goes anyway.
        let _ = self.unused.send(std::mem::take(&mut self.name));
    }
}

/// A new database with the current schema and nothing in it.
pub async fn database() -> TestDatabase {
    let shared = shared().await;
    let (answer, answered) = oneshot::channel();
    shared.wanted.send(answer).expect("the thread of the test server runs");
    let name = answered.await.expect("the thread of the test server answers").expect("a database is made from the template");
    TestDatabase { url: shared.server.url_of(&name), name, unused: shared.unused.clone() }
}

/// A server of the test's own, without any schema. A durable one has the settings of production.
/// It and its data go when the value is dropped or stopped.
pub async fn own_server(durable: bool) -> Server {
    let settings = Settings::temporary(durable).expect("a temporary directory for a server");
    Server::start(settings).await.expect("a server for one test")
}

/// Whether who connects to a database from now on may write. Where not, nobody but `admin` stays connected; else whoever is
/// connected stays so, and as it was.
pub async fn set_read_only(admin: &mut PgConnection, is_read_only: bool) {
    let name: String =
        sqlx::query_scalar("SELECT quote_ident(current_database())").fetch_one(&mut *admin).await.expect("its name");
    let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = {is_read_only}");
    execute(admin, set).await.expect("the setting is made");
    if is_read_only {
        // All are told, and then waited for.
        let others = "SELECT array_agg(pid) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let others: Option<Vec<i32>> = sqlx::query_scalar(others).fetch_one(&mut *admin).await.expect("the others are told");
        let is_there = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ANY ($1))";
        until("the others are gone", async || {
            !sqlx::query_scalar::<_, bool>(is_there).bind(&others).fetch_one(&mut *admin).await.expect("who is there")
        })
        .await;
    }
}

/// The directory of the server programs that the tests use.
pub async fn programs() -> PathBuf {
    // The server says it: which program a process of another user runs, not everybody may ask.
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

/// Who asks for a database is told its name.
type Wanted = oneshot::Sender<Result<String, sqlx::Error>>;

struct Requests {
    wanted: mpsc::UnboundedReceiver<Wanted>,
    unused: mpsc::UnboundedReceiver<String>,
}

async fn shared() -> &'static Shared {
    // A failure is kept too, or each test would wait for it anew.
    static SHARED: OnceCell<Result<Shared, String>> = OnceCell::const_new();
    let shared = SHARED
        .get_or_init(|| async {
            let (started, start) = oneshot::channel();
            // Each test has an async runtime that ends with it; connections belong to a runtime,
            // so the ones that outlive a test need a thread of their own.
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

/// The server with its template, and a connection for administration.
async fn start() -> Result<(Server, PgConnection), String> {
    let text = |error: &dyn Debug| format!("{error:?}");
    let server = start_throwaway(None).await.map_err(|error| error.to_string())?;
    let mut admin = PgConnection::connect(&server.url_of("postgres")).await.map_err(|error| text(&error))?;
    let create = format!("CREATE DATABASE {TEMPLATE} IS_TEMPLATE true");
    execute(&mut admin, create).await.map_err(|error| text(&error))?;
    migrate(&server.url_of(TEMPLATE)).await.map_err(|error| text(&error))?;
    // A template can only be copied while nobody is connected to it.
    for statement in [
        format!("ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false"),
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'"),
    ] {
        execute(&mut admin, statement).await.map_err(|error| text(&error))?;
    }
    Ok((server, admin))
}

/// Keeps one database ready, so that a test seldom waits for the copy, and drops what tests have
/// done with while nobody waits.
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
                // The test may have left connections. A failure costs only disk space.
                let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                let _ = execute(&mut admin, drop).await;
            }
            else => return,
        }
    }
}

/// Copying files takes less than half the time of the default. Before 15 it was the only way.
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
