//! Copies the published tree to files: checkpoint, hash tiles and entry bundles in the layout of C2SP `tlog-tiles`.
//! Existing files never change: a later copy is compared with them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use transparency_log::checkpoint::Checkpoint;
use transparency_log::note::Note;
use transparency_log::quorum::Quorum;
use transparency_log::tile::{FULL, Tile};

use super::file::replace;
use super::{ExportError, read};
use crate::audit::Progress;
use crate::ledger::reader::{self, Stored};
use crate::transparency::cosignature;
use crate::transparency::store;

/// Path of the newest checkpoint, below the directory.
pub const CHECKPOINT: &str = "checkpoint";
/// Directory of all copied checkpoints, each named by its size.
pub const CHECKPOINTS: &str = "checkpoints";

/// Number of tiles per query.
const TILES: usize = 16;

/// Copies the tree of the newest checkpoint that a quorum has cosigned, or the part of it that a directory lacks. Returns
/// the number of its events. Of the older checkpoints it copies the first one that covers each full tile of leaves.
/// Checkpoints that earlier calls copied stay.
///
/// # Errors
/// Returns an error when nothing was signed or cosigned yet. Also when a tile or an event is missing from the database,
/// with the first missing position. Also when the directory contradicts the database, or has a larger tree: then one of
/// them was changed. With a quorum a smaller tree is allowed, because witnesses may have cosigned less.
pub async fn copy(
    pool: &PgPool,
    shard: ShardId,
    directory: &Path,
    quorum: &Quorum,
    progress: impl Fn(Progress),
) -> Result<u64, ExportError> {
    let newest = store::newest_cosigned(pool, shard, quorum).await?.ok_or(match quorum.count {
        0 => ExportError::Unsigned(shard),
        count => ExportError::Uncosigned(shard, count),
    })?;
    if quorum.count == 0 {
        not_smaller(directory, newest.size)?;
    }
    let note = cosignature::with_cosignatures(pool, shard, &newest).await?;
    let tiles: Vec<Tile> = Tile::all(newest.size).collect();
    let total = Position::try_from(newest.size).unwrap_or(Position::MAX);
    for batch in tiles.chunks(TILES) {
        let found = store::tiles(pool, shard, &batch.iter().copied().collect::<BTreeSet<_>>()).await?;
        for tile in batch {
            let hashes = found.get(&(tile.level, tile.index)).and_then(|hashes| hashes.get(..usize::from(tile.width)));
            let hashes = hashes.ok_or_else(|| ExportError::Missing(tile.path()))?;
            keep(directory, &tile.path(), hashes.as_flattened())?;
        }
        let leaves: Vec<&Tile> = batch.iter().filter(|tile| tile.level == 0).collect();
        if let (Some(first), Some(last)) = (leaves.first(), leaves.last()) {
            let after = position(first.index);
            let upto = position(last.index) + Position::from(last.width);
            let events = reader::stored_after(pool, shard, after, upto - after).await?;
            whole(shard, &events, after + 1..=upto)?;
            for (tile, events) in leaves.into_iter().zip(events.chunks(usize::from(FULL))) {
                entries(directory, tile, events)?;
            }
            let full = batch.iter().filter(|tile| tile.level == 0 && tile.width == FULL);
            let covered: Vec<u64> = full.map(|tile| (tile.index + 1) * u64::from(FULL)).collect();
            for older in store::checkpoints_at(pool, shard, &newest.origin, &covered, newest.size).await? {
                keep_checkpoint(directory, older.size, &older.note)?;
            }
            progress(Progress { stage: "tiles", shard, done: upto, total });
        }
    }
    // Write the newest checkpoint last, after everything that it covers.
    keep_checkpoint(directory, newest.size, &newest.note)?;
    replace(&directory.join(CHECKPOINT), note.as_bytes())?;
    Ok(newest.size)
}

/// Returns the sizes of the checkpoints in a directory, in ascending order.
///
/// # Errors
/// Returns an error when the directory cannot be read. A missing directory has no checkpoints.
pub fn sizes(directory: &Path) -> Result<Vec<u64>, ExportError> {
    let path = directory.join(CHECKPOINTS);
    let named = |source| ExportError::File { path: path.clone(), source };
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(source) => return Err(named(source)),
    };
    let mut sizes = vec![];
    for entry in entries {
        let name = entry.map_err(named)?.file_name();
        sizes.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    sizes.sort_unstable();
    Ok(sizes)
}

/// Returns the checkpoint of the largest tree that a directory has ever had, or none if it has none.
///
/// # Errors
/// Returns an error when a checkpoint cannot be read.
pub fn greatest(directory: &Path) -> Result<Option<Checkpoint>, ExportError> {
    let kept = match sizes(directory)?.last() {
        Some(size) => checkpoint(directory.join(format!("{CHECKPOINTS}/{size}")))?,
        None => None,
    };
    let own = checkpoint(directory.join(CHECKPOINT))?;
    Ok(own.into_iter().chain(kept).max_by_key(|checkpoint| checkpoint.size))
}

fn checkpoint(path: PathBuf) -> Result<Option<Checkpoint>, ExportError> {
    let read = match fs::read_to_string(&path) {
        Ok(note) => {
            Note::parse(&note).map_err(io::Error::other).and_then(|note| Checkpoint::parse(note.text()).map_err(io::Error::other))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error),
    };
    read.map(Some).map_err(|source| ExportError::File { path, source })
}

/// Checks that a directory has no larger tree than `size`: a log only grows.
///
/// # Errors
/// Returns [`ExportError::Shrunk`] if it has, or another error when the directory cannot be read.
pub fn not_smaller(directory: &Path, size: u64) -> Result<(), ExportError> {
    match greatest(directory)?.map(|greatest| greatest.size).filter(|greatest| *greatest > size) {
        Some(greatest) => Err(ExportError::Shrunk { directory: directory.to_owned(), greatest, size }),
        None => Ok(()),
    }
}

/// Stores a signed checkpoint under its size.
///
/// # Errors
/// Returns an error when it cannot be written, or when a different checkpoint of that size exists.
pub fn keep_checkpoint(directory: &Path, size: u64, note: &str) -> Result<(), ExportError> {
    keep(directory, &format!("{CHECKPOINTS}/{size}"), note.as_bytes())
}

/// Returns the number of events before a tile of level 0.
fn position(index: u64) -> Position {
    Position::try_from(index).unwrap_or(Position::MAX).saturating_mul(FULL.into())
}

/// Returns an error that names the first of these positions without an event.
fn whole(shard: ShardId, events: &[Stored], positions: RangeInclusive<Position>) -> Result<(), ExportError> {
    let mut found = events.iter().map(|stored| stored.position);
    match positions.into_iter().find(|position| found.next() != Some(*position)) {
        Some(missing) => Err(ExportError::Missing(format!("position {missing} of shard {shard}"))),
        None => Ok(()),
    }
}

/// Writes the entry bundle of a tile. Lengths have two bytes, or four in `entries32` if an entry is longer.
fn entries(directory: &Path, tile: &Tile, events: &[Stored]) -> Result<(), ExportError> {
    let leaves: Vec<Vec<u8>> = events.iter().map(|stored| stored.leaf().to_bytes()).collect();
    let is_long = leaves.iter().any(|leaf| leaf.len() > usize::from(u16::MAX));
    let mut bundle = vec![];
    for leaf in leaves {
        match u16::try_from(leaf.len()) {
            Ok(length) if !is_long => bundle.extend(length.to_be_bytes()),
            _ => bundle.extend(u32::try_from(leaf.len()).unwrap_or(u32::MAX).to_be_bytes()),
        }
        bundle.extend(leaf);
    }
    let path = tile.entries_path();
    let path = if is_long { path.replacen("tile/entries/", "tile/entries32/", 1) } else { path };
    keep(directory, &path, &bundle)
}

/// Creates a file, or checks that an existing one has the same content. Completes a file that a crash of the machine has
/// truncated.
fn keep(directory: &Path, place: &str, content: &[u8]) -> Result<(), ExportError> {
    let path = directory.join(place);
    let named = |source| ExportError::File { path: path.clone(), source };
    match fs::read(&path) {
        Ok(known) if known == content => return Ok(()),
        Ok(known) if !content.starts_with(&known) => return Err(ExportError::Differs(path)),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(named)?;
            }
        }
        Err(error) => return Err(named(error)),
    }
    let new = read::beside(&path, ".new");
    fs::write(&new, content).and_then(|()| fs::rename(&new, &path)).map_err(named)
}
