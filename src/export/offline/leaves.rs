//! Sequences of leaf hashes to compare with, from a directory of tiles or from another export.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use transparency_log::merkle::{Hash, leaf_hash};
use transparency_log::tile::{FULL, Tile};

use super::OfflineError;
use crate::export::{ExportError, line, read};

/// A directory in the layout of C2SP `tlog-tiles`.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    pub fn new(path: &Path) -> Directory {
        Directory { path: path.to_owned() }
    }

    /// Reads a file below the directory. Returns none if it does not exist.
    pub fn read(&self, place: &str) -> Result<Option<Vec<u8>>, OfflineError> {
        let path = self.path.join(place);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ExportError::File { path, source }.into()),
        }
    }

    /// Returns the hashes of a tile, from the full tile if it exists. Returns none if neither file exists.
    pub fn hashes(&self, tile: Tile) -> Result<Option<Vec<Hash>>, OfflineError> {
        for found in [Tile { width: FULL, ..tile }, tile] {
            if let Some(bytes) = self.read(&found.path())? {
                let (hashes, rest) = bytes.as_chunks::<32>();
                let is_whole = rest.is_empty() && hashes.len() == usize::from(found.width);
                let wanted = hashes.get(..usize::from(tile.width)).filter(|_| is_whole);
                return Ok(Some(wanted.ok_or_else(|| OfflineError::Tile(found.path()))?.to_vec()));
            }
        }
        Ok(None)
    }

    /// Returns the entry bundle of a tile of level 0, from the full tile's bundle if it exists.
    pub fn entries(&self, tile: Tile) -> Result<Option<Bundle>, OfflineError> {
        for (path, length) in Self::bundles(tile) {
            if let Some(bytes) = self.read(&path)? {
                let is_full = !path.contains(".p/");
                return Ok(Some(Bundle { path, bytes, length, is_full }));
            }
        }
        Ok(None)
    }

    /// Returns the possible paths of a tile's entries, with the size of their length prefixes in bytes. The first
    /// existing file is used.
    pub fn bundles(tile: Tile) -> Vec<(String, usize)> {
        let paths = [Tile { width: FULL, ..tile }, tile].map(|tile| tile.entries_path());
        let both = |path: &String| [(path.clone(), 2), (path.replacen("tile/entries/", "tile/entries32/", 1), 4)];
        paths.iter().flat_map(both).collect()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Entries of a tile of level 0, each after its length.
#[derive(Debug)]
pub struct Bundle {
    /// Path below the directory.
    pub path: String,
    pub bytes: Vec<u8>,
    /// Size of each length prefix in bytes: 2 or 4.
    pub length: usize,
    /// Whether the bundle belongs to the full tile.
    pub is_full: bool,
}

impl Bundle {
    /// Splits the next entry off the rest of the bundle's bytes. Returns none if it is truncated.
    pub fn split<'b>(&self, rest: &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
        let (length, after) = rest.split_at_checked(self.length)?;
        after.split_at_checked(length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    }
}

/// Iterator over leaf hashes, from position 1 on.
pub enum Leaves {
    Tiles { directory: Directory, size: u64, at: u64, tile: std::vec::IntoIter<Hash> },
    Export { pages: Receiver<Result<Vec<Hash>, ExportError>>, page: std::vec::IntoIter<Hash> },
}

impl Leaves {
    /// Reads from a directory of tiles, limited to a tree of this size.
    pub fn of_tiles(directory: Directory, size: u64) -> Leaves {
        Leaves::Tiles { directory, size, at: 0, tile: vec![].into_iter() }
    }

    /// Reads from an export of the log, which must begin at its first position.
    pub fn of_export(path: &Path) -> Leaves {
        let (sender, pages) = sync_channel(8);
        let path = path.to_owned();
        // The thread ends with the file, or when the receiver is gone.
        thread::spawn(move || {
            let hash = |text: &str| {
                let stored = line::read(text).map_err(|error| error.to_string())?;
                Ok((stored.position, leaf_hash(&stored.leaf().to_bytes())))
            };
            let mut last = 0;
            let read = read::each_page(&path, 1, hash, |page| {
                let gap = page.iter().zip(last + 1..).find(|((position, _), expected)| position != expected);
                if let Some((_, line)) = gap {
                    let problem = "an export to compare with must begin at position 1 and have no gaps".to_owned();
                    return Err(ExportError::Line { path: path.clone(), line: u64::try_from(line).unwrap_or_default(), problem });
                }
                last = page.last().map_or(last, |(position, _)| *position);
                let hashes = page.into_iter().map(|(_, hash)| hash).collect();
                sender.send(Ok(hashes)).map_err(|_| ExportError::Broken)
            });
            if let Err(error) = read {
                _ = sender.send(Err(error));
            }
        });
        Leaves::Export { pages, page: vec![].into_iter() }
    }

    /// Returns the next leaf's hash, or none after the last.
    pub fn next(&mut self) -> Result<Option<Hash>, OfflineError> {
        loop {
            match self {
                Leaves::Tiles { directory, size, at, tile } => {
                    if let Some(hash) = tile.next() {
                        return Ok(Some(hash));
                    }
                    let width = (*size - *at).min(u64::from(FULL));
                    if width == 0 {
                        return Ok(None);
                    }
                    let wanted = Tile { level: 0, index: *at / u64::from(FULL), width: u16::try_from(width).unwrap_or(FULL) };
                    *tile = directory.hashes(wanted)?.ok_or_else(|| OfflineError::Missing(wanted.path()))?.into_iter();
                    *at += width;
                }
                Leaves::Export { pages, page } => {
                    if let Some(hash) = page.next() {
                        return Ok(Some(hash));
                    }
                    let Ok(next) = pages.recv() else { return Ok(None) };
                    *page = next?.into_iter();
                }
            }
        }
    }
}
