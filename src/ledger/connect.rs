//! Connections: their settings do not depend on the server's defaults.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ledger_events::ShardId;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, Postgres};

/// The role that the service works under: it may add to the log and read it, no more.
pub const RUNTIME_ROLE: &str = "ledger_runtime";

/// Most connections for what clients and operators read.
const READ_CONNECTIONS: u32 = 16;
/// Most for looking up operators and sessions, and for blocks.
const ACCESS_CONNECTIONS: u32 = 2;
/// Most for fulfilment.
const WORK_CONNECTIONS: u32 = 4;
/// Most for what the delivery worker does beside claiming and recording.
const DELIVERY_CONNECTIONS: u32 = 2;

/// For connections whose every statement finds rows by the whole of a key: plans are made once and
/// kept, because making them anew costs as much as running them. See [`Plans`]. Nothing is materialized:
/// where statistics are older than the rows, a table seems small enough to be compared with each key
/// (measured: 52 idempotency keys with 647 rows, 23 ms).
const BY_KEY: [(&str, &str); 6] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_material", "off"),
];

fn runtime(options: &PgConnectOptions, name: &'static str) -> PgConnectOptions {
    options.clone().application_name(name).options([
        ("role", RUNTIME_ROLE),
        ("default_transaction_isolation", "read committed"),
        ("timezone", "UTC"),
        ("tcp_keepalives_idle", "5"),
        ("tcp_keepalives_interval", "2"),
        ("tcp_keepalives_count", "3"),
    ])
}

/// For what clients and operators read.
pub fn pool(options: &PgConnectOptions) -> PgPool {
    general(options, "rewards-ledger", READ_CONNECTIONS)
}

/// For looking up who calls, so that slow reads do not keep others out.
pub fn access(options: &PgConnectOptions) -> PgPool {
    general(&options.clone().options(BY_KEY), "rewards-ledger access", ACCESS_CONNECTIONS)
}

/// The delivery worker's connections. Its tables are too fast for their statistics: each statement
/// finds its rows by index.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// For what it asks now and then, planned for what is asked.
    pub pool: PgPool,
    /// For claiming, which planning would make a third slower (measured: 2.1 ms beside 5.7 ms for 100 deliveries).
    pub claims: Line,
    /// For recording results.
    pub results: Line,
}

/// For the delivery worker.
pub fn delivery(options: &PgConnectOptions) -> Delivery {
    // One node claims at a time: one that freezes gives that up to another.
    let connections = |mode, most| {
        let options = options.clone().options(BY_KEY).options([("plan_cache_mode", mode), ("jit", "off")]);
        bounded(&options, "rewards-ledger delivery", most, "3000")
    };
    let line = || Line::new(connections("force_generic_plan", 1));
    Delivery { pool: connections("force_custom_plan", DELIVERY_CONNECTIONS), claims: line(), results: line() }
}

/// For fulfilment, so that slow reads do not keep it from its work.
pub fn work(options: &PgConnectOptions) -> PgPool {
    general(options, "rewards-ledger worker", WORK_CONNECTIONS)
}

/// For keys and rate limits, which every request asks for. A crash of the database may forget the
/// last requests that were counted, a node's nothing: so nobody waits for the disk.
pub fn gate(options: &PgConnectOptions) -> PgPool {
    let options = runtime(options, "rewards-ledger gate").options([
        ("jit", "off"), // it would take longer than the statement
        ("statement_timeout", "5000"),
        ("idle_in_transaction_session_timeout", "3000"),
        ("synchronous_commit", "off"),
    ]);
    let options = options.options(BY_KEY);
    PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(5)).connect_lazy_with(options)
}

fn general(options: &PgConnectOptions, name: &'static str, connections: u32) -> PgPool {
    bounded(options, name, connections, "10000")
}

/// With how long a transaction may be idle, in milliseconds.
fn bounded(options: &PgConnectOptions, name: &'static str, connections: u32, idle: &'static str) -> PgPool {
    let options = runtime(options, name).options([
        ("statement_timeout", "30000"),
        ("idle_in_transaction_session_timeout", idle),
        ("synchronous_commit", "on"),
    ]);
    PgPoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(5)).connect_lazy_with(options)
}

/// For a catching-up projection. A crash of the database may take its last commits back, rows and
/// checkpoint together: they are made again from the log, so nobody waits for the disk.
pub fn projector(options: &PgConnectOptions) -> Line {
    let options = runtime(options, "rewards-ledger projector").options([
        ("statement_timeout", "30000"),
        // A frozen node gives its projection up to another one.
        ("idle_in_transaction_session_timeout", "3000"),
        ("synchronous_commit", "off"),
    ]);
    let options = options.options(BY_KEY);
    Line::new(PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(5)).connect_lazy_with(options))
}

/// For a writer. A node that freezes while it holds the head loses it after two seconds.
pub fn writer(options: &PgConnectOptions, shard: ShardId) -> PgConnectOptions {
    runtime(options, "rewards-ledger writer")
        .options([("ledger.shard", shard.to_string())])
        .options([
            ("synchronous_commit", "on"),
            ("idle_in_transaction_session_timeout", "2000"),
            ("lock_timeout", "4000"),
            // Shorter than the writer's own patience, so that no backend works on for nobody.
            ("statement_timeout", "4500"),
        ])
        .options(BY_KEY)
}

/// For NOTIFY and LISTEN: what it commits need not be on disk.
pub fn notifier(options: &PgConnectOptions) -> PgConnectOptions {
    runtime(options, "rewards-ledger notifier").options([("synchronous_commit", "off")])
}

/// Whether the fault lies with the database's state rather than with what was asked of it, so that
/// asking again may do: connection, resources, an operator's intervention, system errors,
/// serialisation, and locks that were not to be had in time.
pub fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(refusal) => refusal.code().is_some_and(|code| {
            matches!(code.get(..2), Some("08" | "40" | "53" | "57" | "58")) || matches!(&*code, "55P03" | "25P03")
        }),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed => true,
        _ => false,
    }
}

/// When a connection's plans were made. Tables grow by thousands of rows a second, and a plan that
/// was made while one was empty scans all of it (measured: 1.8 ms for one idempotency look-up), so
/// `DISCARD PLANS` is due every second. Not when the log has doubled: tables that are new in an old
/// log kept their first plans for half a minute (16 connections made 441 orders/s instead of 1,955).
#[derive(Debug)]
pub struct Plans(Mutex<Instant>);

impl Default for Plans {
    fn default() -> Plans {
        Plans(Mutex::new(Instant::now()))
    }
}

impl Plans {
    const KEPT: Duration = Duration::from_secs(1);

    /// True once a second: the plans are to be discarded now.
    pub fn are_stale(&self) -> bool {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stale = made.elapsed() >= Self::KEPT;
        if is_stale {
            *made = Instant::now();
        }
        is_stale
    }
}

/// One connection whose statements find rows by key, with plans that are made anew every second.
#[derive(Clone, Debug)]
pub struct Line {
    pool: PgPool,
    plans: Arc<Plans>,
}

impl Line {
    fn new(pool: PgPool) -> Line {
        Line { pool, plans: Arc::default() }
    }

    /// The connection, when nobody else has it.
    ///
    /// # Errors
    /// [`sqlx::Error::PoolTimedOut`] after five seconds, and what connecting ends in.
    pub async fn acquire(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        if self.plans.are_stale() {
            sqlx::raw_sql("DISCARD PLANS").execute(&mut *connection).await?;
        }
        Ok(connection)
    }
}
