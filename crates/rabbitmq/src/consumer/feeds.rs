use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::Channel;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use tidegate_bus::{Lanes, Malformed, decode};
use tidegate_domain::{BusError, Claim, Lane, QueueName};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::error::{bus_error, describe};
use crate::session::Session;
use crate::topology::Topology;

const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// What comes in over one connection: a channel for each lane, so that what a lane has given out is acknowledged by one
/// number. The broker sends no more than the prefetch allows, which bounds everything here.
#[derive(Debug)]
pub struct Feeds {
    queue: QueueName,
    feeds: Vec<Feed>,
    waiting: Lanes<Arrival>,
    malformed: Vec<Stray>,
    /// Lives for as long as its channels.
    session: Arc<Session>,
}

#[derive(Debug)]
struct Feed {
    lane: Lane,
    name: ShortString,
    channel: Channel,
    deliveries: lapin::Consumer,
    /// The last that was given out and is not acknowledged. All before it were given out too, or refused.
    given: Option<u64>,
}

#[derive(Debug)]
struct Arrival {
    claim: Claim,
    feed: usize,
    tag: u64,
}

/// Why nothing comes any more.
#[derive(Debug)]
pub enum Ended {
    Connection(String),
    Queue(ShortString),
}

/// A record that can't be read.
#[derive(Debug)]
pub struct Stray {
    pub name: ShortString,
    pub tag: u64,
    pub reason: Malformed,
    feed: usize,
}

impl Feeds {
    pub async fn attach(
        session: Arc<Session>,
        topology: &Topology,
        queue: &QueueName,
        prefetch: u16,
    ) -> lapin::Result<Self> {
        topology.declare_for(session.connection(), queue).await?;
        // From here on, an attach that is given up leaves as every consumer does: by `drop`.
        let (waiting, malformed) = (Lanes::default(), Vec::new());
        let mut attached = Self { queue: queue.clone(), feeds: Vec::new(), waiting, malformed, session };
        let names = Lane::ALL.into_iter().filter_map(|lane| Some((lane, topology.lane(queue, lane)?)));
        for (lane, name) in names {
            let channel = attached.session.connection().create_channel().await?;
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let options = BasicConsumeOptions::default();
            let consuming = channel.basic_consume(name.clone(), "".into(), options, FieldTable::default());
            let deliveries = consuming.await?;
            attached.feeds.push(Feed { lane, name, channel, deliveries, given: None });
        }
        Ok(attached)
    }

    /// Until there is something to take or to refuse.
    pub async fn arrived(&mut self) -> Result<(), Ended> {
        poll_fn(|cx| self.poll_arrived(cx)).await
    }

    /// The higher lanes first.
    pub fn take(&mut self, max: usize) -> Vec<Claim> {
        let give = |arrival: Arrival| {
            self.feeds[arrival.feed].given = Some(arrival.tag);
            arrival.claim
        };
        self.waiting.take(max).into_iter().map(give).collect()
    }

    /// The next one of those that can't be read, refused: it goes where the dead ones are.
    pub async fn refuse(&mut self) -> Result<Option<Stray>, BusError> {
        let Some(stray) = self.malformed.pop() else { return Ok(None) };
        let options = BasicNackOptions { multiple: false, requeue: false };
        let refused = self.feeds[stray.feed].channel.basic_nack(stray.tag, options).await;
        refused.map(|()| Some(stray)).map_err(|error| bus_error(&error))
    }

    pub fn has_undone(&self) -> bool {
        self.feeds.iter().any(|feed| feed.given.is_some())
    }

    /// Acknowledges what was given out.
    pub async fn done(&mut self) -> Result<(), BusError> {
        for feed in &mut self.feeds {
            // Taken first: said twice it would be an error, and not said it is part of what is said next time.
            if let Some(tag) = feed.given.take() {
                let said = feed.channel.basic_ack(tag, BasicAckOptions { multiple: true }).await;
                said.map_err(|error| bus_error(&error))?;
            }
        }
        Ok(())
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        for place in 0..self.feeds.len() {
            while let Poll::Ready(next) = self.feeds[place].deliveries.poll_next_unpin(cx) {
                match next {
                    Some(Ok(delivery)) => self.accept(place, delivery),
                    Some(Err(error)) => return Poll::Ready(Err(Ended::Connection(describe(&error)))),
                    None => return Poll::Ready(Err(Ended::Queue(self.feeds[place].name.clone()))),
                }
            }
        }
        let nothing = self.waiting.is_empty() && self.malformed.is_empty();
        if nothing { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn accept(&mut self, feed: usize, delivery: Delivery) {
        let (tag, Feed { lane, name, .. }) = (delivery.delivery_tag, &self.feeds[feed]);
        match decode(&delivery.data).and_then(|claim| self.own(claim)) {
            Ok(claim) => self.waiting.push(*lane, Arrival { claim, feed, tag }),
            Err(reason) => self.malformed.push(Stray { name: name.clone(), tag, reason, feed }),
        }
    }

    /// A record of another queue would go out through the wrong channel.
    fn own(&self, claim: Claim) -> Result<Claim, Malformed> {
        if claim.queue == self.queue {
            Ok(claim)
        } else {
            Err(Malformed("it is of another queue".to_owned()))
        }
    }
}

impl Drop for Feeds {
    fn drop(&mut self) {
        // What is not done goes back when its channel is closed, and lapin keeps one open while it has a consumer.
        let Ok(runtime) = Handle::try_current() else { return };
        for Feed { channel, deliveries, .. } in self.feeds.drain(..) {
            runtime.spawn(async move {
                _ = timeout(CLOSED_WITHIN, channel.close(200, "OK".into())).await;
                // Not before: lapin would cancel the consumer, maybe on a channel that has just been closed, and the
                // broker ends the whole connection for that.
                drop(deliveries);
            });
        }
    }
}
