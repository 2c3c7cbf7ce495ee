//! The quota accelerator's scripts on a real Redis.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tidegate_redis::quotas::{Counted, QuotaCache, Window};
use tidegate_testkit::services::{Cluster, Redis, RedisOptions};

const HOUR_MS: u64 = 3_600_000;

struct Bench {
    redis: Redis,
    cache: Arc<QuotaCache>,
    connection: MultiplexedConnection,
}

impl Bench {
    async fn open(options: RedisOptions) -> Self {
        let redis = Redis::start_with(options).unwrap();
        let client = redis::Client::open(redis.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self { redis, cache: Arc::default(), connection }
    }

    async fn charge(&self, user: &str, messages: u32, ticket: &str) -> Counted {
        self.cache.charge(self.connection.clone(), user, messages, ticket).await.unwrap()
    }

    async fn fill(&self, user: &str, ticket: &str, limit: u64, count: u64) -> bool {
        let window = Window { limit, count, rest_ms: HOUR_MS };
        self.cache.fill(self.connection.clone(), user, ticket, window).await.unwrap()
    }

    /// A user who is known, with so many counted.
    async fn know(&self, user: &str, limit: u64, count: u64) {
        assert_eq!(self.charge(user, 1, "setup").await, Counted::Unknown { fill: true });
        assert!(self.fill(user, "setup", limit, count).await);
    }
}

fn counts(counted: Counted) -> (bool, u64) {
    match counted {
        Counted::Passed(window) => (true, window.count),
        Counted::Denied(window) => (false, window.count),
        Counted::Unknown { .. } => panic!("unknown"),
    }
}

#[tokio::test]
async fn the_hash_has_the_names_and_the_life_that_others_expect() {
    let bench = Bench::open(RedisOptions::default()).await;
    bench.know("1001", 5, 2).await;
    assert_eq!(counts(bench.charge("1001", 1, "t").await), (true, 3));
    let all = bench.redis.ask(&["HGETALL", "RateLimiterCache:1001"]).unwrap();
    for part in ["rateLimit\r\n$1\r\n5", "currentCount\r\n$1\r\n3"] {
        assert!(all.contains(part), "{all}");
    }
    let Counted::Passed(window) = bench.charge("1001", 1, "t").await else { panic!("denied") };
    assert!(window.limit == 5 && (HOUR_MS - 20_000..=HOUR_MS).contains(&window.rest_ms), "{window:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_place_goes_to_exactly_one_of_many() {
    let bench = Bench::open(RedisOptions::default()).await;
    bench.know("alice", 50, 49).await;
    let one = |_| {
        let (cache, connection) = (bench.cache.clone(), bench.connection.clone());
        tokio::spawn(async move { cache.charge(connection, "alice", 1, "t").await.unwrap() })
    };
    let mut passed = 0;
    for charge in (0..100).map(one).collect::<Vec<_>>() {
        passed += u32::from(counts(charge.await.unwrap()).0);
    }
    assert_eq!(passed, 1);
    assert_eq!(counts(bench.charge("alice", 1, "t").await), (false, 50), "denials count nothing");
}

#[tokio::test]
async fn many_messages_are_counted_together_or_not_at_all() {
    let bench = Bench::open(RedisOptions::default()).await;
    bench.know("alice", 5, 0).await;
    assert_eq!(counts(bench.charge("alice", 4, "t").await), (true, 4));
    assert_eq!(counts(bench.charge("alice", 2, "t").await), (false, 4));
    assert_eq!(counts(bench.charge("alice", 1, "t").await), (true, 5));
    bench.know("bob", 1, 0).await;
    assert_eq!(counts(bench.charge("bob", 1, "t").await), (true, 1), "users do not share");
}

#[tokio::test]
async fn one_caller_fills_and_the_others_are_told_so() {
    let bench = Bench::open(RedisOptions::default()).await;
    assert_eq!(bench.charge("alice", 1, "first").await, Counted::Unknown { fill: true });
    assert_eq!(bench.charge("alice", 1, "second").await, Counted::Unknown { fill: false });
    assert!(!bench.fill("alice", "second", 5, 0).await);
    assert!(bench.fill("alice", "first", 5, 0).await);
    assert_eq!(counts(bench.charge("alice", 1, "third").await), (true, 1));
}

#[tokio::test]
async fn what_was_read_before_a_change_is_not_put_down_after_it() {
    let bench = Bench::open(RedisOptions::default()).await;
    assert_eq!(bench.charge("alice", 1, "slow").await, Counted::Unknown { fill: true });
    bench.cache.forget(bench.connection.clone(), "alice").await.unwrap();
    assert!(!bench.fill("alice", "slow", 5, 5).await, "the old limit");
    bench.know("alice", 9, 0).await;
    assert_eq!(counts(bench.charge("alice", 1, "t").await), (true, 1));
    bench.cache.forget(bench.connection.clone(), "alice").await.unwrap();
    assert_eq!(bench.charge("alice", 1, "t").await, Counted::Unknown { fill: true });
}

#[tokio::test]
async fn an_emptied_redis_and_a_window_without_an_end_are_read_anew() {
    let bench = Bench::open(RedisOptions::default()).await;
    bench.know("alice", 5, 5).await;
    bench.redis.ask(&["FLUSHALL"]).unwrap();
    bench.know("alice", 5, 4).await;
    bench.redis.ask(&["PERSIST", "RateLimiterCache:alice"]).unwrap();
    bench.know("alice", 5, 4).await;
    assert_eq!(counts(bench.charge("alice", 1, "t").await), (true, 5));
}

#[tokio::test]
async fn each_user_is_a_slot_of_a_cluster() {
    let bench = Bench::open(RedisOptions { cluster: Cluster::AllSlots, ..RedisOptions::default() }).await;
    for user in ["1001", "a b", "{a}b", "}{", "a%7Bb", "a{b"] {
        bench.know(user, 5, 0).await;
        assert_eq!(counts(bench.charge(user, 1, "t").await), (true, 1), "{user}");
        bench.cache.forget(bench.connection.clone(), user).await.unwrap();
    }
}
