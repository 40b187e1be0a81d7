//! Connection options with several hosts, as libpq has them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Acquire, AssertSqlSafe, ConnectOptions, Connection, Row};

use crate::missed;

/// Deadline for opening a connection, over all hosts.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Time for which a host may be silent before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);
/// Deadline for the goodbye to a host that is not the wanted one.
const GOODBYE_DEADLINE: Duration = Duration::from_millis(100);

/// Error for a database URL. It never repeats the URL, because that may hold a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError(Cow<'static, str>);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}

impl UrlError {
    fn malformed() -> UrlError {
        UrlError("is not a URL such as postgres://user:password@host:5432/database".into())
    }
}

/// Kind of session that a host must offer, as libpq's `target_session_attrs` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionTarget {
    /// Any host that accepts the connection.
    #[default]
    Any,
    /// A host whose sessions can write.
    ReadWrite,
    /// A host that is not in recovery.
    Primary,
}

impl FromStr for SessionTarget {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<SessionTarget, UrlError> {
        match text {
            "any" => Ok(SessionTarget::Any),
            "read-write" => Ok(SessionTarget::ReadWrite),
            "primary" => Ok(SessionTarget::Primary),
            _ => Err(UrlError("has a target_session_attrs that is not any, read-write or primary".into())),
        }
    }
}

/// Connection options: one or several hosts, the session wanted of them, and settings of the session.
///
/// The settings are made by a statement after the connection opens, not by the startup message, because connection poolers
/// refuse unknown parameters there.
#[derive(Clone, Debug)]
pub struct PgConnectOptions {
    hosts: Vec<sqlx::postgres::PgConnectOptions>,
    target: SessionTarget,
    deadline: Duration,
    settings: Vec<(String, String)>,
    /// Options of connections that keep a session to themselves, if these share sessions through a pooler.
    direct: Option<Box<PgConnectOptions>>,
}

impl From<sqlx::postgres::PgConnectOptions> for PgConnectOptions {
    fn from(host: sqlx::postgres::PgConnectOptions) -> PgConnectOptions {
        PgConnectOptions {
            hosts: vec![host.extra_float_digits(None)],
            target: SessionTarget::Any,
            deadline: CONNECT_DEADLINE,
            settings: vec![],
            direct: None,
        }
    }
}

impl PgConnectOptions {
    fn map(mut self, change: &dyn Fn(sqlx::postgres::PgConnectOptions) -> sqlx::postgres::PgConnectOptions) -> PgConnectOptions {
        self.hosts = self.hosts.into_iter().map(change).collect();
        self.direct = self.direct.map(|direct| Box::new(direct.map(change)));
        self
    }

    /// Says that these options lead to a pooler that lends a server's session for one transaction only, and that `direct`
    /// leads around it.
    ///
    /// Connections of a [`Connector`](crate::Connector) then make their settings in each transaction, run each statement in
    /// one, and prepare none by name.
    #[must_use]
    pub fn pooled(mut self, direct: PgConnectOptions) -> PgConnectOptions {
        self.direct = Some(Box::new(direct));
        self
    }

    /// Returns the options for a connection that keeps its session: for LISTEN, locks of a session, prepared statements.
    #[must_use]
    pub fn direct(&self) -> PgConnectOptions {
        self.direct.as_deref().unwrap_or(self).clone()
    }

    /// Returns whether connections share sessions, transaction by transaction.
    pub fn is_pooled(&self) -> bool {
        self.direct.is_some()
    }

    /// Sets the name that the server shows as `application_name`.
    #[must_use]
    pub fn application_name(self, name: &str) -> PgConnectOptions {
        self.map(&|host| host.application_name(name))
    }

    /// Sets the database.
    #[must_use]
    pub fn database(self, name: &str) -> PgConnectOptions {
        self.map(&|host| host.database(name))
    }

    /// Sets the login.
    #[must_use]
    pub fn username(self, name: &str) -> PgConnectOptions {
        self.map(&|host| host.username(name))
    }

    /// Sets the password.
    #[must_use]
    pub fn password(self, password: &str) -> PgConnectOptions {
        self.map(&|host| host.password(password))
    }

    /// Adds settings of the session. A later value of a setting replaces an earlier one.
    #[must_use]
    pub fn options<K: Into<String>, V: Into<String>>(mut self, settings: impl IntoIterator<Item = (K, V)>) -> PgConnectOptions {
        for (name, value) in settings {
            let (name, value) = (name.into(), value.into());
            self.settings.retain(|(known, _)| *known != name);
            self.settings.push((name, value));
        }
        if let Some(direct) = &mut self.direct {
            direct.settings = self.settings.clone();
        }
        self
    }

    /// Returns sqlx's options of each host, without the settings of the session.
    pub fn hosts(&self) -> &[sqlx::postgres::PgConnectOptions] {
        &self.hosts
    }

    /// Returns the session wanted of the hosts.
    pub fn target(&self) -> SessionTarget {
        self.target
    }

    fn first(&self) -> &sqlx::postgres::PgConnectOptions {
        self.hosts.first().expect("there is a host")
    }

    /// Returns the name that the server shows as `application_name`.
    pub fn get_application_name(&self) -> Option<&str> {
        self.first().get_application_name()
    }

    /// Returns the name of the database.
    pub fn get_database(&self) -> Option<&str> {
        self.first().get_database()
    }

    /// Opens a connection of sqlx's own, without deadlines for its statements. It keeps its session.
    ///
    /// # Errors
    /// A timeout, or the error of the last host.
    pub async fn connect(&self) -> Result<sqlx::PgConnection, sqlx::Error> {
        match &self.direct {
            Some(direct) => Ok(direct.find().await?.0),
            None => Ok(self.find().await?.0),
        }
    }

    /// Opens a connection, and returns it with sqlx's options of the host that it leads to.
    ///
    /// Hosts are tried in order. A host that is silent for a quarter of a second does not keep the next one waiting; the
    /// first host that has the wanted session is taken.
    ///
    /// # Errors
    /// A timeout, or the error of the last host.
    pub async fn find(&self) -> Result<(sqlx::PgConnection, &sqlx::postgres::PgConnectOptions), sqlx::Error> {
        let found = tokio::time::timeout(self.deadline, self.try_hosts()).await;
        found.unwrap_or_else(|_| {
            let (connection, deadline) = (self.get_application_name().unwrap_or("unnamed"), self.deadline);
            tracing::warn!(connection, ?deadline, "failed to connect to the database within the deadline");
            Err(missed())
        })
    }

    /// Opens a connection for LISTEN. If it breaks, it reconnects to the same host; call this again after an error.
    ///
    /// # Errors
    /// A timeout, or the error of the last host.
    pub async fn listener(&self, deadline: Duration) -> Result<PgListener, sqlx::Error> {
        let (found, host) = self.find().await?;
        let script = self.opening();
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(deadline).after_connect(move |connection, _| {
            let script = script.clone();
            Box::pin(async move {
                if let Some(script) = script {
                    sqlx::raw_sql(AssertSqlSafe(script)).execute(connection).await?;
                }
                Ok(())
            })
        });
        let mut listener = PgListener::connect_with(&pool.connect_lazy_with(host.clone())).await?;
        // sqlx lets nobody hand in a connection, so the one that was found replaces the one that it made.
        let made = (&mut listener).acquire().await?;
        _ = tokio::time::timeout(GOODBYE_DEADLINE, std::mem::replace(made, found).close()).await;
        Ok(listener)
    }

    async fn try_hosts(&self) -> Result<(sqlx::PgConnection, &sqlx::postgres::PgConnectOptions), sqlx::Error> {
        let mut hosts = self.hosts.iter();
        let mut tries = FuturesUnordered::new();
        let mut last = None;
        loop {
            if let Some(host) = hosts.next() {
                tries.push(async move { self.connect_to(host).await.map(|connection| (connection, host)) });
            }
            let has_more = hosts.len() > 0;
            let outcome = tokio::select! {
                outcome = tries.next() => outcome,
                () = tokio::time::sleep(HEAD_START), if has_more => continue,
            };
            match outcome {
                Some(Ok(found)) => return Ok(found),
                Some(Err(error)) => last = Some(prefer(last, error)),
                None => return Err(last.unwrap_or_else(missed)),
            }
        }
    }

    /// Connects to one host, makes the settings, and checks that its session is the wanted one.
    async fn connect_to(&self, host: &sqlx::postgres::PgConnectOptions) -> Result<sqlx::PgConnection, sqlx::Error> {
        let mut connection = host.connect().await?;
        let Some(script) = self.opening() else { return Ok(connection) };
        let rows = sqlx::raw_sql(AssertSqlSafe(script)).fetch_all(&mut connection).await;
        let is_wanted = match (&rows, self.target) {
            (Err(_), _) | (_, SessionTarget::Any) => true,
            (Ok(rows), _) => rows.last().is_some_and(|row| row.try_get::<bool, _>(0).unwrap_or(false)),
        };
        if is_wanted && let Err(error) = rows {
            return Err(error);
        }
        if !is_wanted {
            // Without the goodbye, the server would log a lost connection at each try.
            _ = tokio::time::timeout(GOODBYE_DEADLINE, connection.close()).await;
            return Err(unwanted());
        }
        Ok(connection)
    }

    /// Returns the statements that open a session, or none if nothing is to be set or checked.
    fn opening(&self) -> Option<String> {
        let set = |(name, value): &(String, String)| format!("set_config({}, {}, false)", quoted(name), quoted(value));
        // A pooler gives the next statement another session, so each transaction makes the settings itself.
        let settings = if self.is_pooled() { &[][..] } else { &self.settings };
        let settings = settings.iter().map(set).collect::<Vec<_>>().join(", ");
        let check = match self.target {
            SessionTarget::Any => None,
            SessionTarget::ReadWrite => Some("SELECT current_setting('transaction_read_only') = 'off'"),
            SessionTarget::Primary => Some("SELECT NOT pg_is_in_recovery()"),
        };
        match (settings.is_empty(), check) {
            (true, check) => check.map(str::to_owned),
            (false, None) => Some(format!("SELECT {settings}")),
            (false, Some(check)) => Some(format!("SELECT {settings}; {check}")),
        }
    }

    /// Returns the statements that make the settings for one transaction. They take no snapshot.
    pub(crate) fn local_settings(&self) -> String {
        let set = |(name, value): &(String, String)| format!("SET LOCAL {name} = {}", quoted(value));
        self.settings.iter().map(set).collect::<Vec<_>>().join("; ")
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Error for hosts of which none has the wanted session. Retrying helps once one is promoted.
fn unwanted() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "no host of the database accepts writes"))
}

/// Returns the error that says more: a refusal of a server over a failure to reach one.
fn prefer(last: Option<sqlx::Error>, error: sqlx::Error) -> sqlx::Error {
    match last {
        Some(last @ sqlx::Error::Database(_)) if !matches!(error, sqlx::Error::Database(_)) => last,
        _ => error,
    }
}

impl FromStr for PgConnectOptions {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<PgConnectOptions, UrlError> {
        let parts = UrlParts::split(url)?;
        let one = |(host, port): (String, Option<String>)| {
            let url = parts.of(&host, port.as_deref());
            url.parse().map_err(|_| UrlError::malformed())
        };
        let mut hosts = parts.hosts.clone().into_iter().map(one).collect::<Result<Vec<sqlx::postgres::PgConnectOptions>, _>>()?;
        hosts = hosts.into_iter().map(|host| host.extra_float_digits(None)).collect();
        Ok(PgConnectOptions { hosts, target: parts.target, deadline: parts.deadline, settings: vec![], direct: None })
    }
}

/// A database URL, split into what all hosts share and what each has.
struct UrlParts<'a> {
    scheme: &'a str,
    user: &'a str,
    /// Host and port, each empty if the URL leaves it out.
    hosts: Vec<(String, Option<String>)>,
    path: &'a str,
    query: Vec<&'a str>,
    target: SessionTarget,
    deadline: Duration,
}

impl<'a> UrlParts<'a> {
    fn split(url: &'a str) -> Result<UrlParts<'a>, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(UrlError::malformed)?;
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(UrlError::malformed());
        }
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, listed) = authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
        let mut parts =
            UrlParts { scheme, user, hosts: vec![], path, query: vec![], target: SessionTarget::Any, deadline: CONNECT_DEADLINE };
        let (mut named, mut ports) = (None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                "target_session_attrs" => parts.target = value.parse()?,
                "connect_timeout" => parts.deadline = connect_timeout(value)?,
                // The node's deadlines do what these do (docs/decisions/0023).
                "keepalives" | "keepalives_idle" | "keepalives_interval" | "keepalives_count" | "tcp_user_timeout" => {}
                "host" => named = Some(list(value)),
                "port" => ports = Some(list(value)),
                _ => parts.query.push(parameter),
            }
        }
        parts.hosts = match named {
            Some(hosts) => hosts.into_iter().map(|host| (host, None)).collect(),
            None => listed.split(',').map(host_and_port).collect(),
        };
        if let Some(ports) = ports {
            if ports.len() != 1 && ports.len() != parts.hosts.len() {
                return Err(UrlError("has another number of ports than of hosts".into()));
            }
            for (host, port) in parts.hosts.iter_mut().zip(ports.iter().cycle()) {
                host.1 = Some(port.clone());
            }
        }
        if parts.hosts.len() > 1 && parts.hosts.iter().any(|(host, _)| host.is_empty()) {
            return Err(UrlError("has an empty host".into()));
        }
        Ok(parts)
    }

    /// Returns the URL of one host.
    fn of(&self, host: &str, port: Option<&str>) -> String {
        let UrlParts { scheme, user, path, .. } = self;
        // A socket's directory is percent-encoded in this place.
        let host = host.replace('/', "%2F");
        let user = if host.is_empty() { user.trim_end_matches('@') } else { user };
        let port = port.filter(|port| !port.is_empty());
        // Without a host, a URL has no place for a user or a port.
        let (authority, extra) = match (host.is_empty(), port) {
            (true, port) => (String::new(), [user_parameters(user), port.map(|port| format!("port={port}")).unwrap_or_default()]),
            (false, Some(port)) => (format!("{user}{host}:{port}"), Default::default()),
            (false, None) => (format!("{user}{host}"), Default::default()),
        };
        let path = if path.is_empty() { "/" } else { path };
        let query = self.query.iter().map(|parameter| (*parameter).to_owned());
        let query: Vec<String> = extra.into_iter().filter(|extra| !extra.is_empty()).chain(query).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{scheme}://{authority}{path}{mark}{}", query.join("&"))
    }
}

/// Returns `user:password` as parameters.
fn user_parameters(user: &str) -> String {
    match user.split_once(':') {
        _ if user.is_empty() => String::new(),
        Some((user, password)) => format!("user={user}&password={password}"),
        None => format!("user={user}"),
    }
}

fn list(value: &str) -> Vec<String> {
    value.replace("%2C", ",").replace("%2c", ",").split(',').map(str::to_owned).collect()
}

/// Splits `host:port`. An IPv6 address stands in brackets.
fn host_and_port(text: &str) -> (String, Option<String>) {
    let after = text.rfind(']').unwrap_or(0);
    match text[after..].find(':') {
        Some(colon) => (text[..after + colon].to_owned(), Some(text[after + colon + 1..].to_owned())),
        None => (text.to_owned(), None),
    }
}

/// Parses libpq's timeout in seconds, which counts for all hosts together here. Zero and less mean the default.
fn connect_timeout(value: &str) -> Result<Duration, UrlError> {
    let seconds: i64 = value.parse().map_err(|_| UrlError("has a connect_timeout that is not a number of seconds".into()))?;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    Ok(seconds.map_or(CONNECT_DEADLINE, Duration::from_secs).min(CONNECT_DEADLINE))
}

#[cfg(test)]
mod tests;
