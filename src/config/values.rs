//! Types of setting values, and their parsers.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use chrono::NaiveDate;
use clap::ValueEnum;
use ipnet::IpNet;

use crate::access::seal::Private;

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// A part of the service that a node can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Api,
    Projector,
    Fulfilment,
    Delivery,
}

impl Role {
    pub const ALL: [Role; 4] = [Self::Api, Self::Projector, Self::Fulfilment, Self::Delivery];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Projector => "projector",
            Self::Fulfilment => "fulfilment",
            Self::Delivery => "delivery",
        }
    }
}

/// Roles of a node: at least one, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles(Vec<Role>);

impl Roles {
    pub fn include(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Roles, String> {
        let mut roles = Vec::new();
        for name in text.split(',').map(str::trim) {
            let role = Role::ALL.into_iter().find(|role| role.as_str() == name);
            let role = role.ok_or_else(|| format!("{name:?} is not one of {}", Role::ALL.map(Role::as_str).join(", ")))?;
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
        Ok(Roles(roles))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", "))
    }
}

/// Maximum number of requests in a time window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    pub requests: u32,
    pub window: Duration,
}

impl RateLimit {
    /// Far above any real limit, and within the range of the database's counter.
    const MOST_REQUESTS: u32 = 1_000_000_000;
}

impl FromStr for RateLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<RateLimit, String> {
        let (requests, window) = text.split_once('/').ok_or("a limit looks like 100/60s")?;
        let count = requests.parse().ok().filter(|n| (1..=RateLimit::MOST_REQUESTS).contains(n));
        let requests = count.ok_or_else(|| format!("{requests:?} is not a count from 1 to {}", RateLimit::MOST_REQUESTS))?;
        let window = duration(window)?;
        if window.subsec_nanos() != 0 {
            return Err("a window must be a whole number of seconds".to_owned());
        }
        Ok(RateLimit { requests, window })
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.window.as_secs();
        match seconds % 3_600 {
            0 => write!(f, "{}/{}h", self.requests, seconds / 3_600),
            _ => write!(f, "{}/{seconds}s", self.requests),
        }
    }
}

/// Rate limit rules of the specification and of the portal. Fields are named as in the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    pub orders: RateLimit,
    pub images: RateLimit,
    pub general: RateLimit,
    pub login: RateLimit,
    pub refresh: RateLimit,
    /// State-changing portal requests, per user.
    pub portal: RateLimit,
    /// Failed logins of one user: counted for each network where the user has logged in before, and once for all others
    /// together.
    pub user_login: RateLimit,
    /// Requests with a wrong operator token, per source.
    pub operator: RateLimit,
}

impl Default for RateLimits {
    fn default() -> RateLimits {
        let limit = |requests, seconds| RateLimit { requests, window: Duration::from_secs(seconds) };
        RateLimits {
            orders: limit(100, 60),
            images: limit(100, 60),
            general: limit(1_000, 3_600),
            login: limit(5, 60),
            refresh: limit(20, 60),
            portal: limit(20, 3_600),
            user_login: limit(20, 3_600),
            operator: limit(20, 60),
        }
    }
}

impl RateLimits {
    pub(super) fn rules(&self) -> [(&'static str, RateLimit); 8] {
        [
            ("orders", self.orders),
            ("images", self.images),
            ("general", self.general),
            ("login", self.login),
            ("refresh", self.refresh),
            ("portal", self.portal),
            ("user-login", self.user_login),
            ("operator", self.operator),
        ]
    }
}

impl FromStr for RateLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<RateLimits, String> {
        let mut limits = RateLimits::default();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            let (name, limit) = rule.split_once('=').ok_or_else(|| format!("{rule:?} does not look like orders=100/60s"))?;
            let place = match name.trim() {
                "orders" => &mut limits.orders,
                "images" => &mut limits.images,
                "general" => &mut limits.general,
                "login" => &mut limits.login,
                "refresh" => &mut limits.refresh,
                "portal" => &mut limits.portal,
                "user-login" => &mut limits.user_login,
                "operator" => &mut limits.operator,
                _ => return Err(format!("{name:?} is not one of {}", limits.rules().map(|(name, _)| name).join(", "))),
            };
            *place = limit.trim().parse().map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(limits)
    }
}

/// Parses a duration above zero: a whole number with the unit `ms`, `s`, `m`, `h`, or `d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let malformed = || "a duration looks like 500ms, 30s, 5m, 1h or 1d".to_owned();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(malformed)?;
    let (number, unit) = text.split_at(unit_at);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(malformed()),
    };
    let number: u64 = number.parse().map_err(|_| malformed())?;
    match number.checked_mul(milliseconds) {
        Some(0) => Err("a duration must be above zero".to_owned()),
        // Far above any real setting, and within the range of every clock type.
        Some(total) if total <= 366 * 86_400_000 => Ok(Duration::from_millis(total)),
        _ => Err("a duration is at most 366d".to_owned()),
    }
}

/// Parses a duration of at most one hour. The longest backoff is eight times as long, and must stay distinguishable from
/// due times that are wrong because the clock was set back.
pub(super) fn short_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration <= Duration::from_secs(3600) { Ok(duration) } else { Err("the maximum is 1h".to_owned()) }
}

/// Parses a size: a whole number of bytes, or of `KiB`, `MiB`, or `GiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let malformed = || "a size looks like 65536, 64KiB, 16MiB or 1GiB".to_owned();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor: u64 = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(malformed()),
    };
    let number: u64 = number.parse().map_err(|_| malformed())?;
    number.checked_mul(factor).filter(|total| *total <= 1 << 40).ok_or_else(|| "a size is at most 1024GiB".to_owned())
}

/// Parses a network, or an address as a network of one.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| "expected an address or a network such as 10.0.0.0/8".to_owned())
}

pub(super) fn url(text: &str) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
        return Err("expected an http or https URL without a query".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Parses the start of a log origin: characters that a key name may have, without a scheme.
pub(super) fn origin(text: &str) -> Result<String, String> {
    let is_fine = (1..=200).contains(&text.len())
        && !text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '+')
        && !text.contains("://")
        && !text.ends_with('/');
    let expected = "expected 1 to 200 characters such as ledger.example.com/log: no scheme, spaces or plus signs";
    if is_fine { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

pub(super) fn date(text: &str) -> Result<NaiveDate, String> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| "a date looks like 2030-12-31".to_owned())
}

/// Parses the service name. It becomes a part of header names, so it allows only letters, digits, and inner hyphens.
pub(super) fn service_name(text: &str) -> Result<String, String> {
    let is_fine = (1..=40).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if is_fine { Ok(text.to_owned()) } else { Err("expected 1 to 40 letters, digits and inner hyphens".to_owned()) }
}

/// Accepts any value, which is checked later. clap would repeat an invalid value in its error message.
pub(super) fn secret(text: &str) -> Result<Private, Infallible> {
    Ok(Private::new(text))
}

/// Parses a one-line text for people.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    match (1..=500).contains(&text.chars().count()) && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err("a reason is one line of 1 to 500 characters".to_owned()),
    }
}
