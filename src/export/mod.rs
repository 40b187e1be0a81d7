//! The log outside the database: one event per line, as described in `docs/export.md`. Exports are written in short
//! pages, to files, to standard output and over HTTP. They are read by an import, by offline verification, and by any
//! NDJSON reader.

pub mod file;
pub mod import;
pub mod line;
pub mod lost;
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
pub use import::{import, import_again};
pub use line::LineError;
pub use manifest::Manifest;
pub use selection::{Selection, Stream};

/// Compression level: the default of zstd.
const LEVEL: i32 = 3;

/// Reason why an export or an import failed.
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
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    #[error("{} is being written by another export", .0.display())]
    Busy(PathBuf),
    #[error("{} was begun with other settings ({was}): use the same settings, or remove it to start again", .path.display())]
    OtherPlan { path: PathBuf, was: String },
    #[error("{}: line {line}: {problem}", .path.display())]
    Line { path: PathBuf, line: u64, problem: String },
    #[error("no checkpoint of shard {0} has been signed yet")]
    Unsigned(ShardId),
    #[error("no checkpoint of shard {0} in the database has the cosignatures of {1} witnesses")]
    Uncosigned(ShardId, usize),
    #[error("{0} is missing from the database: run `verify`")]
    Missing(String),
    #[error("{} differs from the database: one of the two was changed; run `verify`", .0.display())]
    Differs(PathBuf),
    #[error(
        "{} has a checkpoint of {greatest} events, but the log's newest one has {size}: the end of the log was cut off, or it is an \
         older copy; run `verify`", .directory.display()
    )]
    Shrunk { directory: PathBuf, greatest: u64, size: u64 },
    #[error(transparent)]
    Tree(#[from] crate::transparency::TreeError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a worker thread ended too soon")]
    Broken,
}

/// Encodes events as lines, or as a zstd frame of lines. Consecutive frames form one zstd file, and each frame can be
/// read without those after it.
///
/// # Errors
/// Returns [`ExportError::NotALine`] when an event cannot be written as a line.
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
