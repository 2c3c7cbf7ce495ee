//! Seeds: every random test runs one case per seed, and a seed always makes the same case.
//!
//! | environment | seeds |
//! |---|---|
//! | nothing | 0 to the test's own count, and [`KEPT`]: the same cases in every run |
//! | `TIDEGATE_SEED=N` | N alone: repeats a failure |
//! | `TIDEGATE_EXPLORE_SECONDS=N` | fresh ones for that long: `cargo xtask explore` |

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Seeds that `cargo xtask explore` found failing once. Every random test runs them all: a seed is one case, and the
/// case that one test needed is a good one for the others.
pub const KEPT: [u64; 0] = [];

/// Shrinking a failed case ends after so many tries, or so much time: a case that fails because it hangs takes long.
const SHRINKS_MAX: u32 = 2_000;
const SHRINK_MS_MAX: u32 = 300_000;

/// Runs `test` once per seed. A panic's output says which seed repeats it.
pub fn each_seed(count: u32, mut test: impl FnMut(u64)) {
    let mut run = |seed| {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("TIDEGATE_SEED={seed} repeats this");
            resume_unwind(cause);
        }
    };
    if let Some(seed) = number("TIDEGATE_SEED") {
        return run(seed);
    }
    let Some(seconds) = number("TIDEGATE_EXPLORE_SECONDS") else {
        return (0..u64::from(count)).chain(KEPT).for_each(run);
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    let first = RandomState::new().hash_one("fresh seeds for every run") >> 1;
    let mut explored = 0;
    while Instant::now() < until {
        run(first + explored);
        explored += 1;
    }
    println!("explored {explored} seeds from {first}");
}

/// Runs one random value per seed through `test`, and panics with the smallest value that fails.
pub fn property<S: Strategy>(count: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    each_seed(count, |seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config = Config {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters: SHRINKS_MAX,
            max_shrink_time: SHRINK_MS_MAX,
            ..Config::default()
        };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        if let Err(error) = TestRunner::new_with_rng(config, rng).run(strategy, &test) {
            panic!("{error}");
        }
    });
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is to be a number, and is {text:?}")))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_same_seeds_make_the_same_cases() {
        let cases = || {
            let seen = RefCell::new(Vec::new());
            property(20, &proptest::num::u64::ANY, |value| {
                seen.borrow_mut().push(value);
                Ok(())
            });
            seen.into_inner()
        };
        let first = cases();
        assert_eq!(first, cases());
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{first:?}");
    }

    #[test]
    fn a_case_that_fails_is_made_small() {
        let failed = catch_unwind(|| {
            property(50, &(0..1_000_000u64), |value| match value {
                0..700 => Ok(()),
                _ => Err(TestCaseError::fail("700 or more")),
            });
        });
        let said = failed.unwrap_err().downcast::<String>().unwrap();
        assert!(said.contains("minimal failing input: 700"), "{said}");
    }
}
