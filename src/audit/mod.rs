//! Audits: verify that derived tables match the log, and rebuild them from it.
//!
//! Both read the log and compare tables in pages. Each page has its own snapshot, so no snapshot is held longer than one
//! page takes.

mod deliveries;
mod difference;
mod images;
mod lists;
pub(crate) mod lock;
mod moves;
mod operator_users;
mod operators;
mod pipeline;
pub(crate) mod positions;
pub mod rebuild;
pub(crate) mod rules;
pub mod runner;
pub mod runs;
mod second_factors;
mod secrets;
mod shadow;
mod shards;
mod stock;
mod streams;
mod tables;
mod tree;
pub mod verify;
mod visitor;
mod vouchers;
mod walk;

use ledger_events::{Position, ShardId};
use ledger_projections::ProjectionError;

use crate::ledger::reader::ReadError;

pub use difference::{Difference, FieldDifference, Findings, Refused, RowDifference, RowProblem};
pub use rebuild::{Rebuild, Rebuilt, rebuild};
pub use verify::{Counts, Reach, Report, verify, verify_with};

/// Reason why an audit could not run. Inconsistencies that an audit finds are [`Difference`]s.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error("another verify or rebuild is running on this database: try again when it has ended")]
    Busy,
    #[error(
        "the tables could not be swapped, because other sessions use them or the work under their lock took too long: nothing was changed"
    )]
    NotLocked,
    #[error("the log of shard {shard} has no event at position {position}: run `verify`")]
    Gap { shard: ShardId, position: Position },
    #[error("the log has events of shard {shard}, but log_head has no such shard: run `verify`")]
    Headless { shard: ShardId },
    #[error("verify needs temporary tables, which a standby does not have: run it on the primary")]
    OnStandby,
    #[error("a task of the audit ended too soon")]
    Broken,
}

/// Progress of a stage, in events, or in rows where it compares tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: &'static str,
    pub shard: ShardId,
    pub done: i64,
    pub total: i64,
}
