use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use tidegate_domain::{BusError, Claim, Consumer, Lane, QueueName};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::client::bus_error;
use crate::options::Options;
use crate::standing::Standing;
use crate::watch::Watch;

mod desk;
mod happenings;
mod member;
mod session;
mod shelf;
mod strange;

use desk::Desk;
use member::Member;
use shelf::Place;

const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Whoever drops a consumer waits this long at most for it to have left its group, so that a process that ends then
/// does not leave the others waiting for it.
const LEFT_WITHIN: Duration = Duration::from_millis(500);

/// A member of a queue's consumer group. A thread of its own polls, whether anybody receives or not: to Kafka a member
/// that does not poll is dead.
pub struct KafkaConsumer {
    queue: QueueName,
    /// By lane.
    topics: Vec<String>,
    commit_within: Duration,
    standing: Arc<Standing>,
    desk: Arc<Desk>,
    thread: std::thread::Thread,
    left: std::sync::mpsc::Receiver<()>,
    /// Under way, and perhaps given up on.
    commit: Option<JoinHandle<KafkaResult<()>>>,
    /// As long as somebody receives, somebody watches.
    _watch: Arc<Watch>,
}

impl KafkaConsumer {
    pub fn join(
        options: &Options,
        queue: QueueName,
        standing: &Arc<Standing>,
        watch: &Arc<Watch>,
    ) -> Result<Self, BusError> {
        let desk = Arc::new(Desk::default());
        let member = Member::new(options, &queue, standing, watch, &desk)?;
        let topics = member.places.names();
        let (leaving, left) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("kafka-consumer".to_owned());
        let started = thread.spawn(move || member.run(&leaving));
        let thread = started.map_err(|error| BusError::Away(format!("no thread for a consumer: {error}")))?;
        Ok(Self {
            queue,
            topics,
            commit_within: options.publish_within(),
            standing: standing.clone(),
            desk,
            thread: thread.thread().clone(),
            left,
            commit: None,
            _watch: watch.clone(),
        })
    }

    /// One at a time: the client may block for longer than anybody waits here.
    async fn commit(&mut self, positions: &[(Place, i64)]) -> KafkaResult<()> {
        if let Some(earlier) = &mut self.commit {
            let _ = earlier.await;
            self.commit = None;
        }
        let Some(client) = self.desk.client() else {
            return Err(KafkaError::ConsumerCommit(Code::AssignmentLost));
        };
        let topic = |lane: Lane| self.topics[lane.index()].clone();
        let offset =
            |(place, offset): &(Place, i64)| (topic(place.lane), place.partition, Offset::Offset(*offset));
        let list: TopicPartitionList = positions.iter().map(offset).collect();
        let commit = tokio::task::spawn_blocking(move || client.commit(&list, CommitMode::Sync));
        let result = self.commit.insert(commit).await;
        self.commit = None;
        result.unwrap_or(Err(KafkaError::ConsumerCommit(Code::Fail)))
    }

    fn trouble(&self) -> Option<BusError> {
        self.standing.silence(&self.topics).or_else(|| self.desk.trouble())
    }
}

#[async_trait]
impl Consumer for KafkaConsumer {
    async fn receive(&mut self, max: usize, wait_ms: u64) -> Result<Vec<Claim>, BusError> {
        let end = Instant::now() + Duration::from_millis(wait_ms);
        loop {
            // Nothing is awaited between taking and answering: whoever drops this call has taken nothing.
            let taken = self.desk.shelf().take(max);
            if !taken.is_empty() {
                self.thread.unpark();
                return Ok(taken);
            }
            if timeout_at(end, self.desk.arrived.notified()).await.is_err() {
                return self.trouble().map_or(Ok(taken), Err);
            }
        }
    }

    async fn done(&mut self) -> Result<(), BusError> {
        let end = Instant::now() + self.commit_within;
        loop {
            let positions = self.desk.shelf().uncommitted();
            if positions.is_empty() {
                return Ok(());
            }
            let error = match timeout_at(end, self.commit(&positions)).await {
                Ok(Ok(())) => {
                    self.desk.shelf().committed(&positions);
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    let late = || BusError::Away("a commit is not confirmed in time".to_owned());
                    return Err(self.trouble().unwrap_or_else(late));
                }
            };
            match error.rdkafka_error_code() {
                // Not ours any more: it goes to another one, as what was not done does.
                Some(
                    Code::IllegalGeneration
                    | Code::UnknownMemberId
                    | Code::AssignmentLost
                    | Code::NoOffset
                    | Code::UnknownTopicOrPartition,
                ) => return Ok(()),
                Some(Code::RebalanceInProgress | Code::CoordinatorLoadInProgress) if Instant::now() < end => {
                    sleep_until((Instant::now() + AGAIN_AFTER).min(end)).await;
                }
                code => return Err(bus_error(code, "a commit", &error)),
            }
        }
    }
}

impl Drop for KafkaConsumer {
    fn drop(&mut self) {
        self.desk.close();
        self.thread.unpark();
        let _ = self.left.recv_timeout(LEFT_WITHIN);
    }
}

impl fmt::Debug for KafkaConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConsumer").field("queue", &self.queue).finish_non_exhaustive()
    }
}
