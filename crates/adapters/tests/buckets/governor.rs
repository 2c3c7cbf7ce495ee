use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ::governor::clock::FakeRelativeClock;
use ::governor::{Quota, RateLimiter};
use proptest::prelude::*;
use tidegate_adapters::buckets::memory::Options;
use tidegate_testkit::TestClock;
use tidegate_testkit::seeds::property;

use crate::steps::{rule, store, take};

type Steps = Vec<(u64, usize, u8)>;

/// Where the two mean the same: one policy, cost 1, a time per token in whole nanoseconds.
#[test]
fn it_decides_as_governor_does() {
    let per_token_us = prop::sample::select(vec![1u64, 10, 1_000, 5_000, 100_000, 1_000_000, 4_000_000]);
    let steps = prop::collection::vec((0..40u64, 1..6usize, 0..3u8), 1..60);
    property(300, &(1..20u32, per_token_us, steps), |(capacity, per_token_us, steps)| {
        compare(capacity, per_token_us, steps)
    });
}

fn compare(capacity: u32, per_token_us: u64, steps: Steps) -> Result<(), TestCaseError> {
    let fake = FakeRelativeClock::default();
    let burst = NonZeroU32::new(capacity).unwrap();
    let period = Duration::from_micros(per_token_us);
    let quota = Quota::with_period(period).unwrap().allow_burst(burst);
    let oracle = RateLimiter::dashmap_with_clock(quota, fake.clone());
    let clock = Arc::new(TestClock::new());
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let refill = 1_000_000.0 / per_token_us as f64;
    let store = store(Options::new(1_000), clock.clone(), &[rule(capacity, refill)]);
    for (quarters, attempts, key) in steps {
        let step_ns = quarters * per_token_us * 250;
        fake.advance(Duration::from_nanos(step_ns));
        clock.advance_ns(step_ns);
        for _ in 0..attempts {
            let ours = take(&store, &[(0, &key.to_string())]).passed;
            prop_assert_eq!(ours, oracle.check_key(&key).is_ok());
        }
    }
    Ok(())
}
