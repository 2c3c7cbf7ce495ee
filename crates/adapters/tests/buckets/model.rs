use std::sync::Arc;

use async_trait::async_trait;
use tidegate_adapters::buckets::memory::{MemoryBuckets, Options};
use tidegate_testkit::TestClock;
use tidegate_testkit::buckets::{BucketsBackend, OpenBuckets, Pressure, compare_buckets_with_model};

struct MemoryBackend(Options);

#[async_trait]
impl BucketsBackend for MemoryBackend {
    async fn open(&self, clock: Arc<TestClock>) -> anyhow::Result<OpenBuckets> {
        let buckets = Arc::new(MemoryBuckets::new(self.0, clock));
        let swept = buckets.clone();
        Ok(OpenBuckets { buckets, sweep: Box::new(move || swept.sweep()) })
    }
}

tidegate_testkit::bucket_cases!(MemoryBackend(Options { buckets_max: 10_000, shards: 8 }));

#[test]
fn it_answers_as_the_model_does() {
    let backend = MemoryBackend(Options { buckets_max: 10_000, shards: 8 });
    compare_buckets_with_model(400, Pressure::None, &backend);
}

#[test]
fn under_pressure_nobody_gains_a_token() {
    for (buckets_max, shards) in [(1, 1), (6, 1), (16, 4)] {
        let backend = MemoryBackend(Options { buckets_max, shards });
        compare_buckets_with_model(200, Pressure::Evicting, &backend);
    }
}
