//! Proving that what is derived is what the log says, and deriving it again.
//!
//! Both read the log in pages and compare tables in pages, each page in a snapshot of its own: no
//! snapshot is held for longer than a page takes.

mod deliveries;
mod difference;
mod images;
mod lists;
pub(crate) mod lock;
mod operators;
mod pipeline;
pub(crate) mod positions;
pub mod rebuild;
pub(crate) mod rules;
mod secrets;
mod shadow;
mod shards;
mod streams;
mod tables;
mod tree;
pub mod verify;
mod vouchers;

use ledger_events::{Position, ShardId};
use ledger_projections::ProjectionError;

use crate::ledger::reader::ReadError;

pub use difference::{Difference, FieldDifference, Findings, RowDifference, RowProblem};
pub use rebuild::{Rebuild, Rebuilt, rebuild};
pub use verify::{Counts, Reach, Report, verify, verify_with};

/// Why an audit could not be done; what it found wrong is a [`Difference`].
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error("another verify or rebuild is at work on this database: try again when it has ended")]
    Busy,
    #[error(
        "the tables could not be swapped, something holds them or there was too much to do under their lock: nothing was changed"
    )]
    NotLocked,
    #[error("the log of shard {shard} has nothing at position {position}: run `verify`")]
    Gap { shard: ShardId, position: Position },
    #[error("the log has events of shard {shard}, of which log_head knows nothing: run `verify`")]
    Headless { shard: ShardId },
    #[error("a part of the rebuild ended too soon")]
    Broken,
}

/// How far a stage has come: events, or rows where it compares tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: &'static str,
    pub shard: ShardId,
    pub done: i64,
    pub total: i64,
}
