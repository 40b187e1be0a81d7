//! Restrictions of an API key: the operations it may use, its expiry, and the networks it may be used from.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Group of operations of the client API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reading everything except voucher codes, and quoting charges.
    Read,
    /// Placing and cancelling orders, and reading voucher codes.
    Orders,
    /// Changes to webhooks, and test and repeated deliveries.
    Webhooks,
    /// Changes to beneficiaries and payouts.
    Payouts,
}

impl Scope {
    pub const ALL: [Scope; 4] = [Self::Read, Self::Orders, Self::Webhooks, Self::Payouts];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Orders => "orders",
            Self::Webhooks => "webhooks",
            Self::Payouts => "payouts",
        }
    }

    pub fn parse(text: &str) -> Option<Scope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of scopes. It serializes to a list in the order of [`Scope::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Scope>", into = "Vec<Scope>")]
pub struct Scopes(u8);

impl Scopes {
    /// Every scope: the set of an unrestricted key, and of a user.
    pub const ALL: Scopes = Scopes(0b1111);

    pub fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl From<Vec<Scope>> for Scopes {
    fn from(scopes: Vec<Scope>) -> Scopes {
        scopes.into_iter().collect()
    }
}

impl From<Scopes> for Vec<Scope> {
    fn from(scopes: Scopes) -> Vec<Scope> {
        scopes.iter().collect()
    }
}

/// Text in a row of restrictions that is neither a scope nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown restriction {0:?}")]
pub struct UnknownRestriction(String);

/// Restrictions of an API key. The default restricts nothing, and serializes to no fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restrictions {
    /// Scopes that the key has; every one if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// Time from which on requests with the key are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Networks that requests with the key may come from; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_networks: Vec<IpNet>,
}

impl Restrictions {
    /// Reads the columns of a row of restrictions.
    ///
    /// # Errors
    /// Fails on a text that is no scope or no network.
    pub fn from_columns(
        scopes: Option<&[String]>,
        expires_at: Option<DateTime<Utc>>,
        networks: Option<&[String]>,
    ) -> Result<Restrictions, UnknownRestriction> {
        let unknown = |text: &String| UnknownRestriction(text.clone());
        let scope = |name: &String| Scope::parse(name).ok_or_else(|| unknown(name));
        let network = |text: &String| text.parse().map_err(|_| unknown(text));
        let scopes = scopes.map(|names| names.iter().map(scope).collect::<Result<Scopes, _>>()).transpose()?;
        let allowed_networks = networks.unwrap_or_default().iter().map(network).collect::<Result<Vec<_>, _>>()?;
        Ok(Restrictions { scopes, expires_at, allowed_networks })
    }

    /// Returns whether the key is unrestricted.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether a request from this address is allowed.
    pub fn allow_source(&self, ip: IpAddr) -> bool {
        self.allowed_networks.is_empty() || self.allowed_networks.iter().any(|network| network.contains(&ip))
    }

    pub fn has_expired_at(&self, now: DateTime<Utc>) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// Returns the scopes of the key.
    pub fn scopes(&self) -> Scopes {
        self.scopes.unwrap_or(Scopes::ALL)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_scope_serializes_to_its_name() {
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.as_str()), Some(scope));
            assert_eq!(serde_json::to_string(&scope).unwrap(), format!("\"{}\"", scope.as_str()));
        }
        assert_eq!(Scope::parse("everything"), None);
    }

    #[test]
    fn no_restrictions_serialize_to_no_fields() {
        assert_eq!(serde_json::to_string(&Restrictions::default()).unwrap(), "{}");
        let read: Restrictions = serde_json::from_str("{}").unwrap();
        assert!(read.are_none() && read.scopes() == Scopes::ALL);
    }

    #[test]
    fn an_empty_list_of_networks_allows_every_source() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let of = |networks: &[&str]| Restrictions {
            allowed_networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            ..Restrictions::default()
        };
        assert!(of(&[]).allow_source(ip("192.0.2.1")));
        let office = of(&["203.0.113.0/24", "2001:db8::/32"]);
        for (source, is_allowed) in [("203.0.113.9", true), ("203.0.114.9", false), ("2001:db8::1", true), ("2001:db9::1", false)]
        {
            assert_eq!(office.allow_source(ip(source)), is_allowed, "{source}");
        }
    }

    proptest! {
        #[test]
        fn a_set_of_scopes_contains_exactly_its_scopes(bits in prop::collection::vec(any::<bool>(), 4)) {
            let chosen: Vec<Scope> = Scope::ALL.into_iter().zip(&bits).filter(|(_, is_in)| **is_in).map(|(scope, _)| scope).collect();
            let scopes: Scopes = chosen.iter().copied().collect();
            prop_assert_eq!(scopes.iter().collect::<Vec<_>>(), chosen);
            let text = serde_json::to_string(&scopes).unwrap();
            prop_assert_eq!(serde_json::from_str::<Scopes>(&text).unwrap(), scopes);
        }

        #[test]
        fn a_key_expires_exactly_at_its_time(offset in -1_000i64..1_000) {
            let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
            let expires_at = now + chrono::TimeDelta::milliseconds(offset);
            let restrictions = Restrictions { expires_at: Some(expires_at), ..Restrictions::default() };
            prop_assert_eq!(restrictions.has_expired_at(now), offset <= 0);
        }
    }
}
