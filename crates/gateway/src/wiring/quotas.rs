use std::sync::Arc;

use anyhow::Context as _;
use tidegate_domain::limits::QuotaCache;
use tidegate_redis::quotas::{Options, RedisQuotas};

use crate::config::{RedisSettings, Settings};

use super::redis::endpoint;

/// The quota accelerator of the settings, if they want one and this process admits messages.
pub async fn quota_cache(settings: &Settings) -> anyhow::Result<Option<Arc<dyn QuotaCache>>> {
    let Some(redis) = settings.accelerator.as_ref().filter(|_| settings.role.serves_api()) else {
        return Ok(None);
    };
    let cache = RedisQuotas::open(options(redis)?).await.context("no randomness for tickets")?;
    Ok(Some(Arc::new(cache)))
}

fn options(redis: &RedisSettings) -> anyhow::Result<Options> {
    let mut options = Options::new(endpoint(redis)?);
    options.connect_timeout = redis.connect_timeout;
    options.call_timeout = redis.call_timeout;
    options.calls_max = redis.calls_max;
    Ok(options)
}
