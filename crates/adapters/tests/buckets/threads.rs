use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_adapters::SystemClock;
use tidegate_adapters::buckets::memory::{MemoryBuckets, Options};
use tidegate_domain::limits::Buckets;
use tidegate_domain::{Clock, Timestamp};

use crate::steps::{rule, store, take};

/// Of each thread: all of them together ask for every token of the tests below, however slow the machine is.
const ROUNDS_MIN: u32 = 5_000;

thread_local! {
    static LAST_READ_NS: Cell<u64> = const { Cell::new(0) };
}

/// Real time, and for each thread the moment at which its last take was decided.
#[derive(Debug, Default)]
struct Witness(SystemClock);

impl Clock for Witness {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic_ns(&self) -> u64 {
        let now_ns = self.0.monotonic_ns();
        LAST_READ_NS.set(now_ns);
        now_ns
    }
}

/// Many threads on the same few buckets, at least for so long; each policy's admissions per key, with their moments.
fn journal(store: &Arc<MemoryBuckets>, policies: u32, keys: u32, lasting: Duration) -> Vec<Vec<u64>> {
    let one = |number: u32| {
        let store = store.clone();
        thread::spawn(move || {
            let (begun, mut round, mut rounds) = (Instant::now(), number, 0);
            let mut admitted = vec![Vec::new(); keys as usize];
            while rounds < ROUNDS_MIN || begun.elapsed() < lasting {
                rounds += 1;
                round = round.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let key = (round >> 16) % keys;
                // In either order: locks taken in the order asked for would meet head on.
                let mut takes: Vec<_> = (0..policies).map(|policy| (policy, name(policy, key))).collect();
                if round & 1 == 0 {
                    takes.reverse();
                }
                let takes: Vec<_> = takes.iter().map(|(policy, key)| (*policy, key.as_str())).collect();
                if take(&store, &takes).passed {
                    admitted[key as usize].push(LAST_READ_NS.get());
                }
            }
            admitted
        })
    };
    let threads: Vec<_> = (0..8).map(one).collect();
    let mut all = vec![Vec::new(); keys as usize];
    for thread in threads {
        for (key, admitted) in thread.join().unwrap().into_iter().enumerate() {
            all[key].extend(admitted);
        }
    }
    all
}

/// Another key for each policy: equal keys would meet in one shard, and its lock alone would do.
fn name(policy: u32, key: u32) -> String {
    format!("{policy}/{key}")
}

/// The largest excess over capacity + rate × interval, over all intervals: from the i-th to the j-th admission it
/// is (j - rate × t_j) - (i - rate × t_i) + 1 - capacity, so one pass with the smallest i-term so far finds it.
fn excess(mut admitted: Vec<u64>, capacity: u32, per_token_ns: u64) -> i128 {
    admitted.sort_unstable();
    let mut least = i128::MAX;
    let mut worst = i128::MIN;
    for (number, at) in (0i128..).zip(admitted) {
        let term = number * i128::from(per_token_ns) - i128::from(at);
        least = least.min(term);
        worst = worst.max(term - least + i128::from(per_token_ns) * (1 - i128::from(capacity)));
    }
    worst
}

#[test]
fn no_interval_admits_more_than_capacity_and_refill() {
    let (capacity, per_token_ns) = (50, 20_000);
    let rules = [rule(capacity, 50_000.0), rule(1_000_000, 10_000_000.0), rule(1_000_000, 10_000_000.0)];
    let store = Arc::new(store(Options::new(1_000), Arc::<Witness>::default(), &rules));
    for admitted in journal(&store, 3, 3, Duration::from_millis(1_500)) {
        assert!(admitted.len() > 1_000, "hardly anything passed: {}", admitted.len());
        let excess = excess(admitted, capacity, per_token_ns);
        assert!(excess <= 0, "{excess} ns worth of tokens too many");
    }
}

#[test]
fn tokens_that_never_return_are_spent_once_in_all_buckets() {
    let rules = [rule(1_000, 0.0), rule(700, 0.0), rule(1_000, 0.0)];
    let store = Arc::new(store(Options::new(1_000), Arc::<Witness>::default(), &rules));
    let admitted = journal(&store, 3, 5, Duration::ZERO);
    assert_eq!(admitted.iter().map(Vec::len).collect::<Vec<_>>(), [700; 5]);
    for key in 0..5 {
        let left = take(&store, &[(0, &name(0, key)), (2, &name(2, key))]);
        assert_eq!(left.standings[0].remaining, 299, "a denied take spent something");
    }
}

#[test]
fn eviction_under_threads_stays_within_the_bound() {
    let (capacity, per_token_ns) = (10, 1_000_000);
    let store =
        store(Options { buckets_max: 8, shards: 2 }, Arc::<Witness>::default(), &[rule(capacity, 1_000.0)]);
    let store = Arc::new(store);
    let sweeps = AtomicU64::new(0);
    thread::scope(|scope| {
        let admitted = scope.spawn(|| journal(&store, 1, 64, Duration::from_millis(600)));
        while !admitted.is_finished() {
            store.sweep();
            sweeps.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
        }
        for admitted in admitted.join().unwrap() {
            assert!(excess(admitted, capacity, per_token_ns) <= 0);
        }
    });
    assert!(store.counts().forced_evictions > 0);
}

#[test]
fn the_check_itself_sees_one_admission_too_many() {
    let spaced: Vec<_> = (0..20).map(|n| n * 100).collect();
    assert_eq!(excess(spaced.clone(), 1, 100), 0);
    let mut crowded = spaced;
    crowded.push(950);
    assert!(excess(crowded, 1, 100) > 0);
}
