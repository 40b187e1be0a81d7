//! `log mirror`: copies the published log into files for offline verification, laid out as the service serves it.
//!
//! Every file is proved against the checkpoint, including files from an earlier run. Whatever the service returns, existing
//! files never change, and the copy never gets anything that is not in the tree of the checkpoint.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use transparency_log::checkpoint::Checkpoint;
use transparency_log::merkle::{Frontier, Hash, Node, leaf_hash, root, verify_consistency};
use transparency_log::note::Note;
use transparency_log::tile::{FULL, Tile};

use super::proof;
use crate::cli::client::Client;
use crate::cli::output::progress_bar;
use crate::export::tiles;

/// Maximum number of concurrent downloads.
const AT_ONCE: usize = 8;

/// Result of a copy.
#[derive(Debug)]
pub struct Mirrored {
    pub size: u64,
    /// Number of files that the copy did not have before.
    pub fetched: usize,
}

/// Copies the files of a checkpoint's tree that the directory does not have yet. The checkpoint itself is written last, so
/// that a directory with a checkpoint is complete. Earlier checkpoints stay in files named by their sizes.
///
/// # Errors
/// If a file cannot be fetched or written, or is not in the checkpoint's tree. Also if the checkpoint is not consistent with
/// the one in the directory. The caller must refuse a checkpoint that is smaller than the one in the directory.
pub async fn mirror(client: &Client, prefix: &str, note: &str, directory: &Path, with_entries: bool) -> anyhow::Result<Mirrored> {
    let parsed = Note::parse(note)?;
    let checkpoint = Checkpoint::parse(parsed.text())?;
    continues(client, prefix, directory, &checkpoint).await?;

    let tiles: Vec<Tile> = Tile::all(checkpoint.size).collect();
    let leaves = tiles.iter().filter(|tile| with_entries && tile.level == 0);
    let (edge, full): (Vec<&Tile>, Vec<&Tile>) = tiles.iter().partition(|tile| tile.width < FULL);
    let bar = progress_bar((tiles.len() + leaves.clone().count()) as u64);
    let mirror = Mirror { client, prefix, directory, bar, fetched: AtomicUsize::new(0) };
    mirror.edge(&edge, &checkpoint).await?;
    // From the top level down, because the tile above holds the hash of each full tile.
    for level in (0..=Tile::MAX_LEVEL).rev() {
        let tiles = full.iter().filter(|tile| tile.level == level);
        let proofs = tiles.map(|tile| mirror.full(**tile, checkpoint.size));
        stream::iter(proofs).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    }
    stream::iter(leaves.map(|tile| mirror.bundle(*tile))).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    mirror.bar.finish_and_clear();

    // Without the witnesses' signatures, which arrive one by one.
    let of_log = parsed.signatures.iter().filter(|signature| signature.name == checkpoint.origin).cloned().collect();
    let kept = Note::new(parsed.text().to_owned(), of_log)?.to_string();
    tiles::keep_checkpoint(directory, checkpoint.size, &kept)?;
    write(&directory.join(tiles::CHECKPOINT), note.as_bytes())?;
    Ok(Mirrored { size: checkpoint.size, fetched: mirror.fetched.into_inner() })
}

/// Checks that the log's checkpoint is consistent with the largest tree that the directory ever had.
async fn continues(client: &Client, prefix: &str, directory: &Path, checkpoint: &Checkpoint) -> anyhow::Result<()> {
    let Some(own) = tiles::greatest(directory)? else { return Ok(()) };
    let (from, to) = if own.size <= checkpoint.size { (&own, checkpoint) } else { (checkpoint, &own) };
    let proof =
        if from.size == to.size || from.size == 0 { vec![] } else { proof::between(client, prefix, from.size, to.size).await? };
    verify_consistency(from.size, &from.root, to.size, &to.root, &proof).with_context(|| {
        let (directory, own, new) = (directory.display(), own.size, checkpoint.size);
        format!("{directory} has a tree of {own} events that is not consistent with the log's tree of {new}: one of the two was changed")
    })
}

struct Mirror<'a> {
    client: &'a Client,
    prefix: &'a str,
    directory: &'a Path,
    bar: ProgressBar,
    fetched: AtomicUsize,
}

impl Mirror<'_> {
    /// Copies the tiles that are not full, and checks that they hash to the root of the tree.
    async fn edge(&self, tiles: &[&Tile], checkpoint: &Checkpoint) -> anyhow::Result<()> {
        let mut found = HashMap::new();
        for tile in tiles {
            found.insert(**tile, self.tile(**tile).await?);
        }
        let hash = |node: Node| {
            let tile = Tile::holding(node, checkpoint.size);
            let hash = found.get(&tile).and_then(|(hashes, _)| Tile::hash(node, hashes));
            hash.with_context(|| format!("{} is too short", tile.path()))
        };
        ensure!(root(checkpoint.size, hash)? == checkpoint.root, "the tiles do not hash to the root of the checkpoint");
        for (tile, (hashes, is_new)) in &found {
            self.proved(&tile.path(), hashes.as_flattened(), *is_new)?;
        }
        Ok(())
    }

    /// Copies a full tile, and checks it against its hash in the tile above.
    async fn full(&self, tile: Tile, size: u64) -> anyhow::Result<()> {
        let above = Node { level: (tile.level + 1) * 8, index: tile.index };
        let expected = Tile::hash(above, &self.read(Tile::holding(above, size))?);
        let (hashes, is_new) = self.tile(tile).await?;
        let mut found = Frontier::default();
        hashes.iter().for_each(|hash| found.append(*hash));
        ensure!(Some(found.root()) == expected, "{} is not in the tree of the checkpoint", tile.path());
        self.proved(&tile.path(), hashes.as_flattened(), is_new)
    }

    /// Copies the entries whose hashes a level-0 tile holds.
    async fn bundle(&self, tile: Tile) -> anyhow::Result<()> {
        let (short, long) = (tile.entries_path(), long(&tile.entries_path()));
        let (path, length, bytes, is_new) = match (self.kept(&short)?, self.kept(&long)?) {
            (Some(bytes), _) => (short, 2, bytes, false),
            (None, Some(bytes)) => (long, 4, bytes, false),
            (None, None) => match self.client.bytes(&format!("{}/{short}", self.prefix)).await? {
                Some(bytes) => (short, 2, bytes, true),
                None => {
                    let bytes = self.client.bytes(&format!("{}/{long}", self.prefix)).await?;
                    (long, 4, bytes.with_context(|| format!("the log does not have {short}"))?, true)
                }
            },
        };
        let mut rest = &bytes[..];
        for hash in self.read(tile)? {
            let entry = rest.split_at_checked(length).and_then(|(length, after)| {
                after.split_at_checked(length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
            });
            let (entry, after) = entry.with_context(|| format!("{path} ends too soon"))?;
            ensure!(leaf_hash(entry) == hash, "{path} has an event that is not in the tree of the checkpoint");
            rest = after;
        }
        ensure!(rest.is_empty(), "{path} has trailing bytes");
        self.proved(&path, &bytes, is_new)
    }

    /// Counts a proved file, and writes it if it is new.
    fn proved(&self, path: &str, bytes: &[u8], is_new: bool) -> anyhow::Result<()> {
        self.bar.inc(1);
        if !is_new {
            return Ok(());
        }
        self.fetched.fetch_add(1, Ordering::Relaxed);
        write(&self.directory.join(path), bytes)
    }

    /// Returns a tile from the directory or else from the log, and whether it is new.
    async fn tile(&self, tile: Tile) -> anyhow::Result<(Vec<Hash>, bool)> {
        match self.directory.join(tile.path()).exists() {
            true => Ok((self.read(tile)?, false)),
            false => Ok((self.fetch(tile).await?, true)),
        }
    }

    /// Reads a file of the copy. Returns none if it does not exist.
    fn kept(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let path = self.directory.join(path);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    async fn fetch(&self, tile: Tile) -> anyhow::Result<Vec<Hash>> {
        let path = tile.path();
        let bytes = self.client.bytes(&format!("{}/{path}", self.prefix)).await?;
        hashes_of(tile, &bytes.with_context(|| format!("the log does not have {path}"))?)
    }

    fn read(&self, tile: Tile) -> anyhow::Result<Vec<Hash>> {
        let path = self.directory.join(tile.path());
        hashes_of(tile, &std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?)
    }
}

fn hashes_of(tile: Tile, bytes: &[u8]) -> anyhow::Result<Vec<Hash>> {
    match bytes.as_chunks::<32>() {
        (hashes, []) if hashes.len() == usize::from(tile.width) => Ok(hashes.to_vec()),
        _ => bail!("{} has {} bytes", tile.path(), bytes.len()),
    }
}

/// Returns the path of the bundle variant for entries that are too long for the 2-byte length prefix.
fn long(path: &str) -> String {
    path.replacen("tile/entries/", "tile/entries32/", 1)
}

/// Writes a file atomically.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let parent = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        std::fs::create_dir_all(&parent)?;
        let mut file = tempfile::NamedTempFile::new_in(&parent)?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        std::io::Result::Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
