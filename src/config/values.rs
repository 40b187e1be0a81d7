//! Types of setting values, and their parsers.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use chrono::NaiveDate;
use clap::ValueEnum;
use ipnet::IpNet;

use crate::duration::duration;
use crate::secrets::seal::Secret;

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// A part of the service that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl Switch {
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
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

    /// Returns the names of the roles.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|role| role.as_str().to_owned()).collect()
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
        f.write_str(&self.names().join(", "))
    }
}

/// Parses a duration of at most one hour. The longest backoff is eight times as long, and must stay distinguishable from
/// due times that are wrong because the clock was set back.
pub(super) fn short_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration <= Duration::from_secs(3600) { Ok(duration) } else { Err("the maximum is 1h".to_owned()) }
}

/// Parses a duration of at least one hour.
pub(super) fn days(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(86_400);
    let duration = duration(text)?;
    if (DAY..=365 * DAY).contains(&duration) { Ok(duration) } else { Err("the minimum is 1d, and the maximum 365d".to_owned()) }
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
pub(super) fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

/// Parses a one-line text for people.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    match (1..=500).contains(&text.chars().count()) && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err("a reason is one line of 1 to 500 characters".to_owned()),
    }
}
