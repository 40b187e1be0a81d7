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

use crate::ledger::command::VisibleSecrets;
pub use gate::Gate;
pub use ledger_events::operator::OperatorRole as Role;
pub use operators::{Operator, Operators};
pub use passwords::{Lane, NewPasswordError, Passwords};
pub use sessions::Sessions;

/// An authenticated client.
#[derive(Clone, Copy, Debug)]
pub struct Principal {
    pub account_id: AccountId,
    /// Where the account's events are.
    pub shard_id: ShardId,
    pub who: Who,
}

/// By what a client was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// An API key.
    Credential(CredentialId),
    /// A user's access token or portal cookie.
    User { id: UserId, role: UserRole, session_id: i64 },
}

impl Principal {
    pub fn actor(&self) -> Actor {
        match self.who {
            Who::Credential(id) => Actor::Credential(id),
            Who::User { id, .. } => Actor::User(id),
        }
    }

    /// Whether the client may do what `role` may. An API key may do all.
    pub fn may(&self, role: UserRole) -> bool {
        match self.who {
            Who::Credential(_) => true,
            Who::User { role: own, .. } => own >= role,
        }
    }

    /// Signing secrets of its account's credentials that the client may see: an owner all, an API key its own.
    pub fn visible_secrets(&self) -> VisibleSecrets {
        match self.who {
            Who::Credential(own) => VisibleSecrets::Only(own),
            Who::User { role, .. } if role >= UserRole::Owner => VisibleSecrets::All,
            Who::User { .. } => VisibleSecrets::None,
        }
    }
}

/// Why nobody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// A missing, unknown, wrong or revoked key or secret: told apart to nobody.
    #[error("the caller is not known")]
    Unknown,
    /// An unknown email or a wrong password: told apart to nobody.
    #[error("the email or the password is wrong")]
    WrongPassword,
    /// An access token, a refresh token or a portal cookie that does not count, or no longer.
    #[error("the token is not valid, or no longer")]
    InvalidToken,
    /// The database could not be asked. Nobody is let in unseen.
    #[error("credentials cannot be checked now")]
    Unavailable,
}

impl From<sqlx::Error> for AccessError {
    fn from(error: sqlx::Error) -> AccessError {
        tracing::warn!(%error, "who a caller is cannot be looked up");
        AccessError::Unavailable
    }
}
