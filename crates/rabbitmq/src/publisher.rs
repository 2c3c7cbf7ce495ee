use std::collections::HashSet;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use lapin::message::BasicReturnMessage;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Confirmation};
use tidegate_bus::{CONTENT_TYPE, encode, key, traceparent};
use tidegate_domain::{BusError, Claim};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::error::bus_error;
use crate::link::Link;
use crate::session::{Session, publish};

/// Batches under way at a time. Each has a channel to itself.
const BATCHES_MAX: usize = 16;

/// Kept by the broker's disk, and not in its memory only.
const PERSISTENT: u8 = 2;

#[derive(Debug)]
pub struct Publisher {
    link: Link,
    batches: Semaphore,
    timeout: Duration,
    record_bytes_max: usize,
}

struct Record {
    id: ShortString,
    key: ShortString,
    bytes: Vec<u8>,
    properties: BasicProperties,
}

type Results = Vec<Result<(), BusError>>;

impl Publisher {
    pub fn new(link: Link, timeout: Duration, record_bytes_max: usize) -> Self {
        Self { link, batches: Semaphore::new(BATCHES_MAX), timeout, record_bytes_max }
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    pub async fn publish(&self, batch: &[Claim]) -> Results {
        let deadline = Instant::now() + self.timeout;
        let session = match self.link.session() {
            Ok(session) => session,
            Err(why) => return vec![Err(BusError::Away(why)); batch.len()],
        };
        let records: Vec<_> = batch.iter().map(|claim| self.record(claim)).collect();
        let routed: Vec<_> = records.iter().filter_map(|record| record.as_ref().ok()).collect();
        let mut results = match timeout_at(deadline, self.batches.acquire()).await {
            Ok(_turn) if !routed.is_empty() => self.publish_routed(&session, &routed, deadline).await,
            Ok(_) => vec![],
            Err(_) => vec![Err(self.late()); routed.len()],
        }
        .into_iter();
        let result = |record: &Result<Record, BusError>| match record {
            Ok(_) => results.next().unwrap_or_else(|| Err(self.late())),
            Err(error) => Err(error.clone()),
        };
        records.iter().map(result).collect()
    }

    async fn publish_routed(&self, session: &Session, records: &[&Record], deadline: Instant) -> Results {
        let channel = match timeout_at(deadline, session.channel()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return vec![Err(self.failed(&error)); records.len()],
            Err(_) => return vec![Err(self.late()); records.len()],
        };
        let exchange = self.link.terms().topology.exchange();
        let mut confirms: Vec<_> = (records.iter())
            .map(|record| {
                let (exchange, key) = (exchange.clone(), record.key.clone());
                Box::pin(publish(&channel, exchange, key, &record.bytes, record.properties.clone()))
            })
            .collect();
        // All are on their way, in order, before the first is waited for.
        let mut early: Vec<_> = confirms.iter_mut().map(|confirm| confirm.as_mut().now_or_never()).collect();
        let mut outcomes = Vec::with_capacity(records.len());
        for (confirm, early) in confirms.iter_mut().zip(&mut early) {
            outcomes.push(match early.take() {
                Some(outcome) => Some(outcome),
                // When it is too late for one, the others are still asked whether they are there already.
                None => timeout_at(deadline, Pin::new(confirm)).await.ok(),
            });
        }
        drop(confirms);
        if outcomes.iter().all(|outcome| matches!(outcome, Some(Ok(_)))) {
            session.put_back(channel);
        }
        self.judge(records, &outcomes)
    }

    fn judge(&self, records: &[&Record], outcomes: &[Option<lapin::Result<Confirmation>>]) -> Results {
        let returned: HashSet<_> =
            outcomes.iter().flatten().flatten().filter_map(returned).filter_map(id).collect();
        if !returned.is_empty() {
            self.link.declare();
        }
        let unroutable =
            |record: &Record| format!("no queue {:?} takes it; it is declared anew", record.key.as_str());
        let judge = |(record, outcome): (&&Record, &Option<lapin::Result<Confirmation>>)| match outcome {
            _ if returned.contains(&record.id) => Err(BusError::Refused(unroutable(record))),
            Some(Ok(Confirmation::Ack(_))) => Ok(()),
            Some(Ok(_)) => {
                Err(BusError::Refused(format!("the queue {:?} takes no more", record.key.as_str())))
            }
            Some(Err(error)) => Err(self.failed(error)),
            None => Err(self.late()),
        };
        records.iter().zip(outcomes).map(judge).collect()
    }

    fn record(&self, claim: &Claim) -> Result<Record, BusError> {
        let refused = || BusError::Refused(format!("the queue {} does not travel", claim.queue));
        let key = self.link.terms().topology.lane(&claim.queue, claim.lane).ok_or_else(refused)?;
        let id = ShortString::from(claim.id.to_string());
        let bytes = encode(claim, self.record_bytes_max);
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type(CONTENT_TYPE.into())
            .with_message_id(id.clone())
            .with_headers(headers(claim));
        Ok(Record { id, key, bytes, properties })
    }

    fn failed(&self, error: &lapin::Error) -> BusError {
        let error = bus_error(error);
        if matches!(error, BusError::Refused(_)) {
            self.link.declare();
        }
        error
    }

    fn late(&self) -> BusError {
        let late = || format!("no confirmation within {} ms", self.timeout.as_millis());
        BusError::Away(self.link.session().err().unwrap_or_else(late))
    }
}

fn returned(confirmation: &Confirmation) -> Option<&BasicReturnMessage> {
    match confirmation {
        Confirmation::Ack(message) | Confirmation::Nack(message) => message.as_ref(),
        Confirmation::NotRequested => None,
    }
}

fn id(message: &BasicReturnMessage) -> Option<ShortString> {
    message.delivery.properties.message_id().clone()
}

fn headers(claim: &Claim) -> FieldTable {
    let mut headers = FieldTable::default();
    for (name, value) in [("traceparent", traceparent(claim)), ("recipient", key(claim))] {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    headers
}
