//! Verifies an export against signed checkpoints.

use std::path::{Path, PathBuf};

use ledger_events::{Position, ShardId};
use transparency_log::checkpoint::Trust;
use transparency_log::merkle::{Hash, leaf_hash};

use super::claims::{Claim, Tree};
use super::leaves::{Directory, Leaves};
use super::structure::Structure;
use super::{Compared, Difference, Findings, OfflineError, Progress, Report, claim, claims, first_bad, name, threads, tiles};
use crate::export::{Manifest, Selection, line, manifest, read};
use crate::ledger::reader::Stored;

/// Files for the verification of an export.
#[derive(Clone, Debug, Default)]
pub struct ExportInputs {
    pub export: PathBuf,
    /// Files with signed checkpoints, in addition to those of the manifest and of the tiles.
    pub checkpoints: Vec<PathBuf>,
    /// Directory of the log's tiles. With tiles, the verification names the exact events that differ.
    pub tiles: Option<PathBuf>,
    /// An earlier export of the whole log, which also lets the verification name the exact events that differ.
    pub earlier: Option<PathBuf>,
    /// Expect only a part of the log, even if the manifest says otherwise or is missing.
    pub is_part: bool,
}

/// A source of leaves to compare the export's with.
struct Reference {
    source: String,
    leaves: Leaves,
    tree: Tree,
    /// Differences between the reference's own tree and the checkpoints.
    own: Findings,
    /// Leaves that differ from the export's.
    differing: Findings,
    /// Position up to which the export has the same leaves.
    same: u64,
}

impl Reference {
    fn new(shard: ShardId, source: String, leaves: Leaves, claims: &[Claim]) -> Reference {
        let mut own = Findings::default();
        let tree = Tree::new(shard, source.clone(), claims, &mut own);
        Reference { source, leaves, tree, own, differing: Findings::default(), same: 0 }
    }

    /// Returns the leaf at a position, or none if the reference ends before. Positions must be requested in ascending
    /// order.
    fn at(&mut self, position: u64) -> Result<Option<Hash>, OfflineError> {
        while let Some(leaf) = self.leaves.next()? {
            self.tree.append(leaf, &mut self.own, |_, _| {});
            if self.tree.size() == position {
                return Ok(Some(leaf));
            }
        }
        Ok(None)
    }

    /// Compares the leaf at a position, unless the reference ends before. Positions that a part leaves out are not a
    /// difference.
    fn compare(&mut self, shard: ShardId, position: Position, leaf: &Hash, is_part: bool) -> Result<(), OfflineError> {
        let position_of_leaf = u64::try_from(position).unwrap_or_default();
        let Some(theirs) = self.at(position_of_leaf)? else { return Ok(()) };
        if theirs != *leaf {
            if is_part && self.differing.found == 0 {
                self.same = position_of_leaf.saturating_sub(1);
            }
            self.differing.add(Difference::Leaf { shard, source: self.source.clone(), position });
        } else if self.differing.found == 0 && (is_part || position_of_leaf == self.same + 1) {
            self.same = position_of_leaf;
        }
        Ok(())
    }
}

/// State of the verification of an export.
struct Verification {
    shard: ShardId,
    is_part: bool,
    /// Selection of a part, according to its manifest.
    selection: Option<Selection>,
    /// Last position of a part without gaps.
    to: Option<Position>,
    structure: Structure,
    tree: Tree,
    /// Whether there was no gap so far, so that the tree is the log's.
    is_unbroken: bool,
    references: Vec<Reference>,
    findings: Findings,
    events: u64,
    last: Position,
}

/// Verifies an export of the whole log, or of a part of it if the tiles are given. Blocks the thread.
///
/// # Errors
/// Returns an error when there is no checkpoint or reference to verify with, when a file cannot be read, or when a line
/// is malformed.
pub fn verify_export(inputs: &ExportInputs, trust: &Trust, progress: &impl Fn(Progress)) -> Result<Report, OfflineError> {
    let mut findings = Findings::default();
    let mut claims = claims(&inputs.checkpoints, trust, &mut findings)?;
    let manifest = Manifest::of(&inputs.export)?;
    if let Some(found) = &manifest {
        let source = name(&manifest::path_of(&inputs.export));
        if !found.describes(&inputs.export).map_err(|source| read_error(&inputs.export, source))? {
            findings.add(Difference::Note { source: source.clone(), problem: "it does not match the export".to_owned() });
        }
        claims.extend(found.checkpoint.as_ref().and_then(|note| claim(source, note, trust, &mut findings)));
    }
    let directory = inputs.tiles.as_deref().map(Directory::new);
    let of_tiles = directory.as_ref().map(|directory| tiles::checkpoint(directory, trust, &mut findings)).transpose()?.flatten();
    claims.extend(of_tiles.clone());
    let mut unchecked = vec![];
    if let (Some(directory), Some(own)) = (&directory, &of_tiles) {
        let kept = tiles::kept(directory, own, trust, &mut findings, &mut unchecked)?;
        tiles::shrunk(directory, own, &kept, &mut findings);
        claims.extend(
            kept.into_iter().filter(|kept| !claims.iter().any(|known| known.checkpoint == kept.checkpoint)).collect::<Vec<_>>(),
        );
    }
    let selection = manifest.as_ref().map(|manifest| (&manifest.selection, manifest.head));
    let is_part = inputs.is_part || selection.is_some_and(|(part, head)| part.has_gaps() || part.from > 1 || part.to < head);
    if is_part && of_tiles.is_none() {
        return Err(OfflineError::Part);
    }
    if claims.is_empty() && findings.found == 0 {
        return Err(OfflineError::NoCheckpoint);
    }
    match &manifest {
        Some(manifest) if is_part => {
            let asked = &manifest.selection;
            unchecked
                .push(format!("the events that it lacks: it is a part according to its manifest ({asked}), which is not signed"));
        }
        None if is_part => unchecked.push("the events that it lacks: nothing states which part of the log it is".to_owned()),
        _ => {}
    }
    let selection_of_part = manifest.as_ref().filter(|_| is_part).map(|manifest| manifest.selection.clone());
    // Range that a part without gaps must contain completely.
    let whole_of = selection.filter(|(part, _)| is_part && !part.has_gaps()).map(|(part, head)| (part.from, part.to.min(head)));
    let total = manifest.as_ref().and_then(|manifest| manifest.last).unwrap_or_default();
    let references = |shard| {
        let mut references = vec![];
        if let (Some(directory), Some(claim)) = (&directory, &of_tiles) {
            let leaves = Leaves::of_tiles(directory.clone(), claim.checkpoint.size);
            references.push(Reference::new(shard, name(directory.path()), leaves, &claims));
        }
        if let Some(earlier) = &inputs.earlier {
            references.push(Reference::new(shard, name(earlier), Leaves::of_export(earlier), &claims));
        }
        references
    };
    let mut verification: Option<Verification> = None;
    let source = name(&inputs.export);
    read::each_page(&inputs.export, threads(), parse, |page| -> Result<(), OfflineError> {
        for (stored, leaf) in page {
            let verification = verification.get_or_insert_with(|| {
                let shard = stored.shard_id;
                let mut findings = std::mem::take(&mut findings);
                let tree_claims: &[Claim] = if is_part { &[] } else { &claims };
                let tree = Tree::new(shard, source.clone(), tree_claims, &mut findings);
                let (structure, references) = (Structure::new(shard), references(shard));
                let (to, last) = (whole_of.map(|(_, to)| to), whole_of.map_or(0, |(from, _)| from - 1));
                Verification {
                    shard,
                    is_part,
                    selection: selection_of_part.clone(),
                    to,
                    structure,
                    tree,
                    is_unbroken: true,
                    references,
                    findings,
                    events: 0,
                    last,
                }
            });
            verification.step(&stored, leaf)?;
        }
        if let Some(Verification { shard, last, .. }) = &verification {
            progress(Progress { stage: "verify", shard: *shard, done: *last, total: total.max(*last) });
        }
        Ok(())
    })?;
    let last = verification.as_ref().map_or(0, |verification| verification.last);
    let verified = match verification {
        Some(verification) => verification.end()?,
        // The export is empty, so everything that was signed is missing.
        None => {
            if let (Some((from, to)), Some((part, _))) = (whole_of.filter(|(from, to)| from <= to), selection) {
                findings.add(Difference::Gap { shard: part.shard_id, after: from - 1, next: to + 1 });
            }
            let tree = Tree::new(0, source, &claims, &mut findings);
            let checkpoints = tree.end(!is_part, &mut findings);
            report(None, 0, 0, checkpoints, findings)
        }
    };
    let mut report = Report { unchecked, ..verified };
    // In a part, unproven events are a finding already.
    let covered = claims.iter().map(|claim| claim.checkpoint.size).max().unwrap_or_default();
    let covered = Position::try_from(covered).unwrap_or(Position::MAX);
    if !is_part && last > covered {
        report.unproven = Some((covered + 1, last));
        report.unchecked.push(format!("positions {} to {last}: no given checkpoint covers them", covered + 1));
    }
    Ok(report)
}

fn read_error(path: &Path, source: std::io::Error) -> OfflineError {
    crate::export::ExportError::File { path: path.to_owned(), source }.into()
}

fn parse(text: &str) -> Result<(Stored, Hash), String> {
    let stored = line::read(text).map_err(|error| error.to_string())?;
    let leaf = leaf_hash(&stored.leaf().to_bytes());
    Ok((stored, leaf))
}

impl Verification {
    fn step(&mut self, stored: &Stored, leaf: Hash) -> Result<(), OfflineError> {
        self.events += 1;
        if self.is_part {
            return self.step_of_part(stored, &leaf);
        }
        let before = self.structure.last();
        self.structure.step(stored, &mut self.findings);
        // An event that is out of order is reported already, and is not compared.
        if self.structure.last() != stored.position || before == stored.position || stored.shard_id != self.shard {
            self.is_unbroken = false;
            return Ok(());
        }
        self.last = stored.position;
        self.is_unbroken &= stored.position == before + 1;
        if self.is_unbroken {
            self.tree.append(leaf, &mut self.findings, |_, _| {});
        }
        self.compare(stored.position, &leaf)
    }

    /// Checks an event of a part. Other events may lie between two of its events if it was selected by more than
    /// positions.
    fn step_of_part(&mut self, stored: &Stored, leaf: &Hash) -> Result<(), OfflineError> {
        let (shard, position) = (self.shard, stored.position);
        if stored.shard_id != shard {
            let problem = format!("position {position}: the event belongs to shard {}", stored.shard_id);
            self.findings.add(Difference::Unreadable { shard, position, problem });
        } else if position <= self.last {
            self.findings.add(Difference::Order { shard, after: self.last, next: position });
        } else {
            if self.to.is_some() && position > self.last + 1 {
                self.findings.add(Difference::Gap { shard, after: self.last, next: position });
            }
            self.last = position;
            if self.selection.as_ref().is_some_and(|selection| !selection.has(stored)) {
                let problem = format!("position {position}: it does not belong to the part that the manifest describes");
                self.findings.add(Difference::Unreadable { shard, position, problem });
            }
            if let Err(error) = stored.decode() {
                self.findings.add(Difference::Unreadable { shard, position, problem: error.to_string() });
            }
            self.compare(position, leaf)?;
        }
        Ok(())
    }

    fn compare(&mut self, position: Position, leaf: &Hash) -> Result<(), OfflineError> {
        let Verification { shard, is_part, .. } = *self;
        for reference in &mut self.references {
            reference.compare(shard, position, leaf, is_part)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<Report, OfflineError> {
        let mut findings = self.findings;
        if !self.is_part {
            self.structure.end(&mut findings);
        }
        if let Some(to) = self.to.filter(|to| self.last < *to) {
            findings.add(Difference::Gap { shard: self.shard, after: self.last, next: to + 1 });
        }
        // After a gap, the checkpoints beyond it cannot be compared; the gap itself is reported.
        let is_whole = !self.is_part && self.is_unbroken;
        let (root, proven) = (self.tree.root(), self.tree.agreed());
        let (mut same, mut signed) = (proven, 0);
        for reference in &mut self.references {
            // Read the reference to its end, to see how far it agrees with the checkpoints.
            while reference.at(u64::MAX)?.is_some() {}
            signed = signed.max(reference.tree.compared_upto());
            // A history that was signed again contradicts the kept checkpoints, but not the events that are the same in
            // both.
            same = same.max(reference.same.min(reference.tree.agreed_apart_from(&self.tree)));
        }
        let mut checkpoints = self.tree.end(is_whole, &mut findings);
        for reference in self.references {
            findings.extend(reference.own.differences);
            // Where the export agrees with the checkpoints, the reference is the one that is wrong.
            let is_unproven =
                |leaf: &Difference| leaf.positions().is_some_and(|(at, _)| u64::try_from(at).is_ok_and(|at| at > proven));
            findings.extend(reference.differing.differences.into_iter().filter(is_unproven));
            if self.is_part {
                checkpoints = reference.tree.end(false, &mut findings);
            }
        }
        // Leaves of a reference beyond the last checkpoint that it reaches are not signed.
        let signed = Position::try_from(signed).unwrap_or(Position::MAX);
        if self.is_part && self.last > signed {
            let problem =
                format!("it ends at position {}, but nothing after position {signed} is proved: use newer tiles", self.last);
            findings.add(Difference::Note { source: "the part".to_owned(), problem });
        }
        let first_bad = first_bad(same, &findings);
        let proven = if self.is_part { 0 } else { same };
        Ok(Report {
            root: is_whole.then_some(root),
            first_bad,
            ..report(Some(self.shard), self.events, proven, checkpoints, findings)
        })
    }
}

/// Builds a report without a root and without the position of the first bad event.
fn report(shard_id: Option<ShardId>, events: u64, proven: u64, checkpoints: Vec<Compared>, findings: Findings) -> Report {
    let Findings { found, differences } = findings;
    let (root, unproven, first_bad, unchecked) = (None, None, None, vec![]);
    Report { shard_id, events, root, proven, unproven, checkpoints, first_bad, found, differences, unchecked }
}
