use std::sync::Arc;
use std::time::Duration;

use tidegate_adapters::buckets::memory::{self, MemoryBuckets};
use tidegate_domain::Clock;
use tidegate_domain::limits::Policies;
use tidegate_redis::buckets::{Options, RedisBuckets};

use crate::config::{BucketsSettings, RedisSettings, Settings};
use crate::live_policies::{LivePolicies, ReadPolicies};

use super::redis::endpoint;

/// Well below the shortest life of an idle bucket, a minute.
const SWEEP_PERIOD: Duration = Duration::from_secs(15);

/// The policies of the settings in force, with their buckets where the settings say.
pub async fn policies(
    settings: &Settings,
    clock: Arc<dyn Clock>,
    read: ReadPolicies,
) -> anyhow::Result<Arc<LivePolicies>> {
    // On Redis, for the policies that fall back.
    let local = in_memory(settings.buckets_max, clock);
    let engine = match &settings.buckets {
        BucketsSettings::Memory => Policies::new(local),
        BucketsSettings::Redis(redis) => {
            let shared = RedisBuckets::open(options(redis)?).await;
            Policies::new(Arc::new(shared)).falling_back_on(local)
        }
    };
    Ok(Arc::new(LivePolicies::start(Arc::new(engine), settings.policies.clone(), read).await?))
}

fn in_memory(buckets_max: usize, clock: Arc<dyn Clock>) -> Arc<MemoryBuckets> {
    let buckets = Arc::new(MemoryBuckets::new(memory::Options::new(buckets_max), clock));
    let kept = Arc::downgrade(&buckets);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(SWEEP_PERIOD);
        loop {
            ticks.tick().await;
            let Some(buckets) = kept.upgrade() else { break };
            buckets.sweep();
        }
    });
    buckets
}

fn options(redis: &RedisSettings) -> anyhow::Result<Options> {
    let mut options = Options::new(endpoint(redis)?);
    options.prefix.clone_from(&redis.prefix);
    options.connect_timeout = redis.connect_timeout;
    options.call_timeout = redis.call_timeout;
    options.calls_max = redis.calls_max;
    Ok(options)
}
