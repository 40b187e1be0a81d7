//! Quorums of witnesses.

use std::collections::HashSet;

use crate::note::VerifierKey;

/// The number of witnesses that must have cosigned a checkpoint, and the witnesses that count. Cosignatures of any other
/// witness are ignored. The default requires none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quorum {
    pub count: usize,
    pub witnesses: Vec<VerifierKey>,
}

impl Quorum {
    /// Returns the number of different keys among the named witnesses: one key under two names counts as one witness.
    pub fn distinct(&self) -> usize {
        self.witnesses.iter().map(VerifierKey::bytes).collect::<HashSet<_>>().len()
    }

    /// Returns whether the named witnesses are enough to reach the required number.
    pub fn can_be_met(&self) -> bool {
        self.distinct() >= self.count
    }
}
