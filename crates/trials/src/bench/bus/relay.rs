use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use async_trait::async_trait;
use tidegate::relay::Relay;
use tidegate::stop::StopSignal;
use tidegate_adapters::SystemClock;
use tidegate_adapters::embedded::{self, Embedded};
use tidegate_bus::Routes;
use tidegate_domain::{
    Admission, Bus, BusError, BusHealth, Claim, Consumer, Ledger, QueueName, Recipient, RetryPolicy, Transit,
};
use tidegate_kafka::KafkaBus;
use tidegate_postgres::Postgres;
use tidegate_rabbitmq::RabbitBus;
use tidegate_testkit::cluster::Broker;
use tokio::sync::Notify;

use super::{Bench, count, yardsticks};
use crate::bench::cycle::body;
use crate::bench::{median, median_ratio};
use crate::figure::Figure;

const ADMITTED_AT_ONCE: usize = 2_000;
const HOUR_MS: u64 = 3_600_000;
const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS: usize = 3;

/// What waits in a ledger, taken to the bus, against a bare producer that publishes as many records of the same size:
/// from PostgreSQL, and from the embedded ledger, which says what the relay itself costs.
pub(super) async fn relay(bench: &Bench<'_>) -> anyhow::Result<Vec<Figure>> {
    let (name, messages) = (bench.name, bench.scale.relay_messages);
    let (mut bare, mut shared, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.scale.rounds.min(ROUNDS) {
        bare.push(yardsticks::publish(bench.broker, messages, &format!("bare-{round}")).await?);
        let database = bench.server.new_name();
        bench.server.sql("postgres", &format!("CREATE DATABASE {database}"))?;
        let options = tidegate_postgres::Options::new(bench.server.url(&database));
        let ledger = Arc::new(Postgres::open(options).await?);
        shared.push(run(ledger, bench.broker, messages, &format!("shared-{round}")).await?);
        let dir = bench.dir.join(format!("relay-{name}-{round}"));
        let clock = Arc::new(SystemClock::default());
        let ledger = Arc::new(Embedded::open(embedded::Options::new(dir), clock)?);
        own.push(run(ledger, bench.broker, messages, &format!("own-{round}")).await?);
    }
    println!(
        "relayed to {name}: from PostgreSQL {:.0} /s, from the embedded ledger {:.0} /s, a bare producer {:.0} /s",
        median(shared.clone()),
        median(own.clone()),
        median(bare.clone())
    );
    Ok(vec![
        Figure::ratio(&format!("bus_{name}_relay_vs_producer"), median_ratio(&shared, &bare), 0.5),
        Figure::ratio(&format!("bus_{name}_relay_embedded_vs_producer"), median_ratio(&own, &bare), 0.5),
    ])
}

/// Until the last record is confirmed.
async fn run(
    ledger: Arc<impl Ledger + Transit>,
    broker: &Broker,
    messages: usize,
    topic: &str,
) -> anyhow::Result<f64> {
    let queue = QueueName::new("sms")?;
    // Everybody is a recipient of their own: nobody waits for anybody.
    for first in (0..messages).step_by(ADMITTED_AT_ONCE) {
        let admission = |n: usize| {
            let recipient = Recipient::new(&format!("r{n}"))?;
            anyhow::Ok(Admission { recipient: Some(recipient), ..Admission::new(queue.clone(), body()) })
        };
        let batch =
            (first..messages.min(first + ADMITTED_AT_ONCE)).map(admission).collect::<Result<_, _>>()?;
        ledger.admit(batch).await?;
    }
    let bus = Arc::new(Counted::new(open(broker, &queue, topic).await?, messages));
    let relay = Relay {
        queue,
        ledger: ledger.clone(),
        transit: ledger,
        bus: bus.clone(),
        batch: 1_024,
        in_transit_max: messages,
        transit_ms: HOUR_MS,
        retry: RetryPolicy { attempts_max: 5, base_ms: 1_000, max_ms: 1_000, ack_within_ms: 1_000 },
        tally: Arc::default(),
    };
    let begun = Instant::now();
    let (signal, stop) = StopSignal::new();
    let relaying = tokio::spawn(relay.run(stop));
    let all = tokio::time::timeout(PATIENCE, bus.all.notified()).await;
    let elapsed = begun.elapsed();
    signal.stop();
    relaying.await?;
    let confirmed = bus.confirmed.load(Ordering::Relaxed);
    ensure!(all.is_ok() && confirmed == messages, "{confirmed} of {messages} were published");
    Ok(count(u64::try_from(messages)?) / elapsed.as_secs_f64())
}

async fn open(broker: &Broker, queue: &QueueName, topic: &str) -> anyhow::Result<Arc<dyn Bus>> {
    let routes = Routes::new([(queue.clone(), topic.to_owned())]);
    Ok(match broker {
        Broker::Kafka(kafka) => {
            let options = tidegate_kafka::Options::new(kafka.bootstrap(), routes);
            // What is measured begins with a bus that is ready.
            Arc::new(KafkaBus::open(tidegate_kafka::Options { open_ms: 30_000, ..options }).await?)
        }
        Broker::RabbitMq(rabbitmq) => {
            Arc::new(RabbitBus::open(tidegate_rabbitmq::Options::new(rabbitmq.url(), routes)).await?)
        }
    })
}

/// A bus that says when so many records are confirmed.
#[derive(Debug)]
struct Counted {
    bus: Arc<dyn Bus>,
    expected: usize,
    confirmed: AtomicUsize,
    all: Notify,
}

impl Counted {
    fn new(bus: Arc<dyn Bus>, expected: usize) -> Self {
        Self { bus, expected, confirmed: AtomicUsize::new(0), all: Notify::new() }
    }
}

#[async_trait]
impl Bus for Counted {
    fn name(&self) -> &'static str {
        self.bus.name()
    }

    async fn publish(&self, batch: Vec<Claim>) -> Vec<Result<(), BusError>> {
        let results = self.bus.publish(batch).await;
        let confirmed = results.iter().filter(|result| result.is_ok()).count();
        if self.confirmed.fetch_add(confirmed, Ordering::Relaxed) + confirmed >= self.expected {
            self.all.notify_one();
        }
        results
    }

    async fn consumer(&self, queue: QueueName) -> Result<Box<dyn Consumer>, BusError> {
        self.bus.consumer(queue).await
    }

    fn health(&self) -> BusHealth {
        self.bus.health()
    }
}
