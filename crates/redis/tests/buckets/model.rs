use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tidegate_testkit::TestClock;
use tidegate_testkit::buckets::{BucketsBackend, OpenBuckets, Pressure, compare_buckets_with_model};
use tidegate_testkit::services::Redis;

use crate::clocked::Clocked;

/// A Redis of its own, and a prefix for every store in it.
struct RedisBackend {
    redis: Redis,
    stores: AtomicU32,
}

impl RedisBackend {
    fn new() -> Self {
        Self { redis: Redis::start().unwrap(), stores: AtomicU32::new(0) }
    }
}

#[async_trait]
impl BucketsBackend for RedisBackend {
    async fn open(&self, clock: Arc<TestClock>) -> anyhow::Result<OpenBuckets> {
        let prefix = format!("store-{}", self.stores.fetch_add(1, Ordering::Relaxed));
        Ok(OpenBuckets::new(Arc::new(Clocked::open(&self.redis, &prefix, clock).await?)))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

tidegate_testkit::bucket_cases!(RedisBackend::new());

#[test]
fn it_answers_as_the_model_does() {
    compare_buckets_with_model(150, Pressure::None, &RedisBackend::new());
}
