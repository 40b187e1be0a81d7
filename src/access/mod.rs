//! Authentication, authorization and rate limits.

pub mod blocks;
pub mod gate;
pub mod limits;
pub mod operators;
mod passwords;
pub mod rate_limits;
pub mod request_signature;
pub mod sessions;
pub mod tokens;

use ledger_events::user::UserRole;
use ledger_events::{AccountId, Actor, CredentialId, ShardId, UserId};

use crate::ledger::commands::VisibleSecrets;
pub use gate::Gate;
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
}

/// Credential that authenticated a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientIdentity {
    /// An API key.
    Credential(CredentialId),
    /// A user's access token or portal cookie.
    User { id: UserId, role: UserRole, session_id: i64 },
}

impl Principal {
    pub fn actor(&self) -> Actor {
        match self.identity {
            ClientIdentity::Credential(id) => Actor::Credential(id),
            ClientIdentity::User { id, .. } => Actor::User(id),
        }
    }

    /// Returns whether the client has at least this role. An API key may do everything.
    pub fn may(&self, role: UserRole) -> bool {
        match self.identity {
            ClientIdentity::Credential(_) => true,
            ClientIdentity::User { role: own, .. } => own >= role,
        }
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
    /// An unknown email or a wrong password. The response never tells the two apart.
    #[error("the email or the password is wrong")]
    WrongPassword,
    /// An access token, a refresh token or a portal cookie that is invalid, expired or revoked.
    #[error("the token is invalid, expired or revoked")]
    InvalidToken,
    /// The database did not answer. The request is refused rather than let in unchecked.
    #[error("credentials cannot be checked now")]
    Unavailable,
}

impl From<sqlx::Error> for AccessError {
    fn from(error: sqlx::Error) -> AccessError {
        tracing::warn!(%error, "failed to look up the caller");
        AccessError::Unavailable
    }
}
