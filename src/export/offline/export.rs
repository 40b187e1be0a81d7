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

/// Everything to verify an export with, and the findings about it.
struct Evidence<'i> {
    inputs: &'i ExportInputs,
    manifest: Option<Manifest>,
    claims: Vec<Claim>,
    /// Directory of the log's tiles, and their own checkpoint.
    tiles: Option<(Directory, Option<Claim>)>,
    is_part: bool,
    unchecked: Vec<String>,
    findings: Findings,
}

impl Evidence<'_> {
    fn gather<'i>(inputs: &'i ExportInputs, trust: &Trust) -> Result<Evidence<'i>, OfflineError> {
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
        let mut evidence = Evidence { inputs, manifest, claims, tiles: None, is_part: false, unchecked: vec![], findings };
        evidence.add_tiles(trust)?;
        evidence.is_part = inputs.is_part
            || evidence
                .manifest
                .as_ref()
                .is_some_and(|Manifest { selection: part, head, .. }| part.has_gaps() || part.from > 1 || part.to < *head);
        if evidence.is_part && evidence.of_tiles().is_none() {
            return Err(OfflineError::Part);
        }
        if evidence.claims.is_empty() && evidence.findings.found == 0 {
            return Err(OfflineError::NoCheckpoint);
        }
        evidence.note_gaps();
        Ok(evidence)
    }

    /// Reads the tiles' checkpoints.
    fn add_tiles(&mut self, trust: &Trust) -> Result<(), OfflineError> {
        let Some(directory) = self.inputs.tiles.as_deref().map(Directory::new) else { return Ok(()) };
        let own = tiles::checkpoint(&directory, trust, &mut self.findings)?;
        self.claims.extend(own.clone());
        if let Some(own) = &own {
            let kept = tiles::kept(&directory, own, trust, &mut self.findings, &mut self.unchecked)?;
            tiles::shrunk(&directory, own, &kept, &mut self.findings);
            let is_known = |kept: &Claim| self.claims.iter().any(|known| known.checkpoint == kept.checkpoint);
            let new: Vec<Claim> = kept.into_iter().filter(|kept| !is_known(kept)).collect();
            self.claims.extend(new);
        }
        self.tiles = Some((directory, own));
        Ok(())
    }

    /// Notes the events of the log that a part lacks, which nothing can check.
    fn note_gaps(&mut self) {
        if !self.is_part {
            return;
        }
        self.unchecked.push(match &self.manifest {
            Some(Manifest { selection: asked, .. }) => {
                format!("the events that it lacks: it is a part according to its manifest ({asked}), which is not signed")
            }
            None => "the events that it lacks: nothing states which part of the log it is".to_owned(),
        });
    }

    fn of_tiles(&self) -> Option<&Claim> {
        self.tiles.as_ref().and_then(|(_, own)| own.as_ref())
    }

    /// Returns the first and the last position that a part without gaps must contain completely.
    fn whole_of(&self) -> Option<(Position, Position)> {
        let Manifest { selection: part, head, .. } = self.manifest.as_ref()?;
        (self.is_part && !part.has_gaps()).then(|| (part.from, part.to.min(*head)))
    }

    fn references(&self, shard: ShardId) -> Vec<Reference> {
        let mut references = vec![];
        if let Some((directory, Some(claim))) = &self.tiles {
            let leaves = Leaves::of_tiles(directory.clone(), claim.checkpoint.size);
            references.push(Reference::new(shard, name(directory.path()), leaves, &self.claims));
        }
        if let Some(earlier) = &self.inputs.earlier {
            references.push(Reference::new(shard, name(earlier), Leaves::of_export(earlier), &self.claims));
        }
        references
    }

    /// Begins the verification of a shard's events. It takes the findings so far.
    fn verification(&mut self, shard: ShardId) -> Verification {
        let mut findings = std::mem::take(&mut self.findings);
        let claims: &[Claim] = if self.is_part { &[] } else { &self.claims };
        let tree = Tree::new(shard, name(&self.inputs.export), claims, &mut findings);
        let whole_of = self.whole_of();
        Verification {
            shard,
            is_part: self.is_part,
            selection: self.manifest.as_ref().filter(|_| self.is_part).map(|manifest| manifest.selection.clone()),
            to: whole_of.map(|(_, to)| to),
            structure: Structure::new(shard),
            tree,
            is_unbroken: true,
            references: self.references(shard),
            findings,
            events: 0,
            last: whole_of.map_or(0, |(from, _)| from - 1),
        }
    }

    /// Reports on an export without events: everything that was signed is missing.
    fn of_nothing(&mut self) -> Report {
        let mut findings = std::mem::take(&mut self.findings);
        if let (Some((from, to)), Some(manifest)) = (self.whole_of().filter(|(from, to)| from <= to), &self.manifest) {
            findings.add(Difference::Gap { shard: manifest.selection.shard_id, after: from - 1, next: to + 1 });
        }
        let tree = Tree::new(0, name(&self.inputs.export), &self.claims, &mut findings);
        let checkpoints = tree.end(!self.is_part, &mut findings);
        report(None, 0, 0, checkpoints, findings)
    }

    /// Completes a report with what no checkpoint covers.
    fn complete(self, verified: Report, last: Position) -> Report {
        let mut report = Report { unchecked: self.unchecked, ..verified };
        // In a part, unproven events are a finding already.
        let covered = self.claims.iter().map(|claim| claim.checkpoint.size).max().unwrap_or_default();
        let covered = Position::try_from(covered).unwrap_or(Position::MAX);
        if !self.is_part && last > covered {
            report.unproven = Some((covered + 1, last));
            report.unchecked.push(format!("positions {} to {last}: no given checkpoint covers them", covered + 1));
        }
        report
    }
}

/// Verifies an export of the whole log, or of a part of it if the tiles are given. Blocks the thread.
///
/// # Errors
/// Returns an error when there is no checkpoint or reference to verify with. Also fails when a file cannot be read, or
/// when a line is malformed.
pub fn verify_export(inputs: &ExportInputs, trust: &Trust, progress: &impl Fn(Progress)) -> Result<Report, OfflineError> {
    let mut evidence = Evidence::gather(inputs, trust)?;
    let total = evidence.manifest.as_ref().and_then(|manifest| manifest.last).unwrap_or_default();
    let mut verification: Option<Verification> = None;
    read::each_page(&inputs.export, threads(), parse, |page| -> Result<(), OfflineError> {
        for (stored, leaf) in page {
            verification.get_or_insert_with(|| evidence.verification(stored.shard_id)).step(&stored, leaf)?;
        }
        if let Some(Verification { shard, last, .. }) = &verification {
            progress(Progress { stage: "verify", shard: *shard, done: *last, total: total.max(*last) });
        }
        Ok(())
    })?;
    let last = verification.as_ref().map_or(0, |verification| verification.last);
    let verified = match verification {
        Some(verification) => verification.end()?,
        None => evidence.of_nothing(),
    };
    Ok(evidence.complete(verified, last))
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
