use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use tidegate_bus::Routes;
use tidegate_domain::Bus;
use tidegate_kafka::{KafkaBus, Options};
use tidegate_testkit::HANG;
use tidegate_testkit::bus::{BusBackend, queue};

/// Nothing here is about time, and the machine may be busy.
const PUBLISH_MS: u64 = 20_000;

/// Topics and groups of its own on a Kafka that others use too.
#[derive(Debug)]
pub struct Backend {
    pub servers: String,
    pub prefix: String,
}

impl Backend {
    pub fn new(servers: String) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { servers, prefix: format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)) }
    }

    pub fn options(&self) -> Options {
        let names = ["sms", "jobs"].map(|name| (queue(name), format!("{}-{name}", self.prefix)));
        Options {
            group: self.prefix.clone(),
            partitions: 4,
            publish_ms: PUBLISH_MS,
            open_ms: PUBLISH_MS,
            ..Options::new(self.servers.clone(), Routes::new(names))
        }
    }

    pub fn sms(&self) -> String {
        format!("{}-sms", self.prefix)
    }

    pub async fn bus(&self) -> KafkaBus {
        KafkaBus::open(self.options()).await.expect("the bus opens")
    }
}

#[async_trait]
impl BusBackend for Backend {
    async fn open(&self) -> anyhow::Result<Arc<dyn Bus>> {
        Ok(Arc::new(KafkaBus::open(self.options()).await?))
    }

    async fn put(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut config = ClientConfig::new();
        let stranger: FutureProducer = config.set("bootstrap.servers", &self.servers).create()?;
        let topic = self.sms();
        let record: FutureRecord<'_, [u8], [u8]> = FutureRecord::to(&topic).payload(bytes);
        stranger.send(record, HANG).await.map_err(|(error, _)| error)?;
        Ok(())
    }
}
