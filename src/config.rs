//! Configuration. Order of precedence: flag, environment variable, key of the TOML file, default (specification,
//! "Configuration").
//!
//! clap parses the flags. The values of the file replace the flags' defaults before parsing, so that all three sources go
//! through the same checks.

mod check;
mod console;
mod database;
mod file;
mod lifecycle;
mod mail;
mod nodes;
mod sample;
mod tls;
mod traces;
mod values;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use ipnet::IpNet;
use ledger_events::approval::ApprovalLimits;
use transparency_log::note::VerifierKey;

use crate::access::one_click::OneClick;
use crate::access::rate_limits::RateLimits;
use crate::duration::duration;
use crate::secrets::seal::Secret;
use crate::secrets::{key_file, strength};
use crate::transparency::cosignature::witness;
pub use check::check_file;
pub use console::ConsoleSettings;
pub use database::DatabaseSettings;
pub(crate) use file::place;
pub use file::{FILE_VARIABLE, Fault, apply_file, file_named};
pub use lifecycle::LifecycleSettings;
pub use mail::MailSettings;
pub use nodes::NodeSettings;
pub use sample::sample;
pub use tls::TlsSettings;
pub use traces::TraceSettings;
pub use values::{LogFormat, Role, Roles, Switch};
use values::{bytes, days, network, origin, service_name, short_duration, url};

/// Environment variable that holds the operator token itself, as an alternative to a file.
pub const OPERATOR_TOKEN_VARIABLE: &str = "LEDGER_OPERATOR_TOKEN";

/// A configuration error: one line that names the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

/// Reads a key file: see [`key_file::read_private`].
///
/// # Errors
/// If the file cannot be read, or others can read or replace it. The message starts with `name`, the setting of the file.
pub(crate) fn read_private(path: &Path, name: &str) -> Result<Secret, ConfigError> {
    key_file::read_private(path, name).map_err(|error| ConfigError(error.to_string()))
}

/// Source of the operator token: a file, or the variable [`OPERATOR_TOKEN_VARIABLE`].
#[derive(Args, Clone, Debug)]
pub struct OperatorTokenSettings {
    /// File with the operator token; or set LEDGER_OPERATOR_TOKEN to the token itself [default: none; more tokens through
    /// `admin token`]
    #[arg(long, env = "LEDGER_OPERATOR_TOKEN_FILE", value_name = "FILE")]
    pub operator_token_file: Option<PathBuf>,
}

impl OperatorTokenSettings {
    /// Returns the token, if one is configured. A file takes precedence over the variable.
    ///
    /// # Errors
    /// If the file cannot be read, or the token is malformed.
    pub fn read(&self) -> Result<Option<Secret>, ConfigError> {
        let name = "--operator-token-file (LEDGER_OPERATOR_TOKEN_FILE)";
        let token = match &self.operator_token_file {
            Some(path) => read_private(path, name)?,
            None => match std::env::var(OPERATOR_TOKEN_VARIABLE) {
                Ok(token) => Secret::new(token),
                Err(_) => return Ok(None),
            },
        };
        let token = Secret::new(token.expose().trim());
        if token.expose().len() < 16 || token.expose().contains(|c: char| !c.is_ascii_graphic()) {
            return Err(ConfigError(
                "the operator token (LEDGER_OPERATOR_TOKEN or its file) must be 16 or more printable characters without spaces"
                    .into(),
            ));
        }
        Ok(Some(token))
    }

    /// Returns the token like [`OperatorTokenSettings::read`], for a node, which grants access to anyone who has the token.
    ///
    /// # Errors
    /// Also if the token is easy to guess.
    pub fn read_strong(&self) -> Result<Option<Secret>, ConfigError> {
        let token = self.read()?;
        if token.as_ref().is_some_and(|token| strength::is_weak_token(token.expose())) {
            return Err(ConfigError(
                "the operator token (LEDGER_OPERATOR_TOKEN or its file) is too easy to guess: generate a random one, for example with \
                 `openssl rand -hex 32`"
                    .into(),
            ));
        }
        Ok(token)
    }
}

/// Setting for the master key, which seals and opens secrets.
#[derive(Args, Clone, Debug)]
pub struct MasterKeySettings {
    /// File with the master key: 32 random bytes in base64; during a rotation, one key per line [default: made with the
    /// embedded server in the data directory, else required]
    #[arg(long, env = "LEDGER_MASTER_KEY_FILE", value_name = "FILE")]
    pub master_key_file: Option<PathBuf>,
}

/// Settings of a node: all arguments of `serve`.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address on which the API listens; port 0 picks a free port
    #[arg(long, env = "LEDGER_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// Separate address for /admin, its documents, and /metrics, also serving the probes and the log; port 0 picks a free
    /// port [default: none: at --listen]
    #[arg(long, env = "LEDGER_OPERATOR_LISTEN", value_name = "ADDRESS")]
    pub operator_listen: Option<SocketAddr>,

    #[command(flatten)]
    pub nodes: NodeSettings,

    /// Whether the node serves the client portal at /portal and the operator console at /console
    #[arg(long, env = "LEDGER_PAGES", value_name = "on|off", default_value = "on")]
    pub pages: Switch,

    // Users whom links of the pages sign in. Only the demo and a new sandbox have them.
    #[arg(skip)]
    pub one_click: Option<OneClick>,

    // Whether the pages show the mails that the node sends, as they do in a sandbox. Only the demo sets it.
    #[arg(skip)]
    pub shows_outbox: bool,

    /// Maximum number of connections per source address (per /64 for IPv6); trusted proxies have no limit
    #[arg(long, env = "LEDGER_CONNECTIONS_PER_ADDRESS", value_name = "COUNT", default_value = "512", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections_per_address: u32,

    /// Time after SIGTERM in which the node goes on to answer requests while /readyz returns 503, so that load balancers send
    /// no further ones [default: none: it accepts no connection from then on]
    #[arg(long, env = "LEDGER_SHUTDOWN_DELAY", value_name = "DURATION", value_parser = short_duration)]
    pub shutdown_delay: Option<Duration>,

    #[command(flatten)]
    pub tls: TlsSettings,

    #[command(flatten)]
    pub database: DatabaseSettings,

    /// Run a sandbox: self-service funding, and products that deliver at once, partly, late, or never; needs its own
    /// database
    #[arg(long, env = "LEDGER_SANDBOX", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub sandbox: bool,

    /// File that describes the suppliers from whom vouchers are bought [default: none: orders wait for stock]
    #[arg(long, env = "LEDGER_SUPPLIERS_FILE", value_name = "FILE")]
    pub suppliers_file: Option<PathBuf>,

    #[command(flatten)]
    pub operator_token: OperatorTokenSettings,

    #[command(flatten)]
    pub console: ConsoleSettings,

    /// File with the transparency log's ed25519 keys: one per line, each 32 random bytes in base64, newest last [default:
    /// made with the embedded server, else required]
    #[arg(long, env = "LEDGER_LOG_KEY_FILE", value_name = "FILE")]
    pub log_key_file: Option<PathBuf>,

    /// File that remembers the last signed checkpoints outside the database [default: log-state.json in the data directory]
    #[arg(long, env = "LEDGER_LOG_STATE_FILE", value_name = "FILE")]
    pub log_state_file: Option<PathBuf>,

    /// Origin that names the log: checkpoints of shard 1 are signed as <ORIGIN>/1 [default: the public URL without its
    /// scheme, and /log]
    #[arg(long, env = "LEDGER_LOG_ORIGIN", value_name = "ORIGIN", value_parser = origin)]
    pub log_origin: Option<String>,

    /// Verifier keys of the witnesses whose cosignatures are accepted, comma-separated [default: none]
    #[arg(long, env = "LEDGER_LOG_WITNESSES", value_name = "KEYS", value_delimiter = ',', value_parser = witness)]
    pub log_witnesses: Vec<VerifierKey>,

    /// URLs of witnesses to request cosignatures from (tlog-witness protocol), comma-separated [default: none]
    #[arg(long, env = "LEDGER_LOG_WITNESS_URLS", value_name = "URLS", value_delimiter = ',', value_parser = url)]
    pub log_witness_urls: Vec<String>,

    #[command(flatten)]
    pub master_key: MasterKeySettings,

    #[command(flatten)]
    pub mail: MailSettings,

    /// URL at which clients reach the service; URLs in responses start with it [default: http://<listen>, or https with
    /// --tls-cert]
    #[arg(long, env = "LEDGER_PUBLIC_URL", value_name = "URL", value_parser = url)]
    pub public_url: Option<String>,

    /// Service name in the webhook headers, as in X-<NAME>-WEBHOOK-TOKEN
    #[arg(long, env = "LEDGER_SERVICE_NAME", value_name = "NAME", default_value = "SERVICE", value_parser = service_name)]
    pub service_name: String,

    /// Roles of this node, comma-separated
    #[arg(long, env = "LEDGER_ROLES", value_name = "ROLES", default_value = "api,projector,fulfilment,delivery")]
    pub roles: Roles,

    /// Maximum number of database connections of this node
    #[arg(long, env = "LEDGER_DATABASE_CONNECTIONS", value_name = "COUNT", default_value = "40", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub database_connections: u32,

    /// Proxies whose X-Forwarded-For header is trusted, as comma-separated addresses or networks [default: none]
    #[arg(long, env = "LEDGER_TRUSTED_PROXIES", value_name = "NETWORKS", value_delimiter = ',', value_parser = network)]
    pub trusted_proxies: Vec<IpNet>,

    /// PEM file of certificates to trust for webhook receivers, in addition to the platform's [default: none]
    #[arg(long, env = "LEDGER_WEBHOOK_CA_FILE", value_name = "FILE")]
    pub webhook_ca_file: Option<PathBuf>,

    /// Non-public networks to which webhooks may be sent, as comma-separated CIDRs [default: none]
    #[arg(long, env = "LEDGER_WEBHOOK_ALLOW_NETS", value_name = "NETWORKS", value_delimiter = ',', value_parser = network)]
    pub webhook_allow_nets: Vec<IpNet>,

    /// Timeout of a delivery attempt
    #[arg(long, env = "LEDGER_DELIVERY_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = short_duration)]
    pub delivery_timeout: Duration,

    /// Base of the exponential backoff between delivery attempts: retries wait 1, 2, 4, and 8 times this long
    #[arg(long, env = "LEDGER_RETRY_BASE", value_name = "DURATION", default_value = "60s", value_parser = short_duration)]
    pub retry_base: Duration,

    /// Maximum number of deliveries that this node has in flight
    #[arg(long, env = "LEDGER_DELIVERY_IN_FLIGHT", value_name = "COUNT", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub delivery_in_flight: u32,

    /// Maximum number of deliveries in flight to one webhook
    #[arg(long, env = "LEDGER_DELIVERY_IN_FLIGHT_PER_WEBHOOK", value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub delivery_in_flight_per_webhook: u32,

    /// Time for which every attempt of a webhook must have failed before the webhook is deactivated and its owners get a mail;
    /// 1d to 365d [default: none: no webhook is deactivated]
    #[arg(long, env = "LEDGER_DEACTIVATE_WEBHOOKS_AFTER", value_name = "DURATION", value_parser = days)]
    pub deactivate_webhooks_after: Option<Duration>,

    /// Retention of delivery attempts, with their response bodies
    #[arg(long, env = "LEDGER_ATTEMPT_RETENTION", value_name = "DURATION", default_value = "90d", value_parser = duration)]
    pub attempt_retention: Duration,

    /// Retention of the payloads of delivered events; afterwards they are derived again from the log when needed
    #[arg(long, env = "LEDGER_PAYLOAD_RETENTION", value_name = "DURATION", default_value = "30d", value_parser = duration)]
    pub payload_retention: Duration,

    /// Maximum size of the stored response bodies of a webhook, newest first; each counts as at least 256 bytes
    #[arg(long, env = "LEDGER_RESPONSE_BODY_QUOTA", value_name = "BYTES", default_value = "16MiB", value_parser = bytes)]
    pub response_body_quota: u64,

    /// Maximum forward jump of the database clock; after a larger one, vouchers that would expire are held until an
    /// operator confirms the clock
    #[arg(long, env = "LEDGER_MAX_CLOCK_JUMP", value_name = "DURATION", default_value = "1d", value_parser = duration)]
    pub max_clock_jump: Duration,

    /// Rate limits as requests per window, comma-separated; rules that you leave out keep their defaults
    #[arg(long, env = "LEDGER_RATE_LIMITS", value_name = "LIMITS", default_value_t = RateLimits::default())]
    pub rate_limits: RateLimits,

    /// Amount above which a second operator approves fundings, adjustments and payouts, for example EUR=1000,USD=1000, or one
    /// amount for every currency [default: none: no approvals]
    #[arg(long, env = "LEDGER_APPROVAL_ABOVE", value_name = "AMOUNTS")]
    pub approval_above: Option<ApprovalLimits>,

    #[command(flatten)]
    pub lifecycle: LifecycleSettings,

    #[command(flatten)]
    pub traces: TraceSettings,

    /// Format of log lines: text or json [default: text on a terminal, else json]
    #[arg(long, env = "LEDGER_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// File to which the node appends its audit log, as JSON lines: sign-ins, reveals of secrets, refused callers, and the
    /// requests of operators [default: none]
    #[arg(long, env = "LEDGER_AUDIT_LOG", value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
}

impl Config {
    /// Returns the default configuration with this database, for tests and for nodes that the program starts itself.
    ///
    /// # Errors
    /// Never, unless the defaults themselves are invalid.
    pub fn new(database: DatabaseSettings) -> Result<Config, ConfigError> {
        use clap::{Command, FromArgMatches};
        // Environment variables do not apply here.
        let command = Config::augment_args(Command::new("node").no_binary_name(true)).mut_args(|arg| arg.env(None));
        let matches = command.try_get_matches_from([""; 0]).map_err(|error| one_line(&error))?;
        let config = Config::from_arg_matches(&matches).map_err(|error| one_line(&error))?;
        Ok(Config { database, ..config })
    }

    /// Returns whether sent mails stay until they expire, for the page that shows them.
    pub fn keeps_sent_mails(&self) -> bool {
        self.sandbox || self.shows_outbox
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// If two settings contradict each other, or a database URL is invalid.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.database.options()?;
        self.database.migration_options()?;
        self.database.read_options()?;
        self.console.check()?;
        self.tls.files()?;
        self.nodes.check()?;
        self.mail.check(self.roles.include(Role::Delivery), self.pages.is_on())?;
        if self.sandbox && self.suppliers_file.is_some() {
            return Err(ConfigError(
                "--suppliers-file is not for a sandbox: its orders are no real ones, and vouchers cost money".into(),
            ));
        }
        if !self.log_witness_urls.is_empty() && self.log_witnesses.is_empty() {
            return Err(ConfigError("--log-witness-urls needs --log-witnesses: the verifier keys of these witnesses".into()));
        }
        if self.operator_listen.is_some_and(|operators| operators == self.listen && operators.port() != 0) {
            return Err(ConfigError("--operator-listen must be another address than --listen".into()));
        }
        if self.delivery_in_flight_per_webhook > self.delivery_in_flight {
            return Err(ConfigError("--delivery-in-flight-per-webhook must not be above --delivery-in-flight".into()));
        }
        self.lifecycle.check()
    }
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    }
}

/// Returns why clap refuses a value, without the value. None if it refuses something else.
fn reason_of(error: &clap::Error) -> Option<String> {
    context(error, ContextKind::InvalidValue)?;
    Some(match (std::error::Error::source(error), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(valid))) if !valid.is_empty() => format!("expected {}", valid.join(" or ")),
        (None, _) => "a value is required".to_owned(),
    })
}

/// Formats a clap error as one line that names the setting.
pub fn one_line(error: &clap::Error) -> ConfigError {
    let text = |kind| context(error, kind);
    let setting = text(ContextKind::InvalidArg).map(|arg| arg.split_whitespace().next().unwrap_or(arg));
    let refused = text(ContextKind::InvalidValue).zip(reason_of(error));
    if let (Some(setting), Some((value, why))) = (setting.filter(|s| s.starts_with("--")), refused) {
        let setting = setting.split('=').next().unwrap_or(setting).trim_end_matches('[');
        return ConfigError(format!("{setting} cannot be {value:?}: {why}"));
    }
    let rendered = error.to_string();
    let lines = rendered.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let line = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    ConfigError(line.trim_start_matches("error: ").to_owned())
}

impl fmt::Display for RateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules().map(|(name, limit)| format!("{name}={limit}"));
        f.write_str(&rules.join(","))
    }
}

#[cfg(test)]
mod tests;
