//! The ledger's events, and the decisions that produce them.
//!
//! Each stream has a state and two pure functions. `decide` takes a state and a command, and returns events or a
//! [`Rejection`]. `evolve` takes a state and an event, and returns the next state. Nothing here does I/O, reads a
//! clock or draws a random number: the caller passes times and ids as arguments. Folding a history twice therefore
//! gives the same state twice.

pub mod account;
pub mod api_version;
pub mod beneficiary;
pub mod catalogue;
pub mod codec;
pub mod erasure;
mod event;
pub mod ip_block;
pub mod log;
mod money;
pub mod operator;
pub mod order;
pub mod payout;
pub mod placement;
pub mod price;
pub mod reconciliation;
mod record;
mod rejection;
pub mod replay;
pub mod user;
pub mod wallet;
pub mod webhook;

pub use codec::CodecError;
pub use event::{Event, StreamType};
pub use money::{Currency, Money, MoneyError, Percent};
pub use record::{Actor, Metadata, Moment, Recorded};
pub use rejection::Rejection;

/// Number of the log that holds an account's events. An account belongs to one shard for life.
pub type ShardId = i16;
/// Position in a shard's log. The first event has position 1, and there are no gaps.
pub type Position = i64;
/// Id of an account. Ids that clients see come from one database sequence per kind and stay below 2^53.
pub type AccountId = i64;
pub type BeneficiaryId = i64;
pub type CredentialId = i64;
pub type DecisionId = i64;
pub type CategoryId = i64;
pub type OrderId = i64;
pub type PayoutId = i64;
pub type ProductId = i64;
pub type ReplayId = i64;
pub type StatementId = i64;
pub type TransactionId = i64;
pub type UserId = i64;
pub type WalletId = i64;
pub type WebhookId = i64;
