use std::hash::{BuildHasher, RandomState};

/// A small generator of our own (splitmix64): the same seed makes the same choices on every machine.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least `low`, less than `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }
}

pub fn fresh_seed() -> u64 {
    RandomState::new().hash_one("a fresh seed for every run") >> 32
}
