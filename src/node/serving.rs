//! The API part of a node: its state, and the listeners that serve it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;
use ledger_database::PgConnectOptions;
use ledger_events::approval::ApprovalLimits;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::open_id::OpenId;
use crate::access::rate_limits::RateLimits;
use crate::access::{Console, Gate, Operators, Sessions};
use crate::api::{ApiState, Lifecycle, Surface, app};
use crate::audit::runner::Runner;
use crate::config::Config;
use crate::delivery::retention::RetentionSettings;
use crate::fulfilment::supply::Notices;
use crate::http;
use crate::ledger::feed::FeedWaiters;
use crate::ledger::{Ledger, connect};
use crate::pages::{self, PageSettings};
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
    /// Base URL at which operators reach the console, without a trailing slash.
    pub console_url: Arc<str>,
    /// Base URL to which mails link, without a trailing slash.
    pub portal_url: Arc<str>,
    /// Sign-in of operators' users through OpenID Connect, if it is configured.
    pub open_id: Option<OpenId>,
    pub is_sandbox: bool,
    /// Whether the node shows the mails that it sends.
    pub shows_outbox: bool,
    pub public_log: PublicLog,
    /// Amounts above which a second operator must approve.
    pub approval_limits: ApprovalLimits,
    /// Suppliers whose notices the node accepts.
    pub notices: Notices,
    /// Token of the operator that the configuration names, if it names one.
    pub operator_token: Option<Secret>,
    pub retention: RetentionSettings,
    pub ending: Ending,
}

/// Signals of a node's end, in their order.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Cancelled when the node begins to stop. It is not ready from then on, and closes each connection after its next response.
    pub leaving: CancellationToken,
    /// Cancelled when the node accepts no further requests: those that wait for events are answered then.
    pub stopping: CancellationToken,
}

/// Base URLs of the service, without a trailing slash.
#[derive(Debug)]
pub struct Urls {
    pub public: String,
    pub console: String,
    /// Base URL of the portal, to which mails link.
    pub portal: String,
}

impl Urls {
    /// Returns the configured URLs, or those of the bound addresses.
    pub fn new(config: &Config, address: Option<SocketAddr>, operator_address: Option<SocketAddr>) -> Urls {
        let address = address.unwrap_or(config.listen);
        let scheme = if config.tls.tls_cert.is_some() { "https" } else { "http" };
        let public = config.public_url.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
        let of_operators = || operator_address.map(|address| format!("{scheme}://{address}"));
        let console = config.console.console_url.clone().or_else(of_operators).unwrap_or_else(|| public.clone());
        let portal = config.mail.portal_url.clone().unwrap_or_else(|| public.clone());
        Urls { public, console, portal }
    }
}

/// Collects the settings of the API part from the configuration.
pub fn settings(
    config: &Config,
    urls: Urls,
    open_id: Option<OpenId>,
    operator_token: Option<Secret>,
    public_log: PublicLog,
    notices: Notices,
    ending: Ending,
) -> ApiSettings {
    ApiSettings {
        rate_limits: config.rate_limits,
        lifecycle: Lifecycle::new(config.lifecycle.deprecation_date, config.lifecycle.sunset_date),
        trusted_proxies: config.trusted_proxies.clone().into(),
        public_url: urls.public.into(),
        console_url: urls.console.into(),
        portal_url: urls.portal.into(),
        open_id,
        is_sandbox: config.sandbox,
        shows_outbox: config.keeps_sent_mails(),
        public_log,
        approval_limits: config.approval_above.clone().unwrap_or_default(),
        notices,
        operator_token,
        retention: retention(config),
        ending,
    }
}

/// Returns the retention of delivery data that a node is configured with.
pub fn retention(config: &Config) -> RetentionSettings {
    RetentionSettings {
        attempts: config.attempt_retention,
        payloads: config.payload_retention,
        response_bodies: config.response_body_quota,
    }
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
    let ApiSettings { rate_limits, lifecycle, trusted_proxies, public_url, console_url, portal_url, .. } = settings;
    let ApiSettings { open_id, is_sandbox, shows_outbox, public_log, approval_limits, notices, .. } = settings;
    let ApiSettings { operator_token, retention, ending, .. } = settings;
    let (access, heartbeats) = (connect::access(options), ledger.heartbeats());
    metrics.watch_pool(&access);
    let gate = Gate::watched(connect::gate(options), access.clone(), keyring.clone(), rate_limits, heartbeats, tasks);
    let (pool, heartbeat) = (ledger.pool().clone(), heartbeats.serving("sessions"));
    let sessions = Sessions::start(access.clone(), pool.clone(), keyring.clone(), heartbeat, tasks);
    let Ending { leaving, stopping } = ending;
    let heartbeat = heartbeats.background("waiting requests");
    let feed = FeedWaiters::start(pool.clone(), ledger.wake(), heartbeat, stopping.clone(), tasks);
    let audits = Runner::start(ledger, options, keyring.clone(), stopping, tasks);
    let operators = Operators::new(access.clone(), keyring.clone(), operator_token.as_ref());
    let console = Console::new(access, pool, keyring.clone(), sessions.passwords().clone());
    ApiState {
        ledger: ledger.clone(),
        gate,
        sessions,
        operators,
        console,
        open_id,
        keyring,
        lifecycle,
        trusted_proxies,
        metrics,
        is_sandbox,
        shows_outbox,
        public_url,
        console_url,
        portal_url,
        public_log,
        feed,
        audits,
        approval_limits: Arc::new(approval_limits),
        notices,
        conditions: Arc::default(),
        retention,
        leaving,
    }
}

/// Part of the interface that a listener serves.
#[derive(Clone, Debug)]
pub struct Served {
    pub surface: Surface,
    /// Pages that it serves beside the API, if any.
    pub pages: Option<PageSettings>,
}

impl Served {
    /// Returns what a listener of a node serves.
    pub fn new(surface: Surface, config: &Config, state: &ApiState) -> Served {
        let start = if surface == Surface::Operators { "/console" } else { "/portal" };
        let settings = PageSettings {
            start,
            has_open_id: state.open_id.is_some(),
            service_name: config.service_name.as_str().into(),
            one_click: config.one_click.clone(),
        };
        Served { surface, pages: config.pages.is_on().then_some(settings) }
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
    listener: impl Into<http::Listener>,
    served: Served,
    state: ApiState,
    connections: Connections,
    stop: CancellationToken,
) -> io::Result<()> {
    let Connections { total, per_address } = connections;
    let limits = http::Limits { connections: total, per_address, trusted_proxies: state.trusted_proxies.clone() };
    let metrics = state.metrics.clone();
    let Served { surface, pages: settings } = served;
    let (heartbeats, stopping) = (state.ledger.heartbeats().clone(), stop.clone());
    let app = app(state, surface, move |api| settings.map(|settings| pages::build(api, settings, heartbeats, stopping)));
    http::serve(listener.into(), limits, app, metrics, stop).await
}
