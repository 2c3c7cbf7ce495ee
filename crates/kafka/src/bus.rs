use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::{Bus, BusError, BusHealth, Claim, Consumer, QueueName};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::consumer::KafkaConsumer;
use crate::options::{OpenError, Options};
use crate::producer::Producer;
use crate::reason::Encryption;
use crate::standing::Standing;
use crate::tls::{Identity, Tls};
use crate::watch::Watch;

/// The [`Bus`] on Kafka.
pub struct KafkaBus {
    options: Options,
    standing: Arc<Standing>,
    producer: Producer,
    watch: Arc<Watch>,
}

impl KafkaBus {
    /// Starts its clients, and gives Kafka a moment to answer. A Kafka that needs longer, is away or refuses is no error
    /// here: the bus says so in its health, and goes on trying.
    pub async fn open(mut options: Options) -> Result<Self, OpenError> {
        options.check()?;
        options.tls = options.tls.map(Tls::with_roots).transpose()?;
        options.tls.iter().filter_map(|tls| tls.identity.as_ref()).try_for_each(Identity::check)?;
        let user = options.login.as_ref().map(|login| login.user.clone());
        let standing = Arc::new(Standing::new(user, Encryption::of(options.tls.as_ref())));
        let producer = Producer::new(&options, &standing)?;
        let looked = Arc::new(Notify::new());
        let watch = Arc::new(Watch::start(&options, &standing, looked.clone())?);
        let end = Instant::now() + options.open_within();
        while standing.health() != BusHealth::Ready && timeout_at(end, looked.notified()).await.is_ok() {}
        Ok(Self { options, standing, producer, watch })
    }

    fn topic(&self, claim: &Claim) -> Result<String, BusError> {
        self.options.routes.name(&claim.queue, claim.lane).ok_or_else(|| stays(&claim.queue))
    }
}

fn stays(queue: &QueueName) -> BusError {
    BusError::Refused(format!("the queue {queue} does not travel over the bus"))
}

#[async_trait]
impl Bus for KafkaBus {
    fn name(&self) -> &'static str {
        "kafka"
    }

    async fn publish(&self, batch: Vec<Claim>) -> Vec<Result<(), BusError>> {
        let deadline = Instant::now() + self.options.publish_within();
        let mut sent = Vec::with_capacity(batch.len());
        for claim in batch {
            sent.push(match self.topic(&claim) {
                Ok(topic) => self.producer.send(&claim, &topic, deadline).await,
                Err(error) => Err(error),
            });
        }
        let mut results = Vec::with_capacity(sent.len());
        for sent in sent {
            results.push(match sent {
                Ok(sent) => self.producer.confirmed(sent, deadline).await,
                Err(error) => Err(error),
            });
        }
        if results.iter().any(Result::is_err) {
            self.watch.hint();
        }
        results
    }

    async fn consumer(&self, queue: QueueName) -> Result<Box<dyn Consumer>, BusError> {
        if !self.options.routes.contains(&queue) {
            return Err(stays(&queue));
        }
        let consumer = KafkaConsumer::join(&self.options, queue, &self.standing, &self.watch)?;
        Ok(Box::new(consumer))
    }

    fn health(&self) -> BusHealth {
        self.standing.health()
    }
}

impl fmt::Debug for KafkaBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaBus").field("options", &self.options).finish_non_exhaustive()
    }
}
