//! The published tree as files: checkpoint, hash tiles and entry bundles in the layout of C2SP
//! `tlog-tiles`. Nothing that is there is ever changed: a copy that is grown is compared with itself.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ledger_database::PgPool;
use ledger_events::tile::{FULL, Tile};
use ledger_events::{Position, ShardId};

use super::file::replace;
use super::{ExportError, read};
use crate::audit::Progress;
use crate::ledger::reader::{self, Stored};
use crate::transparency::checkpoint::Checkpoint;
use crate::transparency::cosignature;
use crate::transparency::note::Note;
use crate::transparency::quorum::Quorum;
use crate::transparency::store;

/// Where the newest checkpoint stands.
pub const CHECKPOINT: &str = "checkpoint";
/// Where signed checkpoints stay, each under its size.
pub const CHECKPOINTS: &str = "checkpoints";

/// Tiles read in one statement.
const TILES: usize = 16;

/// Copies the tree of the newest checkpoint of a quorum, or what of it a directory lacks; returns how
/// many events it has. Of the older checkpoints it copies the first that covers each full tile of
/// leaves, and those that it was called with before stay.
///
/// # Errors
/// When nothing was signed yet, or not cosigned, when a tile or an event is missing in the database (with the first
/// position that is), and when the directory has something else than the database, or more of it: somebody has changed
/// one of them. What a quorum has cosigned may be less.
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
    // The newest comes last: what it promises is there.
    keep_checkpoint(directory, newest.size, &newest.note)?;
    replace(&directory.join(CHECKPOINT), note.as_bytes())?;
    Ok(newest.size)
}

/// The sizes of the checkpoints that a directory has kept, in order.
///
/// # Errors
/// When it cannot be read; one that is not there has none.
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

/// The checkpoint of the greatest tree that a directory has ever had; none if it has none yet.
///
/// # Errors
/// When one cannot be read.
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

/// A log only grows: a copy of it is gone on with by no smaller tree than it has had.
///
/// # Errors
/// With [`ExportError::Shrunk`], and when the directory cannot be read.
pub fn not_smaller(directory: &Path, size: u64) -> Result<(), ExportError> {
    match greatest(directory)?.map(|greatest| greatest.size).filter(|greatest| *greatest > size) {
        Some(greatest) => Err(ExportError::Shrunk { directory: directory.to_owned(), greatest, size }),
        None => Ok(()),
    }
}

/// Keeps a signed checkpoint under its size.
///
/// # Errors
/// When it cannot be written, or another one of the size is there.
pub fn keep_checkpoint(directory: &Path, size: u64, note: &str) -> Result<(), ExportError> {
    keep(directory, &format!("{CHECKPOINTS}/{size}"), note.as_bytes())
}

/// How many events stand before a tile of level 0.
fn position(index: u64) -> Position {
    Position::try_from(index).unwrap_or(Position::MAX).saturating_mul(FULL.into())
}

/// Errors with the first of these positions that has no event.
fn whole(shard: ShardId, events: &[Stored], positions: RangeInclusive<Position>) -> Result<(), ExportError> {
    let mut found = events.iter().map(|stored| stored.position);
    match positions.into_iter().find(|position| found.next() != Some(*position)) {
        Some(missing) => Err(ExportError::Missing(format!("position {missing} of shard {shard}"))),
        None => Ok(()),
    }
}

/// The bundle of a tile: lengths of two bytes, or of four in `entries32` where one is longer.
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

/// Writes a file that is not there; one that is, must be the same. What a crash of the machine has
/// cut off is written again.
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
