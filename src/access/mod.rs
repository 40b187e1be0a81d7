//! Who may use the ledger, and what must stay secret.

pub mod blocks;
pub mod gate;
pub mod limits;
pub mod master_keys;
pub mod operators;
mod passwords;
pub mod request_signature;
pub mod rotation;
pub mod rows;
pub mod seal;
pub mod sealing;
pub mod sessions;
pub mod strength;
pub mod tokens;

use ledger_events::user::UserRole;
use ledger_events::{AccountId, Actor, CredentialId, ShardId, UserId};

pub use gate::Gate;
pub use operators::{IssuedToken, Operator, Operators, Role};
pub use passwords::{Lane, NewPasswordError, Passwords};
pub use sessions::Sessions;

/// What a credential's sealed signing secret is bound to, beside its id.
pub const SIGNING_SECRET: &str = "credential.signing_secret";

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

    /// Whether the client may be shown the signing secret of this credential of its account: an owner of any, an API
    /// key its own.
    pub fn may_see_secret_of(&self, credential: CredentialId) -> bool {
        match self.who {
            Who::Credential(own) => own == credential,
            Who::User { role, .. } => role >= UserRole::Owner,
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
