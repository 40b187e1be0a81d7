//! Proof without a database: nothing but files and the log's public key.
//!
//! A tree is grown from what is there and compared with every checkpoint that was signed; where
//! hashes of the leaves are at hand, of tiles or of an earlier export, the first position that is
//! not the same is named.

mod claims;
mod export;
mod leaves;
pub mod structure;
mod tiles;
mod unread;

use std::path::{Path, PathBuf};

use ledger_events::merkle::Hash;
use ledger_events::{Position, ShardId};
use serde::Serialize;

use crate::audit::{Difference, Findings, Progress};
use crate::export::ExportError;
use crate::transparency::checkpoint::Trust;
use claims::Claim;
pub use claims::{Compared, Outcome};
pub use export::{ExportInputs, verify_export};
pub use tiles::verify_tiles;

/// Why files could not be verified; what is wrong with the log is a [`Difference`].
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("there is no signed checkpoint to compare with: give one with --checkpoint")]
    NoCheckpoint,
    #[error("a part of a log can be verified only with the tiles of the whole: give them with --tiles")]
    Part,
    #[error("{0} is missing")]
    Missing(String),
    #[error("{0} is not as long as its name says")]
    Tile(String),
}

/// What a verification found.
#[derive(Debug, Serialize)]
pub struct Report {
    pub shard_id: Option<ShardId>,
    /// How many events were looked at.
    pub events: u64,
    /// The root of all of them, in hex; none where they are a part of a log.
    #[serde(serialize_with = "in_hex")]
    pub root: Option<Hash>,
    /// Positions 1 to this one are what was signed.
    pub proven: u64,
    /// The first and last position that no checkpoint at hand was signed for.
    pub unproven: Option<(Position, Position)>,
    pub checkpoints: Vec<Compared>,
    /// Between which positions, both included, the first bad one is.
    pub first_bad: Option<(Position, Position)>,
    pub found: u64,
    pub differences: Vec<Difference>,
    /// What was there, or should be, and was compared with nothing.
    pub unchecked: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }

    /// Whether nothing differs, and everything was signed for; with `allow_unproven` what came after the
    /// last checkpoint need not be, but something must: a log of which nothing was signed proves nothing.
    pub fn holds(&self, allow_unproven: bool) -> bool {
        self.is_clean() && (self.unproven.is_none() || allow_unproven && self.proven > 0)
    }
}

fn in_hex<S: serde::Serializer>(root: &Option<Hash>, serializer: S) -> Result<S::Ok, S::Error> {
    root.map(hex::encode).serialize(serializer)
}

/// Reads a signed checkpoint; one that is not to be believed is a finding.
fn claim(source: String, note: &str, trust: &Trust, findings: &mut Findings) -> Option<Claim> {
    match trust.open(note) {
        Ok(opened) => Some(Claim { source, checkpoint: opened.checkpoint }),
        Err(error) => {
            findings.add(Difference::Note { source, problem: error.to_string() });
            None
        }
    }
}

/// The checkpoints in these files.
fn claims(paths: &[PathBuf], trust: &Trust, findings: &mut Findings) -> Result<Vec<Claim>, OfflineError> {
    let mut claims = vec![];
    for path in paths {
        let note = std::fs::read_to_string(path).map_err(|source| ExportError::File { path: path.clone(), source })?;
        claims.extend(claim(path.display().to_string(), &note, trust, findings));
    }
    Ok(claims)
}

/// Where the first bad position must be: after what is proven, and not after what shows.
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
