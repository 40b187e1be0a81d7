//! A node runs the configured parts of the service. This module starts and stops them in order.

mod budget;
pub mod database;
mod keys;

use ledger_database::PgPool;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use webhook_client::sender::{CONNECTION_LIFETIME, Sender, SenderError, SenderSettings};

use crate::access::{Gate, Operators, Sessions, sessions};
use crate::api::{ApiState, Lifecycle, Surface, app};
use crate::config::{Config, ConfigError, Role};
use crate::delivery::replay::Replayer;
use crate::delivery::retention::{Retention, RetentionSettings};
use crate::delivery::worker::{Worker, WorkerSettings};
use crate::fulfilment::Fulfilment;
use crate::heartbeat::Heartbeat;
use crate::http;
use crate::ledger::expiry::{self, KeyWalk};
use crate::ledger::projector::Projector;
use crate::ledger::{Ledger, SchemaError, WriteError, clock, connect, health, schema::contract, sunset};
use crate::sandbox::{self, Sandbox, SandboxError};
use crate::secrets::master_keys;
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;
use crate::transparency::PublicLog;
use crate::transparency::projector::TreeProjector;
use budget::{Budget, BudgetError};
pub use database::Database;
pub use keys::{keyring, keyring_if_any};

/// Timeout for roles and writers to stop, after the HTTP servers have stopped.
const STOP_TASKS: Duration = Duration::from_secs(40);
/// Extra time on top of `--delivery-timeout` to record the result of an attempt that is being sent. An attempt that is cut
/// off is sent again.
const STOP_AFTER_SENDS: Duration = Duration::from_secs(15);
/// Interval of the purge.
const PURGE_EVERY: Duration = Duration::from_secs(600);
/// Number of purges in which the purge scans all idempotency keys once. That takes 16 hours.
const PURGES_A_WALK: i64 = 100;
/// Maximum number of idle connections to webhook receivers that are kept, in addition to those in use.
const KEPT_CONNECTIONS: usize = 1_024;
/// Maximum number of concurrent client connections.
const CLIENTS: usize = 8_192;
/// Maximum number of concurrent connections to the separate operator listener.
const OPERATORS: usize = 128;
/// Minimum number of client connections, even if few file descriptors are available.
const FEWEST_CLIENTS: usize = 256;
/// File descriptors reserved for everything else, such as Postgres and files.
const OTHER_DESCRIPTORS: usize = 256;
/// Interval of the check that all background tasks still run.
const LOOK_AFTER_TASKS: Duration = Duration::from_secs(1);

/// Error of starting or stopping a node. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Postgres(#[from] embedded_postgres::Error),
    #[error(
        "no ledger in {0}: give its data directory with --data-dir (LEDGER_DATA_DIR), or its database with --database-url \
         (DATABASE_URL); `serve`, `demo` and `migrate` create a new one"
    )]
    NoLedger(String),
    #[error("database error: {0}")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Budget(#[from] BudgetError),
    #[error("cannot send webhooks: {0}")]
    Sender(#[from] SenderError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("cannot record the emergency sunset: {0}")]
    Sunset(WriteError),
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
    #[error("the node did not stop within {0:?}; each accepted request is in the log or was answered with an error")]
    Unfinished(Duration),
    #[error("a background task ended unexpectedly; earlier log lines say why")]
    TaskEnded,
    #[error("interrupted")]
    Interrupted,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    address: Option<SocketAddr>,
    operator_address: Option<SocketAddr>,
    ledger: Ledger,
    database: Database,
    /// HTTP servers; they end when `no_requests` is cancelled.
    servers: JoinSet<io::Result<()>>,
    no_requests: CancellationToken,
    /// Timeout for roles and writers to stop.
    stops_within: Duration,
    /// Background tasks: projector, fulfilment, delivery worker, purge, and others.
    roles: TaskTracker,
    stop_roles: CancellationToken,
    /// Writers and lookup tasks; they end when the last handle is dropped.
    writers: TaskTracker,
    /// Number of tasks in `roles` and `writers` while all of them run.
    tasks: usize,
}

impl Node {
    /// Starts a node: database, migrations, keys, writers, and each configured role. The API accepts requests when this
    /// returns.
    pub async fn start(config: &Config) -> Result<Node, NodeError> {
        config.check()?;
        let database = Database::open_or_create(&config.database).await?;
        Node::start_on(config, database).await
    }

    /// Starts a node on an open database.
    pub async fn start_on(config: &Config, database: Database) -> Result<Node, NodeError> {
        // Everything that may fail comes first, before any task runs.
        let listener = match config.roles.include(Role::Api) {
            true => Some(bind(config.listen).await?),
            false => None,
        };
        let operator_listener = match config.operator_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let (to_receivers, of_clients) = connections(config);
        let sender = config.roles.include(Role::Delivery).then(|| sender(config, to_receivers)).transpose()?;
        let keyring = keys::keyring(&config.master_key, &config.database.data_dir, database.is_embedded())?;
        let signing = match config.roles.include(Role::Projector) {
            true => Some((keys::signer(config, database.is_embedded())?, keys::memory(config)?)),
            false => None,
        };
        let token = config.operator_token.read_strong()?;
        database.migrate_if_allowed().await?;
        let metrics = Metrics::default();
        let writers = TaskTracker::new();
        let budget = Budget::check(database.options(), config.database_connections, &config.roles).await?;
        let ledger = Ledger::open_with(database.options(), budget.reading, keyring.clone(), metrics.clone(), &writers).await?;

        let dependent = contract::dependent(ledger.pool()).await.map_err(SchemaError::from)?;
        if !dependent.is_empty() {
            tracing::warn!(
                indexes = dependent.len(),
                "unique indexes depend on the version of libc or ICU: run `rewards-ledger migrate --contract` when no node of an older release runs any more"
            );
        }

        let work = connect::work(database.options());
        // Before anyone else can write, because a sandbox's log starts with its products.
        let sandbox = sandbox::open(config.sandbox, &ledger, &work).await.inspect_err(|_| ledger.wake().stop())?;

        if let Some(emergency) = config.emergency_sunset() {
            sunset::declare(&ledger, emergency).await.inspect_err(|_| ledger.wake().stop()).map_err(NodeError::Sunset)?;
        }

        let mut node = Node {
            address: None,
            operator_address: None,
            ledger: ledger.clone(),
            database,
            servers: JoinSet::new(),
            no_requests: CancellationToken::new(),
            stops_within: STOP_TASKS.max(config.delivery_timeout.saturating_add(STOP_AFTER_SENDS)),
            roles: TaskTracker::new(),
            stop_roles: CancellationToken::new(),
            writers,
            tasks: 0,
        };
        let public_log = PublicLog { witnesses: config.log_witnesses.clone().into() };
        if let Some((signer, memory)) = signing {
            let origin = keys::origin(config);
            let options = node.database.options();
            let tree = TreeProjector::new(&ledger, options, signer, origin, memory, metrics.clone());
            node.roles.spawn(tree.run(node.stop_roles.clone()));
            if let Some(witnesses) = keys::witnesses(config, &ledger, &public_log)? {
                let heartbeat = ledger.heartbeats().background("witnesses");
                node.roles.spawn(witnesses.watched(heartbeat).run(node.stop_roles.clone()));
            }
        }
        node.start_roles(config, sender, sandbox, work, &keyring, &metrics);
        if listener.is_some() || operator_listener.is_some() {
            let address_of = |listener: &Option<TcpListener>| listener.as_ref().and_then(|bound| bound.local_addr().ok());
            node.address = address_of(&listener);
            node.operator_address = address_of(&operator_listener);
            let access = connect::access(node.database.options());
            let (counting, heartbeat) = (connect::gate(node.database.options()), ledger.heartbeats().serving("gate"));
            let gate = Gate::watched(counting, access.clone(), keyring.clone(), config.rate_limits, heartbeat, &node.writers);
            let (pool, heartbeat) = (ledger.pool().clone(), ledger.heartbeats().serving("sessions"));
            let sessions = Sessions::watched(access.clone(), pool, keyring.clone(), heartbeat, &node.writers);
            let operators = Operators::new(access, keyring.clone(), token.as_ref());
            let address = node.address.unwrap_or(config.listen);
            let state = ApiState {
                ledger,
                gate,
                sessions,
                operators,
                keyring,
                lifecycle: Lifecycle::new(config.deprecation_date, config.sunset_date),
                trusted_proxies: config.trusted_proxies.clone().into(),
                metrics,
                public_url: config.public_url.clone().unwrap_or_else(|| format!("http://{address}")).into(),
                is_sandbox: config.sandbox,
                public_log,
            };
            let surface = if operator_listener.is_some() { Surface::Clients } else { Surface::Whole };
            let listeners = [(listener, surface, of_clients), (operator_listener, Surface::Operators, OPERATORS)];
            for (listener, surface, connections) in listeners {
                let Some(listener) = listener else { continue };
                let limits = http::Limits {
                    connections,
                    per_address: config.connections_per_address as usize,
                    trusted_proxies: state.trusted_proxies.clone(),
                };
                let (metrics, stopped) = (state.metrics.clone(), node.no_requests.clone());
                node.servers.spawn(http::serve(listener, limits, app(state.clone(), surface), metrics, stopped));
            }
        }
        node.tasks = node.roles.len() + node.writers.len();
        Ok(node)
    }

    /// Returns the address on which the API listens, if this node has the role `api`.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the address of the separate operator listener, if there is one.
    pub fn operator_address(&self) -> Option<SocketAddr> {
        self.operator_address
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn start_roles(
        &self,
        config: &Config,
        sender: Option<Sender>,
        sandbox: Option<Sandbox>,
        work: PgPool,
        keyring: &Arc<Keyring>,
        metrics: &Metrics,
    ) {
        let ledger = &self.ledger;
        let stop = || self.stop_roles.clone();
        if config.roles.include(Role::Projector) {
            let projector = Projector::new(ledger, self.database.options(), metrics.clone());
            self.roles.spawn(projector.run(stop()));
            let shards = ledger.shards().collect();
            self.roles.spawn(health::run(ledger.maintenance().clone(), shards, metrics.clone(), stop()));
        }
        if config.roles.include(Role::Fulfilment) {
            self.roles.spawn(Fulfilment::new(ledger.clone(), metrics.clone()).reading(work).run(stop()));
            if let Some(sandbox) = sandbox {
                self.roles.spawn(sandbox.run(stop()));
            }
        }
        if let Some(sender) = sender {
            let settings = WorkerSettings {
                retry_base: config.retry_base,
                deadline: config.delivery_timeout,
                max_in_flight: config.delivery_in_flight as usize,
                max_in_flight_per_webhook: config.delivery_in_flight_per_webhook as usize,
                response_bodies: config.response_body_quota,
                ..WorkerSettings::default()
            };
            let worker = Worker {
                database: connect::delivery(self.database.options()),
                shards: ledger.shards().collect(),
                keyring: keyring.clone(),
                sender: Arc::new(sender),
                settings,
                metrics: metrics.clone(),
                made: ledger.wake().deliveries(),
                targets: Arc::default(),
            };
            self.roles.spawn(worker.run(stop()));
            let settings = RetentionSettings {
                attempts: config.attempt_retention,
                payloads: config.payload_retention,
                response_bodies: config.response_body_quota,
            };
            self.roles.spawn(Retention::new(ledger, settings).run(ledger.shards().collect(), stop()));
            self.roles.spawn(Replayer { ledger: ledger.clone(), pool: ledger.maintenance().clone() }.run(stop()));
        }
        self.roles.spawn(purge(ledger.clone(), stop()));
        let heartbeat = ledger.heartbeats().background("clock");
        self.roles.spawn(clock::run(ledger.maintenance().clone(), config.max_clock_jump, heartbeat, stop()));
        self.roles.spawn(ledger.heartbeats().clone().watch(stop()));
        self.roles.spawn(master_keys::follow(ledger.maintenance().clone(), keyring.clone(), metrics.clone(), stop()));
    }

    /// Completes when an HTTP server or a background task ends unexpectedly. The process should then restart, because, for
    /// example, a node without its writer refuses every command.
    pub async fn failed(&mut self) -> NodeError {
        let Node { servers, roles, writers, tasks, .. } = self;
        let served = async {
            match servers.join_next().await {
                Some(ended) => ended,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            outcome = served => outcome,
            () = one_ends([roles, writers], *tasks) => return NodeError::TaskEnded,
        };
        let source = outcome.map_or_else(io::Error::other, |ended| {
            ended.err().unwrap_or_else(|| io::Error::other("the server ended unexpectedly"))
        });
        NodeError::Io { action: "serve the API".to_owned(), source }
    }

    /// Stops gracefully: refuses new requests, answers accepted ones, releases leases, and lets the writers write what is
    /// queued. Stops the embedded server last, if this node started it.
    ///
    /// # Errors
    /// If a part does not stop in time. The embedded server is stopped nevertheless.
    pub async fn stop(self) -> Result<(), NodeError> {
        let Node { ledger, database, mut servers, no_requests, stops_within, roles, stop_roles, writers, .. } = self;
        no_requests.cancel();
        // The servers have a deadline of their own. They drop the application's handles when they end.
        while servers.join_next().await.is_some() {}
        stop_roles.cancel();
        roles.close();
        let (pool, maintenance) = (ledger.pool().clone(), ledger.maintenance().clone());
        let drained = tokio::time::timeout(stops_within, async {
            roles.wait().await;
            ledger.wake().stop();
            drop(ledger);
            writers.close();
            writers.wait().await;
            pool.close().await;
            maintenance.close().await;
        });
        let drained = drained.await.map_err(|_| NodeError::Unfinished(stops_within));
        database.close().await?;
        drained
    }
}

/// Completes when fewer than `tasks` tasks run. It polls, because a tracker knows the number of tasks but does not report
/// when one ends or panics.
async fn one_ends(trackers: [&TaskTracker; 2], tasks: usize) {
    while trackers.iter().map(|tracker| tracker.len()).sum::<usize>() >= tasks {
        tokio::time::sleep(LOOK_AFTER_TASKS).await;
    }
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, NodeError> {
    TcpListener::bind(listen).await.map_err(|source| NodeError::Io { action: format!("listen on {listen}"), source })
}

fn sender(config: &Config, max_connections: usize) -> Result<Sender, NodeError> {
    let read = |path| {
        std::fs::read(path)
            .map_err(|error| ConfigError(format!("--webhook-ca-file (LEDGER_WEBHOOK_CA_FILE): cannot read {path:?}: {error}")))
    };
    Ok(Sender::new(SenderSettings {
        service_name: config.service_name.clone(),
        deadline: config.delivery_timeout,
        ca_pem: config.webhook_ca_file.as_ref().map(read).transpose()?,
        allowed_nets: config.webhook_allow_nets.clone(),
        max_connections,
        connection_lifetime: CONNECTION_LIFETIME,
    })?)
}

/// Returns the maximum numbers of connections to receivers and from clients, limited by the file descriptors that the
/// process has left for them.
fn connections(config: &Config) -> (usize, usize) {
    // Each attempt in flight needs a connection to its receiver; idle ones are kept for later attempts.
    let sends = match config.roles.include(Role::Delivery) {
        true => config.delivery_in_flight as usize + KEPT_CONNECTIONS,
        false => 0,
    };
    let (clients, fewest_clients) = if config.roles.include(Role::Api) { (CLIENTS, FEWEST_CLIENTS) } else { (0, 0) };
    let operators = if config.operator_listen.is_some() { OPERATORS } else { 0 };
    let needed = sends + clients;
    let others = OTHER_DESCRIPTORS + config.database_connections as usize + operators;
    let allowed = descriptors(needed + others).saturating_sub(others);
    if allowed < needed {
        tracing::warn!(allowed, needed, "too few file descriptors (ulimit -n); limiting the number of connections");
    }
    let sends = sends.min(allowed.saturating_sub(fewest_clients)).max(1);
    (sends, clients.min(allowed.saturating_sub(sends)).max(1))
}

/// Raises the soft limit of file descriptors to `wanted`, if the hard limit allows it. Returns the resulting limit.
fn descriptors(wanted: usize) -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let enough = u64::try_from(wanted).unwrap_or(u64::MAX).min(hard);
    let is_raised = soft < enough && setrlimit(Resource::RLIMIT_NOFILE, enough, hard).is_ok();
    usize::try_from(if is_raised { enough } else { soft }).unwrap_or(usize::MAX)
}

/// Deletes old idempotency keys and sessions, and expired rate limit windows and IP blocks. It runs every ten minutes, in
/// small batches. All nodes may do this at the same time.
async fn purge(ledger: Ledger, stop: CancellationToken) {
    let mut due = tokio::time::interval(PURGE_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut keys = KeyWalk::default();
    let heartbeat = ledger.heartbeats().background("purge");
    loop {
        heartbeat.rest();
        if stop.run_until_cancelled(due.tick()).await.is_none() {
            return;
        }
        let pool = ledger.maintenance();
        purge_all(&stop, &heartbeat, "rate limit windows", || expiry::purge_rate_windows(pool)).await;
        purge_all(&stop, &heartbeat, "sessions", || sessions::purge(pool)).await;
        purge_all(&stop, &heartbeat, "blocks", || expiry::purge_ip_blocks(pool)).await;
        purge_keys(&stop, &heartbeat, &mut keys, pool).await;
    }
}

/// Scans one part of the table of idempotency keys, so that repeated calls cover all of it within a day.
async fn purge_keys(stop: &CancellationToken, heartbeat: &Heartbeat, walk: &mut KeyWalk, pool: &PgPool) {
    let mut walked = 0;
    while !stop.is_cancelled() {
        heartbeat.beat();
        match walk.step(pool).await {
            Ok(step) => {
                walked += KeyWalk::STEP_PAGES;
                if step.is_end || walked >= step.pages / PURGES_A_WALK {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to delete old idempotency keys; retrying in the next purge");
                return;
            }
        }
    }
}

/// Deletes batch after batch, as long as there may be more rows.
async fn purge_all<F: Future<Output = Result<(u64, bool), sqlx::Error>>>(
    stop: &CancellationToken,
    heartbeat: &Heartbeat,
    what: &'static str,
    purge: impl Fn() -> F,
) {
    while !stop.is_cancelled() {
        heartbeat.beat();
        match purge().await {
            Ok((_, true)) => {}
            Ok((_, false)) => return,
            Err(error) => {
                tracing::warn!(what, %error, "failed to delete expired rows; retrying in the next purge");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicking_task_is_noticed() {
        let (roles, writers) = (TaskTracker::new(), TaskTracker::new());
        let (panics, told) = tokio::sync::oneshot::channel::<()>();
        roles.spawn(std::future::pending::<()>());
        writers.spawn(async { told.await.unwrap() });
        let ended = one_ends([&roles, &writers], 2);
        tokio::pin!(ended);
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut ended).await.is_err());
        drop(panics);
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    }
}
