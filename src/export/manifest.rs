//! Manifest next to an export: describes its content, and allows checking that it is complete.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use ledger_events::Position;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::selection::Selection;
use super::{ExportError, read};

/// Format that this program writes and reads.
pub const FORMAT: &str = "rewards-ledger-events-v1";

/// Content of `<export>.manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: String,
    /// Requested positions and filters.
    #[serde(flatten)]
    pub selection: Selection,
    /// Position of the log's head when the export began, or the size of the checkpoint that the export is bound to.
    pub head: Position,
    /// Epoch of `log_head`. An import continues from it, so that a signer does not mistake the database for an older
    /// copy.
    pub epoch: i64,
    /// `zstd`, or none if the file is not compressed.
    pub compression: Option<String>,
    /// Number of events. `first` and `last` are their lowest and highest positions.
    pub events: u64,
    pub first: Option<Position>,
    pub last: Option<Position>,
    /// Size of the file as stored, in bytes.
    pub bytes: u64,
    /// SHA-256 of the file as stored, in hex.
    pub sha256: String,
    pub exported_at: DateTime<Utc>,
    /// Newest signed checkpoint of the log as a note, or none if nothing was signed yet.
    pub checkpoint: Option<String>,
}

/// Returns the path of an export's manifest.
pub fn path_of(export: &Path) -> PathBuf {
    read::beside(export, ".manifest.json")
}

impl Manifest {
    /// Reads the manifest next to an export. Returns none if there is no manifest.
    ///
    /// # Errors
    /// Returns an error when the manifest cannot be read, or has an unknown format.
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
            let problem = format!("the format is {:?}; this program reads only {FORMAT}", manifest.format);
            return Err(ExportError::File { path, source: io::Error::new(io::ErrorKind::InvalidData, problem) });
        }
        Ok(Some(manifest))
    }

    /// Returns whether the file has the size and hash of the manifest.
    pub fn describes(&self, export: &Path) -> io::Result<bool> {
        Ok(std::fs::metadata(export)?.len() == self.bytes && hex::encode(hash(export)?.finalize()) == self.sha256)
    }
}

/// Returns the hasher after the whole file, so that the caller can append to it.
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
