//! Publishes due messages on a bus, for senders in other processes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tidegate_domain::{
    Bus, BusError, BusHealth, Claim, ClaimRequest, Ledger, LedgerError, Outcome, QueueName, RetryPolicy,
    Settled, Settlement, Transit,
};

use crate::sender::{Backoff, hopeless};
use crate::stats::QueueTally;
use crate::stop::Stop;

/// How long a dispatch waits for work; also how long an idle relay takes to notice a stop.
const DISPATCH_WAIT_MS: u64 = 500;
/// How often a bus that is away is asked again.
const AWAY_STEP: Duration = Duration::from_millis(200);
/// How long single records that were not taken are left alone.
const HELD_MS: u64 = 5_000;
/// Batches that wait for their confirmations at the same time.
const PUBLISHING_MAX: usize = 4;

/// Who takes the messages of one queue to the bus.
#[derive(Debug, Clone)]
pub struct Relay {
    pub queue: QueueName,
    pub ledger: Arc<dyn Ledger>,
    /// The same ledger's.
    pub transit: Arc<dyn Transit>,
    pub bus: Arc<dyn Bus>,
    pub batch: usize,
    pub in_transit_max: usize,
    pub transit_ms: u64,
    pub retry: RetryPolicy,
    pub tally: Arc<QueueTally>,
}

type Published = Vec<(Claim, Result<(), BusError>)>;

/// One dispatch and a few publications under way at the same time. What the bus does not confirm is handed back untried:
/// should its record be there nevertheless, it begins nothing.
struct Shift {
    relay: Relay,
    stop: Stop,
    dispatching: Option<BoxFuture<'static, Result<Vec<Claim>, LedgerError>>>,
    publishing: FuturesUnordered<BoxFuture<'static, Published>>,
    dispatch_backoff: Backoff,
    publish_backoff: Backoff,
}

impl Relay {
    /// Returns after a stop, when everything under way is published or handed back.
    pub async fn run(self, stop: Stop) {
        let shift = Shift {
            relay: self,
            stop,
            dispatching: None,
            publishing: FuturesUnordered::new(),
            dispatch_backoff: Backoff::new("dispatch"),
            publish_backoff: Backoff::new("publish"),
        };
        shift.work().await;
    }

    async fn settle(&self, settlements: Vec<Settlement>) {
        if settlements.is_empty() {
            return;
        }
        match self.ledger.settle(settlements.clone()).await {
            Ok(results) => {
                let done = settlements.iter().zip(&results).filter(|(_, settled)| **settled == Settled::Done);
                done.for_each(|(settlement, _)| self.tally.settled(settlement));
            }
            // The leases end by themselves.
            Err(error) => tracing::debug!(queue = %self.queue, %error, "leases in transit are left to end"),
        }
    }

    fn count(&self, result: &'static str, count: usize) {
        metrics::counter!("tidegate_bus_published_total", "queue" => self.queue.to_string(), "result" => result)
            .increment(count as u64);
    }
}

impl Shift {
    async fn work(mut self) {
        let mut stopping = false;
        loop {
            if !stopping && self.dispatching.is_none() && self.publishing.len() < PUBLISHING_MAX {
                self.begin_dispatch();
            }
            if stopping && self.dispatching.is_none() && self.publishing.is_empty() {
                return;
            }
            tokio::select! {
                dispatched = now_or_never(&mut self.dispatching) => self.dispatched(dispatched).await,
                Some(published) = self.publishing.next() => self.published(published).await,
                () = self.stop.wait(), if !stopping => stopping = true,
            }
        }
    }

    fn begin_dispatch(&mut self) {
        let (relay, mut stop) = (self.relay.clone(), self.stop.clone());
        let delay = self.dispatch_backoff.delay().max(self.publish_backoff.delay());
        self.dispatching = Some(
            async move {
                if !delay.is_zero() && tokio::time::timeout(delay, stop.wait()).await.is_ok() {
                    return Ok(Vec::new());
                }
                // What can't be published stays where others can see it.
                if relay.bus.health() != BusHealth::Ready {
                    let _ = tokio::time::timeout(AWAY_STEP, stop.wait()).await;
                    return Ok(Vec::new());
                }
                let request = ClaimRequest {
                    queue: relay.queue.clone(),
                    max: relay.batch.min(relay.in_transit_max),
                    lease_ms: relay.transit_ms,
                    wait_ms: DISPATCH_WAIT_MS,
                };
                relay.transit.dispatch(request, relay.in_transit_max).await
            }
            .boxed(),
        );
    }

    async fn dispatched(&mut self, dispatched: Result<Vec<Claim>, LedgerError>) {
        self.dispatching = None;
        let claims = match dispatched {
            Ok(claims) => {
                self.dispatch_backoff.succeeded();
                claims
            }
            Err(error) => return self.dispatch_backoff.failed(&error),
        };
        let (mut lost, mut sent) = (Vec::new(), Vec::new());
        for claim in claims {
            match hopeless(&claim, &self.relay.retry) {
                Some(settlement) => lost.push(settlement),
                None => sent.push(claim),
            }
        }
        self.relay.settle(lost).await;
        if !sent.is_empty() {
            let bus = self.relay.bus.clone();
            let publishing = async move {
                let results = bus.publish(sent.clone()).await;
                sent.into_iter().zip(results).collect()
            };
            self.publishing.push(publishing.boxed());
        }
    }

    async fn published(&mut self, published: Published) {
        let (kept, failed): (Vec<_>, Vec<_>) = published.into_iter().partition(|(_, result)| result.is_ok());
        self.relay.count("confirmed", kept.len());
        self.relay.count("failed", failed.len());
        if kept.is_empty() {
            self.relay.tally.bus_refused();
        } else {
            self.relay.tally.bus_took();
        }
        // A bus that takes others takes these perhaps never, say for their size: they wait, and nobody with them but
        // their recipients.
        let outcome = match failed.first() {
            Some((_, Err(error))) if kept.is_empty() => {
                self.publish_backoff.failed(error);
                Outcome::Released
            }
            Some((claim, Err(error))) => {
                tracing::warn!(queue = %claim.queue, message_id = %claim.id, count = failed.len(), %error, "not published; trying again");
                Outcome::Held { for_ms: HELD_MS }
            }
            _ => {
                self.publish_backoff.succeeded();
                return;
            }
        };
        let back = failed.into_iter().map(|(claim, _)| Settlement {
            id: claim.id,
            token: claim.token,
            outcome: outcome.clone(),
            latency_ms: 0,
        });
        self.relay.settle(back.collect()).await;
    }
}

async fn now_or_never<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
