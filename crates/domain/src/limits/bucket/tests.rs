use super::*;

const S: u64 = SECOND_NS;

fn rule(capacity: u32, refill: f64, cost: u32) -> BucketRule {
    BucketRule::new(capacity, refill, cost, false).unwrap()
}

/// How many takes pass one after the other at one moment.
fn burst(rule: &BucketRule, state: &mut u64, now: u64) -> u32 {
    let mut passed = 0;
    while let Some(next) = rule.take(*state, now) {
        *state = next;
        passed += 1;
    }
    passed
}

#[test]
fn the_burst_is_exactly_the_capacity_whatever_the_rate() {
    for refill in [0.0, 0.1, 0.7, 1.0, 3.0, 7.0, 999.9, 123_456.7] {
        for capacity in [1, 3, 10, 997] {
            let rule = rule(capacity, refill, 1);
            assert_eq!(burst(&rule, &mut 0, 5 * S), capacity, "{capacity} at {refill}");
        }
    }
}

#[test]
fn idle_time_never_fills_it_beyond_its_capacity() {
    let rule = rule(5, 2.0, 1);
    let mut state = 0;
    for now in [S, 2 * S, 1_000 * S, 1_000_000 * S, 9_000_000_000 * S] {
        burst(&rule, &mut state, now);
        assert_eq!(rule.standing(state, now).remaining, 0);
        let later = now + 900 * S;
        assert_eq!(rule.standing(state, later).remaining, 5);
        assert_eq!(burst(&rule, &mut state.clone(), later), 5);
    }
}

#[test]
fn a_denied_caller_who_waits_as_told_passes_and_not_a_nanosecond_earlier() {
    for refill in [0.1, 0.3, 1.0, 7.0, 1_000.0] {
        let rule = rule(10, refill, 3);
        let mut state = 0;
        assert_eq!(burst(&rule, &mut state, 77), 3);
        let standing = rule.standing(state, 77);
        assert!(standing.lacked && standing.remaining == 1, "{standing:?}");
        let then = 77 + standing.retry_after_ns;
        assert_eq!(rule.take(state, then - 1), None, "{refill}");
        assert!(rule.take(state, then).is_some(), "{refill}");
        assert!(rule.is_full(state, 77 + standing.full_in_ns));
        assert!(!rule.is_full(state, 76 + standing.full_in_ns));
    }
}

#[test]
fn without_refill_it_takes_an_hour_alone_to_be_full_again() {
    let rule = rule(2, 0.0, 1);
    let mut state = 0;
    assert_eq!(burst(&rule, &mut state, 10 * S), 2);
    assert_eq!(rule.take(state, 3_600 * S), None);
    // An attempt is not rest.
    state = rule.touch(state, 3_600 * S);
    assert_eq!(rule.take(state, 7_200 * S), None);
    let standing = rule.standing(state, 3_600 * S);
    assert_eq!(standing.retry_after_ns, 3_601 * S);
    assert_eq!(burst(&rule, &mut state, 7_201 * S), 2);
}

#[test]
fn a_new_rule_keeps_the_tokens_and_no_more_than_fit() {
    let old = rule(10, 2.0, 1);
    let mut state = 0;
    for _ in 0..4 {
        state = old.take(state, S).unwrap();
    }
    let now = S + S / 4;
    let tokens = |new: &BucketRule| {
        let carried = new.carry(&old, state, now);
        burst(new, &mut carried.clone(), now)
    };
    // 6.5 of 10.
    assert_eq!(tokens(&rule(10, 2.0, 1)), 6);
    assert_eq!(tokens(&rule(100, 5.0, 1)), 6);
    assert_eq!(tokens(&rule(3, 0.5, 1)), 3);
    assert_eq!(tokens(&rule(20, 0.0, 1)), 6);
    // The half token was kept too: at one a second the next is there after half a second.
    let slower = rule(10, 1.0, 1);
    let mut carried = slower.carry(&old, state, now);
    assert_eq!(burst(&slower, &mut carried, now), 6);
    assert_eq!(slower.take(carried, now + S / 2 - 1), None);
    assert!(slower.take(carried, now + S / 2).is_some());
    // Full is full, and back again from a bucket without refill.
    assert_eq!(rule(50, 1.0, 1).carry(&old, state, 100 * S), 0);
    let (never, again) = (rule(8, 0.0, 1), rule(8, 1.0, 1));
    let spent = never.take(never.take(0, S).unwrap(), S).unwrap();
    assert_eq!(burst(&again, &mut again.carry(&never, spent, S), S), 6);
}

#[test]
fn rules_that_can_not_work_are_refused() {
    let wrong = |capacity, refill, cost| BucketRule::new(capacity, refill, cost, false).unwrap_err();
    assert_eq!(wrong(0, 1.0, 1), BadRule::Capacity(0));
    assert_eq!(wrong(5, 1.0, 6), BadRule::Cost { cost: 6, capacity: 5 });
    assert_eq!(wrong(5, 1.0, 0), BadRule::Cost { cost: 0, capacity: 5 });
    assert_eq!(wrong(5, -1.0, 1), BadRule::Refill(-1.0));
    assert!(matches!(wrong(5, f64::NAN, 1), BadRule::Refill(_)));
    assert!(matches!(wrong(5, f64::INFINITY, 1), BadRule::Refill(_)));
    assert_eq!(wrong(5, 1e-12, 1), BadRule::TooSlow);
}

#[test]
fn a_debt_is_the_same_bucket_in_other_words() {
    for (rule, now) in [(rule(10, 0.7, 3), 90 * S + 17), (rule(10, 0.0, 3), 90 * S)] {
        let mut state = 0;
        for _ in 0..3 {
            state = rule.take(state, now).unwrap();
            let debt = rule.debt(state, now);
            assert_eq!(rule.state(debt), state);
            assert_eq!(debt.owed % rule.cost_owed(), 0);
        }
        assert_eq!(rule.debt(state, now).owed + rule.cost_owed() / 3, rule.owed_max(), "one of ten is left");
        let kept = BucketRule::kept(rule.capacity(), rule.ns_per_token()).unwrap();
        assert_eq!(kept.standing(state, now).remaining, 1);
        assert_eq!(
            BucketRule::new(5, 1.0, 3, true).unwrap().with_tokens_of(&kept).owed_max(),
            rule.owed_max()
        );
    }
    assert!(BucketRule::kept(0, 1).is_err() && BucketRule::kept(2, u64::MAX).is_err());
}

#[test]
fn a_rate_is_told_as_it_was_asked_for() {
    for rate in [0.0, 0.000_012_5, 0.001, 0.7, 1.0 / 3.0, 10.0, 1_500.0] {
        let told = rule(2, rate, 1).refill_per_second();
        assert!((told - rate).abs() <= rate * 1e-5, "{told}, not {rate}");
    }
    assert_eq!(rule(2, 0.7, 1).refill_per_second().to_string(), "0.7");
}
