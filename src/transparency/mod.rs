//! The transparency log: a Merkle tree over each shard's events (RFC 6962), published as tiles and
//! signed checkpoints (C2SP `tlog-tiles`, `tlog-checkpoint`), so that nobody, the operator included,
//! can change the past unseen. `docs/transparency.md` says how to verify it.
//!
//! `note`, `checkpoint` and `receipt` are pure: they are what an offline verifier needs.

pub mod checkpoint;
pub mod cosignature;
pub mod incidents;
pub mod issue;
pub mod memory;
pub mod note;
pub mod peers;
pub mod projector;
pub mod proof;
pub mod quorum;
pub mod receipt;
mod refusal;
pub mod signer;
pub mod store;
pub mod witness;

pub use refusal::Refusal;

/// What the API has to know of the log beside the database. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PublicLog {
    /// Whose cosignatures are taken.
    pub witnesses: std::sync::Arc<[note::VerifierKey]>,
}

/// Why something of the tree could not be done.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Proof(ledger_events::merkle::MerkleError),
    #[error("{0} of the tree is missing")]
    Missing(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Memory(#[from] memory::MemoryError),
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::CheckpointError),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Read(#[from] crate::ledger::reader::ReadError),
}

impl From<note::NoteError> for TreeError {
    fn from(error: note::NoteError) -> TreeError {
        TreeError::Checkpoint(error.into())
    }
}
