//! Whose rule counts when gateways differ: the one that was put in force last, whoever loses its connection.

use tidegate_domain::limits::{BucketRule, Buckets as _, PolicyId, Take};
use tidegate_redis::buckets::{RedisBuckets, Time};
use tidegate_testkit::services::{FaultyProxy, Redis};

use crate::clocked::set;
use crate::steps::{configure, connect, eventually, options, options_at, passes, remaining, rule, take};

const HOUR_NS: u64 = 3_600_000_000_000;

/// A gateway whose connection can be cut.
pub struct Cuttable {
    pub store: RedisBuckets,
    proxy: FaultyProxy,
}

impl Cuttable {
    pub async fn open(redis: &Redis) -> Self {
        Self::open_by(redis, Time::Server).await
    }

    async fn open_by(redis: &Redis, time: Time) -> Self {
        let proxy = FaultyProxy::start(redis.address).await.unwrap();
        let mut options = options_at(&format!("redis://{}/", proxy.address), "a");
        options.time = time;
        let store = RedisBuckets::open(options).await;
        configure(&store, &[rule(100, 0.001)]).await;
        Self { store, proxy }
    }

    pub async fn cut(&self) {
        self.proxy.cut();
        eventually(async || {
            let _ = take(&self.store, "nobody").await;
            self.store.counts().away.then_some(())
        })
        .await;
    }

    pub async fn heal(&self) {
        self.proxy.heal();
        eventually(async || (!self.store.counts().away).then_some(())).await;
    }
}

#[tokio::test]
async fn a_connection_that_comes_back_undoes_nobodys_reload() {
    let redis = Redis::start().unwrap();
    for knows in [false, true] {
        redis.ask(&["FLUSHALL"]).unwrap();
        let old = Cuttable::open(&redis).await;
        let reloaded = RedisBuckets::open(options(&redis, "a")).await;
        configure(&reloaded, &[rule(3, 0.001)]).await;
        if knows {
            assert!(passes(&reloaded, "x").await && passes(&old.store, "x").await);
        }
        old.cut().await;
        old.heal().await;
        assert_eq!(remaining(&old.store, "y").await, 3, "learned before: {knows}");
        assert!(passes(&old.store, "z").await);
        assert_eq!(remaining(&reloaded, "z").await, 2, "learned before: {knows}");
    }
}

#[tokio::test]
async fn an_emptied_redis_gets_the_newest_rule_back_whoever_comes_first() {
    let redis = Redis::start().unwrap();
    for newest_first in [false, true] {
        redis.ask(&["FLUSHALL"]).unwrap();
        let (old, reloaded) = (Cuttable::open(&redis).await, Cuttable::open(&redis).await);
        configure(&reloaded.store, &[rule(3, 0.001)]).await;
        old.cut().await;
        reloaded.cut().await;
        redis.ask(&["FLUSHALL"]).unwrap();
        let order = if newest_first { [&reloaded, &old] } else { [&old, &reloaded] };
        for one in order {
            one.heal().await;
        }
        assert!(passes(&reloaded.store, "x").await);
        assert_eq!(remaining(&old.store, "x").await, 2, "newest first: {newest_first}");
        assert!(passes(&old.store, "y").await);
        assert_eq!(remaining(&old.store, "y").await, 2, "newest first: {newest_first}");
        assert_eq!(remaining(&reloaded.store, "y").await, 2, "newest first: {newest_first}");
    }
}

/// The moment of a reload without Redis is found out to within the time of one answer, which may be long on a busy machine.
/// So the two reloads are an hour of Redis apart.
#[tokio::test]
async fn a_reload_without_redis_counts_when_it_is_back() {
    let redis = Redis::start().unwrap();
    let mut side = connect(&redis).await;
    set(&mut side, "clock", HOUR_NS).await;
    let clock = || Time::Key("clock".to_owned());
    let mut other = options(&redis, "a");
    other.time = clock();
    let (one, other) = (Cuttable::open_by(&redis, clock()).await, RedisBuckets::open(other).await);
    configure(&other, &[rule(3, 0.001)]).await;
    set(&mut side, "clock", 2 * HOUR_NS).await;
    one.cut().await;
    configure(&one.store, &[rule(5, 0.001)]).await;
    one.heal().await;
    assert!(passes(&one.store, "x").await);
    assert_eq!((remaining(&one.store, "x").await, remaining(&other, "x").await), (4, 4));
    // Once; from then on it is like any other.
    configure(&other, &[rule(2, 0.001)]).await;
    one.cut().await;
    one.heal().await;
    assert_eq!(remaining(&one.store, "y").await, 2);
}

#[tokio::test]
async fn a_cost_that_had_to_shrink_grows_back() {
    let redis = Redis::start().unwrap();
    let (dear, other) =
        (RedisBuckets::open(options(&redis, "a")).await, RedisBuckets::open(options(&redis, "a")).await);
    configure(&dear, &[BucketRule::new(100, 0.001, 10, false).unwrap()]).await;
    for (capacity, key, left) in [(3, "x", 0), (50, "y", 40)] {
        configure(&other, &[rule(capacity, 0.001)]).await;
        // It learns from a bucket that the other has used.
        assert!(passes(&other, "seen").await);
        let _ = remaining(&dear, "seen").await;
        assert!(passes(&dear, key).await);
        assert_eq!(remaining(&dear, key).await, left, "of {capacity}");
    }
}

/// It meets no bucket of the other gateway: no request asks it anything.
#[tokio::test]
async fn a_rule_put_in_force_elsewhere_counts_without_a_request_that_meets_it() {
    let redis = Redis::start().unwrap();
    let (one, other) =
        (RedisBuckets::open(options(&redis, "a")).await, RedisBuckets::open(options(&redis, "a")).await);
    for store in [&one, &other] {
        configure(store, &[rule(100, 0.001)]).await;
    }
    for capacity in [3, 50] {
        configure(&other, &[rule(capacity, 0.001)]).await;
        eventually(async || (remaining(&one, "never used").await == capacity).then_some(())).await;
    }
    // Emptied, Redis gets the newest rule back from the gateway that looks first.
    redis.ask(&["FLUSHALL"]).unwrap();
    let asked = ["EXISTS", "{a}:rule:policy-0", "{a}:rule::changed"];
    eventually(async || redis.ask(&asked).unwrap().starts_with(":2").then_some(())).await;
    assert_eq!((remaining(&one, "x").await, remaining(&other, "x").await), (50, 50));
}

#[tokio::test]
async fn a_reload_that_comes_late_does_not_undo_a_later_one() {
    let redis = Redis::start().unwrap();
    let (one, other) = (Cuttable::open(&redis).await, RedisBuckets::open(options(&redis, "a")).await);
    configure(&other, &[rule(100, 0.001)]).await;
    one.cut().await;
    configure(&one.store, &[rule(5, 0.001)]).await;
    configure(&other, &[rule(2, 0.001)]).await;
    one.heal().await;
    assert_eq!(remaining(&one.store, "x").await, 2);
    assert!(passes(&one.store, "x").await);
    assert_eq!(remaining(&other, "x").await, 1);
}

/// Which policies there are each gateway reads from its own file; what their buckets hold is shared.
#[tokio::test]
async fn a_policy_that_one_gateway_drops_keeps_its_levels_for_the_others() {
    let redis = Redis::start().unwrap();
    let (one, other) =
        (RedisBuckets::open(options(&redis, "a")).await, RedisBuckets::open(options(&redis, "a")).await);
    for store in [&one, &other] {
        configure(store, &[rule(100, 0.001), rule(10, 0.001)]).await;
    }
    let dropped = Take { policy: PolicyId(1), key: "x" };
    for _ in 0..10 {
        assert!(other.take(&[dropped]).await.unwrap().passed);
    }
    // The same reload changes a policy that stays: when that has arrived, so has the rest.
    configure(&one, &[rule(3, 0.001)]).await;
    eventually(async || (remaining(&other, "never used").await == 3).then_some(())).await;
    assert!(!other.take(&[dropped]).await.unwrap().passed);
    // It comes back, and the gateway that dropped it finds the level as the others left it.
    configure(&one, &[rule(3, 0.001), rule(10, 0.001)]).await;
    assert!(!one.take(&[dropped]).await.unwrap().passed && !other.take(&[dropped]).await.unwrap().passed);
}

/// They wrote a version of capacity 0 when a reload dropped a policy.
#[tokio::test]
async fn a_version_of_older_gateways_without_the_policy_fills_no_bucket() {
    let redis = Redis::start().unwrap();
    let store = RedisBuckets::open(options(&redis, "a")).await;
    configure(&store, &[rule(5, 0.001)]).await;
    for _ in 0..4 {
        assert!(passes(&store, "x").await);
    }
    redis.ask(&["RPUSH", "{a}:rule:policy-0", "9000000000000000 9000000000 0 0 0"]).unwrap();
    redis.ask(&["SET", "{a}:rule::changed", "9000000000000000"]).unwrap();
    let later = RedisBuckets::open(options(&redis, "a")).await;
    configure(&later, &[rule(5, 0.001)]).await;
    assert!(passes(&later, "x").await && !passes(&later, "x").await && !passes(&store, "x").await);
}
