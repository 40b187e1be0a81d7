//! Compares signed checkpoints with the actual events: grows a tree leaf by leaf, and compares it with every checkpoint
//! when it reaches the checkpoint's size.

use ledger_events::{Position, ShardId};
use serde::Serialize;
use transparency_log::checkpoint::Checkpoint;
use transparency_log::merkle::{Frontier, Hash, Node};

use crate::audit::{Difference, Findings};

/// A signed checkpoint, with the file that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the file, as findings show it.
    pub source: String,
    pub checkpoint: Checkpoint,
}

/// Result of comparing a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Name of the file that contains the checkpoint.
    pub checkpoint: String,
    pub size: u64,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Agrees,
    Differs,
    /// There are fewer events than the checkpoint covers.
    Beyond,
}

/// A growing Merkle tree with the checkpoints to compare it with.
#[derive(Debug)]
pub struct Tree {
    shard: ShardId,
    /// Name of the leaves' origin, as findings show it.
    source: String,
    frontier: Frontier,
    /// Checkpoints in ascending order of their size.
    claims: Vec<Claim>,
    compared: Vec<Compared>,
    agreed: u64,
}

impl Tree {
    pub fn new(shard: ShardId, source: String, claims: &[Claim], findings: &mut Findings) -> Tree {
        let mut claims = claims.to_vec();
        claims.sort_by_key(|claim| claim.checkpoint.size);
        let mut tree = Tree { shard, source, frontier: Frontier::default(), claims, compared: vec![], agreed: 0 };
        tree.compare(findings);
        tree
    }

    /// Appends a leaf. `note` is called with every subtree that the leaf completes.
    pub fn append(&mut self, leaf: Hash, findings: &mut Findings, note: impl FnMut(Node, &Hash)) {
        self.frontier.append_noting(leaf, note);
        self.compare(findings);
    }

    /// Compares all checkpoints of the current size. If two of them contradict each other, the tree agrees with none of
    /// what was signed from here on.
    fn compare(&mut self, findings: &mut Findings) {
        let (shard, size) = (self.shard, self.frontier.size());
        let due: Vec<Claim> =
            self.claims.iter().skip(self.compared.len()).take_while(|claim| claim.checkpoint.size == size).cloned().collect();
        if due.is_empty() {
            return;
        }
        let root = self.frontier.root();
        for claim in &due {
            let outcome = if claim.checkpoint.root == root { Outcome::Agrees } else { Outcome::Differs };
            if outcome == Outcome::Differs {
                findings.add(Difference::Root { shard, source: self.source.clone(), size, agreed: self.agreed });
            }
            self.compared.push(Compared { checkpoint: claim.source.clone(), size, outcome });
        }
        if !self.differs() {
            self.agreed = size;
        }
    }

    /// Returns the number of leaves.
    pub fn size(&self) -> u64 {
        self.frontier.size()
    }

    pub fn root(&self) -> Hash {
        self.frontier.root()
    }

    /// Returns the largest size up to which the tree agrees with all checkpoints.
    pub fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Returns the largest size up to which the tree agrees with all checkpoints. Ignores checkpoints that differ from it
    /// but agree with `other`, a tree with the same checkpoints. Where the two trees part, each of them may have been
    /// signed.
    pub fn agreed_apart_from(&self, other: &Tree) -> u64 {
        let is_aside = |at: usize| other.compared.get(at).is_some_and(|theirs| theirs.outcome == Outcome::Agrees);
        let mut differing = self.compared.iter().enumerate().filter(|(_, compared)| compared.outcome == Outcome::Differs);
        let end = differing.find(|(at, _)| !is_aside(*at)).map(|(_, compared)| compared.size);
        let agreeing = self.compared.iter().filter(|compared| compared.outcome == Outcome::Agrees).map(|compared| compared.size);
        agreeing.filter(|size| end.is_none_or(|end| *size < end)).max().unwrap_or_default()
    }

    /// Returns the largest size that was compared with a checkpoint, whatever the result.
    pub fn compared_upto(&self) -> u64 {
        self.compared.last().map_or(0, |compared| compared.size)
    }

    /// Returns whether the tree differs from a checkpoint that it has reached.
    fn differs(&self) -> bool {
        self.compared.iter().any(|compared| compared.outcome == Outcome::Differs)
    }

    /// Returns the result for every checkpoint. With `is_whole`, reports those that the tree does not reach as
    /// differences.
    pub fn end(self, is_whole: bool, findings: &mut Findings) -> Vec<Compared> {
        let (shard, mut compared) = (self.shard, self.compared);
        let last = Position::try_from(self.frontier.size()).unwrap_or(Position::MAX);
        for claim in self.claims.into_iter().skip(compared.len()) {
            let size = claim.checkpoint.size;
            if is_whole {
                findings.add(Difference::Short { shard, source: self.source.clone(), size, last });
            }
            compared.push(Compared { checkpoint: claim.source, size, outcome: Outcome::Beyond });
        }
        compared
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use transparency_log::merkle::leaf_hash;

    use super::*;

    fn leaf(number: u64) -> Hash {
        leaf_hash(&number.to_be_bytes())
    }

    fn claim(size: u64, leaf: impl Fn(u64) -> Hash) -> Claim {
        let mut frontier = Frontier::default();
        (0..size).for_each(|n| frontier.append(leaf(n)));
        let checkpoint = Checkpoint { origin: "log".into(), size, root: frontier.root() };
        Claim { source: format!("note {size}"), checkpoint }
    }

    fn grown(claims: &[Claim], size: u64, leaf: impl Fn(u64) -> Hash) -> (Vec<Outcome>, Vec<String>) {
        let mut findings = Findings::default();
        let mut tree = Tree::new(1, "the export".into(), claims, &mut findings);
        (0..size).for_each(|n| tree.append(leaf(n), &mut findings, |_, _| {}));
        let outcomes = tree.end(true, &mut findings).into_iter().map(|compared| compared.outcome).collect();
        (outcomes, findings.differences.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_change_lies_between_the_checkpoints_around_it() {
        use Outcome::{Agrees, Beyond, Differs};
        let claims = [claim(0, leaf), claim(9, leaf), claim(3, leaf), claim(6, leaf)];
        assert_eq!(grown(&claims, 9, leaf), (vec![Agrees; 4], vec![]));
        let changed = |n| leaf(if n == 4 { 99 } else { n });
        let (outcomes, found) = grown(&claims, 9, changed);
        assert_eq!(outcomes, [Agrees, Agrees, Differs, Differs]);
        assert!(found[0].ends_with("the checkpoint of 6 events: it differs somewhere in positions 4 to 6"), "{found:?}");
        let (outcomes, found) = grown(&claims, 8, leaf);
        assert_eq!(outcomes, [Agrees, Agrees, Agrees, Beyond]);
        assert_eq!(
            found,
            ["shard 1: the export ends at position 8, but a checkpoint of 9 events was signed: positions 9 to 9 are missing"]
        );
        // Rewritten and signed again: the later checkpoint agrees, the earlier one still differs.
        let (outcomes, _) = grown(&[claim(6, leaf), claim(9, changed)], 9, changed);
        assert_eq!(outcomes, [Differs, Agrees]);
        let (outcomes, found) = grown(&[claim(3, leaf), claim(9, changed), claim(9, leaf)], 9, changed);
        assert_eq!(outcomes, [Agrees, Agrees, Differs]);
        assert!(found[0].ends_with("it differs somewhere in positions 4 to 9"), "{found:?}");
    }

    /// Each tree counts as signed as far as the other one accounts for the checkpoints that it differs from.
    #[test]
    fn each_of_two_trees_that_part_may_have_been_signed() {
        let changed = |from: u64| move |n| leaf(if n >= from { n + 99 } else { n });
        let (kept, once, twice) = (changed(99), changed(4), changed(7));
        let claims = [claim(3, kept), claim(9, kept), claim(9, once)];
        let tree = |leaf: &dyn Fn(u64) -> Hash| {
            let mut findings = Findings::default();
            let mut tree = Tree::new(1, "the export".into(), &claims, &mut findings);
            (0..9).for_each(|n| tree.append(leaf(n), &mut findings, |_, _| {}));
            tree
        };
        let (sound, forged, again) = (tree(&kept), tree(&once), tree(&twice));
        assert_eq!([&sound, &forged, &again].map(Tree::agreed), [3, 3, 3]);
        assert_eq!((sound.agreed_apart_from(&forged), forged.agreed_apart_from(&sound)), (9, 9));
        // A checkpoint that neither tree agrees with still counts, and a tree does not account for itself.
        assert_eq!((sound.agreed_apart_from(&again), forged.agreed_apart_from(&again)), (3, 3));
        assert_eq!([&sound, &forged, &again].map(|tree| tree.agreed_apart_from(tree)), [3, 3, 3]);
    }
}
