//! The transparency log: a Merkle tree over each shard's events (RFC 6962), published as tiles and signed checkpoints
//! (C2SP `tlog-tiles`, `tlog-checkpoint`). Nobody, including the operator, can change the past without being detected.
//! `docs/transparency.md` describes how to verify it.
//!
//! The crate `transparency-log` has the primitives. `receipt` does no I/O either: an offline verifier needs only these.

pub mod cosignature;
pub mod incidents;
pub mod issue;
pub mod listing;
pub mod peers;
pub mod projector;
pub mod proof;
pub mod receipt;
mod refusal;
pub mod signer;
pub mod signer_state;
pub mod store;
pub mod witness;

pub use refusal::Refusal;

/// Settings of the transparency log that the API needs in addition to the database. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PublicLog {
    /// Witnesses whose cosignatures the log accepts.
    pub witnesses: std::sync::Arc<[transparency_log::note::VerifierKey]>,
}

/// Error while reading, growing or signing the tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Proof(transparency_log::merkle::MerkleError),
    #[error("{0} of the tree is missing")]
    Missing(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    SignerState(#[from] signer_state::SignerStateError),
    #[error(transparent)]
    Checkpoint(#[from] transparency_log::checkpoint::CheckpointError),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Read(#[from] crate::ledger::reader::ReadError),
}

impl From<transparency_log::note::NoteError> for TreeError {
    fn from(error: transparency_log::note::NoteError) -> TreeError {
        TreeError::Checkpoint(error.into())
    }
}
