//! What every store of buckets does.

use std::sync::Arc;

use tidegate_domain::Clock as _;
use tidegate_domain::limits::{BucketRule, PolicyId, Take};

use super::BucketsHarness;

const DAY_MS: u64 = 86_400_000;
const YEAR_MS: u64 = 365 * DAY_MS;

fn rule(capacity: u32, refill: f64) -> Option<BucketRule> {
    Some(BucketRule::new(capacity, refill, 1, false).expect("a rule"))
}

pub async fn a_denial_spends_nothing_from_the_others(h: &BucketsHarness) {
    h.configure(&[rule(100, 1.0), rule(2, 0.0), rule(100, 0.0)]).await;
    for _ in 0..20 {
        h.take(&[(0, "a"), (1, "a"), (2, "a")]).await;
    }
    for (policy, left) in [(0, 98), (1, 0), (2, 98)] {
        assert_eq!(h.remaining(policy, "a").await, left);
    }
    let denied = h.take(&[(0, "a"), (1, "a"), (2, "a")]).await;
    let lacked: Vec<_> = denied.standings.iter().map(|standing| standing.lacked).collect();
    assert_eq!((denied.passed, lacked), (false, vec![false, true, false]));
    assert!(h.take(&[(0, "a"), (2, "a")]).await.passed);
}

pub async fn a_shadow_never_denies_and_pays_only_when_the_request_passes(h: &BucketsHarness) {
    let shadow = BucketRule::new(2, 0.0, 1, true).expect("a rule");
    h.configure(&[Some(shadow), rule(4, 0.0), rule(1, 0.0)]).await;
    h.take(&[(2, "x")]).await;
    assert!(!h.take(&[(0, "a"), (1, "a"), (2, "x")]).await.passed);
    assert_eq!(h.remaining(0, "a").await, 2, "not charged for a denied request");
    let mut lacked = Vec::new();
    for _ in 0..4 {
        let taken = h.take(&[(0, "a"), (1, "a")]).await;
        assert!(taken.passed);
        lacked.push(taken.standings[0].lacked);
    }
    assert_eq!(lacked, [false, false, true, true]);
    assert!(!h.take(&[(0, "a"), (1, "a")]).await.passed, "the other one denies");
}

pub async fn a_wall_clock_set_back_or_forward_changes_no_level(h: &BucketsHarness) {
    h.configure(&[rule(5, 1.0)]).await;
    for _ in 0..5 {
        assert!(h.passes(0, "a").await);
    }
    h.clock.set(h.clock.now().minus_ms(DAY_MS));
    assert!(!h.passes(0, "a").await);
    h.clock.advance_ms(1_000);
    assert!(h.passes(0, "a").await && !h.passes(0, "a").await);
}

pub async fn policies_do_not_share_buckets_and_reset_fills_one(h: &BucketsHarness) {
    h.configure(&[rule(1, 0.0), rule(1, 0.0)]).await;
    assert!(h.passes(0, "a").await && h.passes(1, "a").await && h.passes(0, "b").await);
    assert!(!h.passes(0, "a").await);
    h.reset(0, "a").await;
    assert!(h.passes(0, "a").await);
    assert!(!h.passes(1, "a").await && !h.passes(0, "b").await);
}

pub async fn a_bucket_refills_by_fractions_of_a_token(h: &BucketsHarness) {
    h.configure(&[rule(2, 0.5)]).await;
    assert!(h.passes(0, "a").await && h.passes(0, "a").await);
    let denied = h.take(&[(0, "a")]).await;
    assert_eq!(denied.standings[0].retry_after_ns, 2_000_000_000);
    assert_eq!(denied.standings[0].full_in_ns, 4_000_000_000);
    h.clock.advance_ns(1_999_999_999);
    assert!(!h.passes(0, "a").await, "a nanosecond early");
    h.clock.advance_ns(1);
    assert!(h.passes(0, "a").await && !h.passes(0, "a").await);
}

pub async fn a_bucket_holds_its_capacity_however_long_it_was_idle(h: &BucketsHarness) {
    h.configure(&[rule(3, 1_000.0)]).await;
    assert!(h.passes(0, "a").await);
    h.clock.advance_ms(YEAR_MS);
    assert_eq!(h.remaining(0, "a").await, 3);
    for passes in [true, true, true, false] {
        assert_eq!(h.passes(0, "a").await, passes);
    }
}

pub async fn a_bucket_that_never_refills_is_full_after_an_idle_hour(h: &BucketsHarness) {
    h.configure(&[rule(2, 0.0)]).await;
    assert!(h.passes(0, "a").await && h.passes(0, "a").await);
    h.clock.advance_ms(3_600_000);
    assert_eq!(h.remaining(0, "a").await, 0, "whole seconds are kept: never less than an hour");
    h.clock.advance_ms(1_000);
    assert_eq!(h.remaining(0, "a").await, 2);
    assert!(h.passes(0, "a").await);
}

pub async fn hammering_keeps_a_bucket_that_never_refills_from_filling(h: &BucketsHarness) {
    h.configure(&[rule(1, 0.0)]).await;
    assert!(h.passes(0, "a").await);
    for _ in 0..3 {
        h.clock.advance_ms(3_000_000);
        assert!(!h.passes(0, "a").await);
    }
}

pub async fn the_largest_and_the_slowest_buckets_are_exact(h: &BucketsHarness) {
    // Nearly ten years to fill: more nanoseconds than a float counts.
    let slow = BucketRule::new(3, 1.0 / 100_000_000.0, 1, false).expect("a rule");
    let large = BucketRule::new(BucketRule::CAPACITY_MAX, 7.0, BucketRule::CAPACITY_MAX - 1, false);
    let quick = BucketRule::new(1, BucketRule::REFILL_MAX, 1, false).expect("a rule");
    h.configure(&[Some(slow), Some(large.expect("a rule")), Some(quick)]).await;
    h.clock.advance_ns(1_763_244_000_123_456_789);
    for _ in 0..3 {
        assert!(h.passes(0, "a").await);
    }
    assert_eq!(h.take(&[(0, "a")]).await.standings[0].retry_after_ns, 100_000_000_000_000_000);
    h.clock.advance_ns(99_999_999_999_999_999);
    assert!(!h.passes(0, "a").await, "a nanosecond early");
    h.clock.advance_ns(1);
    assert!(h.passes(0, "a").await);

    assert!(h.passes(1, "a").await);
    assert_eq!(h.remaining(1, "a").await, 1);
    // 999,999,998 tokens of 142,857,143 ns each, rounded up.
    let wait_ns = 999_999_998 * 142_857_143;
    assert_eq!(h.take(&[(1, "a")]).await.standings[0].retry_after_ns, wait_ns);
    h.clock.advance_ns(wait_ns - 1);
    assert!(!h.passes(1, "a").await);
    h.clock.advance_ns(1);
    assert!(h.passes(1, "a").await);

    assert!(h.passes(2, "a").await);
    h.clock.advance_ns(99);
    assert!(!h.passes(2, "a").await);
    h.clock.advance_ns(1);
    assert!(h.passes(2, "a").await);
}

pub async fn keys_may_be_any_text(h: &BucketsHarness) {
    h.configure(&[rule(1, 0.0)]).await;
    let long = "x".repeat(10_000);
    let longer = format!("{long}x");
    let keys = ["", " ", "a b", "{a}", "}{", "a:b", "ключ", "\0\r\n", &long, &longer];
    for key in keys {
        assert!(h.passes(0, key).await, "{key:?} shares a bucket");
    }
    for key in keys {
        assert!(!h.passes(0, key).await, "{key:?} has no bucket");
    }
}

pub async fn peeking_takes_nothing(h: &BucketsHarness) {
    h.configure(&[rule(2, 0.0)]).await;
    for _ in 0..5 {
        assert_eq!(
            h.peek(0, "a").await.map(|standing| (standing.lacked, standing.remaining)),
            Some((false, 2))
        );
    }
    assert_eq!(h.peek(9, "a").await, None);
}

pub async fn tokens_are_carried_over_a_reload_as_far_as_they_fit(h: &BucketsHarness) {
    h.configure(&[rule(10, 1.0), rule(10, 0.0)]).await;
    for _ in 0..7 {
        assert!(h.take(&[(0, "a"), (1, "a")]).await.passed);
    }
    h.configure(&[rule(2, 0.1), rule(100, 0.0)]).await;
    assert_eq!((h.remaining(0, "a").await, h.remaining(1, "a").await), (2, 3), "three, and two of three");
    assert!(h.passes(0, "a").await && h.passes(0, "a").await && !h.passes(0, "a").await);
    h.clock.advance_ms(10_000);
    assert!(h.passes(0, "a").await && !h.passes(0, "a").await);
    assert_eq!(h.remaining(0, "b").await, 2, "who never came is full");
}

pub async fn tokens_are_carried_over_two_reloads_that_nobody_came_between(h: &BucketsHarness) {
    h.configure(&[rule(10, 1.0)]).await;
    for _ in 0..10 {
        assert!(h.passes(0, "a").await);
    }
    h.configure(&[rule(10, 0.1)]).await;
    h.clock.advance_ms(20_000);
    h.configure(&[rule(10, 1.0)]).await;
    assert_eq!(
        h.remaining(0, "a").await,
        2,
        "twenty seconds at a tenth, although the rule is the first one again"
    );
}

/// Another process may still have the policy: where the store is shared, the level stays.
pub async fn a_policy_that_goes_takes_its_buckets_along_unless_the_store_is_shared(h: &BucketsHarness) {
    h.configure(&[rule(3, 0.0), rule(3, 0.0)]).await;
    assert!(h.take(&[(0, "a"), (1, "a")]).await.passed);
    h.configure(&[rule(3, 0.0)]).await;
    assert_eq!(h.peek(1, "a").await, None);
    h.configure(&[rule(3, 0.0), rule(3, 0.0)]).await;
    let kept = if h.is_shared { 2 } else { 3 };
    assert_eq!((h.remaining(0, "a").await, h.remaining(1, "a").await), (2, kept));
}

pub async fn a_policy_without_a_rule_lacks_nothing(h: &BucketsHarness) {
    h.configure(&[rule(1, 0.0)]).await;
    let taken = h.take(&[(7, "a"), (0, "a")]).await;
    assert_eq!((taken.passed, taken.standings[0].lacked, taken.standings[1].remaining), (true, false, 0));
    assert!(!h.take(&[(7, "a"), (0, "a")]).await.passed);
    assert!(h.take(&[(7, "a")]).await.passed && h.take(&[]).await.passed);
}

pub async fn parallel_takes_spend_each_token_once(h: &BucketsHarness) {
    h.configure(&[rule(100, 0.0), rule(70, 0.0)]).await;
    let one = |_| {
        let buckets = Arc::clone(&h.buckets);
        tokio::spawn(async move {
            let both = [Take { policy: PolicyId(0), key: "a" }, Take { policy: PolicyId(1), key: "b" }];
            buckets.take(&both).await.expect("a store that is there").passed
        })
    };
    let takes: Vec<_> = (0..200).map(one).collect();
    let mut passed = 0;
    for take in takes {
        passed += usize::from(take.await.expect("no panic"));
    }
    assert_eq!(passed, 70);
    assert_eq!((h.remaining(0, "a").await, h.remaining(1, "b").await), (30, 0));
}
