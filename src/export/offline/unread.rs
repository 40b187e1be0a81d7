//! Finds files in a copy of the tiles that the verification does not read, so that nothing is known about them.

use std::fs;
use std::path::{Path, PathBuf};

use transparency_log::tile::{FULL, Tile};

use super::OfflineError;
use super::leaves::Directory;
use crate::export::ExportError;
use crate::export::tiles::{CHECKPOINT, CHECKPOINTS};

/// Largest number of files that are named. The others are only counted.
const NAMED: usize = 20;

/// Returns one line for each file that the verification of a tree of this size does not read.
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
                    lines.push(format!(
                        "{}: it is not a part of the tree of {size} events",
                        directory.path().join(place).display()
                    ));
                }
            }
        }
    }
    if found > NAMED {
        lines.push(format!("{} more files that are not a part of it", found - NAMED));
    }
    Ok(lines)
}

/// Returns the names in a directory in order, and whether each is a directory itself.
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

/// Returns the tile at the same place in the tree of this size, or none if the tree does not reach it.
fn in_tree(tile: Tile, size: u64) -> Option<Tile> {
    let hashes = (size >> (8 * u32::from(tile.level))).checked_sub(tile.index.checked_mul(u64::from(FULL))?)?;
    let width = u16::try_from(hashes.min(u64::from(FULL))).ok().filter(|width| *width > 0)?;
    Some(Tile { width, ..tile })
}
