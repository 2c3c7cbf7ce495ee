use anyhow::Context as _;
use tidegate_redis::Endpoint;

use crate::config::RedisSettings;

pub fn endpoint(redis: &RedisSettings) -> anyhow::Result<Endpoint> {
    let endpoint = Endpoint::parse(&redis.url).context("redis.url")?;
    let Some(path) = &redis.tls_roots else { return Ok(endpoint) };
    let place = || format!("redis.tls_roots: {}", path.display());
    let roots = std::fs::read(path).with_context(place)?;
    endpoint.trusting(&roots).with_context(place)
}
