//! What stands beside an export: what is in it, and how to tell that it is whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use ledger_events::Position;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::selection::Selection;
use super::{ExportError, read};

/// The format that this program writes.
pub const FORMAT: &str = "rewards-ledger-events-v1";

/// `<export>.manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: String,
    /// What was asked for.
    #[serde(flatten)]
    pub selection: Selection,
    /// Where the log ended when the export began, or the checkpoint that it is bound to.
    pub head: Position,
    /// Of `log_head`: an import goes on from it, so that a signer does not take it for an older database.
    pub epoch: i64,
    /// `zstd`, or none.
    pub compression: Option<String>,
    /// How many events there are, and the positions of the first and the last.
    pub events: u64,
    pub first: Option<Position>,
    pub last: Option<Position>,
    /// Of the file as it is.
    pub bytes: u64,
    /// Of the file as it is, in hex.
    pub sha256: String,
    pub exported_at: DateTime<Utc>,
    /// The newest signed checkpoint of the log, a note; none if there is none yet.
    pub checkpoint: Option<String>,
}

/// Where an export's manifest is.
pub fn path_of(export: &Path) -> PathBuf {
    read::beside(export, ".manifest.json")
}

impl Manifest {
    /// The manifest beside an export; none if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is not one that this program knows.
    pub fn of(export: &Path) -> Result<Option<Manifest>, ExportError> {
        let path = path_of(export);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ExportError::File { path, source }),
        };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| ExportError::File {
            path: path.clone(),
            source: io::Error::new(io::ErrorKind::InvalidData, error),
        })?;
        if manifest.format != FORMAT {
            let problem = format!("the format is {:?}, this program knows {FORMAT}", manifest.format);
            return Err(ExportError::File { path, source: io::Error::new(io::ErrorKind::InvalidData, problem) });
        }
        Ok(Some(manifest))
    }

    /// Whether the file beside it is the one that it describes.
    pub fn describes(&self, export: &Path) -> io::Result<bool> {
        Ok(std::fs::metadata(export)?.len() == self.bytes && hex::encode(hash(export)?.finalize()) == self.sha256)
    }
}

/// The SHA-256 of a file so far.
pub fn hash(path: &Path) -> io::Result<Sha256> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 256 * 1024]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash),
            read => hash.update(&buffer[..read]),
        }
    }
}
