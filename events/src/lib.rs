//! The ledger's events, and the decisions that produce them.
//!
//! Each stream has a state and two pure functions. `decide` takes a state and a command, and returns events or a
//! [`Rejection`]. `evolve` takes a state and an event, and returns the next state. Nothing here does I/O, reads a
//! clock or draws a random number: the caller passes times and ids as arguments. Folding a history twice therefore
//! gives the same state twice.

pub mod account;
pub mod api_version;
pub mod approval;
pub mod beneficiary;
pub mod catalogue;
pub mod codec;
pub mod erasure;
mod event;
mod ids;
pub mod ip_block;
pub mod log;
mod money;
pub mod operator;
pub mod order;
pub mod payout;
pub mod placement;
pub mod price;
pub mod purchase;
pub mod reconciliation;
mod record;
mod rejection;
pub mod replay;
pub mod restrictions;
pub mod shard;
pub mod user;
pub mod verification;
pub mod wallet;
pub mod webhook;

pub use codec::CodecError;
pub use event::{Event, StreamType};
pub use ids::{
    AccountId, ApprovalId, BeneficiaryId, CategoryId, CredentialId, DecisionId, IDS_PER_SHARD, Id, MAX_SHARD, OrderId, PayoutId,
    ProductId, PurchaseId, ReplayId, StatementId, TransactionId, UserId, WalletId, WebhookId, id_base,
};
pub use money::{Currency, Money, MoneyError, Percent};
pub use record::{Actor, Metadata, Moment, Recorded};
pub use rejection::Rejection;

/// Number of the log that holds an account's events. An account belongs to one shard for life.
pub type ShardId = i16;
/// Position in a shard's log. The first event has position 1, and there are no gaps.
pub type Position = i64;
