use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_domain::limits::{Buckets as _, PolicyId, Take};
use tidegate_redis::buckets::RedisBuckets;
use tidegate_testkit::services::Redis;

use crate::steps::{configure, connect, options, passes, remaining, rule};

#[tokio::test]
async fn gateways_share_buckets_and_prefixes_do_not() {
    let redis = Redis::start().unwrap();
    let (one, two) =
        (RedisBuckets::open(options(&redis, "a")).await, RedisBuckets::open(options(&redis, "a")).await);
    let other = RedisBuckets::open(options(&redis, "b")).await;
    for store in [&one, &two, &other] {
        configure(store, &[rule(2, 0.0)]).await;
    }
    assert!(passes(&one, "x").await && passes(&two, "x").await);
    assert!(!passes(&one, "x").await && !passes(&two, "x").await);
    assert!(passes(&other, "x").await);
}

#[tokio::test]
async fn a_gateway_that_was_not_reloaded_learns_the_newer_rule() {
    let redis = Redis::start().unwrap();
    let (reloaded, old) =
        (RedisBuckets::open(options(&redis, "a")).await, RedisBuckets::open(options(&redis, "a")).await);
    for store in [&reloaded, &old] {
        configure(store, &[rule(100, 0.001)]).await;
    }
    assert!(passes(&old, "x").await);
    configure(&reloaded, &[rule(3, 0.001)]).await;
    assert_eq!(remaining(&reloaded, "x").await, 3);
    assert!(passes(&reloaded, "x").await);
    // By turns, the two give out no more than the newer rule has.
    assert!(passes(&old, "x").await && passes(&reloaded, "x").await);
    assert!(!passes(&old, "x").await && !passes(&reloaded, "x").await);
    assert_eq!(remaining(&old, "y").await, 3, "it has learned");
}

#[tokio::test]
async fn emptied_versions_are_no_reason_to_fill_or_to_empty_a_bucket() {
    let redis = Redis::start().unwrap();
    let one = RedisBuckets::open(options(&redis, "a")).await;
    configure(&one, &[rule(10, 0.001)]).await;
    redis.ask(&["FLUSHALL"]).unwrap();
    for _ in 0..4 {
        assert!(passes(&one, "x").await);
    }
    // One that comes after knows nothing of the versions before.
    let two = RedisBuckets::open(options(&redis, "a")).await;
    configure(&two, &[rule(10, 0.001)]).await;
    assert_eq!((remaining(&two, "x").await, remaining(&one, "x").await), (6, 6));
    assert!(passes(&two, "x").await && passes(&one, "x").await);
    assert_eq!((remaining(&two, "x").await, remaining(&one, "x").await), (4, 4));
    let three = RedisBuckets::open(options(&redis, "a")).await;
    configure(&three, &[rule(3, 0.001)]).await;
    assert_eq!(remaining(&three, "x").await, 3);
}

#[tokio::test]
async fn what_somebody_else_wrote_there_gives_nobody_a_full_bucket() {
    let redis = Redis::start().unwrap();
    let store = RedisBuckets::open(options(&redis, "a")).await;
    configure(&store, &[rule(10, 0.001)]).await;
    redis.ask(&["SET", "{a}:bucket:policy-0:x", "gibberish"]).unwrap();
    assert!(!passes(&store, "x").await);
    redis.ask(&["SET", "{a}:bucket:policy-0:x", "seventeen letters1 0 0"]).unwrap();
    assert!(!passes(&store, "x").await);
}

/// Against the clock on the wall: over any interval, no more than capacity + rate × interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_together_admit_no_more_than_one_may() {
    let (capacity, rate) = (20, 500.0);
    let redis = Redis::start().unwrap();
    let clock = async || {
        let mut side = connect(&redis).await;
        let (s, us): (f64, f64) = redis::cmd("TIME").query_async(&mut side).await.unwrap();
        s + us / 1e6
    };
    let (before, mut clients) = (clock().await, Vec::new());
    for _ in 0..2 {
        let store = Arc::new(RedisBuckets::open(options(&redis, "a")).await);
        configure(&store, &[rule(capacity, rate), rule(1_000_000, 0.0)]).await;
        for _ in 0..8 {
            let store = store.clone();
            clients.push(tokio::spawn(async move {
                let (begun, mut admitted) = (Instant::now(), 0_u32);
                while begun.elapsed() < Duration::from_millis(700) {
                    let both =
                        [Take { policy: PolicyId(0), key: "x" }, Take { policy: PolicyId(1), key: "x" }];
                    admitted += u32::from(store.take(&both).await.unwrap().passed);
                }
                admitted
            }));
        }
    }
    let mut admitted = 0;
    for client in clients {
        admitted += client.await.unwrap();
    }
    let lasted = clock().await - before;
    assert!(f64::from(admitted) <= f64::from(capacity) + rate * lasted, "{admitted} in {lasted} s");
    assert!(admitted > capacity, "hardly anything passed: {admitted}");
    let store = RedisBuckets::open(options(&redis, "a")).await;
    configure(&store, &[rule(capacity, rate), rule(1_000_000, 0.0)]).await;
    let left = store.peek(Take { policy: PolicyId(1), key: "x" }).await.unwrap().unwrap().remaining;
    assert_eq!(left, 1_000_000 - admitted, "a denied take spent something, or an admitted one nothing");
}
