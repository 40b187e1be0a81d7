//! Connections: their settings do not depend on the server's defaults, and none of them waits for ever.
//!
//! The server ends a statement after `statement_timeout`. The node ends its own wait a little later (see
//! [`ledger_database`]), so a miss means that the server is out of reach, and the connection is closed hard. All loops work
//! again within 15 s: 11 s for the longest wait, 2 s for the check of an idle connection, and the loop's own pause. Reads for
//! clients wait for 13 s at most.
//!
//! The server finds dead nodes by TCP keepalive and `tcp_user_timeout`, which are set here. sqlx 0.9 opens the node's end of
//! the socket itself and gives no access to its options, so the node relies on its deadlines alone. They also help behind a
//! proxy that acknowledges bytes and forwards none, where TCP's timers do not.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_database::{Connector, PgConnection, PgPool, is_plan_outdated};
use ledger_events::ShardId;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The role that the service works under: it may add to the log and read it, no more.
pub const RUNTIME_ROLE: &str = "ledger_runtime";

/// Connections for what clients and operators read, where no budget says otherwise.
pub const READ_CONNECTIONS: u32 = 16;
/// Most for looking up operators and sessions, and for blocks.
pub const ACCESS_CONNECTIONS: u32 = 2;
/// Most for fulfilment, and for the sandbox.
pub const WORK_CONNECTIONS: u32 = 4;
/// Most for what the delivery worker does beside claiming and recording.
pub const DELIVERY_CONNECTIONS: u32 = 2;
/// Most for retention, replays, purging, the deliveries' health and witnesses.
pub const MAINTENANCE_CONNECTIONS: u32 = 3;

/// How long connecting may take, and waiting for a connection.
const TO_CONNECT: Duration = Duration::from_secs(5);
/// A connection that was used so lately is not asked whether it is still there.
const TRUSTED: Duration = Duration::from_secs(1);
/// How long one that is asked may take to answer.
const CHECK_DEADLINE: Duration = Duration::from_secs(2);

/// How long a statement may run on the server, in milliseconds, and how long this node waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Patience {
    statement: &'static str,
    answer: Duration,
}

/// For statements that find few rows by key.
const QUICK: Patience = Patience { statement: "5000", answer: Duration::from_millis(5_500) };
/// For loops: one that loses its connection works again within 15 s.
const STEADY: Patience = Patience { statement: "10000", answer: Duration::from_secs(11) };
/// For what clients and operators read: a report may read a month of all wallets.
const READING: Patience = Patience { statement: "12000", answer: Duration::from_secs(13) };
/// For the writer, which ends every phase after five seconds.
const PROMPT: Patience = Patience { statement: "4500", answer: Duration::from_millis(4_750) };

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
        ("tcp_user_timeout", "10000"),
    ])
}

/// A connector whose server and node agree on how long a statement may take.
fn connector(options: PgConnectOptions, patience: Patience) -> Connector {
    Connector::new(options.options([("statement_timeout", patience.statement)]), patience.answer)
}

/// For what clients and operators read.
pub fn pool(options: &PgConnectOptions) -> PgPool {
    read_pool(options, READ_CONNECTIONS)
}

/// The same with so many connections.
pub fn read_pool(options: &PgConnectOptions, connections: u32) -> PgPool {
    PgPool::new(connector(patient(options, "rewards-ledger", "10000"), READING), connections)
}

/// For a command that reads much of the log for a person who waits: no statement is too long for it.
pub fn unhurried(options: &PgConnectOptions) -> PgPool {
    let options = patient(options, "rewards-ledger command", "10000").options([("statement_timeout", "0")]);
    PgPool::patient(options, WORK_CONNECTIONS)
}

/// For looking up who calls, so that slow reads do not keep others out.
pub fn access(options: &PgConnectOptions) -> PgPool {
    let options = patient(&options.clone().options(BY_KEY), "rewards-ledger access", "10000");
    PgPool::new(connector(options, QUICK), ACCESS_CONNECTIONS)
}

/// For retention, replays, purging, the deliveries' health and witnesses, so that they and clients do not wait for each other.
pub fn maintenance(options: &PgConnectOptions) -> PgPool {
    general(options, "rewards-ledger maintenance", MAINTENANCE_CONNECTIONS)
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
    let options = |name, mode| {
        let options = options.clone().options(BY_KEY).options([("plan_cache_mode", mode), ("jit", "off")]);
        patient(&options, name, "3000")
    };
    let line = |name| Line::new(connector(options(name, "force_generic_plan"), QUICK));
    let pool = connector(options("rewards-ledger delivery", "force_custom_plan"), STEADY);
    Delivery {
        pool: PgPool::new(pool, DELIVERY_CONNECTIONS),
        claims: line("rewards-ledger claims"),
        results: line("rewards-ledger results"),
    }
}

/// For fulfilment, so that slow reads do not keep it from its work.
pub fn work(options: &PgConnectOptions) -> PgPool {
    general(options, "rewards-ledger fulfilment", WORK_CONNECTIONS)
}

/// For keys and rate limits, which every request asks for. A crash of the database may forget the
/// last requests that were counted, a node's nothing: so nobody waits for the disk.
pub fn gate(options: &PgConnectOptions) -> Line {
    let options = runtime(options, "rewards-ledger gate").options([
        ("jit", "off"), // it would take longer than the statement
        ("idle_in_transaction_session_timeout", "3000"),
        ("synchronous_commit", "off"),
    ]);
    // By whole keys of tables that nothing but the number of clients makes grow: planned once.
    Line { plans_are_kept: true, ..Line::new(connector(options.options(BY_KEY), QUICK)) }
}

fn general(options: &PgConnectOptions, name: &'static str, connections: u32) -> PgPool {
    PgPool::new(connector(patient(options, name, "10000"), STEADY), connections)
}

/// With how long a transaction may be idle, in milliseconds.
fn patient(options: &PgConnectOptions, name: &'static str, idle: &'static str) -> PgConnectOptions {
    runtime(options, name).options([("idle_in_transaction_session_timeout", idle), ("synchronous_commit", "on")])
}

/// For the projection `deliveries`. A crash of the database may take its last commits back, rows and
/// checkpoint together: they are made again from the log, so nobody waits for the disk.
pub fn projector(options: &PgConnectOptions) -> Line {
    catching_up(options, "rewards-ledger projector")
}

/// The same for the counts of lists and the daily totals.
pub fn totals(options: &PgConnectOptions) -> Line {
    catching_up(options, "rewards-ledger totals")
}

/// The same for the transparency log's tree.
pub fn tree(options: &PgConnectOptions) -> Line {
    catching_up(options, "rewards-ledger tree")
}

fn catching_up(options: &PgConnectOptions, name: &'static str) -> Line {
    let options = runtime(options, name).options([
        ("jit", "off"),
        // A frozen node gives its projection up to another one.
        ("idle_in_transaction_session_timeout", "3000"),
        ("synchronous_commit", "off"),
    ]);
    Line::new(connector(options.options(BY_KEY), STEADY))
}

/// For a writer. A node that freezes while it holds the head loses it after two seconds.
pub fn writer(options: &PgConnectOptions, shard: ShardId) -> Connector {
    writing(options, shard, "rewards-ledger writer")
}

/// For what a writer reads while its last batch is being written.
pub fn writer_reading(options: &PgConnectOptions, shard: ShardId) -> Connector {
    writing(options, shard, "rewards-ledger writer ahead")
}

fn writing(options: &PgConnectOptions, shard: ShardId, name: &'static str) -> Connector {
    let options = runtime(options, name)
        .options([("ledger.shard", shard.to_string())])
        .options([
            ("synchronous_commit", "on"),
            ("idle_in_transaction_session_timeout", "2000"),
            ("lock_timeout", "4000"),
            ("jit", "off"),
        ])
        .options(BY_KEY);
    connector(options, PROMPT)
}

/// For NOTIFY: what it commits need not be on disk.
pub fn notifier(options: &PgConnectOptions) -> Line {
    let options = runtime(options, "rewards-ledger notifier").options([("synchronous_commit", "off")]);
    Line { plans_are_kept: true, ..Line::new(connector(options, QUICK)) }
}

/// For LISTEN, on a connection of sqlx's own: its answers are not awaited, so who listens has to notice when they stop.
pub fn listener(options: &PgConnectOptions) -> PgConnectOptions {
    runtime(options, "rewards-ledger listener").options([("statement_timeout", QUICK.statement)])
}

/// Single codes of a state that passes.
const PASSING: [&str; 7] = [
    READ_ONLY, "25P03", // a transaction was idle for too long
    "25P04", // a transaction took too long
    "26000", // the connection has lost a prepared statement
    "3D000", // the database is not there
    "55000", // it takes no connections
    "55P03", // a lock was not to be had
];

/// The database takes no writes: it was demoted, or an operator wants it so.
pub const READ_ONLY: &str = "25006";

/// Whether the fault lies with the state of the database or of the connection rather than with what was asked, so that
/// asking again may do: connection, who may connect, resources, an operator's intervention, system errors, serialisation,
/// locks that were not to be had in time, and single codes ([`PASSING`]). Not XX000, an internal error: a command may be
/// what provokes it, and would be asked again and again.
pub fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        // A new connection prepares the statement anew.
        sqlx::Error::Database(_) if is_plan_outdated(error) => true,
        sqlx::Error::Database(refusal) => refusal.code().is_some_and(|code| {
            matches!(code.get(..2), Some("08" | "28" | "40" | "53" | "57" | "58")) || PASSING.contains(&&*code)
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
pub struct Plans(Instant);

impl Default for Plans {
    fn default() -> Plans {
        Plans(Instant::now())
    }
}

impl Plans {
    const KEPT: Duration = Duration::from_secs(1);

    /// True once a second: the plans are to be discarded now.
    pub fn are_stale(&mut self) -> bool {
        let is_stale = self.0.elapsed() >= Self::KEPT;
        if is_stale {
            *self = Plans::default();
        }
        is_stale
    }
}

/// One connection of its own, for one user at a time. A pool asks its connections before and after each use whether
/// they are well: two more round trips for a statement. Here one that has not been used for a while is asked before, and
/// one whose use did not end well is closed.
#[derive(Clone, Debug)]
pub struct Line {
    connector: Connector,
    kept: Arc<Mutex<Option<Kept>>>,
    /// Whether they are not made anew every second.
    plans_are_kept: bool,
}

#[derive(Debug)]
struct Kept {
    connection: PgConnection,
    used_at: Instant,
    plans: Plans,
}

/// The connection of a [`Line`], in use. It is closed when this is dropped: say [`keep`](Held::keep) where no
/// transaction is left open and every answer has been read.
#[derive(Debug)]
pub struct Held {
    place: OwnedMutexGuard<Option<Kept>>,
    kept: Kept,
}

impl Line {
    fn new(connector: Connector) -> Line {
        Line { connector, kept: Arc::default(), plans_are_kept: false }
    }

    /// The connection, when nobody else has it.
    ///
    /// # Errors
    /// [`sqlx::Error::PoolTimedOut`] after five seconds, and what connecting ends in.
    pub async fn acquire(&self) -> Result<Held, sqlx::Error> {
        tokio::time::timeout(TO_CONNECT, self.hold()).await.unwrap_or_else(|_| {
            tracing::warn!(connection = self.connector.name(), deadline = ?TO_CONNECT, "no usable database connection within the deadline");
            Err(sqlx::Error::PoolTimedOut)
        })
    }

    async fn hold(&self) -> Result<Held, sqlx::Error> {
        let mut place = self.kept.clone().lock_owned().await;
        let mut kept = place.take();
        if let Some(idle) = &mut kept
            && idle.used_at.elapsed() >= TRUSTED
            && !self.answers(&mut idle.connection).await
        {
            kept = None;
        }
        let mut kept = match kept {
            Some(kept) => kept,
            None => Kept { connection: self.connector.connect().await?, used_at: Instant::now(), plans: Plans::default() },
        };
        if !self.plans_are_kept && kept.plans.are_stale() {
            sqlx::raw_sql("DISCARD PLANS").execute(&mut kept.connection).await?;
        }
        Ok(Held { place, kept })
    }

    /// Whether an idle connection is still there.
    async fn answers(&self, connection: &mut PgConnection) -> bool {
        match tokio::time::timeout(CHECK_DEADLINE, connection.ping()).await {
            Ok(answered) => answered.is_ok(),
            Err(_) => {
                let connection = self.connector.name();
                tracing::warn!(connection, deadline = ?CHECK_DEADLINE, "an idle database connection did not answer within the deadline: closing it");
                false
            }
        }
    }
}

impl Held {
    /// Keeps the connection for who comes next, if all is well with it.
    pub fn keep(mut self) {
        if self.kept.connection.is_broken() {
            return;
        }
        self.kept.used_at = Instant::now();
        *self.place = Some(self.kept);
    }
}

impl Deref for Held {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.kept.connection
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.kept.connection
    }
}

/// What asks the database, but not for longer than this. The server's own limits end a statement; this ends the wait
/// for a server that is gone without a word.
///
/// # Errors
/// An I/O error when the time is over.
pub async fn within<T, E: From<sqlx::Error>>(limit: Duration, asking: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let is_over = |_| E::from(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer")));
    tokio::time::timeout(limit, asking).await.map_err(is_over)?
}
