//! The quota accelerator on a real Redis.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_domain::limits::{Count, Counted, Quota, QuotaCache as _, QuotaWindow, Ticket};
use tidegate_domain::{Timestamp, UserId};
use tidegate_redis::Endpoint;
use tidegate_redis::quotas::{Options, RedisQuotas};
use tidegate_testkit::HANG;
use tidegate_testkit::services::{Cluster, FaultyProxy, Redis, RedisOptions};

const HOUR_MS: u64 = 3_600_000;
/// Longer than any test needs to fill.
const TICKET_MS: u64 = 60_000;
/// The ledger's clock is nobody else's.
const BEGUN: Timestamp = Timestamp::from_millis(7_000_000);

struct Bench {
    redis: Redis,
    cache: Arc<RedisQuotas>,
}

impl Bench {
    async fn open(options: RedisOptions) -> Self {
        let redis = Redis::start_with(options).unwrap();
        let cache = Arc::new(cache(&redis.url(), Duration::from_secs(5)).await);
        Self { redis, cache }
    }

    async fn new() -> Self {
        Self::open(RedisOptions::default()).await
    }

    async fn ticket(&self, name: &str) -> Ticket {
        match self.cache.count(&user(name), Count::One).await {
            Counted::Unknown(Some(ticket)) => ticket,
            other => panic!("no ticket: {other:?}"),
        }
    }

    /// A user who is known, with so many counted.
    async fn know(&self, name: &str, limit: u32, count: u32) {
        let ticket = self.ticket(name).await;
        self.cache.learn(&user(name), window(limit, count), Some(ticket)).await;
    }

    async fn counts(&self, name: &str) -> (bool, u32) {
        counts(self.cache.count(&user(name), Count::One).await)
    }

    fn hash(&self, name: &str) -> String {
        self.redis.ask(&["HGETALL", &format!("RateLimiterCache:{name}")]).unwrap()
    }
}

async fn cache(url: &str, call_timeout: Duration) -> RedisQuotas {
    let mut options = Options::new(Endpoint::parse(url).unwrap());
    (options.call_timeout, options.connect_timeout) = (call_timeout, Duration::from_secs(5));
    options.ticket_ms = TICKET_MS;
    RedisQuotas::open(options).await.unwrap()
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

/// A minute into a window of an hour.
fn window(limit: u32, count: u32) -> QuotaWindow {
    let quota = Quota { count, ..Quota::new(limit, HOUR_MS, BEGUN) };
    QuotaWindow { quota, at: BEGUN.plus_ms(60_000) }
}

fn counts(counted: Counted) -> (bool, u32) {
    match counted {
        Counted::Passed(window) => (true, window.quota.count),
        Counted::Denied(window) => (false, window.quota.count),
        other => panic!("{other:?}"),
    }
}

async fn eventually(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < HANG, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_hash_has_the_names_and_the_life_that_others_expect() {
    let bench = Bench::new().await;
    bench.know("1001", 5, 2).await;
    assert_eq!(bench.counts("1001").await, (true, 3));
    let all = bench.hash("1001");
    for part in ["rateLimit\r\n$1\r\n5", "currentCount\r\n$1\r\n3", "windowMs\r\n$7\r\n3600000"] {
        assert!(all.contains(part), "{all}");
    }
    let Counted::Passed(seen) = bench.cache.count(&user("1001"), Count::One).await else { panic!("denied") };
    assert!(seen.is_same_as(&window(5, 0)), "in the ledger's time: {seen:?}");
    let rest = HOUR_MS - 60_000;
    assert!((rest - 20_000..=rest).contains(&seen.rest_ms()), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_place_goes_to_exactly_one_of_many() {
    let bench = Bench::new().await;
    bench.know("alice", 50, 49).await;
    let one = |_| {
        let cache = bench.cache.clone();
        tokio::spawn(async move { counts(cache.count(&user("alice"), Count::One).await).0 })
    };
    let mut passed = 0;
    for charge in (0..100).map(one).collect::<Vec<_>>() {
        passed += u32::from(charge.await.unwrap());
    }
    assert_eq!(passed, 1);
    assert_eq!(bench.counts("alice").await, (false, 50), "denials count nothing");
}

#[tokio::test]
async fn a_look_counts_nothing_and_takes_no_ticket() {
    let bench = Bench::new().await;
    let look = || async { bench.cache.count(&user("alice"), Count::Look).await };
    assert_eq!(look().await, Counted::Unknown(None));
    bench.know("alice", 5, 4).await;
    assert_eq!((counts(look().await), counts(look().await)), ((true, 4), (true, 4)));
    assert_eq!(bench.counts("alice").await, (true, 5));
    assert_eq!(counts(look().await), (false, 5));
}

#[tokio::test]
async fn one_caller_fills_and_the_others_are_told_so() {
    let bench = Bench::new().await;
    let first = bench.ticket("alice").await;
    assert_eq!(bench.cache.count(&user("alice"), Count::One).await, Counted::Unknown(None));
    for stranger in [None, Some(Ticket("somebody else's".to_owned()))] {
        bench.cache.learn(&user("alice"), window(5, 0), stranger).await;
        assert_eq!(bench.cache.count(&user("alice"), Count::One).await, Counted::Unknown(None));
    }
    bench.cache.learn(&user("alice"), window(5, 0), Some(first)).await;
    assert_eq!(bench.counts("alice").await, (true, 1));
}

#[tokio::test]
async fn what_was_read_before_a_change_is_not_put_down_after_it() {
    let bench = Bench::new().await;
    let slow = bench.ticket("alice").await;
    bench.cache.forget(&user("alice")).await;
    bench.cache.learn(&user("alice"), window(5, 5), Some(slow)).await;
    bench.know("alice", 9, 0).await;
    assert_eq!(bench.counts("alice").await, (true, 1), "not the old limit");
    bench.cache.forget(&user("alice")).await;
    bench.ticket("alice").await;
}

#[tokio::test]
async fn what_the_ledger_says_raises_the_count_and_never_lowers_it() {
    let bench = Bench::new().await;
    bench.know("alice", 5, 2).await;
    bench.cache.learn(&user("alice"), window(5, 4), None).await;
    assert_eq!(bench.counts("alice").await, (true, 5));
    bench.cache.learn(&user("alice"), window(5, 1), None).await;
    assert_eq!(bench.counts("alice").await, (false, 5));
}

#[tokio::test]
async fn a_window_that_is_not_the_ledgers_is_forgotten() {
    let bench = Bench::new().await;
    let mut next = window(5, 1);
    next.quota.since = BEGUN.plus_ms(HOUR_MS);
    for other in [window(6, 1), next] {
        bench.know("alice", 5, 5).await;
        bench.cache.learn(&user("alice"), other, None).await;
        bench.redis.ask(&["DEL", "{RateLimiterCache:alice}:ticket"]).unwrap();
        bench.know("alice", 6, 5).await;
        assert_eq!(bench.counts("alice").await, (true, 6));
        bench.cache.forget(&user("alice")).await;
    }
}

#[tokio::test]
async fn the_hash_ends_before_the_window_does() {
    let bench = Bench::new().await;
    let ticket = bench.ticket("alice").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut short = window(5, 5);
    short.at = BEGUN.plus_ms(HOUR_MS - 60_000);
    bench.cache.learn(&user("alice"), short, Some(ticket)).await;
    let Counted::Denied(seen) = bench.cache.count(&user("alice"), Count::One).await else { panic!() };
    assert!(seen.rest_ms() <= 59_700, "the time since the ticket was given is off: {seen:?}");
    // Over before it was told of.
    let ticket = bench.ticket("bob").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    short.at = BEGUN.plus_ms(HOUR_MS - 10);
    bench.cache.learn(&user("bob"), short, Some(ticket)).await;
    bench.ticket("bob").await;
}

#[tokio::test]
async fn an_emptied_redis_and_a_window_with_a_wrong_end_are_read_anew() {
    let bench = Bench::new().await;
    bench.know("alice", 5, 5).await;
    bench.redis.ask(&["FLUSHALL"]).unwrap();
    bench.know("alice", 5, 4).await;
    bench.redis.ask(&["PERSIST", "RateLimiterCache:alice"]).unwrap();
    bench.know("alice", 5, 4).await;
    bench.redis.ask(&["PEXPIRE", "RateLimiterCache:alice", "3660000"]).unwrap();
    bench.know("alice", 5, 4).await;
    assert_eq!(bench.counts("alice").await, (true, 5));
    bench.redis.ask(&["HDEL", "RateLimiterCache:alice", "windowMs"]).unwrap();
    bench.know("alice", 5, 5).await;
    assert_eq!(bench.counts("alice").await, (false, 5));
}

#[tokio::test]
async fn each_user_is_a_slot_of_a_cluster() {
    let bench = Bench::open(RedisOptions { cluster: Cluster::AllSlots, ..RedisOptions::default() }).await;
    for name in ["1001", "a b", "{a}b", "}{", "a%7Bb", "a{b"] {
        bench.know(name, 5, 0).await;
        assert_eq!(bench.counts(name).await, (true, 1), "{name}");
        bench.cache.forget(&user(name)).await;
        bench.ticket(name).await;
    }
}

#[tokio::test]
async fn a_cluster_of_several_nodes_is_as_good_as_away() {
    let options = |cluster| RedisOptions { cluster, ..RedisOptions::default() };
    let one = Redis::start_with(options(Cluster::AllSlots)).unwrap();
    let other = Redis::start_with(options(Cluster::NoSlots)).unwrap();
    one.hand_over("somebody", &other).unwrap();
    eventually("the nodes' agreement", async || {
        one.ask(&["CLUSTER", "INFO"]).unwrap().contains("cluster_size:2")
    })
    .await;
    assert!(cache(&one.url(), Duration::from_secs(5)).await.is_away());
}

#[tokio::test]
async fn a_change_that_redis_could_not_be_told_of_is_told_before_anybody_asks() {
    let bench = Bench::new().await;
    bench.know("alice", 5, 5).await;
    bench.know("bob", 5, 5).await;
    let proxy = FaultyProxy::start(bench.redis.address).await.unwrap();
    let far = cache(&format!("redis://{}/", proxy.address), Duration::from_secs(5)).await;
    assert_eq!(counts(far.count(&user("alice"), Count::One).await), (false, 5));
    proxy.cut();
    eventually("the cut", async || far.count(&user("alice"), Count::One).await == Counted::Away).await;
    far.forget(&user("alice")).await;
    assert_eq!(bench.counts("alice").await, (false, 5), "nobody was told yet");
    proxy.heal();
    eventually("the return", async || !far.is_away()).await;
    assert!(matches!(far.count(&user("alice"), Count::One).await, Counted::Unknown(Some(_))));
    assert_eq!(counts(far.count(&user("bob"), Count::One).await), (false, 5));
}

#[tokio::test]
async fn a_change_that_was_lost_with_its_connection_is_told_again() {
    let bench = Bench::new().await;
    bench.know("alice", 5, 5).await;
    let proxy = FaultyProxy::start(bench.redis.address).await.unwrap();
    let far = cache(&format!("redis://{}/", proxy.address), Duration::from_millis(250)).await;
    proxy.stall();
    far.forget(&user("alice")).await;
    proxy.cut();
    eventually("the cut", async || far.count(&user("bob"), Count::One).await == Counted::Away).await;
    assert_eq!(bench.counts("alice").await, (false, 5), "nobody was told yet");
    proxy.heal();
    eventually("the news", async || bench.hash("alice").starts_with("*0")).await;
}

#[tokio::test]
async fn a_change_that_found_no_room_is_told_on_the_same_connection() {
    let bench = Bench::new().await;
    bench.know("alice", 5, 5).await;
    let mut options = Options::new(Endpoint::parse(&bench.redis.url()).unwrap());
    (options.call_timeout, options.connect_timeout, options.calls_max) = (HANG, HANG, 1);
    let narrow = RedisQuotas::open(options).await.unwrap();
    bench.redis.stop().unwrap();
    let (bob, alice) = (user("bob"), user("alice"));
    let (waiting, ()) = tokio::join!(narrow.count(&bob, Count::One), async {
        tokio::task::yield_now().await;
        narrow.forget(&alice).await;
        bench.redis.resume().unwrap();
    });
    assert!(matches!(waiting, Counted::Unknown(Some(_))), "{waiting:?}");
    eventually("the news", async || bench.hash("alice").starts_with("*0")).await;
    assert!(!narrow.is_away());
}
