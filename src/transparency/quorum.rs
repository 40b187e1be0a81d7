//! Quorums of witnesses.

use std::collections::HashSet;

use super::note::VerifierKey;

/// A quorum of witnesses for a checkpoint. Only cosignatures of the named witnesses count. The default asks for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quorum {
    pub count: usize,
    pub witnesses: Vec<VerifierKey>,
}

impl Quorum {
    /// Counts the different keys of the named witnesses: one key under two names is one witness.
    pub fn distinct(&self) -> usize {
        self.witnesses.iter().map(VerifierKey::bytes).collect::<HashSet<_>>().len()
    }

    /// Whether enough witnesses are named.
    pub fn can_be_met(&self) -> bool {
        self.distinct() >= self.count
    }
}
