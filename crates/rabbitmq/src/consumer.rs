mod feeds;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::{BusError, Claim, Consumer, QueueName};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use self::feeds::Stray;
use self::feeds::{Ended, Feeds};
use crate::complaints::Complaints;
use crate::error::Fault;
use crate::link::{Link, State};
use crate::topology::GONE_FOR;

/// For a handful of requests to a broker that is there. One that stops answering is found out by its heartbeat.
const ATTACHED_WITHIN: Duration = Duration::from_secs(30);

/// For bytes to be written.
const SAID_WITHIN: Duration = Duration::from_secs(5);

/// Receives the three lanes of a queue.
#[derive(Debug)]
pub struct RabbitConsumer {
    link: Arc<Link>,
    queue: QueueName,
    prefetch: u16,
    place: Place,
    /// Records were given out whose connection has gone since: they come again.
    lost: bool,
    complaints: Complaints,
}

#[derive(Debug)]
enum Place {
    Attached(Feeds),
    /// On the way back. A task of its own, so that short calls of `receive` don't begin again and again.
    Attaching(JoinHandle<Result<Feeds, BusError>>),
}

impl RabbitConsumer {
    pub async fn attach(link: Arc<Link>, queue: QueueName, prefetch: u16) -> Result<Self, BusError> {
        let feeds = attach(&link, &queue, prefetch).await?;
        let place = Place::Attached(feeds);
        Ok(Self { link, queue, prefetch, place, lost: false, complaints: Complaints::default() })
    }

    fn ended(&mut self, ended: Ended) -> BusError {
        match ended {
            Ended::Connection(why) => self.detach(BusError::Away(why)),
            Ended::Queue(name) => {
                let why = format!("somebody has deleted the queue {:?}", name.as_str());
                self.detach_for(GONE_FOR, BusError::Away(why))
            }
        }
    }

    fn detach(&mut self, error: BusError) -> BusError {
        self.detach_for(Duration::ZERO, error)
    }

    /// What was received over this connection and not done comes again.
    fn detach_for(&mut self, pause: Duration, error: BusError) -> BusError {
        let (link, queue, prefetch) = (self.link.clone(), self.queue.clone(), self.prefetch);
        let attaching = tokio::spawn(async move {
            sleep(pause).await;
            return_to(&link, &queue, prefetch).await
        });
        if let Place::Attached(feeds) = std::mem::replace(&mut self.place, Place::Attaching(attaching)) {
            self.lost |= feeds.has_undone();
        }
        error
    }

    /// What can't be read.
    async fn refuse(&mut self) -> Result<(), BusError> {
        while let Place::Attached(feeds) = &mut self.place {
            let refused = timeout(SAID_WITHIN, feeds.refuse()).await;
            match refused.unwrap_or_else(|_| Err(unread())) {
                Ok(Some(stray)) => self.complaints.malformed(&self.queue, &stray),
                Ok(None) => break,
                Err(error) => return Err(self.detach(error)),
            }
        }
        Ok(())
    }

    async fn feeds(&mut self, end: Instant) -> Result<&mut Feeds, BusError> {
        if let Place::Attaching(attaching) = &mut self.place {
            let attached = match timeout_at(end, attaching).await {
                Ok(Ok(attached)) => attached,
                Ok(Err(panic)) => Err(BusError::Away(panic.to_string())),
                Err(_) => {
                    let why = self.link.session().err();
                    return Err(BusError::Away(why.unwrap_or_else(|| "on the way back".to_owned())));
                }
            };
            match attached {
                Ok(feeds) => self.place = Place::Attached(feeds),
                Err(error) => return Err(self.detach(error)),
            }
        }
        match &mut self.place {
            Place::Attached(feeds) => Ok(feeds),
            Place::Attaching(_) => Err(BusError::Away("on the way back".to_owned())),
        }
    }
}

#[async_trait]
impl Consumer for RabbitConsumer {
    async fn receive(&mut self, max: usize, wait_ms: u64) -> Result<Vec<Claim>, BusError> {
        let end = Instant::now() + Duration::from_millis(wait_ms);
        loop {
            let feeds = self.feeds(end).await?;
            match timeout_at(end, feeds.arrived()).await {
                Ok(Ok(())) => {}
                Ok(Err(ended)) => return Err(self.ended(ended)),
                Err(_) => return Ok(vec![]),
            }
            self.refuse().await?;
            let claims = self.feeds(end).await?.take(max);
            if !claims.is_empty() || max == 0 {
                return Ok(claims);
            }
        }
    }

    async fn done(&mut self) -> Result<(), BusError> {
        let lost = std::mem::take(&mut self.lost);
        // Or they would be acknowledged with the others.
        self.refuse().await?;
        if let Place::Attached(feeds) = &mut self.place {
            let said = timeout(SAID_WITHIN, feeds.done()).await;
            said.unwrap_or_else(|_| Err(unread())).map_err(|error| self.detach(error))?;
        }
        let again = || BusError::Away("what came before the connection was lost comes again".to_owned());
        if lost { Err(again()) } else { Ok(()) }
    }
}

impl Drop for RabbitConsumer {
    fn drop(&mut self) {
        if let Place::Attaching(attaching) = &self.place {
            attaching.abort();
        }
    }
}

async fn attach(link: &Link, queue: &QueueName, prefetch: u16) -> Result<Feeds, BusError> {
    let session = link.session().map_err(BusError::Away)?;
    let attaching = Feeds::attach(session, &link.terms().topology, queue, prefetch);
    match timeout(ATTACHED_WITHIN, attaching).await {
        Ok(attached) => {
            attached.map_err(|error| Fault::of_declaration(&error, &link.terms().endpoint).into())
        }
        Err(_) => Err(BusError::Away("it does not answer in time".to_owned())),
    }
}

/// As soon as there is a connection.
async fn return_to(link: &Link, queue: &QueueName, prefetch: u16) -> Result<Feeds, BusError> {
    let gone = |_| BusError::Away("the bus was closed".to_owned());
    link.state().wait_for(|state| matches!(state, State::Ready(_))).await.map(drop).map_err(gone)?;
    attach(link, queue, prefetch).await
}

fn unread() -> BusError {
    BusError::Away("what is said to it stays unread".to_owned())
}
