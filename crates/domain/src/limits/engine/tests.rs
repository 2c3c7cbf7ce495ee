use std::pin::pin;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;

use super::super::buckets::BucketCounts;
use super::super::{BucketRule, KeyStrategy, PathPattern};
use super::*;

/// Answers what it was told to, or is away.
#[derive(Debug, Default)]
struct Scripted(Mutex<Option<Taken>>);

#[async_trait]
impl Buckets for Scripted {
    async fn take(&self, _: &[Take<'_>]) -> Result<Taken, BucketsError> {
        let answer = self.0.lock().unwrap().clone();
        answer.ok_or_else(|| BucketsError::Unavailable("away".into()))
    }
    async fn peek(&self, _: Take<'_>) -> Result<Option<Standing>, BucketsError> {
        Ok(None)
    }
    async fn reset(&self, _: Take<'_>) -> Result<(), BucketsError> {
        Ok(())
    }
    async fn reconfigure(&self, _: &[PolicyRule]) -> Result<(), BucketsError> {
        Ok(())
    }
    fn counts(&self) -> BucketCounts {
        BucketCounts::default()
    }
}

/// Remembers its rules.
#[derive(Debug, Default)]
struct Rules(Mutex<Vec<PolicyRule>>);

#[async_trait]
impl Buckets for Rules {
    async fn take(&self, _: &[Take<'_>]) -> Result<Taken, BucketsError> {
        Err(BucketsError::Unavailable("away".into()))
    }
    async fn peek(&self, _: Take<'_>) -> Result<Option<Standing>, BucketsError> {
        Ok(None)
    }
    async fn reset(&self, _: Take<'_>) -> Result<(), BucketsError> {
        Ok(())
    }
    async fn reconfigure(&self, rules: &[PolicyRule]) -> Result<(), BucketsError> {
        *self.0.lock().unwrap() = rules.to_vec();
        Ok(())
    }
    fn counts(&self) -> BucketCounts {
        BucketCounts::default()
    }
}

fn policy(name: &str, fail: FailStrategy, shadow: bool) -> Policy {
    Policy {
        name: PolicyName::new(name).unwrap(),
        pattern: PathPattern::new("/**").unwrap(),
        methods: None,
        key: KeyStrategy::Ip,
        refill_per_second: 1.0,
        rule: BucketRule::new(10, 1.0, 1, shadow).unwrap(),
        fail,
        exempts_high: false,
    }
}

fn standing(remaining: u32, retry_after_ns: u64) -> Standing {
    Standing { rule: None, lacked: retry_after_ns > 0, remaining, full_in_ns: 5, retry_after_ns }
}

/// Nothing here waits for anything.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

fn decide(policies: Vec<Policy>, answer: Option<Taken>) -> (Verdict, Vec<super::super::Outcomes>) {
    decide_by(Policies::new(Arc::new(Scripted(Mutex::new(answer)))), policies)
}

fn decide_by(engine: Policies, policies: Vec<Policy>) -> (Verdict, Vec<super::super::Outcomes>) {
    now(engine.replace(policies)).unwrap();
    let in_force = engine.in_force();
    let asked: Vec<_> = in_force.iter().map(|policy| Asked { policy, key: "k", exempt: false }).collect();
    let verdict = now(engine.decide(&asked));
    (verdict, in_force.iter().map(|known| known.tally.outcomes()).collect())
}

fn place(verdict: &Verdict) -> Option<usize> {
    verdict.tightest.map(|tightest| tightest.place)
}

#[test]
fn the_tightest_policy_speaks_and_a_shadow_never_does() {
    let three = || ["wide", "tight", "shadow"].map(|name| policy(name, FailStrategy::Open, name == "shadow"));
    let standings = vec![standing(9, 0), standing(2, 0), standing(0, 0)];
    let (verdict, counts) = decide(three().into(), Some(Taken { passed: true, standings }));
    assert!(verdict.passed && place(&verdict) == Some(1));
    assert!(counts.iter().all(|count| (count.allowed, count.denied) == (1, 0)), "{counts:?}");

    // Of those that lacked tokens, the one to wait for longest; who had some is neither allowed nor denied.
    let standings = vec![standing(0, 7), standing(5, 0), standing(0, 99)];
    let (verdict, counts) = decide(three().into(), Some(Taken { passed: false, standings }));
    assert!(!verdict.passed && place(&verdict) == Some(0));
    assert_eq!(verdict.tightest.unwrap().retry_after_ns, 7);
    assert_eq!((counts[0].denied, counts[1].allowed, counts[1].denied), (1, 0, 0));
    assert_eq!((counts[2].shadow_denied, counts[2].denied), (1, 0));
}

#[test]
fn the_rule_that_decided_is_the_one_that_is_told() {
    let newer = BucketRule::new(3, 0.5, 1, false).unwrap();
    for (passed, standing) in [(true, standing(2, 0)), (false, standing(0, 7))] {
        let standings = vec![Standing { rule: Some(newer), ..standing }];
        let known = vec![policy("known", FailStrategy::Open, false)];
        let (verdict, _) = decide(known, Some(Taken { passed, standings }));
        assert_eq!(verdict.tightest.unwrap().rule, newer);
    }
}

#[test]
fn without_the_store_one_closed_policy_closes() {
    let open = policy("open", FailStrategy::Open, false);
    let (verdict, counts) = decide(vec![open.clone()], None);
    assert!(verdict.passed && verdict.degraded && counts[0].degraded == 1);
    let closed = policy("closed", FailStrategy::Closed, false);
    let (verdict, _) = decide(vec![open.clone(), closed], None);
    assert!(!verdict.passed && verdict.degraded && place(&verdict) == Some(1));
    assert!(verdict.tightest.unwrap().retry_after_ns > 0);
    let (verdict, _) = decide(vec![open, policy("shadow", FailStrategy::Closed, true)], None);
    assert!(verdict.passed, "a shadow never denies");
}

#[test]
fn without_the_store_who_falls_back_asks_the_local_one() {
    let share = BucketRule::new(4, 0.5, 1, false).unwrap();
    let falls = policy("falls", FailStrategy::FallBack(share), false);
    let local = |policies: Vec<Policy>, answer: Option<Taken>| {
        let local = Arc::new(Scripted(Mutex::new(answer)));
        decide_by(Policies::new(Arc::<Scripted>::default()).falling_back_on(local), policies)
    };
    let open = policy("open", FailStrategy::Open, false);
    let taken = |passed, standing| Some(Taken { passed, standings: vec![standing] });

    let (verdict, counts) = local(vec![open.clone(), falls.clone()], taken(true, standing(3, 0)));
    assert!(verdict.passed && verdict.degraded && place(&verdict) == Some(1));
    assert_eq!(verdict.tightest.unwrap().rule, share, "its share is what it tells");
    assert_eq!((counts[0].degraded, counts[0].allowed), (1, 0));
    assert_eq!((counts[1].degraded, counts[1].allowed), (1, 1));

    let (verdict, counts) = local(vec![open.clone(), falls.clone()], taken(false, standing(0, 7)));
    assert!(!verdict.passed && verdict.degraded && place(&verdict) == Some(1));
    assert_eq!((verdict.tightest.unwrap().retry_after_ns, counts[1].denied), (7, 1));

    // One that closes is asked first: nothing is taken for a request that it denies.
    let closed = policy("closed", FailStrategy::Closed, false);
    let (verdict, counts) = local(vec![falls.clone(), closed], taken(true, standing(3, 0)));
    assert!(!verdict.passed && place(&verdict) == Some(1) && counts[0].allowed == 0);

    let (verdict, _) = decide(vec![open, falls.clone()], None);
    assert!(!verdict.passed && place(&verdict) == Some(1), "without a local store it closes");
    let (verdict, _) = decide(vec![policy("shadow", falls.fail, true)], None);
    assert!(verdict.passed, "a shadow never denies");
}

#[test]
fn only_who_falls_back_has_a_local_rule() {
    let share = BucketRule::new(4, 0.5, 1, false).unwrap();
    let local = Arc::new(Rules::default());
    let engine = Policies::new(Arc::<Scripted>::default()).falling_back_on(local.clone());
    let policies = [FailStrategy::Open, FailStrategy::FallBack(share), FailStrategy::Closed];
    let named = ["a", "b", "c"].into_iter().zip(policies).map(|(name, fail)| policy(name, fail, false));
    now(engine.replace(named.collect())).unwrap();
    let rules = local.0.lock().unwrap();
    assert_eq!(rules.iter().map(|rule| (rule.id.0, rule.rule)).collect::<Vec<_>>(), [(1, share)]);
}

#[test]
fn a_name_keeps_its_id_and_its_counts_over_a_reload() {
    let engine = Policies::new(Arc::new(Scripted::default()));
    let named = |name| policy(name, FailStrategy::Open, false);
    now(engine.replace(vec![named("a"), named("b")])).unwrap();
    let before = engine.by_name("b").unwrap();
    before.tally.allowed();
    now(engine.replace(vec![named("c"), named("b")])).unwrap();
    let after = engine.by_name("b").unwrap();
    assert_eq!((before.id, after.tally.outcomes().allowed), (after.id, 1));
    assert!(engine.by_name("a").is_none() && engine.by_name("c").unwrap().id != before.id);
    now(engine.replace(vec![named("a")])).unwrap();
    assert_eq!(engine.by_name("a").unwrap().id, PolicyId(0));
}

#[test]
fn an_exempt_request_takes_what_is_there_and_is_never_denied() {
    let (buckets, policies) = (Arc::new(Scripted::default()), ["bound", "lenient"]);
    let engine = Policies::new(buckets.clone());
    let lenient = |name| Policy { exempts_high: true, ..policy(name, FailStrategy::Closed, false) };
    now(engine.replace(policies.map(lenient).to_vec())).unwrap();
    let in_force = engine.in_force();
    let decide = |exempt: [bool; 2]| {
        let asked: Vec<_> =
            in_force.iter().zip(exempt).map(|(policy, exempt)| Asked { policy, key: "k", exempt }).collect();
        now(engine.decide(&asked))
    };
    let answer = |taken| *buckets.0.lock().unwrap() = taken;
    answer(Some(Taken { passed: false, standings: vec![standing(0, 7)] }));
    assert!(decide([true, true]).passed, "neither has a say");
    let denied = decide([true, false]);
    assert_eq!((denied.passed, denied.tightest.map(|tightest| tightest.place)), (false, Some(1)));
    answer(Some(Taken { passed: true, standings: vec![standing(3, 0)] }));
    assert!(decide([true, true]).passed);
    answer(None);
    let away = decide([true, true]);
    assert!(away.passed && away.degraded, "even where it closes");
    assert!(!decide([true, false]).passed);
    let counts: Vec<_> = in_force.iter().map(|known| known.tally.outcomes()).collect();
    assert_eq!((counts[0].exempted, counts[0].allowed, counts[0].denied, counts[0].degraded), (2, 1, 0, 1));
    assert_eq!((counts[1].exempted, counts[1].allowed, counts[1].denied), (2, 1, 1));
}
