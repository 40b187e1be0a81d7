//! Sealing of secrets under the master key, message authentication codes of rows, and the strength of tokens.

pub mod master_keys;
pub mod rows;
pub mod seal;
pub mod sealing;
pub mod strength;

/// Kind that a credential's sealed signing secret is bound to, together with the credential's id.
pub const SIGNING_SECRET: &str = "credential.signing_secret";
