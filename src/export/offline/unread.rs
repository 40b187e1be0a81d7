//! Files of a copy of the tiles that a verification does not read: nothing is known of them.

use std::fs;
use std::path::{Path, PathBuf};

use ledger_events::tile::{FULL, Tile};

use super::OfflineError;
use super::leaves::Directory;
use crate::export::ExportError;
use crate::export::tiles::{CHECKPOINT, CHECKPOINTS};

/// So many are named; of more it is said how many there are.
const NAMED: usize = 20;

/// A line for each file that is not read when the tree of this size is verified.
pub fn in_words(directory: &Directory, size: u64) -> Result<Vec<String>, OfflineError> {
    let (mut lines, mut found) = (vec![], 0);
    let mut waiting = vec![PathBuf::new()];
    while let Some(place) = waiting.pop() {
        for (name, is_directory) in entries(&directory.path().join(&place))? {
            let place = place.join(name);
            if is_directory {
                waiting.push(place);
                continue;
            }
            if !place.to_str().is_some_and(|place| is_read(directory, place, size)) {
                found += 1;
                if lines.len() < NAMED {
                    lines.push(format!("{}: it is no part of the tree of {size} events", directory.path().join(place).display()));
                }
            }
        }
    }
    if found > NAMED {
        lines.push(format!("{} more files that are no part of it", found - NAMED));
    }
    Ok(lines)
}

/// What is in a directory, by name, and whether each is a directory itself.
fn entries(path: &Path) -> Result<Vec<(PathBuf, bool)>, OfflineError> {
    let named = |source| ExportError::File { path: path.to_owned(), source };
    let mut entries = vec![];
    for entry in fs::read_dir(path).map_err(named)? {
        let entry = entry.map_err(named)?;
        entries.push((PathBuf::from(entry.file_name()), entry.file_type().map_err(named)?.is_dir()));
    }
    entries.sort_unstable();
    Ok(entries)
}

fn is_read(directory: &Directory, place: &str, size: u64) -> bool {
    if let Some(name) = place.strip_prefix(CHECKPOINTS).and_then(|rest| rest.strip_prefix('/')) {
        return name.parse::<u64>().is_ok_and(|size| size.to_string() == name);
    }
    let is_first = |mut paths: Vec<String>| {
        paths.retain(|path| directory.path().join(path).exists());
        paths.first().is_some_and(|first| first == place)
    };
    let below = |prefix: &str| place.strip_prefix(prefix);
    if let Some(tile) = below("tile/entries/").or_else(|| below("tile/entries32/")).and_then(Tile::parse_entries) {
        let wanted = in_tree(tile, size);
        return wanted.is_some_and(|tile| is_first(Directory::bundles(tile).into_iter().map(|(path, _)| path).collect()));
    }
    if let Some(tile) = below("tile/").and_then(Tile::parse) {
        let wanted = in_tree(tile, size);
        return wanted.is_some_and(|tile| is_first(vec![Tile { width: FULL, ..tile }.path(), tile.path()]));
    }
    place == CHECKPOINT
}

/// The tile of the same place in the tree of this size, if that has one.
fn in_tree(tile: Tile, size: u64) -> Option<Tile> {
    let hashes = (size >> (8 * u32::from(tile.level))).checked_sub(tile.index.checked_mul(u64::from(FULL))?)?;
    let width = u16::try_from(hashes.min(u64::from(FULL))).ok().filter(|width| *width > 0)?;
    Some(Tile { width, ..tile })
}
