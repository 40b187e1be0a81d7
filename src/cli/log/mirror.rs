//! `log mirror`: the published log as files, laid out as it is served, for who verifies it offline.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use ledger_events::merkle::{Hash, Node, root};
use ledger_events::tile::{FULL, Tile};

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
/// When something cannot be fetched or written, the tiles do not have the checkpoint's root, or the directory has
/// another checkpoint of its size. A smaller one than it has is for the caller to refuse.
pub async fn mirror(client: &Client, prefix: &str, note: &str, directory: &Path, with_entries: bool) -> anyhow::Result<Mirrored> {
    let parsed = Note::parse(note)?;
    let checkpoint = Checkpoint::parse(parsed.text())?;
    let mut wanted: Vec<(String, Tile)> = vec![];
    for tile in Tile::all(checkpoint.size) {
        wanted.push((tile.path(), tile));
        if with_entries && tile.level == 0 {
            wanted.push((tile.entries_path(), tile));
        }
    }
    // What is there is whole: a file gets its name when it is.
    wanted.retain(|(path, _)| !directory.join(path).exists() && !directory.join(long(path)).exists());
    let bar = progress_bar(wanted.len() as u64);
    let fetched = wanted.len();
    let fetch = |(path, tile): (String, Tile)| {
        let bar = bar.clone();
        async move {
            one(client, prefix, directory, &path, tile).await?;
            bar.inc(1);
            anyhow::Ok(())
        }
    };
    stream::iter(wanted).map(fetch).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    bar.finish_and_clear();
    let found = root(checkpoint.size, |node| hash(directory, node, checkpoint.size))?;
    if found != checkpoint.root {
        bail!("the tiles do not have the root of the checkpoint");
    }
    // Without the witnesses' signatures, which come one by one.
    let of_log = parsed.signatures.iter().filter(|signature| signature.name == checkpoint.origin).cloned().collect();
    let kept = Note::new(parsed.text().to_owned(), of_log)?.to_string();
    tiles::keep_checkpoint(directory, checkpoint.size, &kept)?;
    write(&directory.join(tiles::CHECKPOINT), note.as_bytes())?;
    Ok(Mirrored { size: checkpoint.size, fetched })
}

/// Where a bundle with an entry that is too long for it is served instead.
fn long(path: &str) -> String {
    path.replacen("tile/entries/", "tile/entries32/", 1)
}

async fn one(client: &Client, prefix: &str, directory: &Path, path: &str, tile: Tile) -> anyhow::Result<()> {
    let Some(bytes) = client.bytes(&format!("{prefix}/{path}")).await? else {
        let long = long(path);
        let bytes = if long == path { None } else { client.bytes(&format!("{prefix}/{long}")).await? };
        return write(&directory.join(&long), &bytes.with_context(|| format!("the log does not have {path}"))?);
    };
    if path == tile.path() && bytes.len() != usize::from(tile.width) * size_of::<Hash>() {
        bail!("{path} has {} bytes", bytes.len());
    }
    write(&directory.join(path), &bytes)
}

/// Whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let parent = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        std::fs::create_dir_all(&parent)?;
        let mut file = tempfile::NamedTempFile::new_in(&parent)?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.persist(path).map_err(|error| error.error)?;
        std::io::Result::Ok(())
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

fn hash(directory: &Path, node: Node, size: u64) -> anyhow::Result<Hash> {
    let tile = Tile::holding(node, size);
    let bytes = std::fs::read(directory.join(tile.path())).with_context(|| format!("{} cannot be read", tile.path()))?;
    let hashes = bytes.as_chunks::<32>().0;
    let found = if hashes.len() <= usize::from(FULL) { Tile::hash(node, hashes) } else { None };
    found.with_context(|| format!("{} is too short", tile.path()))
}
