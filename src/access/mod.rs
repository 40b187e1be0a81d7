//! Authentication, authorization and rate limits.

pub mod blocks;
pub mod console;
pub mod gate;
mod key_uses;
pub mod limits;
pub mod one_click;
pub mod one_time_tokens;
pub mod open_id;
pub mod operators;
mod passwords;
pub mod rate_limits;
pub mod request_signature;
pub mod sessions;
pub mod tokens;
pub mod two_factor;

use ledger_database::{Replannable, is_plan_outdated};
use ledger_events::restrictions::{Scope, Scopes};
use ledger_events::user::UserRole;
use ledger_events::{AccountId, Actor, CredentialId, ShardId, UserId};

use crate::ledger::commands::VisibleSecrets;
pub use console::{Console, ConsoleSession};
pub use gate::Gate;
pub use key_uses::last_used;
pub use ledger_events::operator::OperatorRole as Role;
pub use operators::{Operator, Operators};
pub use passwords::{Lane, NewPasswordError, Passwords};
pub use sessions::Sessions;

/// An authenticated client.
#[derive(Clone, Copy, Debug)]
pub struct Principal {
    pub account_id: AccountId,
    /// Shard that holds the account's events.
    pub shard_id: ShardId,
    pub identity: ClientIdentity,
    /// Scopes of the API key. A user has every scope.
    pub scopes: Scopes,
}

/// Credential that authenticated a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientIdentity {
    /// An API key.
    Credential(CredentialId),
    /// A user's access token or portal cookie.
    User {
        id: UserId,
        role: UserRole,
        session_id: i64,
        /// The user is an owner without two-factor authentication, which the account requires of owners.
        must_enrol: bool,
    },
}

impl Principal {
    /// Returns whether the client may only enrol in two-factor authentication, because its account requires that of owners.
    pub fn must_enrol(&self) -> bool {
        matches!(self.identity, ClientIdentity::User { must_enrol: true, .. })
    }

    pub fn actor(&self) -> Actor {
        match self.identity {
            ClientIdentity::Credential(id) => Actor::Credential(id),
            ClientIdentity::User { id, .. } => Actor::User(id),
        }
    }

    /// Returns whether the client has at least this role. An API key has every role; [`Principal::has`] restricts it.
    pub fn may(&self, role: UserRole) -> bool {
        match self.identity {
            ClientIdentity::Credential(_) => true,
            ClientIdentity::User { role: own, .. } => own >= role,
        }
    }

    /// Returns whether the client's API key has this scope.
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(scope)
    }

    /// Returns the signing secrets of its account's credentials that the client may see. An owner may see every secret, an
    /// API key only its own.
    pub fn visible_secrets(&self) -> VisibleSecrets {
        match self.identity {
            ClientIdentity::Credential(own) => VisibleSecrets::Only(own),
            ClientIdentity::User { role, .. } if role >= UserRole::Owner => VisibleSecrets::All,
            ClientIdentity::User { .. } => VisibleSecrets::None,
        }
    }
}

/// Reason that authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// A missing, unknown, wrong or revoked key or secret. The response never tells these cases apart.
    #[error("the caller is not known")]
    Unknown,
    /// A valid API key that has expired.
    #[error("the API key has expired")]
    KeyExpired,
    /// A valid API key, used from a network that it is not allowed to be used from.
    #[error("the API key may not be used from this address")]
    NetworkNotAllowed,
    /// An unknown email or a wrong password. The response never tells the two apart.
    #[error("the email or the password is wrong")]
    WrongPassword,
    /// A right password without the second factor that the user has enrolled.
    #[error("the second factor is missing")]
    TwoFactorRequired,
    /// A code or a recovery code that is wrong or was used before.
    #[error("the second factor is wrong")]
    WrongSecondFactor,
    /// An access token, a refresh token or a portal cookie that is invalid, expired or revoked.
    #[error("the token is invalid, expired or revoked")]
    InvalidToken,
    /// The database did not answer. The request is refused rather than let in unchecked.
    #[error("credentials cannot be checked now")]
    Unavailable,
    /// A migration has changed a table under a prepared statement. Nothing was committed, and a new connection succeeds.
    #[error("the schema has changed")]
    PlanOutdated,
}

impl Replannable for AccessError {
    fn is_plan_outdated(&self) -> bool {
        *self == AccessError::PlanOutdated
    }
}

impl From<sqlx::Error> for AccessError {
    fn from(error: sqlx::Error) -> AccessError {
        if is_plan_outdated(&error) {
            return AccessError::PlanOutdated;
        }
        tracing::warn!(%error, "failed to look up the caller");
        AccessError::Unavailable
    }
}
