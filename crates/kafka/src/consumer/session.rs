use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use tidegate_bus::Malformed;
use tidegate_domain::{BusError, Claim, Lane};

use super::desk::Desk;
use super::happenings::{Happening, Happenings, accept, give_back};
use super::member::Places;
use super::shelf::Place;
use super::strange::Strange;
use crate::client::bus_error;
use crate::standing::Standing;
use crate::watch::Watch;

/// The thread is woken for what comes; this is for what nobody wakes it for.
const WAKE_EVERY: Duration = Duration::from_millis(50);
/// Records of a partition before the next partition has its turn.
const TURN_RECORDS: usize = 32;
/// How long the lower lanes wait to see what the higher ones have, after a partition has become ours.
const MET_WITHIN: Duration = Duration::from_secs(1);
/// How long a partition whose leader is there may show neither a record nor its end, before the client is replaced. librdkafka
/// asks for a partition's committed offset once: a coordinator that is just moving or starting answers NOT_COORDINATOR, and
/// then the client never fetches that partition, while its group takes it for a member that is well (librdkafka #5586).
/// Too short, and a slow broker is left and joined again and again; too long, and records wait for that long.
const SILENT_MAX: Duration = Duration::from_secs(15);
const LEFT_WITHIN: Duration = Duration::from_secs(5);

/// One client's time in a group.
///
/// Each partition has a queue of its own in the client, which is read while its lane has room. So a full lane keeps
/// nothing from the others, and what was fetched of it need not be fetched again.
pub struct Session<'a> {
    /// Dropped before the client: librdkafka frees a client's partitions with it, and a queue of one must not be the
    /// last to hold the client.
    partitions: BTreeMap<Place, PartitionQueue<Happenings>>,
    client: Arc<BaseConsumer<Happenings>>,
    /// Those of which neither a record nor the end has been seen yet.
    unmet: BTreeMap<Place, Unmet>,
    places: &'a Places,
    desk: &'a Desk,
    standing: &'a Standing,
    watch: &'a Watch,
    /// Where the next round over the partitions begins.
    turn: usize,
    broken: Option<String>,
}

struct Unmet {
    /// The lower lanes wait until then.
    lanes_wait_until: Instant,
    /// The client is replaced then.
    silent_until: Instant,
}

impl Unmet {
    fn new() -> Self {
        let now = Instant::now();
        Self { lanes_wait_until: now + MET_WITHIN, silent_until: now + SILENT_MAX }
    }

    /// An error that the fetching of a partition tells is no silence.
    fn speaks(&mut self) {
        self.silent_until = Instant::now() + SILENT_MAX;
    }
}

pub enum End {
    Left,
    Broken(String),
}

impl<'a> Session<'a> {
    /// To be called by the thread that runs it.
    pub fn join(
        mut client: BaseConsumer<Happenings>,
        places: &'a Places,
        desk: &'a Desk,
        standing: &'a Standing,
        watch: &'a Watch,
    ) -> KafkaResult<Self> {
        client.set_nonempty_callback(wake_up());
        let topics = places.names();
        client.subscribe(&topics.iter().map(String::as_str).collect::<Vec<_>>())?;
        let (client, partitions, unmet) = (Arc::new(client), BTreeMap::new(), BTreeMap::new());
        desk.set_client(&client);
        Ok(Self { client, partitions, unmet, places, desk, standing, watch, turn: 0, broken: None })
    }

    pub fn run(mut self, strange: &mut Strange, left: &SyncSender<()>) -> End {
        while !self.desk.is_closed() {
            let mut busy = self.serve(strange);
            busy |= self.fill(strange);
            self.look_for_silence();
            if let Some(why) = self.broken.take() {
                // Told at once: to leave may take a while.
                self.desk.set_trouble(Some(BusError::Away(why.clone())));
                self.partitions.keys().for_each(|place| self.desk.shelf().revoke(*place));
                self.leave();
                return End::Broken(why);
            }
            if !busy {
                std::thread::park_timeout(WAKE_EVERY);
            }
        }
        self.leave();
        let _ = left.try_send(());
        // The client's end, which may take longer, is nobody's business any more.
        End::Left
    }

    /// What the client tells: rebalances, errors.
    fn serve(&mut self, strange: &mut Strange) -> bool {
        let mut busy = false;
        let client = self.client.clone();
        while let Some(polled) = client.poll(Duration::ZERO) {
            busy = true;
            match polled {
                Ok(message) => self.shelve(&message, strange),
                Err(error) => self.hear(&error),
            }
        }
        for happening in client.context().take() {
            busy = true;
            let changed = match happening {
                Happening::Assigned(list) => {
                    self.assign(&list);
                    accept(&client, &list)
                }
                Happening::Revoked(list) => {
                    self.revoke(&list);
                    give_back(&client, &list)
                }
            };
            // The client waits for that call to succeed. Until then it fetches nothing, while its group takes it for a
            // member that is well: it would be one that receives nothing, for as long as no other member joins or leaves.
            if let Err(error) = changed {
                self.broken = Some(format!("its partitions can't be changed: {error}"));
            }
        }
        busy
    }

    fn assign(&mut self, list: &TopicPartitionList) {
        self.desk.set_trouble(None);
        for (place, topic) in self.places_in(list) {
            let Some(mut queue) = self.client.split_partition_queue(&topic, place.partition) else {
                continue;
            };
            queue.set_nonempty_callback(wake_up());
            self.desk.shelf().assign(place);
            self.partitions.insert(place, queue);
            self.unmet.insert(place, Unmet::new());
        }
    }

    fn revoke(&mut self, list: &TopicPartitionList) {
        for (place, _) in self.places_in(list) {
            self.partitions.remove(&place);
            self.unmet.remove(&place);
            self.desk.shelf().revoke(place);
        }
    }

    /// Reads from partitions whose lane has room, in turns. Whether there may be more.
    fn fill(&mut self, strange: &mut Strange) -> bool {
        let mut read = 0;
        let partitions = std::mem::take(&mut self.partitions);
        let count = partitions.len();
        for (place, queue) in partitions.iter().cycle().skip(self.turn).take(count) {
            for _ in 0..TURN_RECORDS {
                if !self.desk.shelf().has_room(place.lane) || self.waits(place.lane) {
                    break;
                }
                match queue.poll(Duration::ZERO) {
                    Some(Ok(message)) => self.shelve(&message, strange),
                    Some(Err(KafkaError::PartitionEOF(_))) => {}
                    Some(Err(error)) => {
                        self.hear(&error);
                        if let Some(unmet) = self.unmet.get_mut(place) {
                            unmet.speaks();
                        }
                        continue;
                    }
                    None => break,
                }
                self.unmet.remove(place);
                read += 1;
            }
        }
        self.partitions = partitions;
        self.turn = if count == 0 { 0 } else { (self.turn + 1) % count };
        if read > 0 {
            self.desk.arrived.notify_one();
        }
        read > 0
    }

    /// A backlog that is found at the start is served by lane too, whichever lane's is fetched first.
    fn waits(&self, lane: Lane) -> bool {
        let now = Instant::now();
        let waits = |(place, unmet): (&Place, &Unmet)| {
            place.lane.index() < lane.index() && now < unmet.lanes_wait_until
        };
        self.unmet.iter().any(waits)
    }

    /// A partition that is not read because its lane is full, or whose leader is away, has a reason for its silence.
    fn look_for_silence(&mut self) {
        let now = Instant::now();
        for (place, unmet) in &mut self.unmet {
            let Some(topic) = self.places.topic(place.lane) else { continue };
            let explained = !self.desk.shelf().has_room(place.lane) || self.standing.trouble(topic).is_some();
            if explained {
                unmet.speaks();
            } else if unmet.silent_until <= now {
                let silent =
                    format!("partition {} of {topic} is silent since it was assigned", place.partition);
                self.broken = Some(silent);
            }
        }
    }

    fn shelve(&self, message: &BorrowedMessage<'_>, strange: &mut Strange) {
        let topic = self.places.topics.iter().find(|(_, topic)| topic == message.topic());
        let Some(&(lane, _)) = topic else { return };
        let place = Place { lane, partition: message.partition() };
        let bytes = message.payload().unwrap_or_default();
        let claim = self.read(bytes).inspect_err(|why| {
            strange.count(message.topic(), place.partition, message.offset(), why);
        });
        self.desk.shelf().put(place, message.offset(), claim.ok(), bytes.len());
    }

    fn read(&self, bytes: &[u8]) -> Result<Claim, Malformed> {
        let claim = tidegate_bus::decode(bytes)?;
        let ours = claim.queue == self.places.queue;
        if ours { Ok(claim) } else { Err(Malformed("queue: another one's".to_owned())) }
    }

    fn hear(&mut self, error: &KafkaError) {
        match (error, error.rdkafka_error_code()) {
            (KafkaError::MessageConsumptionFatal(_), _) => self.broken = Some(error.to_string()),
            (_, Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition)) => {
                self.watch.hint();
            }
            (_, Some(code @ (Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed))) => {
                let what = format!("receiving from the queue {}", self.places.queue);
                self.desk.set_trouble(Some(bus_error(Some(code), &what, &code)));
            }
            // Connections that fail are the watch's business.
            _ => tracing::debug!(queue = %self.places.queue, "Kafka consumer: {error}"),
        }
    }

    /// The others need not wait for the session to expire. Without this a client that has partitions can't be dropped: it
    /// waits without end for these to be given back.
    fn leave(&mut self) {
        let end = Instant::now() + LEFT_WITHIN;
        self.partitions.clear();
        self.client.context().leave();
        for happening in self.client.context().take() {
            let changed = match happening {
                Happening::Assigned(list) => accept(&self.client, &list),
                Happening::Revoked(list) => give_back(&self.client, &list),
            };
            if let Err(error) = changed {
                tracing::debug!("Kafka: partitions change while their member leaves: {error}");
            }
        }
        if self.client.close_queue().is_ok() {
            while !self.client.closed() && Instant::now() < end {
                self.client.poll(Duration::from_millis(10));
            }
        }
    }

    fn places_in(&self, list: &TopicPartitionList) -> Vec<(Place, String)> {
        let lane = |name: &str| -> Option<Lane> {
            self.places.topics.iter().find(|(_, topic)| topic == name).map(|(lane, _)| *lane)
        };
        let place = |name: &str, partition| Some((Place { lane: lane(name)?, partition }, name.to_owned()));
        list.elements().iter().filter_map(|element| place(element.topic(), element.partition())).collect()
    }
}

fn wake_up() -> impl Fn() + Send + Sync + 'static {
    let thread = std::thread::current();
    move || thread.unpark()
}

#[cfg(test)]
mod tests;
