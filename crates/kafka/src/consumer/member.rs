use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaResult;
use tidegate_domain::{BusError, Lane, QueueName};

use super::desk::Desk;
use super::happenings::Happenings;
use super::session::{End, Session};
use super::strange::Strange;
use crate::client::settings;
use crate::options::Options;
use crate::standing::Standing;
use crate::watch::Watch;

const REJOIN_AFTER: Duration = Duration::from_secs(1);

/// Polls for a consumer, in a thread of its own, for as long as the consumer lives.
pub struct Member {
    config: ClientConfig,
    /// The first one. Made early, so that whoever joins hears of settings that are refused.
    client: BaseConsumer<Happenings>,
    pub places: Places,
    standing: Arc<Standing>,
    watch: Arc<Watch>,
    desk: Arc<Desk>,
}

/// Which queue is received, and the topics of its lanes.
pub struct Places {
    pub queue: QueueName,
    pub topics: Vec<(Lane, String)>,
}

impl Places {
    pub fn names(&self) -> Vec<String> {
        self.topics.iter().map(|(_, topic)| topic.clone()).collect()
    }

    pub fn topic(&self, lane: Lane) -> Option<&str> {
        self.topics.iter().find(|(of, _)| *of == lane).map(|(_, topic)| topic.as_str())
    }
}

impl Member {
    pub fn new(
        options: &Options,
        queue: &QueueName,
        standing: &Arc<Standing>,
        watch: &Arc<Watch>,
        desk: &Arc<Desk>,
    ) -> Result<Self, BusError> {
        let config = group_settings(options, queue);
        let client = start(&config, standing).map_err(|error| BusError::Refused(error.to_string()))?;
        let topic = |lane| Some((lane, options.routes.name(queue, lane)?));
        let places =
            Places { queue: queue.clone(), topics: Lane::ALL.into_iter().filter_map(topic).collect() };
        let (standing, watch, desk) = (standing.clone(), watch.clone(), desk.clone());
        Ok(Self { config, client, places, standing, watch, desk })
    }

    /// Until the desk is closed. Tells when it has left the group.
    pub fn run(self, left: &SyncSender<()>) {
        let mut strange = Strange::new(self.places.queue.to_string());
        let mut client = Some(self.client);
        while !self.desk.is_closed() {
            // After an error from which a client does not recover there is none, and another one joins in its place.
            let client = client.take().map_or_else(|| start(&self.config, &self.standing), Ok);
            let session = client.and_then(|client| {
                Session::join(client, &self.places, &self.desk, &self.standing, &self.watch)
            });
            let end = match session {
                Ok(session) => session.run(&mut strange, left),
                Err(error) => End::Broken(error.to_string()),
            };
            if let End::Broken(why) = end {
                tracing::warn!(queue = %self.places.queue, "a Kafka consumer is replaced: {why}");
                self.desk.set_trouble(Some(BusError::Away(why)));
                std::thread::park_timeout(REJOIN_AFTER);
            }
        }
        let _ = left.try_send(());
    }
}

pub(super) fn start(
    config: &ClientConfig,
    standing: &Arc<Standing>,
) -> KafkaResult<BaseConsumer<Happenings>> {
    config.create_with_context(Happenings::new(standing.clone()))
}

pub(super) fn group_settings(options: &Options, queue: &QueueName) -> ClientConfig {
    let mut config = settings(options);
    config.set("group.id", format!("{}.{queue}", options.group));
    // Partitions that stay are not interrupted, so what is under way from them does not come twice.
    config.set("partition.assignment.strategy", "cooperative-sticky");
    config.set("session.timeout.ms", "6000").set("heartbeat.interval.ms", "2000");
    config.set("max.poll.interval.ms", "10000");
    config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    config.set("auto.offset.reset", "earliest").set("allow.auto.create.topics", "false");
    config.set("enable.partition.eof", "true");
    // What the client fetches ahead, of each partition. A partition that had enough waits for the fetch under way.
    config.set("queued.min.messages", "512").set("queued.max.messages.kbytes", "2048");
    config.set("max.partition.fetch.bytes", "524288").set("fetch.max.bytes", "8388608");
    config.set("fetch.wait.max.ms", "100").set("fetch.queue.backoff.ms", "20");
    config.set("fetch.error.backoff.ms", "100");
    config
}
