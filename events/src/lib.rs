//! What can happen in the ledger, and who decides it.
//!
//! For each stream there is a state with two pure functions: `decide`, from a state and a
//! command to events or a [`Rejection`], and `evolve`, from a state and an event to the next
//! state. Nothing here does I/O, reads a clock or draws a random number: time and ids come in as
//! arguments, so that a history folded twice gives the same state twice.

pub mod account;
pub mod api_version;
pub mod beneficiary;
pub mod catalogue;
pub mod codec;
pub mod erasure;
mod event;
pub mod ip_block;
pub mod leaf;
pub mod log;
pub mod merkle;
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
pub mod tile;
pub mod user;
pub mod wallet;
pub mod webhook;

pub use codec::CodecError;
pub use event::{Event, StreamType};
pub use money::{Currency, Money, MoneyError, Percent};
pub use record::{Actor, Metadata, Moment, Recorded};
pub use rejection::Rejection;

/// Which log an account's events are written to. An account belongs to one shard for life.
pub type ShardId = i16;
/// A position in a shard's log: 1 is the first event, and there are no gaps.
pub type Position = i64;
/// Ids that clients see come from one sequence per kind and stay below 2^53.
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
