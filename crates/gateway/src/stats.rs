//! How much goes through the queues, and how fast.

mod alarm;
mod recently;
mod report;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tidegate_domain::{Clock, Outcome, QueueName, Settlement};

use self::recently::Recently;

pub use self::alarm::{Alarm, ring};
pub use self::report::Reporter;

/// Between two samples, and how many are kept: rates are those of the last minute.
const SAMPLE_NS: u64 = 5_000_000_000;
const SAMPLES_MAX: usize = 13;

/// What this process has seen of each queue.
#[derive(Debug)]
pub struct Stats {
    queues: RwLock<BTreeMap<QueueName, Arc<QueueTally>>>,
    /// What was counted for queues that the ledger has forgotten: totals only grow.
    forgotten: Mutex<Tallied>,
    samples: Mutex<VecDeque<Sample>>,
    clock: Arc<dyn Clock>,
    /// The ledger let nobody in.
    full: Recently,
}

/// What became of the messages of one queue. Attempts end as one of these.
#[derive(Debug, Default)]
pub struct QueueTally {
    delivered: AtomicU64,
    accepted: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    processing_ms: AtomicU64,
    /// When the bus last took nothing of what it was handed, until it takes something.
    refused: Recently,
    /// It let nobody in.
    full: Recently,
}

/// How long a refusal of the bus is remembered when nothing was handed to it since. Longer than a relay waits for its
/// answer and before it tries again.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// How long it is remembered that somebody was turned away for want of room.
const FULL_FOR: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tallied {
    pub delivered: u64,
    pub accepted: u64,
    pub retried: u64,
    pub dead: u64,
    pub processing_ms: u64,
}

#[derive(Debug, Clone)]
struct Sample {
    at_ns: u64,
    queues: BTreeMap<QueueName, Tallied>,
    total: Tallied,
}

/// The last minute of one queue, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    pub processed_per_second: f64,
    pub processing_ms_average: f64,
    /// Of attempts, the shares that failed and were put off, and that ended in a dead letter.
    pub retry_rate: f64,
    pub failure_rate: f64,
}

impl Stats {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            queues: RwLock::default(),
            forgotten: Mutex::default(),
            samples: Mutex::default(),
            clock,
            full: Recently::default(),
        }
    }

    /// Somebody was turned away: by the ledger, or by one queue of it.
    pub fn was_full(&self, queue: Option<&QueueName>) {
        match queue {
            Some(queue) => self.of(queue).full.note(),
            None => self.full.note(),
        }
    }

    pub fn is_full(&self) -> bool {
        self.full.was_within(FULL_FOR)
    }

    pub fn full_queues(&self) -> Vec<QueueName> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        let full = queues.iter().filter(|(_, tally)| tally.full.was_within(FULL_FOR));
        full.map(|(queue, _)| queue.clone()).collect()
    }

    pub fn of(&self, queue: &QueueName) -> Arc<QueueTally> {
        if let Some(tally) = self.queues.read().unwrap_or_else(PoisonError::into_inner).get(queue) {
            return tally.clone();
        }
        self.queues.write().unwrap_or_else(PoisonError::into_inner).entry(queue.clone()).or_default().clone()
    }

    /// Whether there is a tally, so that a forged name makes none.
    pub fn knows(&self, queue: &QueueName) -> bool {
        self.queues.read().unwrap_or_else(PoisonError::into_inner).contains_key(queue)
    }

    /// The names of all queues that were counted for.
    pub fn names(&self) -> Vec<QueueName> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Drops the counters of queues that are no more. Counters that are in use at this moment stay.
    pub fn forget(&self, names: impl Iterator<Item = QueueName>) {
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            if queues.get(&name).is_some_and(|tally| Arc::strong_count(tally) == 1)
                && let Some(tally) = queues.remove(&name)
            {
                *forgotten = Tallied::sum([*forgotten, tally.read()].iter());
            }
        }
    }

    pub fn all(&self) -> BTreeMap<QueueName, Tallied> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.iter().map(|(queue, tally)| (queue.clone(), tally.read())).collect()
    }

    /// Of all queues there were, since the start.
    fn total(&self) -> Tallied {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        let forgotten = *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = queues.values().map(|tally| tally.read()).chain([forgotten]).collect();
        Tallied::sum(all.iter())
    }

    /// Keeps where the tallies stand, unless that was done a moment ago.
    pub fn sample(&self) {
        let at_ns = self.clock.monotonic_ns();
        let (queues, total) = (self.all(), self.total());
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.back().is_some_and(|last| at_ns.saturating_sub(last.at_ns) < SAMPLE_NS) {
            return;
        }
        samples.push_back(Sample { at_ns, queues, total });
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    /// Since the oldest sample.
    pub fn rates(&self) -> BTreeMap<QueueName, Rates> {
        let (now, at_ns) = (self.all(), self.clock.monotonic_ns());
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = samples.front();
        let ns = oldest.map_or(0, |oldest| at_ns.saturating_sub(oldest.at_ns));
        let rates = |(queue, tallied): (QueueName, Tallied)| {
            let before = oldest.and_then(|oldest| oldest.queues.get(&queue)).copied().unwrap_or_default();
            (queue, tallied.since(before).rates(ns))
        };
        now.into_iter().map(rates).collect()
    }

    pub fn total_rates(&self) -> Rates {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = samples.front();
        let ns = oldest.map_or(0, |oldest| self.clock.monotonic_ns().saturating_sub(oldest.at_ns));
        let before = oldest.map(|oldest| oldest.total).unwrap_or_default();
        self.total().since(before).rates(ns)
    }
}

impl QueueTally {
    pub fn settled(&self, settlement: &Settlement) {
        let counter = match &settlement.outcome {
            Outcome::Delivered => &self.delivered,
            Outcome::Accepted { .. } => &self.accepted,
            Outcome::Retry { .. } => &self.retried,
            Outcome::Dead { .. } | Outcome::GivenUp { .. } => &self.dead,
            // The others are no attempts.
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.processing_ms.fetch_add(settlement.latency_ms, Ordering::Relaxed);
    }

    pub fn bus_refused(&self) {
        self.refused.note();
    }

    pub fn bus_took(&self) {
        self.refused.is_over();
    }

    pub fn is_refused_by_bus(&self) -> bool {
        self.refused.was_within(REFUSED_FOR)
    }

    pub fn popped(&self, messages: u64) {
        self.delivered.fetch_add(messages, Ordering::Relaxed);
    }

    fn read(&self) -> Tallied {
        Tallied {
            delivered: self.delivered.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            retried: self.retried.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
            processing_ms: self.processing_ms.load(Ordering::Relaxed),
        }
    }
}

impl Tallied {
    pub fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            delivered: sum.delivered + one.delivered,
            accepted: sum.accepted + one.accepted,
            retried: sum.retried + one.retried,
            dead: sum.dead + one.dead,
            processing_ms: sum.processing_ms + one.processing_ms,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            delivered: self.delivered.saturating_sub(before.delivered),
            accepted: self.accepted.saturating_sub(before.accepted),
            retried: self.retried.saturating_sub(before.retried),
            dead: self.dead.saturating_sub(before.dead),
            processing_ms: self.processing_ms.saturating_sub(before.processing_ms),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rates(self, ns: u64) -> Rates {
        let processed = self.delivered + self.accepted + self.retried + self.dead;
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Rates {
            processed_per_second: share(processed, ns) * 1e9,
            processing_ms_average: share(self.processing_ms, processed),
            retry_rate: share(self.retried, processed),
            failure_rate: share(self.dead, processed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_forgotten_queue_counted_stays_in_the_total() {
        let stats = Stats::new(Arc::new(tidegate_testkit::TestClock::default()));
        let name = |name| QueueName::new(name).unwrap();
        stats.of(&name("gone")).popped(3);
        stats.of(&name("kept")).popped(4);
        let counted_on = stats.of(&name("held"));
        counted_on.popped(5);
        stats.forget(["gone", "held", "never"].map(name).into_iter());
        assert_eq!(stats.names(), ["held", "kept"].map(name));
        assert_eq!(stats.total().delivered, 12);
        drop(counted_on);
        stats.forget([name("held")].into_iter());
        stats.of(&name("gone")).popped(1);
        assert_eq!(stats.names(), ["gone", "kept"].map(name));
        assert_eq!(stats.total().delivered, 13);
    }

    #[test]
    fn rates_are_shares_of_what_was_processed() {
        let tallied = Tallied { delivered: 6, accepted: 1, retried: 2, dead: 1, processing_ms: 500 };
        let rates = tallied.rates(2_000_000_000);
        assert_eq!((rates.processed_per_second, rates.processing_ms_average), (5.0, 50.0));
        assert_eq!((rates.retry_rate, rates.failure_rate), (0.2, 0.1));
        assert_eq!(Tallied::default().rates(0), Rates::default());
    }
}
