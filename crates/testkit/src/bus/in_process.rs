use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_domain::{Bus, BusError, BusHealth, Claim, Consumer, QueueName, QueueRule, Turn};
use tokio::sync::Notify;

use super::BusBackend;

/// A bus in this process: the port at its plainest, and one that lies when told to.
#[derive(Debug, Clone)]
pub struct InProcessBus(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queues: Vec<QueueName>,
    waiting: Mutex<HashMap<QueueName, [VecDeque<Record>; 3]>>,
    arrived: Notify,
    mischief: Mutex<Mischief>,
    published: AtomicU64,
    refused: AtomicU64,
}

/// What it does beside its duty.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mischief {
    /// Confirms every n-th record and forgets it; 0: none.
    pub loses_every: u64,
    /// So many copies more of each record.
    pub copies: usize,
    /// What comes last is received first.
    pub reverses: bool,
    /// Never takes what is for this recipient.
    pub refuses: Option<&'static str>,
    /// Takes nothing and gives nothing.
    pub away: bool,
}

#[derive(Debug, Clone)]
enum Record {
    Claim(Box<Claim>),
    Strange,
}

impl InProcessBus {
    pub fn new(queues: impl IntoIterator<Item = QueueName>) -> Self {
        Self(Arc::new(Shared {
            queues: queues.into_iter().collect(),
            waiting: Mutex::default(),
            arrived: Notify::new(),
            mischief: Mutex::default(),
            published: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    pub fn set_mischief(&self, mischief: Mischief) {
        *self.0.mischief.lock().expect("nobody panics here") = mischief;
        self.0.arrived.notify_waiters();
    }

    /// Confirmed so far.
    pub fn published(&self) -> u64 {
        self.0.published.load(Ordering::SeqCst)
    }

    /// Told to be.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::SeqCst)
    }

    fn put(&self, queue: &QueueName, lane: usize, record: Record) {
        let reverses = self.0.mischief().reverses;
        let mut waiting = self.0.waiting();
        let records = &mut waiting.entry(queue.clone()).or_default()[lane];
        if reverses {
            records.push_front(record)
        } else {
            records.push_back(record)
        }
        drop(waiting);
        self.0.arrived.notify_waiters();
    }

    fn check(&self, queue: &QueueName) -> Result<(), BusError> {
        if self.0.mischief().away {
            return Err(BusError::Away("told to be".to_owned()));
        }
        let refused = || BusError::Refused(format!("the queue {queue} does not travel"));
        self.0.queues.contains(queue).then_some(()).ok_or_else(refused)
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<QueueName, [VecDeque<Record>; 3]>> {
        self.waiting.lock().expect("nobody panics here")
    }

    fn mischief(&self) -> Mischief {
        *self.mischief.lock().expect("nobody panics here")
    }
}

#[async_trait]
impl Bus for InProcessBus {
    fn name(&self) -> &'static str {
        "in-process"
    }

    async fn publish(&self, batch: Vec<Claim>) -> Vec<Result<(), BusError>> {
        let publish = |claim: Claim| {
            self.check(&claim.queue)?;
            let mischief = self.0.mischief();
            if mischief.refuses.is_some()
                && claim.recipient.as_ref().map(|name| name.as_str()) == mischief.refuses
            {
                self.0.refused.fetch_add(1, Ordering::SeqCst);
                return Err(BusError::Refused("too large".to_owned()));
            }
            let number = self.0.published.fetch_add(1, Ordering::SeqCst) + 1;
            if mischief.loses_every == 0 || !number.is_multiple_of(mischief.loses_every) {
                let (queue, lane) = (claim.queue.clone(), claim.lane.index());
                let record = Record::Claim(Box::new(claim));
                (0..=mischief.copies).for_each(|_| self.put(&queue, lane, record.clone()));
            }
            Ok(())
        };
        batch.into_iter().map(publish).collect()
    }

    async fn consumer(&self, queue: QueueName) -> Result<Box<dyn Consumer>, BusError> {
        self.check(&queue)?;
        let (bus, turn) = (self.clone(), Turn::default());
        Ok(Box::new(InProcessConsumer { bus, queue, turn, received: Vec::new() }))
    }

    fn health(&self) -> BusHealth {
        if self.0.mischief().away { BusHealth::Away("told to be".to_owned()) } else { BusHealth::Ready }
    }
}

#[derive(Debug)]
struct InProcessConsumer {
    bus: InProcessBus,
    queue: QueueName,
    turn: Turn,
    /// And not done.
    received: Vec<Claim>,
}

impl InProcessConsumer {
    fn take(&mut self, max: usize) -> Vec<Claim> {
        let mut waiting = self.bus.0.waiting();
        let lanes = waiting.entry(self.queue.clone()).or_default();
        let mut taken = Vec::new();
        while taken.len() < max {
            let mut full: Vec<_> = lanes.iter_mut().filter(|lane| !lane.is_empty()).collect();
            let place = self.turn.choose(full.len(), QueueRule::HIGHER_PER_LOWER);
            match full.get_mut(place).and_then(|lane| lane.pop_front()) {
                Some(Record::Claim(claim)) => taken.push(*claim),
                Some(Record::Strange) => {}
                None => break,
            }
        }
        taken
    }
}

#[async_trait]
impl Consumer for InProcessConsumer {
    async fn receive(&mut self, max: usize, wait_ms: u64) -> Result<Vec<Claim>, BusError> {
        let shared = self.bus.0.clone();
        let end = tokio::time::Instant::now() + Duration::from_millis(wait_ms);
        loop {
            let arrived = shared.arrived.notified();
            self.bus.check(&self.queue)?;
            let taken = self.take(max);
            self.received.extend(taken.iter().cloned());
            if !taken.is_empty() || tokio::time::timeout_at(end, arrived).await.is_err() {
                return Ok(taken);
            }
        }
    }

    async fn done(&mut self) -> Result<(), BusError> {
        self.bus.check(&self.queue)?;
        self.received.clear();
        Ok(())
    }
}

impl Drop for InProcessConsumer {
    fn drop(&mut self) {
        for claim in self.received.drain(..).rev() {
            let mut waiting = self.bus.0.waiting();
            let lanes = waiting.entry(self.queue.clone()).or_default();
            lanes[claim.lane.index()].push_front(Record::Claim(Box::new(claim)));
        }
        self.bus.0.arrived.notify_waiters();
    }
}

/// For the conformance cases.
#[derive(Debug)]
pub struct InProcessBackend(InProcessBus);

impl Default for InProcessBackend {
    fn default() -> Self {
        let queues = ["sms", "jobs"].map(|name| QueueName::new(name).expect("a name"));
        Self(InProcessBus::new(queues))
    }
}

#[async_trait]
impl BusBackend for InProcessBackend {
    async fn open(&self) -> anyhow::Result<Arc<dyn Bus>> {
        Ok(Arc::new(self.0.clone()))
    }

    async fn put(&self, _bytes: &[u8]) -> anyhow::Result<()> {
        self.0.put(&QueueName::new("sms")?, 1, Record::Strange);
        Ok(())
    }
}
