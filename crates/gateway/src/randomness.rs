use std::sync::atomic::{AtomicU64, Ordering};

/// The one door to randomness of the handlers: cheap numbers for spreading things, never for secrets.
#[derive(Debug)]
pub struct Randomness(AtomicU64);

/// SplitMix64's step: an odd number, so that every state comes up once before any comes up again.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Randomness {
    pub fn new() -> Self {
        let seed = getrandom::u64().unwrap_or_else(|error| {
            // Events are still spread, only in the same way in every process.
            tracing::warn!(%error, "no randomness for a seed");
            STEP
        });
        Self(AtomicU64::new(seed))
    }

    pub fn next(&self) -> u64 {
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_spread_over_the_whole_range() {
        let randomness = Randomness::new();
        let mut tenths = [0u32; 10];
        for _ in 0..10_000 {
            tenths[usize::try_from(randomness.next() % 10).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (800..1_200).contains(count)), "{tenths:?}");
    }
}
