//! API credentials, as operators and the portal issue and show them.

use chrono::SubsecRound;
use ipnet::IpNet;
use ledger_events::restrictions::{Restrictions, Scope};
use ledger_events::{AccountId, Actor, ShardId, account};
use poem_openapi::{Enum, Object};
use serde::Serialize;
use serde_json::value::RawValue;

use super::error::ApiError;
use super::fields::body;
use super::limits::Reader;
use super::outcome::{made_once, unexpected};
use super::problems::Read;
use super::readers::{date_time, line, list, one_of};
use super::reply::{Created, Revealing};
use super::scalars::Timestamp;
use super::state::{ApiState, origin, time};
use crate::ledger::{Idempotency, WriteError, commands};
use crate::secrets::seal::{Secret, random_secret};

/// Maximum number of keys drawn for one credential. Two keys share their first 8 characters once in billions of draws.
/// The database refuses the second.
const DRAWS: usize = 3;

/// Maximum number of networks that one key may be used from.
const MAX_NETWORKS: usize = 50;

/// Group of operations that an API key may use.
///
/// - `read`: read everything except voucher codes, and quote charges.
/// - `orders`: place and cancel orders, and read voucher codes.
/// - `webhooks`: manage webhooks, and repeat deliveries.
/// - `payouts`: manage beneficiaries and payouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    #[default]
    Read,
    Orders,
    Webhooks,
    Payouts,
}

impl From<Scope> for KeyScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Read => Self::Read,
            Scope::Orders => Self::Orders,
            Scope::Webhooks => Self::Webhooks,
            Scope::Payouts => Self::Payouts,
        }
    }
}

impl From<KeyScope> for Scope {
    fn from(scope: KeyScope) -> Self {
        match scope {
            KeyScope::Read => Self::Read,
            KeyScope::Orders => Self::Orders,
            KeyScope::Webhooks => Self::Webhooks,
            KeyScope::Payouts => Self::Payouts,
        }
    }
}

body! {
    /// A new API credential.
    #[derive(Object, Serialize)]
    pub struct IssueCredential {
        /// Name of the credential, for people to recognize it.
        pub name: String = required(line(1..=100)),
        /// Operations that the key may use. Default: all.
        pub scopes: Option<Vec<KeyScope>> = optional(list(1..=Scope::ALL.len(), || one_of)),
        /// Time from which on requests with the key are refused. Default: never.
        pub expires_at: Option<Timestamp> = optional(date_time),
        /// Networks that requests with the key may come from, such as `203.0.113.0/24`, or single addresses. Default: any.
        pub allowed_networks: Option<Vec<String>> = optional(list(1..=MAX_NETWORKS, || network)),
    }
}

/// Reads a network in CIDR notation, or one address. Returns its canonical form.
fn network(value: &RawValue) -> Read<String> {
    let text = line(1..=50).read(value)?;
    let network = text.parse::<IpNet>().or_else(|_| text.parse().map(|address: std::net::IpAddr| IpNet::from(address)));
    let network = network.map_err(|_| "must be a network such as 203.0.113.0/24, or an address")?;
    // Requests from a mapped address count as the IPv4 address, so such a network would allow nobody.
    let is_mapped = matches!(network, IpNet::V6(network) if network.addr().to_ipv4_mapped().is_some());
    if is_mapped {
        return Err("must be an IPv4 network instead of an IPv4-mapped IPv6 network".into());
    }
    if network.trunc() != network {
        return Err(format!("has address bits after the prefix; the network is {}", network.trunc()).into());
    }
    Ok(network.to_string())
}

impl IssueCredential {
    /// Returns the restrictions of the new key.
    ///
    /// # Errors
    /// 400 naming the field that is not valid.
    fn restrictions(&self) -> Result<Restrictions, ApiError> {
        let parsed = |text: &String| text.parse::<IpNet>().map_err(|_| ApiError::invalid("allowed_networks", "is not valid"));
        let mut allowed_networks =
            self.allowed_networks.iter().flatten().map(parsed).collect::<Result<Vec<IpNet>, ApiError>>()?;
        allowed_networks.sort_unstable();
        allowed_networks.dedup();
        let scopes = self.scopes.as_ref().map(|scopes| scopes.iter().map(|scope| Scope::from(*scope)).collect());
        // Times are stored in milliseconds.
        let expires_at = time("expires_at", self.expires_at.as_ref().map(|time| time.0))?.map(|time| time.trunc_subsecs(3));
        Ok(Restrictions { scopes, expires_at, allowed_networks })
    }
}

/// A newly issued credential. Key and secret are shown only in this response.
#[derive(Object, Serialize)]
pub struct IssuedCredential {
    /// Unique identifier of the credential.
    pub id: i64,
    /// API key to send in the `X-API-Key` header. Logs and reports identify it by its first 8 characters.
    pub api_key: String,
    /// API secret to send in the `X-API-Secret` header.
    pub api_secret: String,
}

/// An API credential without its key and secret.
#[derive(Object, Serialize)]
pub struct Credential {
    /// Unique identifier of the credential.
    pub id: i64,
    /// Account that the credential belongs to.
    pub account_id: i64,
    /// Name of the credential, for people to recognize it.
    pub name: String,
    /// First 8 characters of the API key.
    pub key_prefix: String,
    /// Whether the credential is revoked. Requests with a revoked credential are refused.
    pub is_revoked: bool,
}

impl From<account::Credential> for Credential {
    fn from(credential: account::Credential) -> Self {
        Self {
            id: credential.id.0,
            account_id: credential.account_id.0,
            name: credential.name,
            key_prefix: credential.key_prefix,
            is_revoked: credential.is_revoked,
        }
    }
}

/// Returns 128 random bits as 32 hexadecimal characters.
fn random_key() -> Secret {
    Secret::new(hex::encode(rand::random::<[u8; 16]>()))
}

/// Issues a credential for an account. Key and secret appear only in this response, and are not stored.
///
/// # Errors
/// 409 if an earlier request with the same idempotency key issued it.
pub async fn issue(
    state: &ApiState,
    shard: ShardId,
    account_id: AccountId,
    request: &IssueCredential,
    actor: Actor,
    idempotency: Option<Idempotency>,
) -> Result<Revealing<Created<IssuedCredential>>, ApiError> {
    let (api_secret, restrictions) = (random_secret(), request.restrictions()?);
    for draws_left in (0..DRAWS).rev() {
        let api_key = random_key();
        let command = commands::IssueCredential {
            account_id,
            name: request.name.clone(),
            api_key: api_key.clone(),
            api_secret: api_secret.clone(),
            restrictions: restrictions.clone(),
        };
        let reply = match state.ledger.submit(shard, command, origin(actor), idempotency).await {
            Err(WriteError::Refused) if draws_left > 0 => continue,
            reply => reply?,
        };
        let id = made_once(reply)?;
        let (api_key, api_secret) = (api_key.expose().to_owned(), api_secret.expose().to_owned());
        return Ok(Revealing(Created(IssuedCredential { id, api_key, api_secret })));
    }
    Err(unexpected())
}
