use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tidegate_domain::limits::{
    BucketRule, Buckets, BucketsError, PolicyId, PolicyName, PolicyRule, Take, Taken,
};
use tidegate_redis::Endpoint;
use tidegate_redis::buckets::{Options, RedisBuckets};
use tidegate_testkit::services::Redis;

/// For what has to happen, on a machine that is busy with other tests.
pub use tidegate_testkit::HANG;

/// With deadlines that a busy machine keeps.
pub fn options(redis: &Redis, prefix: &str) -> Options {
    options_at(&redis.url(), prefix)
}

pub fn options_at(url: &str, prefix: &str) -> Options {
    let mut options = Options::new(Endpoint::parse(url).unwrap());
    options.prefix = prefix.to_owned();
    (options.call_timeout, options.connect_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
    options
}

/// For a Redis that stalls: a short deadline. A busy machine may miss it when Redis is well.
pub fn strict(url: &str) -> Options {
    let mut options = Options::new(Endpoint::parse(url).unwrap());
    options.call_timeout = Duration::from_millis(250);
    options
}

pub async fn connect(redis: &Redis) -> MultiplexedConnection {
    redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

pub fn rule(capacity: u32, refill: f64) -> BucketRule {
    BucketRule::new(capacity, refill, 1, false).unwrap()
}

/// Rules numbered from zero.
pub async fn configure(store: &RedisBuckets, rules: &[BucketRule]) {
    let name = |id: u32| PolicyName::new(&format!("policy-{id}")).unwrap();
    let numbered =
        rules.iter().zip(0..).map(|(rule, id)| PolicyRule { id: PolicyId(id), name: name(id), rule: *rule });
    store.reconfigure(&numbered.collect::<Vec<_>>()).await.unwrap();
}

pub async fn take(store: &RedisBuckets, key: &str) -> Result<Taken, BucketsError> {
    store.take(&[Take { policy: PolicyId(0), key }]).await
}

pub async fn passes(store: &RedisBuckets, key: &str) -> bool {
    take(store, key).await.unwrap().passed
}

pub async fn remaining(store: &RedisBuckets, key: &str) -> u32 {
    store.peek(Take { policy: PolicyId(0), key }).await.unwrap().unwrap().remaining
}

pub async fn eventually<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(begun.elapsed() < HANG, "it did not happen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
