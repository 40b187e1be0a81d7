//! Verifies a directory of tiles (C2SP `tlog-tiles`) against signed checkpoints. The hashes of the leaves must yield the
//! root, and every other tile must match those below it. Entries, if they exist, must have the leaves' hashes.

use std::path::{Path, PathBuf};

use ledger_events::{Position, ShardId};
use transparency_log::checkpoint::{CheckpointError, Trust};
use transparency_log::leaf::Leaf;
use transparency_log::merkle::{Hash, Node, leaf_hash};
use transparency_log::note::NoteError;
use transparency_log::tile::{FULL, Tile};

use super::claims::{Claim, Tree};
use super::leaves::{Bundle, Directory};
use super::structure::Structure;
use super::{Difference, Findings, OfflineError, Progress, Report, claim, claims, first_bad, name, unread};
use crate::export::tiles::{self, CHECKPOINT, CHECKPOINTS};
use crate::ledger::reader::Stored;

/// Opens the directory's own checkpoint. Reports an untrusted or invalid one as a finding.
pub fn checkpoint(directory: &Directory, trust: &Trust, findings: &mut Findings) -> Result<Option<Claim>, OfflineError> {
    let source = name(&directory.path().join(CHECKPOINT));
    let Some(note) = directory.read(CHECKPOINT)? else { return Err(OfflineError::Missing(source)) };
    Ok(claim(source, &String::from_utf8_lossy(&note), trust, findings))
}

/// Returns the older checkpoints in the directory. Everything that the log has signed must agree, whether cosigned or
/// not. A larger checkpoint than the directory's own shows that the end was cut off. With a quorum it is allowed, because
/// cosigned checkpoints lag behind. Checkpoints that cannot be compared are listed as unchecked: after a key rotation, no
/// given key has signed some of them.
pub fn kept(
    directory: &Directory,
    own: &Claim,
    trust: &Trust,
    findings: &mut Findings,
    unchecked: &mut Vec<String>,
) -> Result<Vec<Claim>, OfflineError> {
    let is_behind = trust.quorum > 0;
    let trust = Trust::in_keys(trust.keys.clone());
    let mut claims = vec![];
    for size in tiles::sizes(directory.path())? {
        let place = format!("{CHECKPOINTS}/{size}");
        let source = name(&directory.path().join(&place));
        let note = directory.read(&place)?.unwrap_or_default();
        let note = String::from_utf8_lossy(&note);
        if matches!(trust.open(&note), Err(CheckpointError::Note(NoteError::Unsigned))) {
            unchecked.push(format!("{source}: none of the given keys has signed it"));
            continue;
        }
        match claim(source, &note, &trust, findings) {
            Some(kept) if is_behind && kept.checkpoint.size > own.checkpoint.size => {
                unchecked.push(format!("{}: the copy's own checkpoint covers only {} events", kept.source, own.checkpoint.size));
            }
            kept => claims.extend(kept),
        }
    }
    Ok(claims)
}

/// Reports a directory whose own checkpoint is smaller than another one in it.
pub fn shrunk(directory: &Directory, own: &Claim, kept: &[Claim], findings: &mut Findings) {
    let greatest = kept.iter().map(|kept| kept.checkpoint.size).max().unwrap_or_default();
    if greatest > own.checkpoint.size {
        let last = Position::try_from(own.checkpoint.size).unwrap_or(Position::MAX);
        findings.add(Difference::Short { shard: shard_of(own), source: name(directory.path()), size: greatest, last });
    }
}

/// Returns the shard, which is the last part of an origin.
fn shard_of(claim: &Claim) -> ShardId {
    claim.checkpoint.origin.rsplit('/').next().and_then(|shard| shard.parse().ok()).unwrap_or_default()
}

/// Verifies a copy of a log's tiles. Blocks the thread.
///
/// # Errors
/// Returns an error when the directory has no checkpoint, or a file cannot be read.
pub fn verify_tiles(
    path: &Path,
    checkpoints: &[PathBuf],
    trust: &Trust,
    progress: &impl Fn(Progress),
) -> Result<Report, OfflineError> {
    let directory = Directory::new(path);
    let mut findings = Findings::default();
    let mut claims = claims(checkpoints, trust, &mut findings)?;
    let Some(own) = checkpoint(&directory, trust, &mut findings)? else {
        let (found, differences) = (findings.found, findings.differences);
        return Ok(Report {
            shard_id: None,
            events: 0,
            root: None,
            proven: 0,
            unproven: None,
            checkpoints: vec![],
            first_bad: None,
            found,
            differences,
            unchecked: vec!["everything: the copy's own checkpoint is invalid or not trusted".to_owned()],
        });
    };
    let mut unchecked = vec![];
    let kept = kept(&directory, &own, trust, &mut findings, &mut unchecked)?;
    let size = own.checkpoint.size;
    let shard = shard_of(&own);
    claims.push(own);
    for kept in kept {
        if !claims.iter().any(|known| known.checkpoint == kept.checkpoint) {
            claims.push(kept);
        }
    }
    let mut walk = TileCheck {
        shard,
        tree: Tree::new(shard, name(path), &claims, &mut findings),
        upper: vec![vec![]; usize::from(Tile::MAX_LEVEL)],
        structure: None,
        findings,
        has_entries: false,
        without_entries: vec![],
        unchecked,
    };
    for tile in Tile::all(size).take_while(|tile| tile.level == 0) {
        let Some(hashes) = directory.hashes(tile)? else {
            walk.findings.add(Difference::Tile { path: tile.path(), problem: "the tile is missing".to_owned() });
            break;
        };
        match directory.entries(tile)? {
            Some(bundle) => {
                walk.has_entries = true;
                walk.entries(tile, &bundle, &hashes);
            }
            None => walk.without_entries.push(tile),
        }
        walk.leaves(&hashes);
        let done = Position::try_from(walk.tree.size()).unwrap_or(Position::MAX);
        let total = Position::try_from(size).unwrap_or(Position::MAX);
        progress(Progress { stage: "tiles", shard, done, total });
    }
    walk.upper(&directory, size)?;
    walk.unchecked.extend(unread::in_words(&directory, size)?);
    Ok(walk.end())
}

struct TileCheck {
    shard: ShardId,
    tree: Tree,
    /// Expected hashes in the tiles of levels 1, 2 and so on.
    upper: Vec<Vec<Hash>>,
    /// Checks of the events in the entry bundles.
    structure: Option<Structure>,
    findings: Findings,
    has_entries: bool,
    /// Tiles of leaves without an entry bundle.
    without_entries: Vec<Tile>,
    unchecked: Vec<String>,
}

impl TileCheck {
    fn leaves(&mut self, hashes: &[Hash]) {
        let upper = &mut self.upper;
        for hash in hashes {
            self.tree.append(*hash, &mut self.findings, |Node { level, .. }, hash| {
                if level > 0
                    && level % 8 == 0
                    && let Some(tiles) = upper.get_mut(usize::from(level / 8 - 1))
                {
                    tiles.push(*hash);
                }
            });
        }
    }

    /// Compares the entries of one tile with its hashes.
    fn entries(&mut self, tile: Tile, bundle: &Bundle, hashes: &[Hash]) {
        let mut rest = &bundle.bytes[..];
        for (hash, number) in hashes.iter().zip(tile.index * u64::from(FULL) + 1..) {
            let position = Position::try_from(number).unwrap_or(Position::MAX);
            let Some((entry, after)) = bundle.split(rest) else {
                self.findings.add(Difference::Tile { path: bundle.path.clone(), problem: "the bundle is truncated".to_owned() });
                return;
            };
            rest = after;
            self.entry(entry, hash, position);
        }
        match rest {
            [] => {}
            // A full bundle has more entries than a partial tile.
            _ if bundle.is_full && tile.width < FULL => {
                self.unchecked.push(format!("{}: the entries after its first {}", bundle.path, tile.width));
            }
            _ => {
                let problem = "the bundle has extra bytes at its end".to_owned();
                self.findings.add(Difference::Tile { path: bundle.path.clone(), problem });
            }
        }
    }

    fn entry(&mut self, entry: &[u8], hash: &Hash, position: Position) {
        let leaf = Leaf::from_bytes(entry);
        let shard = self.shard;
        if leaf_hash(entry) != *hash {
            self.findings.add(Difference::Leaf { shard, source: "the tree".to_owned(), position });
        }
        match leaf {
            // After a missing bundle, the previous event is unknown.
            Ok(leaf) if leaf.position == position && !self.without_entries.is_empty() => {}
            Ok(leaf) if leaf.position == position => {
                let stored = Stored::from(leaf);
                self.structure.get_or_insert_with(|| Structure::new(shard)).step(&stored, &mut self.findings);
            }
            Ok(leaf) => {
                let problem = format!("position {position}: its entry states position {}", leaf.position);
                self.findings.add(Difference::Unreadable { shard, position, problem });
            }
            Err(error) => {
                let problem = format!("position {position}: {error}");
                self.findings.add(Difference::Unreadable { shard, position, problem });
            }
        }
    }

    /// Checks every tile above the leaves.
    fn upper(&mut self, directory: &Directory, size: u64) -> Result<(), OfflineError> {
        if self.tree.size() != size {
            return Ok(()); // missing tiles are reported already
        }
        for tile in Tile::all(size).filter(|tile| tile.level > 0) {
            let first = usize::try_from(tile.index * u64::from(FULL)).unwrap_or(usize::MAX);
            let made =
                self.upper.get(usize::from(tile.level - 1)).and_then(|row| row.get(first..first + usize::from(tile.width)));
            let problem = match directory.hashes(tile)? {
                Some(hashes) if made == Some(&hashes) => continue,
                Some(_) => "the tile does not match those below it",
                None => "the tile is missing",
            };
            self.findings.add(Difference::Tile { path: tile.path(), problem: problem.to_owned() });
        }
        Ok(())
    }

    fn end(mut self) -> Report {
        let (events, root, proven) = (self.tree.size(), self.tree.root(), self.tree.agreed());
        let checkpoints = self.tree.end(true, &mut self.findings);
        match self.without_entries.first() {
            None => {
                if let Some(structure) = &mut self.structure {
                    structure.end(&mut self.findings);
                }
            }
            // A copy without any entries is valid, for readers who may not see the events.
            Some(_) if !self.has_entries => {
                self.unchecked.push("the events themselves: the copy has no entry bundles".to_owned());
            }
            // A copy omits either all entry bundles or none.
            Some(first) => {
                let after = first.index * u64::from(FULL);
                self.unchecked
                    .push(format!("the order and versions of the events after position {after}: entry bundles are missing"));
                for tile in &self.without_entries {
                    let problem = "the bundle is missing, although others exist".to_owned();
                    self.findings.add(Difference::Tile { path: tile.entries_path(), problem });
                }
            }
        }
        // An entry can be wrong even though the leaves' hashes are proved.
        let first_bad = first_bad(proven, &self.findings);
        let (found, differences) = (self.findings.found, self.findings.differences);
        let (shard_id, root, unchecked) = (Some(self.shard), Some(root), self.unchecked);
        // A copy has only events that its own checkpoint covers.
        let unproven = None;
        Report { shard_id, events, root, proven, unproven, checkpoints, first_bad, found, differences, unchecked }
    }
}
