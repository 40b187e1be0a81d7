//! The API part of a node: its state, and the listeners that serve it.

use std::io;
use std::sync::Arc;

use ipnet::IpNet;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::rate_limits::RateLimits;
use crate::access::{Gate, Operators, Sessions};
use crate::api::{ApiState, Lifecycle, Surface, app};
use crate::http;
use crate::ledger::{Ledger, connect};
use crate::secrets::seal::{Keyring, Secret};
use crate::telemetry::Metrics;
use crate::transparency::PublicLog;

/// Settings of the API part.
#[derive(Debug)]
pub struct ApiSettings {
    pub rate_limits: RateLimits,
    pub lifecycle: Lifecycle,
    /// Networks of the proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Arc<[IpNet]>,
    /// Base URL at which clients reach the service, without a trailing slash.
    pub public_url: Arc<str>,
    pub is_sandbox: bool,
    pub public_log: PublicLog,
    /// Token of the operator that the configuration names, if it names one.
    pub operator_token: Option<Secret>,
}

/// Builds the state of the API. Starts the tasks of its gate and its sessions, which end when the last handle is dropped.
pub fn api_state(
    ledger: &Ledger,
    options: &PgConnectOptions,
    keyring: Arc<Keyring>,
    metrics: Metrics,
    settings: ApiSettings,
    tasks: &TaskTracker,
) -> ApiState {
    let ApiSettings { rate_limits, lifecycle, trusted_proxies, public_url, is_sandbox, public_log, operator_token } = settings;
    let (access, heartbeats) = (connect::access(options), ledger.heartbeats());
    let (counting, heartbeat) = (connect::gate(options), heartbeats.serving("gate"));
    let gate = Gate::watched(counting, access.clone(), keyring.clone(), rate_limits, heartbeat, tasks);
    let (pool, heartbeat) = (ledger.pool().clone(), heartbeats.serving("sessions"));
    let sessions = Sessions::start(access.clone(), pool, keyring.clone(), heartbeat, tasks);
    let operators = Operators::new(access, keyring.clone(), operator_token.as_ref());
    ApiState {
        ledger: ledger.clone(),
        gate,
        sessions,
        operators,
        keyring,
        lifecycle,
        trusted_proxies,
        metrics,
        is_sandbox,
        public_url,
        public_log,
    }
}

/// Maximum numbers of concurrent connections to a listener: in total, and from one address.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    pub total: usize,
    pub per_address: usize,
}

/// Serves the API, or the part of it that a listener serves, until `stop` is cancelled.
///
/// # Errors
/// If the listener has no local address.
pub async fn serve(
    listener: TcpListener,
    surface: Surface,
    state: ApiState,
    connections: Connections,
    stop: CancellationToken,
) -> io::Result<()> {
    let Connections { total, per_address } = connections;
    let limits = http::Limits { connections: total, per_address, trusted_proxies: state.trusted_proxies.clone() };
    let metrics = state.metrics.clone();
    http::serve(listener, limits, app(state, surface), metrics, stop).await
}
