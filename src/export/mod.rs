//! The log outside of the database: one event a line, as `docs/export.md` describes it. Written
//! from short pages, to files, to standard output and over HTTP; read again by an import, by
//! offline verification, and by whatever reads NDJSON.

pub mod file;
pub mod import;
pub mod line;
pub mod manifest;
pub mod offline;
pub mod read;
pub mod selection;
pub mod tiles;

use std::io::{self, Write};
use std::path::PathBuf;

use ledger_events::{Position, ShardId};

use crate::ledger::reader::{ReadError, Stored};
pub use file::{ExportFile, Plan};
pub use import::import;
pub use line::LineError;
pub use manifest::Manifest;
pub use selection::{Selection, Stream};

/// How hard zstd tries: its own default.
const LEVEL: i32 = 3;

/// Why an export or an import could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("shard {shard}, position {position}: {problem}")]
    NotALine { shard: ShardId, position: Position, problem: &'static str },
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    #[error("{} is being written by another export", .0.display())]
    Busy(PathBuf),
    #[error("{} was begun with other settings ({was}): repeat those, or remove it to begin anew", .path.display())]
    OtherPlan { path: PathBuf, was: String },
    #[error("{}: line {line}: {problem}", .path.display())]
    Line { path: PathBuf, line: u64, problem: String },
    #[error("no checkpoint of shard {0} has been signed yet")]
    Unsigned(ShardId),
    #[error("no checkpoint of shard {0} that the database knows of has been cosigned by {1} witnesses")]
    Uncosigned(ShardId, usize),
    #[error("{0} is missing in the database: run `verify`")]
    Missing(String),
    #[error("{} is not what the database has: one of the two was changed, run `verify`", .0.display())]
    Differs(PathBuf),
    #[error(
        "{} has a checkpoint of {greatest} events, and the newest of the log is of {size}: its end was cut off, or it is an \
         older copy; run `verify`", .directory.display()
    )]
    Shrunk { directory: PathBuf, greatest: u64, size: u64 },
    #[error(transparent)]
    Tree(#[from] crate::transparency::TreeError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a part of it ended too soon")]
    Broken,
}

/// Events as an export has them: lines, or as a zstd frame of lines. Frames that follow each other
/// are one zstd file, and each can be read without those after it.
///
/// # Errors
/// With [`ExportError::NotALine`] on what no line can hold.
pub fn page(events: &[Stored], is_compressed: bool) -> Result<Vec<u8>, ExportError> {
    let mut lines = Vec::with_capacity(events.len() * 768);
    for stored in events {
        line::write(stored, &mut lines)?;
    }
    if !is_compressed || lines.is_empty() {
        return Ok(lines);
    }
    let mut frame = zstd::stream::Encoder::new(Vec::with_capacity(lines.len() / 4), LEVEL)?;
    frame.include_checksum(true)?;
    frame.write_all(&lines)?;
    Ok(frame.finish()?)
}
