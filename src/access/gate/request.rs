//! A request as the gate sees it: the credentials it presents, and the subject whose rate limit it is charged to.

use std::net::IpAddr;

use ledger_events::{AccountId, UserId};
use sha2::{Digest, Sha256};

use crate::access::limits::{Rule, source_network};
use crate::access::rate_limits::RateLimit;

pub(super) type Hash = [u8; 32];

/// Identity that a request presents.
#[derive(Clone, Copy, Debug)]
pub enum PresentedCredentials<'a> {
    Key {
        api_key: &'a str,
        api_secret: &'a str,
    },
    /// A user that session authentication has verified already.
    User {
        user_id: UserId,
        account_id: AccountId,
    },
    Nobody,
}

/// Subject whose rate limit a request is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RateLimitSubject {
    /// The API key; its account under the image rule; the IP if the key is invalid.
    Key,
    User(UserId),
    Account(AccountId),
    Ip,
    /// A user and a source network, see [`LoginBudget`].
    Login(LoginBudget),
}

/// Key under which failed logins are counted together. It is a keyed hash of the user's email. If the user has logged in
/// from the source network before, the hash includes that network.
pub type LoginBudget = [u8; 16];

/// The gate's input for one request. Equal requests of a batch share one row of the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GateRequest {
    pub(super) ip: IpAddr,
    /// SHA-256 hashes of the API key and of its secret.
    pub(super) key: Option<(Hash, Hash)>,
    pub(super) charge: Option<(Rule, RateLimit, RateLimitSubject)>,
    /// The gate reads the rate limit without charging it, because the request is refused in any case.
    pub(super) is_free: bool,
}

impl GateRequest {
    /// Creates the input for a request from this IP, charged under this rule if there is one.
    pub fn new(ip: IpAddr, credentials: PresentedCredentials<'_>, charge: Option<(Rule, RateLimit)>) -> GateRequest {
        let hash = |text: &str| -> Hash { Sha256::digest(text.as_bytes()).into() };
        let key = match credentials {
            PresentedCredentials::Key { api_key, api_secret } => Some((hash(api_key), hash(api_secret))),
            _ => None,
        };
        let subject = |rule| match credentials {
            PresentedCredentials::Key { .. } => RateLimitSubject::Key,
            PresentedCredentials::User { account_id, .. } if rule == Rule::Images => RateLimitSubject::Account(account_id),
            PresentedCredentials::User { user_id, .. } => RateLimitSubject::User(user_id),
            PresentedCredentials::Nobody => RateLimitSubject::Ip,
        };
        GateRequest { ip, key, charge: charge.map(|(rule, limit)| (rule, limit, subject(rule))), is_free: false }
    }

    /// Creates the input for a login or a password reset, charged to the budget of its user.
    pub(super) fn of_budget(ip: IpAddr, rule: Rule, limit: RateLimit, budget: LoginBudget) -> GateRequest {
        let charge = Some((rule, limit, RateLimitSubject::Login(budget)));
        GateRequest { ip, key: None, charge, is_free: false }
    }

    /// Turns the request into one that reads the rate limit and charges nothing.
    #[must_use]
    pub fn free(self) -> GateRequest {
        GateRequest { is_free: true, ..self }
    }

    /// Returns the subject of the rate limit; `None` if it depends on the API key.
    pub(super) fn subject(&self) -> Option<String> {
        match self.charge?.2 {
            RateLimitSubject::Key => None,
            RateLimitSubject::User(id) => Some(format!("user {id}")),
            RateLimitSubject::Account(id) => Some(format!("account {id}")),
            RateLimitSubject::Ip => Some(match self.charge?.0 {
                Rule::Login | Rule::Operator | Rule::OpenId | Rule::PasswordReset | Rule::Notices => {
                    subject_of_ip(source_network(self.ip))
                }
                _ => subject_of_ip(self.ip),
            }),
            RateLimitSubject::Login(budget) => Some(subject_of_login(&budget)),
        }
    }
}

pub(super) fn subject_of_login(budget: &LoginBudget) -> String {
    format!("user {}", hex::encode(budget))
}

pub(super) fn subject_of_ip(ip: IpAddr) -> String {
    format!("ip {ip}")
}
