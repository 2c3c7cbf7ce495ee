use std::collections::VecDeque;

use super::*;

const RULE: BreakerRule = BreakerRule { window: 10, failure_percent: 50, open_ms: 30_000, probes: 3 };
const OPENED: Option<Change> = Some(Change { from: BreakerState::Closed, to: BreakerState::Open });
const PROBING: Option<Change> = Some(Change { from: BreakerState::Open, to: BreakerState::HalfOpen });
const REOPENED: Option<Change> = Some(Change { from: BreakerState::HalfOpen, to: BreakerState::Open });
const CLOSED: Option<Change> = Some(Change { from: BreakerState::HalfOpen, to: BreakerState::Closed });

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_763_244_000_000 + ms)
}

/// Opened at time zero.
fn open() -> Breaker {
    let mut breaker = Breaker::new(RULE);
    for n in 0..10 {
        assert_eq!(breaker.record(at(0), false).is_some(), n == 9);
    }
    breaker
}

#[test]
fn half_of_the_window_is_borne_and_more_is_not() {
    let mut breaker = Breaker::new(RULE);
    for n in 0..10 {
        assert_eq!(breaker.record(at(n), n % 2 == 0), None);
    }
    assert_eq!((breaker.state(), breaker.permits(at(10))), (BreakerState::Closed, usize::MAX));
    // The oldest, a success, leaves the window: six of ten have failed.
    assert_eq!(breaker.record(at(10), false), OPENED);
    assert_eq!((breaker.permits(at(10)), breaker.wait_ms(at(10))), (0, 30_000));
}

#[test]
fn a_window_that_is_not_full_is_not_judged() {
    let mut breaker = Breaker::new(RULE);
    for n in 0..9 {
        assert_eq!(breaker.record(at(n), false), None);
    }
    assert_eq!(breaker.permits(at(9)), usize::MAX);
}

#[test]
fn after_its_wait_it_lets_the_probes_through_and_no_more() {
    let mut breaker = open();
    assert_eq!((breaker.permits(at(29_999)), breaker.wait_ms(at(29_999))), (0, 1));
    assert_eq!((breaker.permits(at(30_000)), breaker.wait_ms(at(30_000))), (3, 0));
    assert_eq!(breaker.started(at(30_000)), PROBING);
    assert_eq!(breaker.permits(at(30_001)), 2);
    assert_eq!((breaker.started(at(30_001)), breaker.started(at(30_001))), (None, None));
    assert_eq!((breaker.permits(at(30_002)), breaker.wait_ms(at(30_002))), (0, 29_998));
    assert_eq!(breaker.record(at(30_010), true), None);
    assert_eq!(breaker.record(at(30_020), true), None);
    assert_eq!(breaker.permits(at(30_020)), 0, "a success is no new permit");
    assert_eq!(breaker.record(at(30_030), true), CLOSED);
    assert_eq!(breaker.permits(at(30_030)), usize::MAX);
    // What was before is forgotten: nine failures are not a full window.
    assert!((0..9).all(|n| breaker.record(at(30_040 + n), false).is_none()));
}

#[test]
fn one_failed_probe_reopens_it_for_the_whole_time() {
    let mut breaker = open();
    breaker.started(at(31_000));
    breaker.started(at(31_000));
    assert_eq!(breaker.record(at(31_500), true), None);
    assert_eq!(breaker.record(at(32_000), false), REOPENED);
    // The other probe's outcome comes late.
    assert_eq!(breaker.record(at(32_001), true), None);
    assert_eq!(breaker.permits(at(61_999)), 0);
    assert_eq!(breaker.permits(at(62_000)), 3);
}

#[test]
fn outcomes_of_attempts_from_before_it_opened_change_nothing() {
    let mut breaker = open();
    assert!((0..50).all(|n| breaker.record(at(n), n % 2 == 0).is_none()));
    assert_eq!(breaker.permits(at(30_000)), 3);
    assert_eq!(breaker.record(at(30_001), false), None, "no probe has started yet");
    assert_eq!(breaker.permits(at(30_001)), 3);
}

#[test]
fn late_successes_do_not_stand_for_probes_that_were_never_sent() {
    let mut breaker = open();
    breaker.started(at(30_000));
    assert!((0..9).all(|n| breaker.record(at(30_001 + n), true).is_none()));
    assert_eq!((breaker.state(), breaker.permits(at(30_100))), (BreakerState::HalfOpen, 2));
}

#[test]
fn probes_that_never_answer_do_not_hold_it_for_ever() {
    let mut breaker = open();
    for _ in 0..3 {
        breaker.started(at(30_000));
    }
    assert_eq!(breaker.permits(at(59_999)), 0);
    assert_eq!(breaker.permits(at(60_000)), 3);
    assert_eq!(breaker.started(at(60_000)), None, "half-open it was already");
    assert_eq!(breaker.permits(at(60_000)), 2);
}

#[test]
fn a_clock_set_back_lengthens_the_wait_by_no_more_than_itself() {
    let mut breaker = open();
    assert_eq!(breaker.permits(at(-3_600_000)), 0);
    assert_eq!(breaker.wait_ms(at(-3_600_000)), 30_000);
    assert_eq!(breaker.permits(at(-3_600_000 + 30_000)), 3);
    let mut breaker = open();
    assert_eq!(breaker.permits(at(86_400_000)), 3, "and one set forward shortens it");
}

#[test]
fn senseless_rules_are_brought_inside() {
    let rule = BreakerRule { window: 0, failure_percent: 0, open_ms: 0, probes: 0 };
    let mut breaker = Breaker::new(rule);
    assert_eq!(breaker.record(at(0), false), OPENED);
    assert_eq!(breaker.permits(at(0)), 1);
    let mut never = Breaker::new(BreakerRule { failure_percent: 100, window: 1_000, ..RULE });
    assert!((0..5_000).all(|n| never.record(at(n), false).is_none()));
}

/// Against the rule told differently: a list of all outcomes since it was last closed.
#[test]
fn it_opens_when_and_only_when_a_naive_count_says_so() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for case in 0..2_000 {
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let (window, percent) = (1 + draw(128), draw(101));
        let failing = draw(101);
        let rule = BreakerRule {
            window: u32::try_from(window).unwrap(),
            failure_percent: u32::try_from(percent).unwrap(),
            ..RULE
        };
        let (mut breaker, mut last) = (Breaker::new(rule), VecDeque::new());
        for step in 0..400 {
            let success = draw(100) >= failing;
            last.push_back(success);
            if last.len() as u64 > window {
                last.pop_front();
            }
            let failed = last.iter().filter(|success| !**success).count() as u64;
            let expected = last.len() as u64 == window && failed * 100 > percent * window;
            let opened = breaker.record(at(step), success);
            assert_eq!(opened.is_some(), expected, "case {case}, step {step}, {rule:?}");
            if expected {
                break;
            }
        }
    }
}
