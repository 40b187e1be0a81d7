//! Offline verification, which needs only files and the log's public key.
//!
//! It grows a tree from the events and compares it with every signed checkpoint. If the leaves' hashes are given, as
//! tiles or as an earlier export, it also names the first position that differs.

mod claims;
mod export;
pub(super) mod leaves;
pub mod structure;
mod tiles;
mod unread;

use std::path::{Path, PathBuf};

use ledger_events::{Position, ShardId};
use serde::Serialize;
use transparency_log::checkpoint::Trust;
use transparency_log::merkle::Hash;

use crate::audit::{Difference, Findings, Progress};
use crate::export::ExportError;
use claims::Claim;
pub use claims::{Compared, Outcome};
pub use export::{ExportInputs, verify_export};
pub use tiles::verify_tiles;

/// Reason why files could not be verified. Inconsistencies of the log are [`Difference`]s.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("there is no signed checkpoint to compare with: give one with --checkpoint")]
    NoCheckpoint,
    #[error("a part of a log can be verified only with the tiles of the whole log: give them with --tiles")]
    Part,
    #[error("{0} is missing")]
    Missing(String),
    #[error("{0} does not have the length that its name states")]
    Tile(String),
}

/// Result of a verification.
#[derive(Debug, Serialize)]
pub struct Report {
    pub shard_id: Option<ShardId>,
    /// Number of events that were read.
    pub events: u64,
    /// Root of the tree of all events, in hex. None for a part of a log.
    #[serde(serialize_with = "in_hex")]
    pub root: Option<Hash>,
    /// Position up to which all events are proved to be what was signed.
    pub proven: u64,
    /// First and last position that no given checkpoint covers.
    pub unproven: Option<(Position, Position)>,
    pub checkpoints: Vec<Compared>,
    /// Range of positions, both inclusive, that contains the first bad event.
    pub first_bad: Option<(Position, Position)>,
    pub found: u64,
    pub differences: Vec<Difference>,
    /// Files and events that were not compared with anything, although they exist or should exist.
    pub unchecked: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }

    /// Returns whether nothing differs and all events are covered by a checkpoint. With `allow_unproven`, events after
    /// the last checkpoint are accepted, but at least one event must be proved: without any signature, a log proves
    /// nothing.
    pub fn holds(&self, allow_unproven: bool) -> bool {
        self.is_clean() && (self.unproven.is_none() || allow_unproven && self.proven > 0)
    }
}

fn in_hex<S: serde::Serializer>(root: &Option<Hash>, serializer: S) -> Result<S::Ok, S::Error> {
    root.map(hex::encode).serialize(serializer)
}

/// Opens a signed checkpoint. Reports an untrusted or invalid one as a finding.
fn claim(source: String, note: &str, trust: &Trust, findings: &mut Findings) -> Option<Claim> {
    match trust.open(note) {
        Ok(opened) => Some(Claim { source, checkpoint: opened.checkpoint }),
        Err(error) => {
            findings.add(Difference::Note { source, problem: error.to_string() });
            None
        }
    }
}

/// Opens the checkpoints in these files.
fn claims(paths: &[PathBuf], trust: &Trust, findings: &mut Findings) -> Result<Vec<Claim>, OfflineError> {
    let mut claims = vec![];
    for path in paths {
        let note = std::fs::read_to_string(path).map_err(|source| ExportError::File { path: path.clone(), source })?;
        claims.extend(claim(path.display().to_string(), &note, trust, findings));
    }
    Ok(claims)
}

/// Returns the range of the first bad position: after the proved ones, and not after the first visible difference.
fn first_bad(proven: u64, findings: &Findings) -> Option<(Position, Position)> {
    let upper = findings.differences.iter().filter_map(Difference::positions).map(|(_, last)| last).min()?;
    let lower = Position::try_from(proven).unwrap_or(Position::MAX).saturating_add(1);
    Some((lower.min(upper), upper))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}
