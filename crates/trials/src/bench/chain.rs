//! One recipient with many messages: each waits for the one before it, so what counts is how long one of them takes.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_testkit::cluster::{Broker, BusKind};
use tidegate_testkit::services::{NoKafka, Postgres, PostgresOptions};

use super::cycle::body;
use super::server::Server;
use super::{Scale, median};
use crate::figure::Figure;

const BATCH: usize = 500;
const ROUNDS: usize = 3;
const RECIPIENTS: usize = 1_000;
const STALLED_FOR: Duration = Duration::from_secs(60);
/// Messages of one recipient in a second, to a provider that answers at once.
const EMBEDDED_FLOOR: f64 = 2_000.0;
const POSTGRES_FLOOR: f64 = 500.0;
const BUS_FLOOR: f64 = 300.0;

/// One recipient's messages on every ledger and over every bus, each beside as many messages of many recipients.
pub(super) fn chain(dir: &Path, scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = Postgres::start(PostgresOptions { durable: true, settings: Vec::new() })?;
    let bench = Bench { dir, scale, server: &server };
    runtime.block_on(async {
        let mut figures = vec![bench.run("embedded", "", EMBEDDED_FLOOR).await?];
        figures.push(bench.run("postgres", &bench.database()?, POSTGRES_FLOOR).await?);
        for (name, kind) in [("kafka", BusKind::Kafka), ("rabbitmq", BusKind::RabbitMq)] {
            let broker = match Broker::start(kind) {
                Err(error) if error.is::<NoKafka>() => {
                    println!("not measured: {error}");
                    continue;
                }
                broker => broker?,
            };
            let bus = broker.iter().map(|broker| format!("[bus]\n{}", broker.settings(0)));
            let config = format!("{}{}", bench.database()?, bus.collect::<String>());
            figures.push(bench.run(name, &config, BUS_FLOOR).await?);
        }
        Ok(figures)
    })
}

struct Bench<'a> {
    dir: &'a Path,
    scale: Scale,
    server: &'a Postgres,
}

impl Bench<'_> {
    /// The settings of a ledger in a database of its own.
    fn database(&self) -> anyhow::Result<String> {
        let database = self.server.new_name();
        self.server.sql("postgres", &format!("CREATE DATABASE {database}"))?;
        Ok(format!("[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"{}\"\n", self.server.url(&database)))
    }

    async fn run(&self, name: &str, settings: &str, floor: f64) -> anyhow::Result<Figure> {
        let config = self.dir.join(format!("chain-{name}.toml"));
        let queue = "[[queues]]\nname = \"chain\"\nchannel = \"log\"\n";
        std::fs::write(&config, format!("{settings}{queue}"))?;
        let gateway = Server::durable_with(&self.dir.join(format!("chain-{name}")), &config)?;
        gateway.ready().await?;
        let (mut one, mut many) = (Vec::new(), Vec::new());
        for _ in 0..self.scale.rounds.min(ROUNDS) {
            one.push(deliver(&gateway, 1, self.scale.chain_messages).await?);
            many.push(deliver(&gateway, RECIPIENTS, self.scale.chain_messages).await?);
        }
        let (one, many) = (median(one), median(many));
        println!("{name}: one recipient {one:.0}/s, {RECIPIENTS} recipients {many:.0}/s");
        Ok(Figure::ratio(&format!("chain_{name}_vs_{floor:.0}_per_second"), one / floor, 1.0))
    }
}

/// Messages per second, from the first admission to the last settlement.
async fn deliver(gateway: &Server, recipients: usize, messages: usize) -> anyhow::Result<f64> {
    let text = String::from_utf8(body().to_vec())?;
    let begun = Instant::now();
    for first in (0..messages).step_by(BATCH) {
        let message =
            |n: usize| json!({"queue": "chain", "recipient": format!("r{}", n % recipients), "body": text});
        let batch: Vec<_> = (first..messages.min(first + BATCH)).map(message).collect();
        gateway.post_with("/api/v1/messages/batch", &[], &json!({"messages": batch}).to_string()).await?;
    }
    gateway.all_delivered(STALLED_FOR).await?;
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let count = messages as f64;
    Ok(count / begun.elapsed().as_secs_f64())
}
