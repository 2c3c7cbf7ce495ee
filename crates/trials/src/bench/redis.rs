use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use redis::aio::MultiplexedConnection;
use tidegate_domain::limits::{BucketRule, Buckets as _, PolicyId, PolicyName, PolicyRule, Take};
use tidegate_redis::Endpoint;
use tidegate_redis::buckets::{Options, RedisBuckets};
use tidegate_testkit::services::{Redis, program};

use super::{Scale, median};
use crate::figure::Figure;

const POLICIES: u32 = 3;
const KEYS: usize = 100_000;
/// Calls under way at the same time on the one connection; redis-benchmark calls it pipelining.
const IN_FLIGHT: usize = 64;
/// Enough for a percentile.
const SINGLE_CALLS: usize = 5_000;
/// redis-benchmark gives up when its client has not connected by its first look, a quarter of a second after the start.
const BENCHMARK_TRIES: usize = 5;

/// Policies at the port against `redis-benchmark` with the very same call, and a single call against a PING.
pub(super) fn policies(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let redis = Redis::start()?;
    runtime.block_on(async {
        let store = Arc::new(open(&redis).await?);
        let client = redis::Client::open(redis.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let calls = scale.policy_requests / 5;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let (mut take_us, mut ping_us) = (Vec::new(), Vec::new());
        for _ in 0..scale.rounds {
            theirs.push(their_rate(&redis, &store, calls)?);
            ours.push(our_rate(&store, calls).await?);
            let (take, ping) = p50_us(&store, &mut connection).await?;
            take_us.push(take);
            ping_us.push(ping);
        }
        ensure!(store.counts().failures == 0, "Redis did not answer every call: {:?}", store.counts());
        let (ours, theirs) = (median(ours), median(theirs));
        println!(
            "{POLICIES} policies on Redis, {IN_FLIGHT} calls under way: {ours:.0} calls/s, redis-benchmark {theirs:.0}"
        );
        let (take_us, ping_us) = (median(take_us), median(ping_us));
        println!("one call at a time, p50: {take_us:.0} us, a PING through the same client {ping_us:.0} us");
        Ok(vec![
            Figure::ratio("policies_redis_vs_redis_benchmark", ours / theirs, 0.7),
            Figure::head_room("policies_redis_p50_vs_ping", take_us, 2.0 * ping_us),
        ])
    })
}

/// Policies whose buckets do not run dry here, and a deadline that no hiccup of the machine misses.
async fn open(redis: &Redis) -> anyhow::Result<RedisBuckets> {
    let mut options = Options::new(Endpoint::parse(&redis.url())?);
    (options.call_timeout, options.connect_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
    let store = RedisBuckets::open(options).await;
    let rule = |number: u32| {
        let name = PolicyName::new(&format!("policy-{number}"))?;
        anyhow::Ok(PolicyRule {
            id: PolicyId(number),
            name,
            rule: BucketRule::new(1_000_000, 1_000.0, 1, false)?,
        })
    };
    store.reconfigure(&(0..POLICIES).map(rule).collect::<Result<Vec<_>, _>>()?).await?;
    Ok(store)
}

async fn our_rate(store: &Arc<RedisBuckets>, calls: usize) -> anyhow::Result<f64> {
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let one = |_| {
        let (store, next) = (store.clone(), next.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= calls {
                    return anyhow::Ok(());
                }
                take(&store, number).await?;
            }
        })
    };
    for worker in (0..IN_FLIGHT).map(one).collect::<Vec<_>>() {
        worker.await??;
    }
    Ok(per_second(calls, begun.elapsed()))
}

async fn take(store: &RedisBuckets, number: usize) -> anyhow::Result<()> {
    // In no order that a cache could foresee, as redis-benchmark does.
    let key = format!("client-{:012}", number.wrapping_mul(7_919) % KEYS);
    let takes: Vec<_> = (0..POLICIES).map(|id| Take { policy: PolicyId(id), key: &key }).collect();
    ensure!(store.take(&takes).await?.passed, "a full bucket denied");
    Ok(())
}

async fn ping(connection: &mut MultiplexedConnection) -> anyhow::Result<()> {
    Ok(redis::cmd("PING").query_async(connection).await?)
}

/// Of a take and of a PING, by turns: a machine that slows down does so for both.
async fn p50_us(store: &RedisBuckets, connection: &mut MultiplexedConnection) -> anyhow::Result<(f64, f64)> {
    let (mut takes, mut pings) = (Vec::new(), Vec::new());
    for number in 0..SINGLE_CALLS {
        let begun = Instant::now();
        take(store, number).await?;
        takes.push(begun.elapsed().as_secs_f64() * 1e6);
        let begun = Instant::now();
        ping(connection).await?;
        pings.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok((median(takes), median(pings)))
}

fn their_rate(redis: &Redis, store: &RedisBuckets, calls: usize) -> anyhow::Result<f64> {
    // Twelve digits, like our keys.
    let takes: Vec<_> =
        (0..POLICIES).map(|id| Take { policy: PolicyId(id), key: "client-__rand_int__" }).collect();
    let words = store.words(&takes).context("no policies in force")?;
    let mut command = Command::new(program("redis-benchmark", "redis-tools")?);
    command.args(["-h", "127.0.0.1", "-p", &redis.address.port().to_string()]);
    command.args(["-c", "1", "-P", &IN_FLIGHT.to_string(), "-n", &calls.to_string()]);
    command.args(["-r", &KEYS.to_string(), "--csv"]).args(words);
    for again in (0..BENCHMARK_TRIES).rev() {
        let output = command.output()?;
        let (text, complaint) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
        // "test","rps","avg_latency_ms",… and one line of values in quotes.
        let rate = text.lines().nth(1).and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
        match rate {
            Some(rate) => return Ok(rate),
            None if again > 0 && complaint.contains("All clients disconnected") => {}
            None => bail!("redis-benchmark said {text:?} {complaint:?}"),
        }
    }
    bail!("redis-benchmark was not run")
}

#[expect(clippy::cast_precision_loss, reason = "a count for people")]
fn per_second(calls: usize, elapsed: Duration) -> f64 {
    calls as f64 / elapsed.as_secs_f64()
}
