//! Who may use the ledger, and what must stay secret.

pub mod blocks;
pub mod gate;
pub mod limits;
mod operators;
pub mod request_signature;
pub mod seal;

use ledger_events::{AccountId, Actor, CredentialId, ShardId};

pub use gate::Gate;
pub use operators::{IssuedToken, Operator, Operators, Role};

/// What a credential's sealed signing secret is bound to, beside its id.
pub const SIGNING_SECRET: &str = "credential.signing_secret";

/// An authenticated client.
#[derive(Clone, Copy, Debug)]
pub struct Principal {
    pub account_id: AccountId,
    /// Where the account's events are.
    pub shard_id: ShardId,
    pub credential_id: CredentialId,
}

impl Principal {
    pub fn actor(&self) -> Actor {
        Actor::Credential(self.credential_id)
    }
}

/// Why nobody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// A missing, unknown, wrong or revoked key or secret: told apart to nobody.
    #[error("the caller is not known")]
    Unknown,
    /// The database could not be asked. Nobody is let in unseen.
    #[error("credentials cannot be checked now")]
    Unavailable,
}
