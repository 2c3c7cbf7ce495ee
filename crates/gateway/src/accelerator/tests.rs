use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_domain::{Fingerprint, Idempotency, IdempotencyKey, QueueName};
use tidegate_redis::Endpoint;
use tidegate_redis::quotas::{Options, RedisQuotas};
use tidegate_testkit::Setup;
use tidegate_testkit::services::Redis;

use super::*;
use crate::faulty::FaultyLedger;

const HOUR_MS: u64 = 3_600_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// The model behind a real Redis.
struct Site {
    redis: Redis,
    ledger: Arc<FaultyLedger>,
    accelerated: Arc<Accelerated>,
}

impl Site {
    /// With a quota for Alice that Redis knows of, and one message counted.
    async fn new(limit: u32) -> Self {
        let redis = Redis::start().unwrap();
        let mut options = Options::new(Endpoint::parse(&redis.url()).unwrap());
        options.call_timeout = Duration::from_secs(5);
        let cache = Arc::new(RedisQuotas::open(options).await.unwrap());
        let ledger = Arc::new(FaultyLedger::new(Setup::default()));
        let accelerated = Arc::new(Accelerated::new(ledger.clone(), cache));
        let site = Self { redis, ledger, accelerated };
        site.accelerated.put_quota(alice(), limit, HOUR_MS).await.unwrap();
        assert!(matches!(site.send(plain()).await, Admitted::Admitted { .. }));
        site.wait_for(1).await;
        site
    }

    async fn send(&self, admission: Admission) -> Admitted {
        self.accelerated.admit(vec![admission]).await.unwrap().pop().unwrap()
    }

    async fn send_until_denied(&self) -> u32 {
        let mut passed = 0;
        while let Admitted::Admitted { .. } = self.send(plain()).await {
            passed += 1;
        }
        passed
    }

    /// Until Redis says that so many are counted.
    async fn wait_for(&self, count: u32) {
        let said = format!("\r\n{count}\r\n");
        self.wait_until(|| self.count().ends_with(&said)).await;
    }

    async fn wait_until(&self, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "Redis says {:?}", self.count());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn count(&self) -> String {
        self.redis.ask(&["HGET", "RateLimiterCache:alice", "currentCount"]).unwrap()
    }

    /// The next admission that reaches the ledger fails.
    fn trip(&self) {
        self.ledger.fail_with([LedgerError::Unavailable("planted".to_owned())]);
    }

    async fn assert_not_tripped(&self) {
        assert!(self.ledger.admit(vec![plain()]).await.is_err(), "the ledger was asked");
    }
}

fn alice() -> UserId {
    UserId::new("alice").unwrap()
}

fn plain() -> Admission {
    let mut admission = Admission::new(QueueName::new("sms").unwrap(), Bytes::from_static(b"hi"));
    admission.charge = Some(alice());
    admission
}

fn keyed(key: &str) -> Admission {
    let idempotency =
        Idempotency { key: IdempotencyKey::new("app", key), fingerprint: Fingerprint::of(&[b"hi"]) };
    Admission { idempotency: Some(idempotency), ..plain() }
}

fn deferrable() -> Admission {
    Admission { on_limit: OnLimit::Defer { horizon_ms: 2 * HOUR_MS }, ..plain() }
}

#[tokio::test]
async fn a_denial_is_the_ledgers_own_and_the_ledger_is_not_asked() {
    let site = Site::new(3).await;
    assert_eq!(site.send_until_denied().await, 2);
    let Admitted::OverQuota { quota: by_ledger, at, retry_after_ms } =
        site.ledger.admit(vec![plain()]).await.unwrap().remove(0)
    else {
        panic!("the ledger has room")
    };
    site.trip();
    let Admitted::OverQuota { quota, at: at_here, retry_after_ms: after_here } = site.send(plain()).await
    else {
        panic!("not denied")
    };
    assert_eq!(quota, by_ledger);
    assert_eq!(at_here.plus_ms(after_here), at.plus_ms(retry_after_ms), "the window's end");
    site.assert_not_tripped().await;
}

#[tokio::test]
async fn what_is_urgent_passes_a_full_window_that_exempts_it() {
    let site = Site::new(1).await;
    let urgent = || Admission { lane: Lane::High, ..plain() };
    assert!(matches!(site.send(urgent()).await, Admitted::OverQuota { .. }), "this one exempts none");
    let rule = QuotaRule { limit: 2, window_ms: HOUR_MS, exempts_high: true };
    site.accelerated.set_quota(alice(), rule).await.unwrap();
    assert!(matches!(site.send(plain()).await, Admitted::Admitted { .. }));
    site.wait_for(1).await;
    for _ in 0..3 {
        assert!(matches!(site.send(urgent()).await, Admitted::Admitted { .. }));
    }
    site.wait_for(2).await;
    site.trip();
    assert!(matches!(site.send(plain()).await, Admitted::OverQuota { .. }), "the others are still denied");
    assert!(site.accelerated.denial(&plain()).await.is_some());
    assert!(site.accelerated.denial(&urgent()).await.is_none(), "only the ledger knows");
    site.assert_not_tripped().await;
}

#[tokio::test]
async fn only_those_who_are_open_reach_the_ledger_and_answers_keep_their_order() {
    let site = Site::new(1).await;
    let nobody = Admission { charge: None, ..plain() };
    let unknown = Admission { charge: Some(UserId::new("bob").unwrap()), ..plain() };
    let batch = vec![plain(), nobody, plain(), unknown];
    let answers = site.accelerated.admit(batch).await.unwrap();
    let [first, second, third, fourth] = &answers[..] else { panic!("{answers:?}") };
    assert!(matches!(first, Admitted::OverQuota { .. }) && matches!(third, Admitted::OverQuota { .. }));
    assert!(matches!(second, Admitted::Admitted { quota: None, .. }), "{second:?}");
    assert_eq!(*fourth, Admitted::UnknownUser);
}

#[tokio::test]
async fn a_repetition_gets_its_answer_when_the_window_is_full_and_uses_nothing_up() {
    let site = Site::new(4).await;
    let Admitted::Admitted { id: first, .. } = site.send(keyed("k")).await else { panic!("denied") };
    site.wait_for(2).await;
    for _ in 0..10 {
        assert!(matches!(site.send(keyed("k")).await, Admitted::Duplicate { id, .. } if id == first));
    }
    assert_eq!(site.send_until_denied().await, 2, "repetitions were counted");
    assert!(matches!(site.send(keyed("k")).await, Admitted::Duplicate { id, .. } if id == first));
    assert!(matches!(site.send(keyed("another")).await, Admitted::OverQuota { .. }));
}

#[tokio::test]
async fn what_may_be_deferred_goes_past_a_denial() {
    let site = Site::new(1).await;
    assert!(matches!(site.send(plain()).await, Admitted::OverQuota { .. }));
    assert!(matches!(site.send(deferrable()).await, Admitted::Deferred { .. }));
    assert!(matches!(site.send(deferrable()).await, Admitted::Deferred { .. }));
    assert!(matches!(site.send(plain()).await, Admitted::OverQuota { .. }));
}

#[tokio::test]
async fn a_changed_quota_counts_at_once() {
    let site = Site::new(1).await;
    assert_eq!(site.send_until_denied().await, 0);
    site.accelerated.put_quota(alice(), 2, HOUR_MS).await.unwrap();
    assert_eq!(site.send_until_denied().await, 2);
    assert!(site.accelerated.delete_quota(alice()).await.unwrap());
    assert_eq!(site.send(plain()).await, Admitted::UnknownUser);
}

#[tokio::test]
async fn a_change_is_told_even_when_its_caller_hangs_up() {
    let site = Site::new(1).await;
    site.redis.stop().unwrap();
    let accelerated = site.accelerated.clone();
    let hung_up = tokio::spawn(async move { accelerated.put_quota(alice(), 2, HOUR_MS).await });
    let begun = Instant::now();
    while site.ledger.quota(alice()).await.unwrap().unwrap().limit != 2 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
    hung_up.abort();
    site.redis.resume().unwrap();
    site.wait_until(|| site.count().starts_with("$-1")).await;
}

#[tokio::test]
async fn what_was_counted_and_not_taken_stays_counted() {
    let site = Site::new(3).await;
    site.trip();
    assert!(site.accelerated.admit(vec![plain()]).await.is_err());
    assert_eq!(site.send_until_denied().await, 1, "counted before, never taken back");
    site.accelerated.put_quota(alice(), 3, HOUR_MS).await.unwrap();
    assert_eq!(site.send_until_denied().await, 3);
}

#[tokio::test]
async fn a_look_while_the_ledger_is_away_counts_nothing() {
    let site = Site::new(2).await;
    for _ in 0..5 {
        assert_eq!(site.accelerated.denial(&plain()).await, None);
    }
    assert_eq!(site.send_until_denied().await, 1);
    assert!(matches!(site.accelerated.denial(&plain()).await, Some(Admitted::OverQuota { .. })));
    for other in [keyed("k"), deferrable()] {
        assert_eq!(site.accelerated.denial(&other).await, None, "the ledger has to say it");
    }
}

#[tokio::test]
async fn a_limit_that_redis_holds_too_high_lets_nobody_past_the_ledger() {
    let site = Site::new(100).await;
    // By somebody who does not know of Redis.
    site.ledger.put_quota(alice(), 2, HOUR_MS).await.unwrap();
    assert_eq!(site.send_until_denied().await, 2);
    // The ledger's answers told of another window.
    site.wait_until(|| {
        !site.redis.ask(&["HGET", "RateLimiterCache:alice", "rateLimit"]).unwrap().contains("100")
    })
    .await;
    assert_eq!(site.send_until_denied().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_lets_nobody_past_the_limit() {
    let site = Arc::new(Site::new(40).await);
    let sender = |_| {
        let site = site.clone();
        tokio::spawn(async move {
            let mut passed = 0;
            for n in 0..25 {
                passed += u32::from(matches!(site.send(plain()).await, Admitted::Admitted { .. }));
                if n % 5 == 0 {
                    site.redis.ask(&["FLUSHALL"]).unwrap();
                }
            }
            passed
        })
    };
    let mut passed = 1;
    for sender in (0..8).map(sender).collect::<Vec<_>>() {
        passed += sender.await.unwrap();
    }
    assert_eq!(passed, 40);
}
