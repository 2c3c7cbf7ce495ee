use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};

use crate::client::log;
use crate::standing::Standing;

/// What the client tells a member of a group while it polls. Dealt with after the poll, by whoever polled.
pub struct Happenings {
    standing: Arc<Standing>,
    news: Mutex<Vec<Happening>>,
    leaving: AtomicBool,
}

pub enum Happening {
    Assigned(TopicPartitionList),
    Revoked(TopicPartitionList),
}

impl Happenings {
    pub fn new(standing: Arc<Standing>) -> Self {
        Self { standing, news: Mutex::default(), leaving: AtomicBool::new(false) }
    }

    pub fn take(&self) -> Vec<Happening> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on partitions are given back as they are revoked.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    pub fn tell(&self, happening: Happening) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(happening);
    }
}

impl ClientContext for Happenings {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.standing.hear(error.rdkafka_error_code(), reason);
    }
}

impl ConsumerContext for Happenings {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        if self.leaving.load(Ordering::SeqCst) {
            if let Err(error) = give_back(consumer, partitions) {
                tracing::debug!("Kafka: partitions can't be given back by who leaves: {error}");
            }
        } else if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.tell(Happening::Assigned(partitions.clone()));
        } else {
            self.tell(Happening::Revoked(partitions.clone()));
        }
    }
}

/// Between the rebalance and this call the group may have gone on, and have no protocol for a moment. The calls of our own,
/// the cooperative one, are right then, too: a group is eager only where other programs are members of it.
pub fn accept(consumer: &BaseConsumer<Happenings>, partitions: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Eager => consumer.assign(partitions),
        _ => consumer.incremental_assign(partitions),
    }
}

pub fn give_back(consumer: &BaseConsumer<Happenings>, partitions: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Eager => consumer.unassign(),
        _ => consumer.incremental_unassign(partitions),
    }
}
