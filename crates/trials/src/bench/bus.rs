mod outage;
mod relay;
mod yardsticks;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tidegate_testkit::cluster::{Broker, BusKind};
use tidegate_testkit::services::{NoKafka, Postgres, PostgresOptions};

use super::send::{CONNECTIONS, Sends, configure, run_for};
use super::server::Server;
use super::{Scale, median, median_ratio};
use crate::figure::Figure;

const ROUNDS: usize = 5;
const DELIVERED_WITHIN: Duration = Duration::from_secs(120);

/// A gateway and a sender on PostgreSQL, with a bus between them and without one: the whole way of a message; the relay
/// alone against a bare producer; and an outage of the broker.
pub(super) fn bus(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = Postgres::start(PostgresOptions { durable: true, settings: Vec::new() })?;
    let mut figures = Vec::new();
    for (name, kind) in [("kafka", BusKind::Kafka), ("rabbitmq", BusKind::RabbitMq)] {
        let mut broker = match Broker::start(kind) {
            Err(error) if error.is::<NoKafka>() => {
                println!("not measured: {error}");
                continue;
            }
            broker => broker?.context("a broker")?,
        };
        let mut bench = Bench { server: &server, broker: &mut broker, name, dir, scale };
        figures.extend(runtime.block_on(bench.run())?);
    }
    Ok(figures)
}

struct Bench<'a> {
    server: &'a Postgres,
    broker: &'a mut Broker,
    name: &'static str,
    dir: &'a Path,
    scale: Scale,
}

/// One process that takes requests and one that sends.
struct Pair {
    gateway: Server,
    _sender: Server,
    /// What the sender has printed.
    output: PathBuf,
}

impl Bench<'_> {
    async fn run(&mut self) -> anyhow::Result<Vec<Figure>> {
        let name = self.name;
        let (with, without) = (self.pair("with", true).await?, self.pair("without", false).await?);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds.min(ROUNDS) {
            theirs.push(self.flow(&without).await?);
            ours.push(self.flow(&with).await?);
        }
        println!(
            "sent, delivered and settled: over {name} {:.0} /s, without a bus {:.0} /s",
            median(ours.clone()),
            median(theirs.clone())
        );
        drop((with, without));
        let flow = Figure::ratio(&format!("bus_{name}_flow_vs_none"), median_ratio(&ours, &theirs), 0.5);
        let mut figures = vec![flow];
        figures.extend(relay::relay(self).await?);
        figures.push(outage::outage(self).await?);
        Ok(figures)
    }

    /// On a database of its own, and names of its own on the bus.
    async fn pair(&self, label: &str, travels: bool) -> anyhow::Result<Pair> {
        let database = self.server.new_name();
        self.server.sql("postgres", &format!("CREATE DATABASE {database}"))?;
        let config = |role: &str| {
            let path = self.dir.join(format!("{}-{label}-{role}.toml", self.name));
            let bus = if travels { format!("[bus]\n{}", self.broker.settings(0)) } else { String::new() };
            let text = format!(
                "server.role = \"{role}\"\n[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"{}\"\n{bus}\
                 [[queues]]\nname = \"sms\"\nchannel = \"log\"\ntopic = \"{label}\"\n",
                self.server.url(&database)
            );
            std::fs::write(&path, text).map(|()| path)
        };
        let data = self.dir.join("unused");
        let gateway = Server::durable_with(&data, &config("gateway")?)?;
        gateway.ready().await?;
        let output = self.dir.join(format!("{}-{label}.out", self.name));
        let sender = Server::printing(&data, &config("sender")?, &output)?;
        sender.ready().await?;
        configure(&gateway).await?;
        Ok(Pair { gateway, _sender: sender, output })
    }

    /// How fast messages are sent and delivered when both go on at once: until the last one is settled.
    async fn flow(&self, pair: &Pair) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let sources = (0..CONNECTIONS).map(Sends::new).collect();
        let report = run_for(pair.gateway.address, sources, self.scale.send_seconds).await;
        ensure!(report.statuses.keys().all(|status| *status == 200) && report.unknown == 0, "{report}");
        pair.gateway.all_delivered(DELIVERED_WITHIN).await?;
        Ok(count(report.responses()) / begun.elapsed().as_secs_f64())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count for people")]
fn count(number: u64) -> f64 {
    number as f64
}
