//! Database connections: their settings do not depend on the server's defaults, and none of them waits for ever.
//!
//! The server ends a statement after `statement_timeout`. The node ends its own wait a little later (see
//! [`ledger_database`]). Reaching the node's deadline therefore means that the server is out of reach, so the connection
//! is closed without a handshake. All loops work again within 15 s. The longest wait takes 11 s of them, and the check of
//! an idle connection 2 s; the rest is the loop's own pause. Reads for clients wait for 13 s at most.
//!
//! The server finds dead nodes by TCP keepalive and `tcp_user_timeout`, which are set here. sqlx 0.9 opens the node's end
//! of the socket itself and gives no access to its options, so the node relies on its deadlines alone. The deadlines also
//! help behind a proxy that acknowledges bytes and forwards none, where TCP's timers do not (docs/decisions/0023).

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_database::{Connector, PgConnectOptions, PgConnection, PgPool, is_plan_outdated};
use ledger_events::ShardId;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::FIRST_SHARD;

/// Database role of the service. On the table `events` it may only insert and select.
pub const RUNTIME_ROLE: &str = "ledger_runtime";

/// Default number of connections for the reads of clients and operators, if no budget is given.
pub const READ_CONNECTIONS: u32 = 16;
/// Largest number of connections for looking up operators, sessions and blocks.
pub const ACCESS_CONNECTIONS: u32 = 2;
/// Largest number of connections for fulfilment, and for the sandbox.
pub const WORK_CONNECTIONS: u32 = 4;
/// Largest number of connections of the delivery worker for the first shard, in addition to those for claims and results.
pub const DELIVERY_CONNECTIONS: u32 = 2;
/// Largest number of such connections for each further shard.
pub const FURTHER_DELIVERY_CONNECTIONS: u32 = 1;
/// Largest number of connections for retention, replays, purging, the health check of deliveries, and witnesses.
pub const MAINTENANCE_CONNECTIONS: u32 = 3;

/// Timeout for connecting, and for waiting for a connection of the pool.
const TO_CONNECT: Duration = Duration::from_secs(5);
/// Idle time up to which a connection is used without a health check.
const TRUSTED: Duration = Duration::from_secs(1);
/// Timeout of the health check of an idle connection.
const CHECK_DEADLINE: Duration = Duration::from_secs(2);

/// Timeouts of a statement: on the server, in milliseconds, and on this node.
#[derive(Clone, Copy, Debug)]
struct Patience {
    statement: &'static str,
    answer: Duration,
}

/// Timeouts for statements that find few rows by key.
const LOOKUP: Patience = Patience { statement: "5000", answer: Duration::from_millis(5_500) };
/// Timeouts for loops. A loop that loses its connection works again within 15 s.
const LOOP: Patience = Patience { statement: "10000", answer: Duration::from_secs(11) };
/// Timeouts for the reads of clients and operators. A report may read a month of all wallets.
const READING: Patience = Patience { statement: "12000", answer: Duration::from_secs(13) };
/// Timeouts for the writer, which limits every phase to five seconds.
const WRITER: Patience = Patience { statement: "4500", answer: Duration::from_millis(4_750) };

/// Planner settings for connections whose every statement finds rows by a complete key. Plans are made once and kept,
/// because planning costs as much as running them; see [`Plans`]. Materializing is off. With statistics older than the
/// rows, a table seems small enough to compare each of its rows with each key. Measured with 52 idempotency keys and 647
/// rows: 23 ms.
const BY_KEY: [(&str, &str); 6] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_material", "off"),
];

/// Adds the settings of every connection with a session of its own, which a pooler must not lend to others.
fn dedicated(options: &PgConnectOptions, name: &'static str) -> PgConnectOptions {
    runtime(&options.direct(), name)
}

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

/// Builds a connector with the same timeouts on the server and on the node.
fn connector(options: PgConnectOptions, patience: Patience) -> Connector {
    Connector::new(options.options([("statement_timeout", patience.statement)]), patience.answer)
}

/// Returns the pool for the reads of clients and operators.
pub fn pool(options: &PgConnectOptions) -> PgPool {
    read_pool(options, READ_CONNECTIONS)
}

/// Returns the pool for the reads of clients and operators, with this number of connections.
pub fn read_pool(options: &PgConnectOptions, connections: u32) -> PgPool {
    PgPool::new(connector(patient(options, "rewards-ledger", "10000"), READING), connections)
}

/// Returns the pool for reads on a standby, with this number of connections.
pub fn standby(options: &PgConnectOptions, connections: u32) -> PgPool {
    PgPool::new(connector(patient(options, "rewards-ledger standby", "10000"), READING), connections)
}

/// Returns a pool without a statement timeout, for commands that read much of the log while a person waits.
pub fn without_timeout(options: &PgConnectOptions) -> PgPool {
    let options = patient(options, "rewards-ledger command", "10000").options([("statement_timeout", "0")]);
    PgPool::patient(options, WORK_CONNECTIONS)
}

/// Returns the pool for authenticating callers. It is separate so that slow reads do not block it.
pub fn access(options: &PgConnectOptions) -> PgPool {
    let options = patient(&options.clone().options(BY_KEY), "rewards-ledger access", "10000");
    PgPool::new(connector(options, LOOKUP), ACCESS_CONNECTIONS)
}

/// Returns the pool for retention, replays, purging, the health check of deliveries, and witnesses. It is separate so
/// that this work and clients do not wait for each other.
pub fn maintenance(options: &PgConnectOptions) -> PgPool {
    general(options, "rewards-ledger maintenance", MAINTENANCE_CONNECTIONS)
}

/// Connections of the delivery worker. Its tables change faster than their statistics, so each statement is made to find
/// its rows by index.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Pool for occasional queries, which are planned for their parameters.
    pub pool: PgPool,
    /// Connection for claims. Planning would make claims a third slower (measured: 2.1 ms of planning, 5.7 ms to claim
    /// 100 deliveries).
    pub claims: DedicatedConnection,
    /// Connection for recording the results of attempts.
    pub results: DedicatedConnection,
}

impl Delivery {
    /// Returns the connections for a shard: other ones than those of any other shard. The first shard has this pool.
    pub fn separate(&self, shard: ShardId) -> Delivery {
        let pool = match shard {
            FIRST_SHARD => self.pool.clone(),
            _ => self.pool.separate(FURTHER_DELIVERY_CONNECTIONS),
        };
        Delivery { pool, claims: self.claims.separate(), results: self.results.separate() }
    }
}

/// Returns the connections of the delivery worker.
pub fn delivery(options: &PgConnectOptions) -> Delivery {
    // Only one node claims at a time. A short idle timeout lets another node take over from one that freezes.
    let options = |name, mode| {
        let options = options.clone().options(BY_KEY).options([("plan_cache_mode", mode), ("jit", "off")]);
        patient(&options, name, "3000")
    };
    let dedicated = |name| DedicatedConnection::new(connector(options(name, "force_generic_plan").direct(), LOOKUP));
    let pool = connector(options("rewards-ledger delivery", "force_custom_plan"), LOOP);
    Delivery {
        pool: PgPool::new(pool, DELIVERY_CONNECTIONS),
        claims: dedicated("rewards-ledger claims"),
        results: dedicated("rewards-ledger results"),
    }
}

/// Returns the pool for fulfilment. It is separate so that slow reads do not block fulfilment.
pub fn work(options: &PgConnectOptions) -> PgPool {
    general(options, "rewards-ledger fulfilment", WORK_CONNECTIONS)
}

/// Returns the connection for keys and rate limits, which every request needs. Commits are asynchronous, so no request
/// waits for the disk. A crash of the database may forget the last counted requests; a crash of a node forgets none.
pub fn gate(options: &PgConnectOptions) -> DedicatedConnection {
    let options = dedicated(options, "rewards-ledger gate").options([
        ("jit", "off"), // JIT compilation would take longer than the statement
        ("idle_in_transaction_session_timeout", "3000"),
        ("synchronous_commit", "off"),
    ]);
    // These statements use complete keys of tables that grow only with the number of clients, so they are planned once.
    DedicatedConnection { plans_are_kept: true, ..DedicatedConnection::new(connector(options.options(BY_KEY), LOOKUP)) }
}

fn general(options: &PgConnectOptions, name: &'static str, connections: u32) -> PgPool {
    PgPool::new(connector(patient(options, name, "10000"), LOOP), connections)
}

/// Adds the longest idle time of a transaction, in milliseconds.
fn patient(options: &PgConnectOptions, name: &'static str, idle: &'static str) -> PgConnectOptions {
    runtime(options, name).options([("idle_in_transaction_session_timeout", idle), ("synchronous_commit", "on")])
}

/// Returns the connection for the projection `deliveries`. Commits are asynchronous. A crash of the database may undo the
/// last ones, rows and checkpoint together; the projector then repeats them from the log.
pub fn projector(options: &PgConnectOptions) -> DedicatedConnection {
    catching_up(options, "rewards-ledger projector")
}

/// Returns the connection for the counts of lists and the daily totals, with asynchronous commits as for `deliveries`.
pub fn totals(options: &PgConnectOptions) -> DedicatedConnection {
    catching_up(options, "rewards-ledger totals")
}

/// Returns the connection for the transparency log's tree, with asynchronous commits as for `deliveries`.
pub fn tree(options: &PgConnectOptions) -> DedicatedConnection {
    catching_up(options, "rewards-ledger tree")
}

fn catching_up(options: &PgConnectOptions, name: &'static str) -> DedicatedConnection {
    let options = dedicated(options, name).options([
        ("jit", "off"),
        // A node that freezes loses its projection to another node.
        ("idle_in_transaction_session_timeout", "3000"),
        ("synchronous_commit", "off"),
    ]);
    DedicatedConnection::new(connector(options.options(BY_KEY), LOOP))
}

/// Returns the connector for a writer. A node that freezes while it holds the head loses it after two seconds.
pub fn writer(options: &PgConnectOptions, shard: ShardId) -> Connector {
    writing(options, shard, "rewards-ledger writer")
}

/// Returns the connector for the writer's reads while its previous batch is being written.
pub fn writer_reading(options: &PgConnectOptions, shard: ShardId) -> Connector {
    writing(options, shard, "rewards-ledger writer reads")
}

fn writing(options: &PgConnectOptions, shard: ShardId, name: &'static str) -> Connector {
    holding_heads(&options.clone().options([("ledger.shard", shard.to_string())]), name)
}

fn holding_heads(options: &PgConnectOptions, name: &'static str) -> Connector {
    let options = dedicated(options, name)
        .options([
            ("synchronous_commit", "on"),
            ("idle_in_transaction_session_timeout", "2000"),
            ("lock_timeout", "4000"),
            ("jit", "off"),
        ])
        .options(BY_KEY);
    connector(options, WRITER)
}

/// Returns the connection that moves vouchers between shards. It holds the heads of two of them, so it has the limits of a
/// writer. Its session also holds a lock between transactions. A node that freezes loses it after three seconds.
pub fn mover(options: &PgConnectOptions) -> DedicatedConnection {
    let options = options.clone().options([("idle_session_timeout", "3000")]);
    DedicatedConnection::new(holding_heads(&options, "rewards-ledger moves"))
}

/// Returns the connection for NOTIFY. Its commits need not be on disk.
pub fn notifier(options: &PgConnectOptions) -> DedicatedConnection {
    let options = dedicated(options, "rewards-ledger notifier").options([("synchronous_commit", "off")]);
    DedicatedConnection { plans_are_kept: true, ..DedicatedConnection::new(connector(options, LOOKUP)) }
}

/// Returns the options for LISTEN. sqlx makes this connection itself and sets no deadlines, so the listener must detect
/// silence.
pub fn listener(options: &PgConnectOptions) -> PgConnectOptions {
    dedicated(options, "rewards-ledger listener").options([("statement_timeout", LOOKUP.statement)])
}

/// Individual error codes of transient states.
const TRANSIENT_CODES: [&str; 7] = [
    READ_ONLY, "25P03", // a transaction was idle for too long
    "25P04", // a transaction took too long
    "26000", // the connection has lost a prepared statement
    "3D000", // the database does not exist
    "55000", // the database accepts no connections
    "55P03", // a lock was not available in time
];

/// Error code for a database that refuses writes: it was demoted, or an operator made it read-only.
pub const READ_ONLY: &str = "25006";

/// Returns whether an error is transient: its cause is the state of the database or the connection, not the statement, so
/// that retrying can succeed. Covers errors of the connection, authorization, resources, operator intervention, the
/// system, serialization, locks, and the individual codes in [`TRANSIENT_CODES`]. Excludes XX000, an internal error: a command
/// may provoke it, and would be retried again and again.
pub fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        // A new connection prepares the statement again.
        sqlx::Error::Database(_) if is_plan_outdated(error) => true,
        sqlx::Error::Database(refusal) => refusal.code().is_some_and(|code| {
            matches!(code.get(..2), Some("08" | "28" | "40" | "53" | "57" | "58")) || TRANSIENT_CODES.contains(&&*code)
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

/// Time at which a connection made its plans. Tables grow by thousands of rows a second. A plan that was made while a
/// table was empty scans all of it (measured: 1.8 ms for one lookup of an idempotency key). Therefore `DISCARD PLANS` is
/// due every second. Waiting for the log to double is not enough. Tables that were new in an old log kept their first
/// plans for half a minute, and 16 connections made 441 orders/s instead of 1,955.
#[derive(Debug)]
pub struct Plans(Instant);

impl Default for Plans {
    fn default() -> Plans {
        Plans(Instant::now())
    }
}

impl Plans {
    const KEPT: Duration = Duration::from_secs(1);

    /// Returns true once a second, when the plans must be discarded.
    pub fn are_stale(&mut self) -> bool {
        let is_stale = self.0.elapsed() >= Self::KEPT;
        if is_stale {
            *self = Plans::default();
        }
        is_stale
    }
}

/// A single connection that one user at a time holds. A pool checks its connections before and after each use, which
/// costs two more round trips per statement. This type checks the connection only after it was idle for a while. It
/// closes a connection whose use failed.
#[derive(Clone, Debug)]
pub struct DedicatedConnection {
    connector: Connector,
    kept: Arc<Mutex<Option<Kept>>>,
    /// Whether plans are kept for ever instead of being discarded every second.
    plans_are_kept: bool,
}

#[derive(Debug)]
struct Kept {
    connection: PgConnection,
    used_at: Instant,
    plans: Plans,
}

/// Guard of a [`DedicatedConnection`]'s connection. Dropping it closes the connection. Call
/// [`keep`](ConnectionGuard::keep) instead when no transaction is open and all results have been read.
#[derive(Debug)]
pub struct ConnectionGuard {
    slot: OwnedMutexGuard<Option<Kept>>,
    kept: Kept,
}

impl DedicatedConnection {
    fn new(connector: Connector) -> DedicatedConnection {
        DedicatedConnection { connector, kept: Arc::default(), plans_are_kept: false }
    }

    /// Returns another connection with the same settings.
    pub fn separate(&self) -> DedicatedConnection {
        DedicatedConnection { kept: Arc::default(), ..self.clone() }
    }

    /// Waits until no other task holds the connection, and returns it.
    ///
    /// # Errors
    /// Returns [`sqlx::Error::PoolTimedOut`] after five seconds, or the error of connecting.
    pub async fn acquire(&self) -> Result<ConnectionGuard, sqlx::Error> {
        tokio::time::timeout(TO_CONNECT, self.hold()).await.unwrap_or_else(|_| {
            tracing::warn!(connection = self.connector.name(), deadline = ?TO_CONNECT, "no usable database connection within the deadline");
            Err(sqlx::Error::PoolTimedOut)
        })
    }

    async fn hold(&self) -> Result<ConnectionGuard, sqlx::Error> {
        let mut slot = self.kept.clone().lock_owned().await;
        let mut kept = slot.take();
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
        Ok(ConnectionGuard { slot, kept })
    }

    /// Returns whether an idle connection still works.
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

impl ConnectionGuard {
    /// Keeps the connection for the next user, unless it is broken.
    pub fn keep(mut self) {
        if self.kept.connection.is_broken() {
            return;
        }
        self.kept.used_at = Instant::now();
        *self.slot = Some(self.kept);
    }
}

impl Deref for ConnectionGuard {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.kept.connection
    }
}

impl DerefMut for ConnectionGuard {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.kept.connection
    }
}

/// Runs a database operation with a timeout. The server's own limits end a statement; this timeout ends the wait for a
/// server that has disappeared.
///
/// # Errors
/// Returns an I/O error when the time is over.
pub async fn within<T, E: From<sqlx::Error>>(limit: Duration, asking: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let is_over = |_| E::from(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer")));
    tokio::time::timeout(limit, asking).await.map_err(is_over)?
}
