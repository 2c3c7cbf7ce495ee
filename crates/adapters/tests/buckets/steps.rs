use std::sync::Arc;

use tidegate_adapters::buckets::memory::{MemoryBuckets, Options};
use tidegate_domain::Clock;
use tidegate_domain::limits::{BucketRule, Buckets, PolicyId, PolicyName, PolicyRule, Take, Taken};
use tidegate_testkit::TestClock;
use tidegate_testkit::buckets::at_once;

/// A store with rules numbered from zero.
pub fn store<C: Clock>(options: Options, clock: Arc<C>, rules: &[BucketRule]) -> MemoryBuckets {
    let store = MemoryBuckets::new(options, clock);
    let name = |id: u32| PolicyName::new(&format!("policy-{id}")).unwrap();
    let numbered =
        rules.iter().zip(0..).map(|(rule, id)| PolicyRule { id: PolicyId(id), name: name(id), rule: *rule });
    at_once(store.reconfigure(&numbered.collect::<Vec<_>>())).unwrap();
    store
}

pub fn rule(capacity: u32, refill: f64) -> BucketRule {
    BucketRule::new(capacity, refill, 1, false).unwrap()
}

pub fn take(store: &MemoryBuckets, takes: &[(u32, &str)]) -> Taken {
    let takes: Vec<_> = takes.iter().map(|(id, key)| Take { policy: PolicyId(*id), key }).collect();
    at_once(store.take(&takes)).unwrap()
}

fn remaining(store: &MemoryBuckets, id: u32, key: &str) -> u32 {
    at_once(store.peek(Take { policy: PolicyId(id), key })).unwrap().unwrap().remaining
}

#[test]
fn a_denial_spends_nothing_from_the_others() {
    let store = store(
        Options::new(1_000),
        Arc::<TestClock>::default(),
        &[rule(100, 1.0), rule(2, 0.0), rule(100, 0.0)],
    );
    for _ in 0..20 {
        take(&store, &[(0, "a"), (1, "a"), (2, "a")]);
    }
    assert_eq!([0, 1, 2].map(|id| remaining(&store, id, "a")), [98, 0, 98]);
    let denied = take(&store, &[(0, "a"), (1, "a"), (2, "a")]);
    assert!(!denied.passed);
    assert_eq!(
        denied.standings.iter().map(|standing| standing.lacked).collect::<Vec<_>>(),
        [false, true, false]
    );
    assert!(take(&store, &[(0, "a"), (2, "a")]).passed);
}

#[test]
fn a_shadow_never_denies_and_pays_only_when_the_request_passes() {
    let shadow = BucketRule::new(2, 0.0, 1, true).unwrap();
    let store =
        store(Options::new(1_000), Arc::<TestClock>::default(), &[shadow, rule(4, 0.0), rule(1, 0.0)]);
    take(&store, &[(2, "x")]);
    assert!(!take(&store, &[(0, "a"), (1, "a"), (2, "x")]).passed);
    assert_eq!(remaining(&store, 0, "a"), 2, "not charged for a denied request");
    let lacked: Vec<_> = (0..4)
        .map(|_| {
            let taken = take(&store, &[(0, "a"), (1, "a")]);
            assert!(taken.passed);
            taken.standings[0].lacked
        })
        .collect();
    assert_eq!(lacked, [false, false, true, true]);
    assert!(!take(&store, &[(0, "a"), (1, "a")]).passed, "the other one denies");
}

#[test]
fn a_clock_set_back_or_forward_changes_no_level() {
    let clock = Arc::new(TestClock::new());
    let store = store(Options::new(1_000), clock.clone(), &[rule(5, 1.0)]);
    for _ in 0..5 {
        assert!(take(&store, &[(0, "a")]).passed);
    }
    clock.set(clock.now().minus_ms(86_400_000));
    assert!(!take(&store, &[(0, "a")]).passed);
    clock.advance_ms(1_000);
    assert!(take(&store, &[(0, "a")]).passed && !take(&store, &[(0, "a")]).passed);
    // A jump ahead is time passed, and fills it to the brim and no further.
    clock.advance_ms(365 * 86_400_000);
    assert_eq!(remaining(&store, 0, "a"), 5);
}

#[test]
fn policies_do_not_share_buckets_and_reset_fills_one() {
    let store = store(Options::new(1_000), Arc::<TestClock>::default(), &[rule(1, 0.0), rule(1, 0.0)]);
    assert!(
        take(&store, &[(0, "a")]).passed
            && take(&store, &[(1, "a")]).passed
            && take(&store, &[(0, "b")]).passed
    );
    assert!(!take(&store, &[(0, "a")]).passed);
    at_once(store.reset(Take { policy: PolicyId(0), key: "a" })).unwrap();
    assert!(take(&store, &[(0, "a")]).passed);
    assert!(!take(&store, &[(1, "a")]).passed && !take(&store, &[(0, "b")]).passed);
}
