//! `log mirror`: the published log as files, laid out as it is served, for who verifies it offline.
//!
//! Every file is proved, those that are there already, too: whatever the service answers, what the copy has does not
//! change, and nothing comes into it that is not in the tree of the checkpoint.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use ledger_events::merkle::{Frontier, Hash, Node, leaf_hash, root, verify_consistency};
use ledger_events::tile::{FULL, Tile};

use super::proof;
use crate::cli::client::Client;
use crate::cli::output::progress_bar;
use crate::export::tiles;
use crate::transparency::checkpoint::Checkpoint;
use crate::transparency::note::Note;

/// Files that are fetched at once.
const AT_ONCE: usize = 8;

/// What was copied.
#[derive(Debug)]
pub struct Mirrored {
    pub size: u64,
    /// Files that were not there before.
    pub fetched: usize,
}

/// Copies what the directory does not have yet of the tree of a checkpoint; the checkpoint itself
/// comes last, so that a directory that has one is whole. Those of before stay under their sizes.
///
/// # Errors
/// When something cannot be fetched or written, or is not in the checkpoint's tree, or the checkpoint does not go on from
/// the one that the directory has. A smaller one than it has is for the caller to refuse.
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
    // From the top: the hash of a full tile stands in the one above.
    for level in (0..=Tile::MOST_LEVEL).rev() {
        let tiles = full.iter().filter(|tile| tile.level == level);
        let proofs = tiles.map(|tile| mirror.full(**tile, checkpoint.size));
        stream::iter(proofs).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    }
    stream::iter(leaves.map(|tile| mirror.bundle(*tile))).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    mirror.bar.finish_and_clear();

    // Without the witnesses' signatures, which come one by one.
    let of_log = parsed.signatures.iter().filter(|signature| signature.name == checkpoint.origin).cloned().collect();
    let kept = Note::new(parsed.text().to_owned(), of_log)?.to_string();
    tiles::keep_checkpoint(directory, checkpoint.size, &kept)?;
    write(&directory.join(tiles::CHECKPOINT), note.as_bytes())?;
    Ok(Mirrored { size: checkpoint.size, fetched: mirror.fetched.into_inner() })
}

/// Whether the log and all that the directory ever had of it have one past.
async fn continues(client: &Client, prefix: &str, directory: &Path, checkpoint: &Checkpoint) -> anyhow::Result<()> {
    let Some(own) = tiles::greatest(directory)? else { return Ok(()) };
    let (from, to) = if own.size <= checkpoint.size { (&own, checkpoint) } else { (checkpoint, &own) };
    let proof =
        if from.size == to.size || from.size == 0 { vec![] } else { proof::between(client, prefix, from.size, to.size).await? };
    verify_consistency(from.size, &from.root, to.size, &to.root, &proof).with_context(|| {
        let (directory, own, new) = (directory.display(), own.size, checkpoint.size);
        format!("{directory} has a tree of {own} events, and the log's of {new} is of another past: one of the two was changed")
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
    /// The tiles that are not full. Together they make the tree's root.
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
        ensure!(root(checkpoint.size, hash)? == checkpoint.root, "the tiles do not have the root of the checkpoint");
        for (tile, (hashes, is_new)) in &found {
            self.proved(&tile.path(), hashes.as_flattened(), *is_new)?;
        }
        Ok(())
    }

    /// A full tile, whose hash the one above it has.
    async fn full(&self, tile: Tile, size: u64) -> anyhow::Result<()> {
        let above = Node { level: (tile.level + 1) * 8, index: tile.index };
        let expected = Tile::hash(above, &self.read(Tile::holding(above, size))?);
        let (hashes, is_new) = self.tile(tile).await?;
        let mut found = Frontier::default();
        hashes.iter().for_each(|hash| found.append(*hash));
        ensure!(Some(found.root()) == expected, "{} is not in the tree of the checkpoint", tile.path());
        self.proved(&tile.path(), hashes.as_flattened(), is_new)
    }

    /// The entries that a tile of level 0 has the hashes of.
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
        ensure!(rest.is_empty(), "{path} goes on after its end");
        self.proved(&path, &bytes, is_new)
    }

    /// A file that was proved, and is written if it is new.
    fn proved(&self, path: &str, bytes: &[u8], is_new: bool) -> anyhow::Result<()> {
        self.bar.inc(1);
        if !is_new {
            return Ok(());
        }
        self.fetched.fetch_add(1, Ordering::Relaxed);
        write(&self.directory.join(path), bytes)
    }

    /// The tile that is there, or the log's; and whether it is new.
    async fn tile(&self, tile: Tile) -> anyhow::Result<(Vec<Hash>, bool)> {
        match self.directory.join(tile.path()).exists() {
            true => Ok((self.read(tile)?, false)),
            false => Ok((self.fetch(tile).await?, true)),
        }
    }

    /// A file, if it is there.
    fn kept(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let path = self.directory.join(path);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    async fn fetch(&self, tile: Tile) -> anyhow::Result<Vec<Hash>> {
        let path = tile.path();
        let bytes = self.client.bytes(&format!("{}/{path}", self.prefix)).await?;
        hashes_of(tile, &bytes.with_context(|| format!("the log does not have {path}"))?)
    }

    fn read(&self, tile: Tile) -> anyhow::Result<Vec<Hash>> {
        let path = self.directory.join(tile.path());
        hashes_of(tile, &std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?)
    }
}

fn hashes_of(tile: Tile, bytes: &[u8]) -> anyhow::Result<Vec<Hash>> {
    match bytes.as_chunks::<32>() {
        (hashes, []) if hashes.len() == usize::from(tile.width) => Ok(hashes.to_vec()),
        _ => bail!("{} has {} bytes", tile.path(), bytes.len()),
    }
}

/// Where a bundle with an entry that is too long for it is served instead.
fn long(path: &str) -> String {
    path.replacen("tile/entries/", "tile/entries32/", 1)
}

/// Whole or not at all.
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
    write().with_context(|| format!("{} cannot be written", path.display()))
}
