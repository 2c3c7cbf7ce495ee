use std::sync::Arc;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use tidegate_domain::Clock as _;
use tidegate_domain::limits::{BucketCounts, Buckets, BucketsError, PolicyRule, Standing, Take, Taken};
use tidegate_redis::buckets::{RedisBuckets, Time};
use tidegate_testkit::TestClock;
use tidegate_testkit::services::Redis;

use crate::steps::{self, options};

/// The store with a clock of the test's choosing, which it finds in a key.
#[derive(Debug)]
pub struct Clocked {
    pub store: RedisBuckets,
    clock: Arc<TestClock>,
    key: String,
    connection: MultiplexedConnection,
}

impl Clocked {
    pub async fn open(redis: &Redis, prefix: &str, clock: Arc<TestClock>) -> anyhow::Result<Self> {
        let key = format!("{{{prefix}}}:clock");
        let mut options = options(redis, prefix);
        options.time = Time::Key(key.clone());
        let mut connection = steps::connect(redis).await;
        // The first probe asks for the time already.
        set(&mut connection, &key, clock.monotonic_ns()).await;
        Ok(Self { store: RedisBuckets::open(options).await, clock, key, connection })
    }

    async fn set_clock(&self) {
        set(&mut self.connection.clone(), &self.key, self.clock.monotonic_ns()).await;
    }
}

pub async fn set(connection: &mut MultiplexedConnection, key: &str, now_ns: u64) {
    let now = format!("{} {}", now_ns / 1_000_000_000, now_ns % 1_000_000_000);
    let () = redis::cmd("SET").arg(key).arg(now).query_async(connection).await.unwrap();
}

#[async_trait]
impl Buckets for Clocked {
    async fn take(&self, takes: &[Take<'_>]) -> Result<Taken, BucketsError> {
        self.set_clock().await;
        self.store.take(takes).await
    }
    async fn peek(&self, bucket: Take<'_>) -> Result<Option<Standing>, BucketsError> {
        self.set_clock().await;
        self.store.peek(bucket).await
    }
    async fn reset(&self, bucket: Take<'_>) -> Result<(), BucketsError> {
        self.store.reset(bucket).await
    }
    async fn reconfigure(&self, rules: &[PolicyRule]) -> Result<(), BucketsError> {
        self.set_clock().await;
        self.store.reconfigure(rules).await
    }
    fn counts(&self) -> BucketCounts {
        self.store.counts()
    }
}
