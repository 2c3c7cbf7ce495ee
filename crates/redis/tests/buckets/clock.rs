use tidegate_domain::limits::{Buckets as _, PolicyId, Take};
use tidegate_redis::buckets::{RedisBuckets, Time};
use tidegate_testkit::services::Redis;

use crate::clocked::set;
use crate::steps::{configure, connect, options, passes, remaining, rule};

const S: u64 = 1_000_000_000;
const NOON: u64 = 1_763_208_000 * S;

#[tokio::test]
async fn a_clock_set_back_gives_nothing_and_takes_nothing() {
    let redis = Redis::start().unwrap();
    let mut side = connect(&redis).await;
    set(&mut side, "clock", NOON).await;
    let mut options = options(&redis, "back");
    options.time = Time::Key("clock".to_owned());
    let store = RedisBuckets::open(options).await;
    configure(&store, &[rule(5, 1.0)]).await;
    for left in [4, 3, 2, 1, 0] {
        assert!(passes(&store, "a").await);
        assert_eq!(remaining(&store, "a").await, left);
    }
    // An hour back: not a token more, and no hour to wait for the next one.
    set(&mut side, "clock", NOON - 3_600 * S).await;
    assert_eq!(remaining(&store, "a").await, 0);
    assert!(!passes(&store, "a").await);
    set(&mut side, "clock", NOON - 3_599 * S).await;
    assert!(passes(&store, "a").await && !passes(&store, "a").await);
    // The hour runs once more, and fills it to the brim and no further.
    set(&mut side, "clock", NOON + S).await;
    assert_eq!(remaining(&store, "a").await, 5);
}

#[tokio::test]
async fn a_bucket_lives_twice_as_long_as_it_takes_to_fill() {
    let redis = Redis::start().unwrap();
    let store = RedisBuckets::open(options(&redis, "ttl")).await;
    for (rule, ttl_ms) in [
        (rule(1_000, 1.0), 2_000_000),
        (rule(10, 10.0), 60_000),
        (rule(10, 0.0), 3_602_000),
        (rule(3, 0.7), 60_000),
    ] {
        configure(&store, &[rule]).await;
        assert!(passes(&store, "a").await);
        let mut side = connect(&redis).await;
        let left: u64 =
            redis::cmd("PTTL").arg("{ttl}:bucket:policy-0:a").query_async(&mut side).await.unwrap();
        assert!((ttl_ms - 20_000..=ttl_ms).contains(&left), "{left} of {ttl_ms}");
        store.reset(Take { policy: PolicyId(0), key: "a" }).await.unwrap();
    }
}
