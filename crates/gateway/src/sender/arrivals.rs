use std::sync::Arc;

use tidegate_domain::{
    Begun, Bus, BusError, Claim, Consumer, Extension, Ledger, LedgerError, Outcome, QueueName, Settlement,
    Transit,
};
use tokio::sync::{Mutex, mpsc};

use super::backoff::Failure;

/// Messages of one queue that come over a bus. Whoever receives a record asks the ledger before it begins: of all who
/// hold the same record, and of all records of the same message, one attempt alone comes about.
#[derive(Debug)]
pub struct Arrivals {
    pub bus: Arc<dyn Bus>,
    pub transit: Arc<dyn Transit>,
    /// The same ledger's.
    pub ledger: Arc<dyn Ledger>,
    pub queue: QueueName,
    desk: Mutex<Desk>,
    copies: mpsc::Sender<Claim>,
}

/// Copies that wait for the bus. Beyond, they are not published.
const COPIES_MAX: usize = 1_024;
/// Copies of one publication.
const COPIES_BATCH: usize = 64;
/// The token of a copy: no lease has it.
const COPY_TOKEN: u64 = 0;

#[derive(Debug, Default)]
struct Desk {
    consumer: Option<Box<dyn Consumer>>,
    /// And not begun yet, because the ledger did not answer.
    received: Vec<Claim>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Bus(#[from] BusError),
}

impl Failure for ClaimError {
    fn is_defect(&self) -> bool {
        matches!(self, Self::Ledger(error) if error.is_defect())
    }
}

impl Arrivals {
    pub fn new(
        bus: Arc<dyn Bus>,
        transit: Arc<dyn Transit>,
        ledger: Arc<dyn Ledger>,
        queue: QueueName,
    ) -> Self {
        let (copies, waiting) = mpsc::channel(COPIES_MAX);
        tokio::spawn(publish_copies(bus.clone(), waiting));
        Self { bus, transit, ledger, queue, desk: Mutex::default(), copies }
    }

    /// Tells the bus of messages that came here without it, behind their recipient's message before. The copies are for
    /// other listeners: their token begins nothing, and nothing waits for them.
    pub fn copy(&self, claims: &[Claim]) {
        for claim in claims {
            if self.copies.try_send(Claim { token: COPY_TOKEN, ..claim.clone() }).is_err() {
                metrics::counter!("tidegate_bus_copies_dropped_total", "queue" => self.queue.to_string())
                    .increment(1);
            }
        }
    }

    /// Up to so many messages to begin with now, waiting up to `wait_ms` for the first record.
    pub async fn claim(&self, max: usize, lease_ms: u64, wait_ms: u64) -> Result<Vec<Claim>, ClaimError> {
        let mut desk = self.desk.lock().await;
        let Desk { consumer, received } = &mut *desk;
        let consumer = match consumer {
            Some(consumer) => consumer,
            None => consumer.insert(self.bus.consumer(self.queue.clone()).await?),
        };
        if received.is_empty() {
            *received = consumer.receive(max, wait_ms).await?;
            let all = received.len();
            received.retain(|claim| claim.token != COPY_TOKEN);
            self.count("copy", all - received.len());
            if received.is_empty() && all > 0 {
                // Copies that are not marked as done come again, and are passed over again.
                let _ = consumer.done().await;
            }
        }
        if received.is_empty() {
            return Ok(Vec::new());
        }
        let extension = |claim: &Claim| Extension { id: claim.id, token: claim.token, lease_ms };
        let begun = self.transit.begin(received.iter().map(extension).collect()).await?;
        let records = std::mem::take(received);
        // Should this fail they come again, and find that somebody has begun.
        if let Err(error) = consumer.done().await {
            tracing::debug!(queue = %self.queue, %error, "records can't be marked as done; they will come again");
        }
        drop(desk);
        let count = records.len();
        let begun: Vec<Claim> = records.into_iter().zip(begun).filter_map(owned).collect();
        self.count("begun", begun.len());
        self.count("stale", count - begun.len());
        Ok(self.with_texts(begun).await)
    }

    fn count(&self, result: &'static str, count: usize) {
        metrics::counter!("tidegate_bus_received_total", "queue" => self.queue.to_string(), "result" => result)
            .increment(count as u64);
    }

    /// Leaves those who share the queue's records, so that the others get what comes.
    pub async fn leave(&self) {
        let mut desk = self.desk.lock().await;
        *desk = Desk::default();
    }

    /// What was too large to travel is read from the ledger. What can't be read now goes back untried.
    async fn with_texts(&self, claims: Vec<Claim>) -> Vec<Claim> {
        if claims.iter().all(|claim| claim.body.is_some()) {
            return claims;
        }
        let (mut whole, mut back) = (Vec::new(), Vec::new());
        for mut claim in claims {
            if claim.body.is_none() {
                match self.ledger.message(claim.id).await {
                    Ok(Some(record)) => claim.body = record.body.bytes().cloned(),
                    // Damage is for whoever settles it as dead.
                    Ok(None) | Err(LedgerError::Corrupt(_)) => {}
                    Err(error) => {
                        tracing::warn!(message_id = %claim.id, %error, "a large message can't be read now; it goes back");
                        let outcome = Outcome::Released;
                        back.push(Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 0 });
                        continue;
                    }
                }
            }
            whole.push(claim);
        }
        if !back.is_empty() {
            // Otherwise the leases end by themselves.
            let _ = self.ledger.settle(back).await;
        }
        whole
    }
}

/// Ends with the last handle to the queue's arrivals. A copy that the bus does not take is given up.
async fn publish_copies(bus: Arc<dyn Bus>, mut waiting: mpsc::Receiver<Claim>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, COPIES_BATCH).await > 0 {
        bus.publish(std::mem::take(&mut batch)).await;
    }
}

fn owned((claim, begun): (Claim, Begun)) -> Option<Claim> {
    match begun {
        Begun::Begun { token, lease_until } => Some(Claim { token, lease_until, ..claim }),
        Begun::LostLease => None,
    }
}
