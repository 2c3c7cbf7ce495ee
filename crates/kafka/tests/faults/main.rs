//! What the Kafka bus makes of a real Kafka that fails. Left out, and said so, where Kafka can't be fetched.

#[path = "../support/backend.rs"]
mod backend;
mod broker;
mod killed_sender;
mod login;
mod topics;

use std::future::Future;
use std::sync::LazyLock;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use tidegate_domain::{Bus, BusHealth, Claim, Consumer};
use tidegate_testkit::HANG;
use tidegate_testkit::bus::claim;
use tidegate_testkit::services::{Kafka, KafkaOptions, NoKafka};
use tokio::time::{sleep, timeout};

const RECIPIENTS: u64 = 7;

fn kafka(options: &KafkaOptions) -> Option<Kafka> {
    match Kafka::start_with(options) {
        Err(error) if error.is::<NoKafka>() => {
            println!("left out: {error:#}");
            None
        }
        started => Some(started.expect("a private Kafka")),
    }
}

/// For those who leave it as it was.
fn shared() -> Option<&'static Kafka> {
    static SHARED: LazyLock<Option<Kafka>> = LazyLock::new(|| kafka(&KafkaOptions::default()));
    SHARED.as_ref()
}

fn claims(range: std::ops::Range<u64>) -> Vec<Claim> {
    range.map(|n| claim(n, &format!("r-{}", n % RECIPIENTS))).collect()
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(HANG, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

async fn until(bus: &dyn Bus, what: &str, wanted: impl Fn(&BusHealth) -> bool) -> BusHealth {
    let turned = async {
        loop {
            let health = bus.health();
            if wanted(&health) {
                return health;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let turned = timeout(HANG, turned).await;
    turned.unwrap_or_else(|_| panic!("not in time: {what}; {:?}", bus.health()))
}

async fn until_ready(bus: &dyn Bus) {
    until(bus, "Kafka is ready", |health| *health == BusHealth::Ready).await;
}

async fn until_away(bus: &dyn Bus) -> String {
    match until(bus, "Kafka is away", |health| *health != BusHealth::Ready).await {
        BusHealth::Away(why) => why,
        BusHealth::Ready => unreachable!(),
    }
}

/// Receives until all of these have come, whatever happens meanwhile.
async fn received(consumer: &mut dyn Consumer, mut wanted: Vec<Claim>) {
    while !wanted.is_empty() {
        let claims = consumer.receive(100, 200).await.unwrap_or_default();
        wanted.retain(|claim| !claims.contains(claim));
    }
}

async fn receive_all(consumer: &mut dyn Consumer, wanted: Vec<Claim>) {
    in_time("what was confirmed is received", received(consumer, wanted)).await;
}

fn admin(kafka: &Kafka) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", kafka.bootstrap()).create().expect("an admin")
}
