//! Pseudo-random numbers from a seed, so that a run can be repeated.

/// A generator (SplitMix64). Its numbers stay the same in every release of every library.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns a number below the limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// Returns true this many times out of a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }
}
