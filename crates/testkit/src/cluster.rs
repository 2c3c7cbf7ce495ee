//! Gateways and senders on one PostgreSQL and one Redis, with a bus between them if wanted, all of them real processes: with faults on command, traffic
//! over all gateways, a provider outside, and a judge of what clients and provider have seen.

mod ask;
mod bus;
mod fault;
mod node;
mod pulls;
mod sabotage;
mod slots;
mod traffic;
mod verdict;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::ask::{PATIENCE, Reply, ask};
use crate::HANG;
use crate::WebProvider;
use crate::journal::{Tried, WebAnswer};
use crate::services::{FaultyProxy, Postgres, PostgresOptions, Redis};

pub use self::bus::{Broker, BusKind};
pub use self::fault::Fault;
pub use self::node::Node;
pub use self::sabotage::Sabotage;
pub use self::traffic::{Notes, Traffic};
pub use self::verdict::ClusterVerdict;

/// Attempts that one sender has under way, or has not settled yet, at the most.
pub const IN_FLIGHT_MAX: usize = 8;
/// How long a node may take to be ready once a fault is over.
pub const READY_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
const PROVIDER_TAKES: Duration = Duration::from_millis(15);
/// Longer than any run, so that a limit holds over all of it.
const QUOTA_MINUTES: u32 = 10_080;

#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub binary: PathBuf,
    pub gateways: usize,
    pub senders: usize,
    pub lease_ms: u64,
    /// By how many seconds each node's wall clock is wrong, gateways first. Left out: right.
    pub clock_skews: Vec<i64>,
    /// Further settings of the server.
    pub postgres: Vec<(String, String)>,
    /// Whether nodes leave it to the server what it syncs.
    pub allow_unsafe_server: bool,
    pub bus: BusKind,
}

#[derive(Debug)]
pub struct Cluster {
    pub gateways: Vec<Node>,
    pub senders: Vec<Node>,
    pub postgres: Postgres,
    pub redis: Redis,
    pub broker: Option<Broker>,
    pub provider: WebProvider,
    to_postgres: FaultyProxy,
    to_redis: FaultyProxy,
    lease: Duration,
    replays: usize,
    _dir: TempDir,
}

impl ClusterOptions {
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        let (clock_skews, postgres) = (Vec::new(), Vec::new());
        Self {
            binary: binary.into(),
            gateways: 3,
            senders: 2,
            lease_ms: 3_000,
            clock_skews,
            postgres,
            allow_unsafe_server: false,
            bus: BusKind::None,
        }
    }
}

impl Cluster {
    /// Starts everything and waits until it is ready.
    pub async fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("tidegate-cluster-").tempdir()?;
        let (postgres, redis, broker) = tokio::try_join!(
            run_blocking({
                let mut settings = vec![("deadlock_timeout".to_owned(), "100ms".to_owned())];
                settings.extend(options.postgres.clone());
                move || Postgres::start(PostgresOptions { durable: true, settings })
            }),
            run_blocking(Redis::start),
            run_blocking(move || Broker::start(options.bus))
        )?;
        let to_postgres = FaultyProxy::start(postgres.address).await?;
        let to_redis = FaultyProxy::start(redis.address).await?;
        let provider = WebProvider::start(Duration::ZERO, answer)?;
        let shared = node::Shared {
            binary: options.binary,
            postgres: to_postgres.address,
            redis: to_redis.address,
            provider: provider.clone(),
            lease_ms: options.lease_ms,
            allow_unsafe_server: options.allow_unsafe_server,
            bus: broker.as_ref().map(|broker| broker.settings(0)),
        };
        let node = |role: &'static str, number: usize, place: usize| {
            let skew = options.clock_skews.get(place).copied().unwrap_or(0);
            Node::start(shared.clone(), dir.path(), role, number, skew)
        };
        let gateways = (0..options.gateways).map(|n| node("gateway", n, n)).collect::<anyhow::Result<_>>()?;
        let senders = (0..options.senders)
            .map(|n| node("sender", n, options.gateways + n))
            .collect::<anyhow::Result<_>>()?;
        let lease = Duration::from_millis(options.lease_ms);
        let cluster = Self {
            gateways,
            senders,
            postgres,
            redis,
            broker,
            provider,
            to_postgres,
            to_redis,
            lease,
            replays: 0,
            _dir: dir,
        };
        cluster.ready_within(HANG).await?;
        Ok(cluster)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.gateways.iter().chain(&self.senders)
    }

    pub async fn get(&self, gateway: usize, path: &str) -> anyhow::Result<Reply> {
        let reply = ask(self.gateways[gateway].address, "GET", path, &[], b"", PATIENCE).await;
        reply.with_context(|| format!("gateway {gateway} does not answer {path}"))
    }

    pub async fn post(&self, gateway: usize, path: &str, body: &Value) -> anyhow::Result<Reply> {
        let reply =
            ask(self.gateways[gateway].address, "POST", path, &[], body.to_string().as_bytes(), PATIENCE)
                .await;
        reply.with_context(|| format!("gateway {gateway} does not answer {path}"))
    }

    pub async fn configure(&self, user: &str, limit: u32) -> anyhow::Result<()> {
        let quota = json!({"userId": user, "rateLimit": limit, "timeWindow": QUOTA_MINUTES});
        let reply = self.post(0, "/api/config", &quota).await?;
        ensure!(reply.status == 200, "{reply:?}");
        Ok(())
    }

    /// All nodes at the same time; how long that took.
    pub async fn ready_within(&self, within: Duration) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        loop {
            let probes: Vec<_> = self.nodes().map(|node| (node, tokio::spawn(node.is_ready()))).collect();
            let mut waiting = None;
            for (node, ready) in probes {
                if !ready.await? {
                    ensure!(!node.has_ended(), "{} has ended:\n{}", node.name, node.last_words());
                    waiting = Some(node);
                }
            }
            match waiting {
                None => return Ok(begun.elapsed()),
                Some(node) if begun.elapsed() > within => {
                    bail!("{} is not ready after {within:?}:\n{}", node.name, node.last_words());
                }
                Some(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// Waits until nothing is pending, and reads the books. Stuck is what does not get less, however much it is.
    pub async fn drained(&self) -> anyhow::Result<Value> {
        let (mut least, mut since) = (u64::MAX, Instant::now());
        loop {
            let totals = self.get(0, "/api/v1/stats").await?.body["totals"].take();
            let pending = totals["pending"].as_u64().context("books without a count of what is pending")?;
            match pending {
                0 => return Ok(totals),
                less if less < least => (least, since) = (less, Instant::now()),
                _ => ensure!(since.elapsed() < HANG, "it is stuck: {totals}"),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub fn deadlocks(&self) -> anyhow::Result<usize> {
        Ok(self.postgres.log()?.matches("deadlock detected").count())
    }
}

/// Slow enough for a recipient's messages to line up, and some first attempts fail: a head that has to be tried again must
/// hold the others back.
fn answer(tried: &Tried) -> WebAnswer {
    std::thread::sleep(PROVIDER_TAKES);
    let fails = tried.number == 1 && tried.message.ends_with(['1', '5']);
    if fails { WebAnswer::Fail } else { WebAnswer::Take }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await?
}
