//! A node runs the configured parts of the service. This module starts and stops them in order.

mod budget;
pub mod database;
mod descriptors;
mod handover;
mod keys;
mod listeners;
mod mailing;
mod purge;
mod sending;
pub mod serving;
mod suppliers;
mod tasks;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ledger_database::PgPool;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use webhook_client::sender::{Sender, SenderError};

use crate::access::open_id::{OpenId, OpenIdSettingsError};
use crate::api::{ApiState, Surface};
use crate::config::{Config, ConfigError, Role};
use crate::delivery::failing::Deactivator;
use crate::delivery::replay::Replayer;
use crate::delivery::retention::Retention;
use crate::delivery::worker::{Worker, WorkerSettings};
use crate::fulfilment::moves::Mover;
use crate::fulfilment::{self, Fulfilment, supply};
use crate::http::Listener;
use crate::ledger::handover::Candidate;
use crate::ledger::projector::Projector;
use crate::ledger::standby::{Standby, StandbyLimits};
use crate::ledger::{Ledger, SchemaError, WriteError, clock, connect, health, nodes, schema::contract, sunset};
use crate::mail;
use crate::sandbox::{self, Sandbox, SandboxError};
use crate::secrets::master_keys;
use crate::secrets::seal::{Keyring, Secret};
use crate::telemetry::Metrics;
use crate::telemetry::traces::Traces;
use crate::transparency::PublicLog;
use crate::transparency::projector::TreeProjector;
use crate::transparency::signer::Signer;
use crate::transparency::signer_state::SignerState;
use budget::{Budget, BudgetError};
pub use database::Database;
use handover::Inbox;
pub use keys::{keyring, keyring_if_any};
use listeners::Listeners;
use serving::{Connections, Ending, Served, Urls, api_state};
use suppliers::Suppliers;
use tasks::{beside_writers, one_ends};
use tls::Tls;

/// Timeout for roles and writers to stop, after the HTTP servers have stopped.
const STOP_TASKS: Duration = Duration::from_secs(40);
/// Extra time on top of `--delivery-timeout` to record the result of an attempt that is being sent. An attempt that is cut
/// off is sent again.
const STOP_AFTER_SENDS: Duration = Duration::from_secs(15);

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
    #[error(transparent)]
    OpenId(#[from] OpenIdSettingsError),
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
    /// Cancelled when the node begins to stop. For `shutdown_delay` from then on, it answers requests but is not ready.
    leaving: CancellationToken,
    shutdown_delay: Duration,
    no_requests: CancellationToken,
    /// The listener for other nodes; it ends when the leases of this one were given back a while ago.
    nodes: TaskTracker,
    stop_leading: CancellationToken,
    /// Timeout for roles and writers to stop.
    stops_within: Duration,
    /// Background tasks: projector, fulfilment, delivery worker, purge, and others.
    roles: TaskTracker,
    stop_roles: CancellationToken,
    /// Writers and lookup tasks; they end when the last handle is dropped.
    writers: TaskTracker,
    /// Number of tasks while all of them run, besides one writer for each shard.
    tasks: usize,
    traces: Traces,
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
        let prepared = Prepared::from_config(config, &database).await?;
        database.migrate_if_allowed().await?;
        let metrics = Metrics::with_traces(prepared.traces.clone());
        let writers = TaskTracker::new();
        let budget = Budget::check(database.options(), config.database_connections, &config.roles).await?;
        let keyring = prepared.keyring.clone();
        let ledger = Ledger::open_with(database.options(), budget.reading, keyring, metrics.clone(), &writers).await?;
        let standby = database.standby().map(|options| connect::standby(options, budget.reading));
        standby.iter().for_each(|pool| metrics.watch_pool(pool));
        let standby = standby.map(|pool| Standby::new(pool, StandbyLimits::default(), metrics.clone()));
        let ledger = ledger.with_standby(standby);
        warn_of_dependent_indexes(&ledger).await?;
        let work = connect::work(database.options());
        metrics.watch_pool(&work);
        // Before anyone else can write, because a sandbox's log starts with its products.
        let sandbox = sandbox::open(config.sandbox, &ledger, &work).await.inspect_err(|_| ledger.wake().stop())?;
        if let Some(emergency) = config.lifecycle.emergency_sunset() {
            sunset::declare(&ledger, emergency).await.inspect_err(|_| ledger.wake().stop()).map_err(NodeError::Sunset)?;
        }
        let Prepared { mut listeners, tls, of_clients, sender, keyring, signing, token, urls, open_id, mail, traces, suppliers } =
            prepared;
        let mut node = Node {
            address: listeners.address(),
            operator_address: listeners.operator_address(),
            ledger,
            database,
            servers: JoinSet::new(),
            leaving: CancellationToken::new(),
            shutdown_delay: config.shutdown_delay.unwrap_or_default(),
            no_requests: CancellationToken::new(),
            nodes: TaskTracker::new(),
            stop_leading: CancellationToken::new(),
            stops_within: STOP_TASKS.max(config.delivery_timeout.saturating_add(STOP_AFTER_SENDS)),
            roles: TaskTracker::new(),
            stop_roles: CancellationToken::new(),
            writers,
            tasks: 0,
            traces,
        };
        let public_log = PublicLog { witnesses: config.log_witnesses.clone().into() };
        node.start_log(config, signing, &public_log, &metrics)?;
        node.start_roles(config, sender, sandbox, work, &keyring, &metrics);
        let (shards, stop) = (node.ledger.shard_watch().clone(), node.stop_roles.clone());
        node.roles.spawn(budget.watch(config.database_connections, config.roles.clone(), shards, stop));
        if let Some(listener) = listeners.nodes.take() {
            node.lead(config, listener, keyring.clone(), &metrics)?;
        }
        supply::start(&node.ledger, suppliers.called, &metrics, &node.roles, &node.stop_roles);
        node.start_mail(config, mail, &urls.portal, &keyring, &metrics);
        if !listeners.are_none() {
            let ending = Ending { leaving: node.leaving.clone(), stopping: node.no_requests.clone() };
            let settings = serving::settings(config, urls, open_id, token, public_log, suppliers.notices, ending);
            let state = api_state(&node.ledger, node.database.options(), keyring, metrics, settings, &node.writers);
            node.serve(config, listeners, tls, of_clients, &state);
        }
        node.tasks = beside_writers([&node.roles, &node.writers, &node.nodes], node.ledger.shard_watch());
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

    /// Starts the projector of the transparency log, and the requests for cosignatures, if this node signs.
    fn start_log(
        &self,
        config: &Config,
        signing: Option<(Arc<Signer>, SignerState)>,
        public_log: &PublicLog,
        metrics: &Metrics,
    ) -> Result<(), NodeError> {
        let Some((signer, signer_state)) = signing else { return Ok(()) };
        let (ledger, options) = (&self.ledger, self.database.options());
        let tree = TreeProjector::new(ledger, options, signer, keys::origin(config), signer_state, metrics.clone());
        self.roles.spawn(tree.run(self.stop_roles.clone()));
        if let Some(witnesses) = keys::witnesses(config, ledger, public_log)? {
            let heartbeat = ledger.heartbeats().background("witnesses");
            self.roles.spawn(witnesses.watched(heartbeat).run(self.stop_roles.clone()));
        }
        Ok(())
    }

    /// Competes for the leases of shards, and takes commands from other nodes.
    fn lead(
        &mut self,
        config: &Config,
        listener: TcpListener,
        keyring: Arc<Keyring>,
        metrics: &Metrics,
    ) -> Result<(), NodeError> {
        let io = |source| NodeError::Io { action: "listen to other nodes".to_owned(), source };
        let url = config.nodes.url(listener.local_addr().map_err(io)?);
        let candidate = Candidate::new(&self.ledger, keyring.clone(), url, metrics.clone());
        let candidate = candidate.map_err(|error| io(io::Error::other(error)))?;
        let (inbox, stop) = (Inbox::new(candidate.id(), self.ledger.clone(), keyring), self.stop_leading.clone());
        self.nodes.spawn(handover::lead(candidate, inbox, listener, metrics.clone(), stop));
        Ok(())
    }

    /// Serves each listener's part of the API.
    fn serve(&mut self, config: &Config, listeners: Listeners, tls: Option<Tls>, of_clients: usize, state: &ApiState) {
        let Listeners { api, operators, .. } = listeners;
        let surface = if operators.is_some() { Surface::Clients } else { Surface::Whole };
        let tls_config = tls.as_ref().map(Tls::config);
        if let Some(tls) = tls {
            self.roles.spawn(tls.follow(self.stop_roles.clone()));
        }
        for (listener, surface, total) in [(api, surface, of_clients), (operators, Surface::Operators, descriptors::OPERATORS)] {
            let Some(tcp) = listener else { continue };
            let listener = Listener { tcp, tls: tls_config.clone() };
            let connections = Connections { total, per_address: config.connections_per_address as usize };
            let stop = self.no_requests.clone();
            self.servers.spawn(serving::serve(listener, Served::new(surface, config, state), state.clone(), connections, stop));
        }
    }

    /// Starts the loops of the configured roles, and those that every node has.
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
            let shards = ledger.shard_watch().clone();
            self.roles.spawn(health::run(ledger.maintenance().clone(), shards, metrics.clone(), stop()));
        }
        if config.roles.include(Role::Fulfilment) {
            self.roles.spawn(Fulfilment::new(ledger.clone(), metrics.clone()).reading(work).run(stop()));
            fulfilment::watch_stock(ledger, metrics, &self.roles, &self.stop_roles);
            self.roles.spawn(Mover::new(ledger, self.database.options(), keyring.clone(), metrics.clone()).run(stop()));
            if let Some(sandbox) = sandbox {
                self.roles.spawn(sandbox.run(stop()));
            }
        }
        if let Some(sender) = sender {
            self.start_delivery(config, sender, keyring, metrics);
        }
        self.roles.spawn(nodes::run(nodes::Me::starting(config.roles.names()), ledger.clone(), metrics.clone(), stop()));
        self.roles.spawn(purge::run(ledger.clone(), stop()));
        let heartbeat = ledger.heartbeats().background("clock");
        self.roles.spawn(clock::run(ledger.maintenance().clone(), config.max_clock_jump, heartbeat, stop()));
        self.roles.spawn(ledger.heartbeats().clone().watch(stop()));
        self.roles.spawn(master_keys::follow(ledger.maintenance().clone(), keyring.clone(), metrics.clone(), stop()));
    }

    /// Starts the delivery worker, the deactivation of failing webhooks, retention and replays.
    fn start_delivery(&self, config: &Config, sender: Sender, keyring: &Arc<Keyring>, metrics: &Metrics) {
        let ledger = &self.ledger;
        let stop = || self.stop_roles.clone();
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
            shards: ledger.shard_watch().clone(),
            keyring: keyring.clone(),
            sender: Arc::new(sender),
            settings,
            metrics: metrics.clone(),
            made: ledger.wake().deliveries(),
            targets: Arc::default(),
        };
        self.roles.spawn(worker.run(stop()));
        self.roles.spawn(Retention::new(ledger, serving::retention(config)).run(stop()));
        if let Some(after) = config.deactivate_webhooks_after {
            let pool = ledger.maintenance().clone();
            self.roles.spawn(Deactivator { ledger: ledger.clone(), pool, after, metrics: metrics.clone() }.run(stop()));
        }
        self.roles.spawn(Replayer { ledger: ledger.clone(), pool: ledger.maintenance().clone() }.run(stop()));
    }

    /// Completes when an HTTP server or a background task ends unexpectedly. The process should then restart, because, for
    /// example, a node without its writer refuses every command.
    pub async fn failed(&mut self) -> NodeError {
        let Node { ledger, servers, roles, writers, nodes, tasks, .. } = self;
        let served = async {
            match servers.join_next().await {
                Some(ended) => ended,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            outcome = served => outcome,
            () = one_ends([roles, writers, nodes], ledger.shard_watch(), *tasks) => return NodeError::TaskEnded,
        };
        let source = outcome.map_or_else(io::Error::other, |ended| {
            ended.err().unwrap_or_else(|| io::Error::other("the server ended unexpectedly"))
        });
        NodeError::Io { action: "serve the API".to_owned(), source }
    }

    /// Stops gracefully: lets load balancers know for the configured delay, refuses new requests, answers accepted ones,
    /// releases leases, and lets the writers write what is queued. Stops the embedded server last, if this node started it.
    ///
    /// # Errors
    /// If a part does not stop in time. The embedded server is stopped nevertheless.
    pub async fn stop(self) -> Result<(), NodeError> {
        let Node { ledger, database, mut servers, no_requests, stops_within, roles, stop_roles, writers, traces, .. } = self;
        self.leaving.cancel();
        self.stop_leading.cancel();
        self.nodes.close();
        if !servers.is_empty() && !self.shutdown_delay.is_zero() {
            tracing::info!(delay = ?self.shutdown_delay, "not ready any more; answering requests until load balancers know");
            tokio::time::sleep(self.shutdown_delay).await;
        }
        no_requests.cancel();
        // The servers have a deadline of their own. They drop the application's handles when they end.
        while servers.join_next().await.is_some() {}
        self.nodes.wait().await;
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
        traces.stop().await;
        database.close().await?;
        drained
    }
}

/// Parts of a node that come from its configuration and files alone.
struct Prepared {
    listeners: Listeners,
    tls: Option<Tls>,
    /// Maximum number of connections from clients.
    of_clients: usize,
    sender: Option<Sender>,
    keyring: Arc<Keyring>,
    signing: Option<(Arc<Signer>, SignerState)>,
    token: Option<Secret>,
    urls: Urls,
    open_id: Option<OpenId>,
    mail: mail::Sender,
    traces: Traces,
    suppliers: Suppliers,
}

impl Prepared {
    async fn from_config(config: &Config, database: &Database) -> Result<Prepared, NodeError> {
        let tls = Tls::load(&config.tls)?;
        let listeners = Listeners::bind(config).await?;
        let (to_receivers, of_clients) = descriptors::share(config);
        let sender = config.roles.include(Role::Delivery).then(|| sending::sender(config, to_receivers)).transpose()?;
        let keyring = keys::keyring(&config.master_key, &config.database.data_dir, database.is_embedded())?;
        let signing = match config.roles.include(Role::Projector) {
            true => Some((keys::signer(config, database.is_embedded())?, keys::signer_state(config)?)),
            false => None,
        };
        let token = config.operator_token.read_strong()?;
        let urls = Urls::new(config, listeners.address(), listeners.operator_address());
        let open_id = config.console.open_id(&urls.console)?;
        let open_id = open_id.map(|settings| OpenId::new(settings, keyring.clone())).transpose()?;
        let mail = config.mail.sender(&config.database.data_dir)?;
        let traces = config.traces.start()?;
        let suppliers = Suppliers::open(config.suppliers_file.as_deref(), &config.roles)?;
        Ok(Prepared { listeners, tls, of_clients, sender, keyring, signing, token, urls, open_id, mail, traces, suppliers })
    }
}

/// Logs a warning if the contract step of an upgrade is still to do.
async fn warn_of_dependent_indexes(ledger: &Ledger) -> Result<(), NodeError> {
    let dependent = contract::dependent(ledger.pool()).await.map_err(SchemaError::from)?;
    if !dependent.is_empty() {
        tracing::warn!(
            indexes = dependent.len(),
            "unique indexes depend on the version of libc or ICU: run `rewards-ledger migrate --contract` when no node of an older release runs any more"
        );
    }
    Ok(())
}
