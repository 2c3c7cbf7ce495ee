use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tidegate_domain::{BusError, BusHealth};
use tokio::sync::Notify;

use crate::client::{Events, settings};
use crate::options::{OpenError, Options};
use crate::standing::Standing;
use crate::topics::{self, Topic};

const EVERY: Duration = Duration::from_secs(1);
/// When there is reason to: whoever gives hints may give many.
const SOON: Duration = Duration::from_millis(100);
/// Longer than a broker pauses that is well.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A thread that finds out how Kafka is doing, and makes topics that are missing. Ends with this.
#[derive(Debug)]
pub struct Watch {
    hints: SyncSender<()>,
}

struct Watcher {
    options: Options,
    standing: Arc<Standing>,
    client: BaseConsumer<Events>,
    topics: Vec<String>,
    /// Which topic to look at next, when all were well the last time.
    turn: usize,
    all_well: bool,
    just_made: bool,
}

impl Watch {
    pub fn start(
        options: &Options,
        standing: &Arc<Standing>,
        looked: Arc<Notify>,
    ) -> Result<Self, OpenError> {
        let mut config = settings(options);
        // To look for a topic must not make it: we would not be asked how.
        config.set("allow.auto.create.topics", "false");
        let client = config.create_with_context(Events(standing.clone()));
        let watcher = Watcher {
            options: options.clone(),
            standing: standing.clone(),
            client: client.map_err(|error| OpenError::Client(error.to_string()))?,
            topics: options.routes.names(),
            turn: 0,
            all_well: false,
            just_made: false,
        };
        let (hints, hinted) = sync_channel(1);
        let thread = std::thread::Builder::new().name("kafka-watch".to_owned());
        let started = thread.spawn(move || watcher.run(&hinted, &looked));
        started.map_err(|error| OpenError::Client(format!("no thread: {error}")))?;
        Ok(Self { hints })
    }

    /// Something is wrong with a topic: have a look at all of them, now.
    pub fn hint(&self) {
        // One that waits already is as good.
        let _ = self.hints.try_send(());
    }
}

impl Watcher {
    fn run(mut self, hinted: &Receiver<()>, looked: &Notify) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
        // Kafka that answers for one topic is not ready for the others.
        for topic in &self.topics {
            let unknown = BusError::Away(format!("the topic {topic} has not been looked for yet"));
            self.standing.set_topic(topic, Some(unknown));
        }
        let mut before = self.standing.health();
        loop {
            self.look(&runtime);
            let now = self.standing.health();
            tell(&before, &now);
            before = now;
            looked.notify_one();
            let pause = if self.just_made { SOON } else { EVERY };
            match hinted.recv_timeout(pause) {
                Ok(()) => {
                    self.all_well = false;
                    std::thread::sleep(SOON);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// At one topic, or at all when there may be something to do.
    fn look(&mut self, runtime: &tokio::runtime::Runtime) {
        let names = if self.all_well {
            self.turn = (self.turn + 1) % self.topics.len();
            vec![self.topics[self.turn].clone()]
        } else {
            self.topics.clone()
        };
        (self.all_well, self.just_made) = (true, false);
        let mut missing = Vec::new();
        for name in names {
            let said = self.client.fetch_metadata(Some(&name), ANSWER_WITHIN);
            // Errors of connections are told while polling only.
            while self.client.poll(Duration::ZERO).is_some() {}
            let said = match said {
                Ok(said) => said,
                Err(error) => {
                    self.all_well = false;
                    return self.standing.unreached(&error.to_string());
                }
            };
            self.standing.reached();
            let topic = said.topics().iter().find(|topic| topic.name() == name);
            let trouble = match topic.map_or(Topic::Missing, Topic::of) {
                Topic::Led(partitions) => topics::ask_leaders(&self.client, &name, partitions, ANSWER_WITHIN),
                Topic::Troubled(trouble) => Some(trouble),
                Topic::Missing => {
                    missing.push(name);
                    continue;
                }
            };
            self.all_well &= trouble.is_none();
            self.standing.set_topic(&name, trouble);
        }
        if !missing.is_empty() {
            self.make(&missing, runtime);
        }
    }

    fn make(&mut self, missing: &[String], runtime: &tokio::runtime::Runtime) {
        (self.all_well, self.just_made) = (false, true);
        for (name, trouble) in runtime.block_on(topics::make(missing, &self.options, &self.standing)) {
            if trouble.is_none() {
                tracing::info!(topic = name, "made a Kafka topic that was missing");
            }
            // It counts as there when its leaders say so, and not before.
            let made = || BusError::Away(format!("the topic {name} is being made"));
            self.standing.set_topic(&name, Some(trouble.unwrap_or_else(made)));
        }
    }
}

fn tell(before: &BusHealth, now: &BusHealth) {
    match (before, now) {
        (BusHealth::Away(_), BusHealth::Ready) => tracing::info!("Kafka is ready"),
        (before, BusHealth::Away(why)) if before != now => tracing::warn!("Kafka is away: {why}"),
        _ => {}
    }
}
