use std::time::{Duration, Instant};

use tidegate_domain::limits::{Buckets, BucketsError};
use tidegate_redis::buckets::RedisBuckets;
use tidegate_testkit::services::{FaultyProxy, Redis, RedisOptions};
use tokio::time::timeout;

use crate::steps::{HANG, configure, eventually, options, options_at, passes, rule, strict, take};

async fn is_away(store: &RedisBuckets) {
    let BucketsError::Unavailable(_) = take(store, "x").await.unwrap_err();
}

async fn comes_back(store: &RedisBuckets) {
    eventually(async || take(store, "someone else").await.ok()).await;
    assert!(!store.counts().away);
}

/// With a deadline that a busy machine may miss.
async fn passes_in_the_end(store: &RedisBuckets) {
    assert!(eventually(async || take(store, "x").await.ok()).await.passed);
}

async fn goes_away(store: &RedisBuckets) {
    eventually(async || store_away(store).await.then_some(())).await;
    let failures = store.counts().failures;
    // From now on nobody waits: a thousand deadlines would be minutes.
    let begun = Instant::now();
    for _ in 0..1_000 {
        is_away(store).await;
    }
    assert!(begun.elapsed() < HANG, "a thousand calls took {:?}", begun.elapsed());
    assert!(store.counts().failures >= failures + 1_000);
}

async fn store_away(store: &RedisBuckets) -> bool {
    let _ = timeout(HANG, take(store, "x")).await.expect("an answer");
    store.counts().away
}

#[tokio::test]
async fn a_killed_redis_is_away_at_once_and_comes_back_by_itself() {
    let mut redis = Redis::start().unwrap();
    let store = RedisBuckets::open(options(&redis, "tidegate")).await;
    configure(&store, &[rule(3, 0.001)]).await;
    assert!(passes(&store, "x").await);
    redis.kill().unwrap();
    goes_away(&store).await;
    redis.restart().unwrap();
    comes_back(&store).await;
    for passes_now in [true, true, true, false] {
        assert_eq!(passes(&store, "x").await, passes_now, "an empty Redis has full buckets");
    }
}

#[tokio::test]
async fn a_stalled_redis_costs_a_few_deadlines_and_then_nothing() {
    let redis = Redis::start().unwrap();
    let store = RedisBuckets::open(strict(&redis.url())).await;
    configure(&store, &[rule(1_000, 0.001)]).await;
    passes_in_the_end(&store).await;
    redis.stop().unwrap();
    goes_away(&store).await;
    redis.resume().unwrap();
    comes_back(&store).await;
    passes_in_the_end(&store).await;
}

#[tokio::test]
async fn a_network_that_stalls_or_cuts_heals() {
    let redis = Redis::start().unwrap();
    let proxy = FaultyProxy::start(redis.address).await.unwrap();
    let store = RedisBuckets::open(strict(&format!("redis://{}/", proxy.address))).await;
    configure(&store, &[rule(1_000_000, 1.0)]).await;
    passes_in_the_end(&store).await;
    for fault in [FaultyProxy::stall, FaultyProxy::cut, FaultyProxy::stall] {
        fault(&proxy);
        goes_away(&store).await;
        proxy.heal();
        comes_back(&store).await;
        passes_in_the_end(&store).await;
    }
}

#[tokio::test]
async fn rules_are_put_in_force_when_redis_comes() {
    let mut redis = Redis::start().unwrap();
    redis.kill().unwrap();
    let store = RedisBuckets::open(options(&redis, "tidegate")).await;
    assert!(store.counts().away);
    configure(&store, &[rule(3, 0.001)]).await;
    // Not a rule that nobody knows, but a store that nobody can ask.
    is_away(&store).await;
    redis.restart().unwrap();
    comes_back(&store).await;
    for passes_now in [true, true, true, false] {
        assert_eq!(passes(&store, "x").await, passes_now);
    }
    redis.kill().unwrap();
    goes_away(&store).await;
    configure(&store, &[rule(1, 0.001)]).await;
    redis.restart().unwrap();
    comes_back(&store).await;
    assert!(passes(&store, "x").await && !passes(&store, "x").await, "the last rules, not those of before");
}

#[tokio::test]
async fn an_emptied_redis_and_forgotten_scripts_are_no_failure() {
    let redis = Redis::start().unwrap();
    let store = RedisBuckets::open(options(&redis, "tidegate")).await;
    configure(&store, &[rule(1, 0.001)]).await;
    assert!(passes(&store, "x").await && !passes(&store, "x").await);
    redis.ask(&["SCRIPT", "FLUSH"]).unwrap();
    assert!(!passes(&store, "x").await);
    redis.ask(&["FLUSHALL"]).unwrap();
    assert!(
        passes(&store, "x").await && !passes(&store, "x").await,
        "full once more, as any store that forgot"
    );
    assert_eq!(store.counts().failures, 0);
}

#[tokio::test]
async fn a_redis_that_takes_no_writes_is_away() {
    let redis = Redis::start().unwrap();
    let store = RedisBuckets::open(options(&redis, "tidegate")).await;
    configure(&store, &[rule(1_000, 0.001)]).await;
    assert!(passes(&store, "x").await);
    // A replica of nobody, as after a failover that has not told everyone yet.
    redis.ask(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    goes_away(&store).await;
    redis.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    comes_back(&store).await;
}

#[tokio::test]
async fn without_the_password_it_is_away_and_the_password_is_never_said() {
    let password = Some("open-sesame".to_owned());
    let redis = Redis::start_with(RedisOptions { password, ..RedisOptions::default() }).unwrap();
    let store = RedisBuckets::open(options(&redis, "tidegate")).await;
    configure(&store, &[rule(1_000, 0.001)]).await;
    assert!(passes(&store, "x").await);
    assert!(!format!("{store:?}").contains("sesame"));
    let stranger = RedisBuckets::open(options_at(&redis.url().replace("sesame", "barley"), "tidegate")).await;
    configure(&stranger, &[rule(1_000, 0.001)]).await;
    is_away(&stranger).await;
}

#[tokio::test]
async fn calls_beyond_the_bound_fail_at_once_and_are_no_failure_of_redis() {
    let redis = Redis::start().unwrap();
    let mut options = options(&redis, "tidegate");
    options.calls_max = 1;
    let store = RedisBuckets::open(options).await;
    configure(&store, &[rule(1_000, 0.001)]).await;
    redis.stop().unwrap();
    let (waiting, refused) = tokio::join!(take(&store, "x"), async {
        tokio::task::yield_now().await;
        let refused = take(&store, "y").await;
        redis.resume().unwrap();
        refused
    });
    assert!(waiting.unwrap().passed);
    let BucketsError::Unavailable(why) = refused.unwrap_err();
    assert!(why.contains("too many"), "{why}");
    assert!(!store.counts().away);
}

#[tokio::test]
async fn a_redis_that_answers_probes_alone_is_not_dialled_without_a_pause() {
    let redis = Redis::start().unwrap();
    let store = RedisBuckets::open(options(&redis, "tidegate")).await;
    configure(&store, &[rule(1_000, 0.001)]).await;
    assert!(passes(&store, "x").await);
    let keys = ["~{tidegate}:probe", "~{tidegate}:rule:*"];
    redis.ask(&[&["ACL", "SETUSER", "default", "resetkeys"][..], &keys].concat()).unwrap();
    let (before, begun) = (connections(&redis), Instant::now());
    while begun.elapsed() < Duration::from_secs(2) {
        take(&store, "x").await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Some while the pauses grow, then one a second; one is ours.
    let (made, bound) = (connections(&redis) - before - 1, 6 + begun.elapsed().as_secs());
    assert!((1..=bound).contains(&made), "{made} connections of {bound} at most");
    redis.ask(&["ACL", "SETUSER", "default", "allkeys"]).unwrap();
    comes_back(&store).await;
}

fn connections(redis: &Redis) -> u64 {
    let said = redis.ask(&["INFO", "stats"]).unwrap();
    said.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap().parse().unwrap()
}
