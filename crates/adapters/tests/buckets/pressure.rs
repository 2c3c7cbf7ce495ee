use std::sync::Arc;

use tidegate_adapters::buckets::memory::Options;
use tidegate_domain::limits::Buckets;
use tidegate_testkit::TestClock;

use crate::steps::{rule, store, take};

#[test]
fn a_flood_of_strangers_gives_nobody_a_new_bucket() {
    let clock = Arc::new(TestClock::new());
    let store = store(Options { buckets_max: 64, shards: 4 }, clock.clone(), &[rule(10, 1.0)]);
    for _ in 0..10 {
        assert!(take(&store, &[(0, "client")]).passed);
    }
    for stranger in 0..10_000 {
        take(&store, &[(0, &format!("stranger {stranger}"))]);
        assert!(!take(&store, &[(0, "client")]).passed, "after {stranger} strangers");
    }
    let counts = store.counts();
    assert!(counts.forced_evictions > 100 && counts.buckets <= Some(64), "{counts:?}");
    // It refills as if nothing had happened.
    clock.advance_ms(1_000);
    assert!(take(&store, &[(0, "client")]).passed);
}

#[test]
fn who_was_given_up_comes_back_no_richer() {
    let clock = Arc::new(TestClock::new());
    let store = store(Options { buckets_max: 1, shards: 1 }, clock.clone(), &[rule(10, 0.1), rule(10, 0.1)]);
    for _ in 0..10 {
        assert!(take(&store, &[(0, "client")]).passed);
    }
    assert!(take(&store, &[(1, "pusher")]).passed, "another policy is not concerned");
    assert_eq!(store.counts().forced_evictions, 1);
    assert!(!take(&store, &[(0, "client")]).passed);
    clock.advance_ms(10_000);
    assert!(take(&store, &[(0, "client")]).passed);
    assert!(!take(&store, &[(0, "client")]).passed);
}

#[test]
fn full_buckets_make_room_first() {
    let clock = Arc::new(TestClock::new());
    let store = store(Options { buckets_max: 64, shards: 1 }, clock.clone(), &[rule(10, 10.0)]);
    for round in 0..100 {
        for client in 0..64 {
            assert!(take(&store, &[(0, &format!("{round} {client}"))]).passed);
        }
        clock.advance_ms(100);
    }
    // The search is bounded, so a few are missed.
    assert!(store.counts().forced_evictions < 200, "{:?}", store.counts());
    assert_eq!(store.counts().buckets, Some(64));
    clock.advance_ms(60_000);
    store.sweep();
    assert_eq!(store.counts().buckets, Some(0));
}

/// In both ways: a store does not hold more than it was told to, and gives nothing up before it holds that many. With a
/// part of the room for each shard, neither is true.
#[test]
fn the_most_that_is_kept_is_exact() {
    for buckets_max in [1, 10, 100, 1_000] {
        let clock = Arc::new(TestClock::new());
        let store = store(Options::new(buckets_max), clock, &[rule(10, 1.0)]);
        for client in 0..buckets_max {
            assert!(take(&store, &[(0, &format!("client {client}"))]).passed);
        }
        let counts = store.counts();
        assert_eq!((counts.buckets, counts.forced_evictions), (Some(buckets_max as u64), 0));
        for stranger in 0..buckets_max {
            take(&store, &[(0, &format!("stranger {stranger}"))]);
        }
        let counts = store.counts();
        assert_eq!((counts.buckets, counts.forced_evictions), (Some(buckets_max as u64), buckets_max as u64));
    }
}
