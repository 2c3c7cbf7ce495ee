use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer as _};
use tidegate_domain::{BusError, Claim};
use tokio::time::Instant;

use crate::client::{Events, bus_error, settings};
use crate::options::{OpenError, Options};
use crate::standing::Standing;

/// What waits in this process, over all topics.
const WAITING_MAX: &str = "50000";
const WAITING_KIB_MAX: &str = "65536";
/// Between two tries to find room among those.
const ROOM_EVERY: Duration = Duration::from_millis(5);
/// Key, headers and what a batch needs, beside the record.
const ENVELOPE_BYTES_MAX: usize = 64 * 1_024;

/// Publishes records, each confirmed by all replicas.
pub struct Producer {
    config: ClientConfig,
    standing: Arc<Standing>,
    record_bytes_max: usize,
    /// Another one after an error from which a client does not recover.
    client: Mutex<Client>,
}

type Client = FutureProducer<Events>;

impl Producer {
    pub fn new(options: &Options, standing: &Arc<Standing>) -> Result<Self, OpenError> {
        let mut config = settings(options);
        // Expired records are looked for once a second only, and then the deadline must not have passed.
        let record_ms = options.publish_ms * 3 / 4;
        config.set("acks", "all").set("enable.idempotence", "true").set("partitioner", "murmur2_random");
        config.set("linger.ms", "2").set("delivery.timeout.ms", record_ms.to_string());
        config.set("request.timeout.ms", record_ms.to_string());
        config.set("queue.buffering.max.messages", WAITING_MAX);
        config.set("queue.buffering.max.kbytes", WAITING_KIB_MAX);
        config.set("message.max.bytes", (options.record_bytes_max + ENVELOPE_BYTES_MAX).to_string());
        // For so long after its creation nobody may know a topic.
        config.set("topic.metadata.propagation.max.ms", "1000");
        let client = start(&config, standing).map_err(|error| OpenError::Client(error.to_string()))?;
        let (standing, record_bytes_max) = (standing.clone(), options.record_bytes_max);
        Ok(Self { config, standing, record_bytes_max, client: Mutex::new(client) })
    }

    /// Hands a record over to the client, or fails when there is no room for it before the deadline.
    pub async fn send(&self, claim: &Claim, topic: &str, deadline: Instant) -> Result<Sent, BusError> {
        let client = self.client();
        let (key, trace) = (tidegate_bus::key(claim), tidegate_bus::traceparent(claim));
        let bytes = tidegate_bus::encode(claim, self.record_bytes_max);
        let headers = OwnedHeaders::new_with_capacity(2)
            .insert(Header { key: "content-type", value: Some(tidegate_bus::CONTENT_TYPE) })
            .insert(Header { key: "traceparent", value: Some(&trace) });
        let mut record = FutureRecord::to(topic).key(&key).payload(&bytes).headers(headers);
        loop {
            match client.send_result(record) {
                Ok(delivery) => return Ok(Sent { delivery, topic: topic.to_owned() }),
                Err((KafkaError::MessageProduction(Code::QueueFull), again)) if Instant::now() < deadline => {
                    record = again;
                    tokio::time::sleep_until((Instant::now() + ROOM_EVERY).min(deadline)).await;
                }
                Err((error, _)) => return Err(self.failed(&error, topic)),
            }
        }
    }

    /// Waits for the confirmation.
    pub async fn confirmed(&self, sent: Sent, deadline: Instant) -> Result<(), BusError> {
        match tokio::time::timeout_at(deadline, sent.delivery).await {
            Ok(Ok(Ok(_))) => Ok(()),
            Ok(Ok(Err((error, _)))) => Err(self.failed(&error, &sent.topic)),
            Ok(Err(_)) => Err(BusError::Away("the Kafka client was replaced".to_owned())),
            Err(_) => Err(self.unconfirmed(&sent.topic)),
        }
    }

    fn failed(&self, error: &KafkaError, topic: &str) -> BusError {
        match error.rdkafka_error_code() {
            Some(Code::MessageTimedOut | Code::QueueFull) => self.unconfirmed(topic),
            code => {
                self.replace_if_broken();
                bus_error(code, &format!("the topic {topic}"), error)
            }
        }
    }

    /// In time. The reason is known better to those who watch.
    fn unconfirmed(&self, topic: &str) -> BusError {
        let known = self.standing.trouble(topic);
        known.unwrap_or_else(|| BusError::Away(format!("the topic {topic}: no confirmation in time")))
    }

    fn replace_if_broken(&self) {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((code, reason)) = client.client().fatal_error() {
            tracing::warn!("the Kafka producer is replaced: {code}: {reason}");
            // Where a new one can't be made, the broken one answers with its error, and this is tried again.
            if let Ok(new) = start(&self.config, &self.standing) {
                *client = new;
            }
        }
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub struct Sent {
    delivery: DeliveryFuture,
    topic: String,
}

fn start(config: &ClientConfig, standing: &Arc<Standing>) -> rdkafka::error::KafkaResult<Client> {
    config.create_with_context(Events(standing.clone()))
}
