use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode};
use tidegate_domain::{Bus, BusHealth, QueueName};
use tidegate_edge::ApiError;

use super::Gateway;
use crate::config::{BusSettings, WhenDown};
use crate::stats::{QueueTally, Stats};

const DEGRADED: &str = "tidegate-degraded";
/// A bus that went away is looked for all the time.
const AWAY_RETRY_MS: u64 = 1_000;

/// The bus as those see it who admit messages.
#[derive(Debug)]
pub struct BusGate {
    bus: Arc<dyn Bus>,
    when_down: WhenDown,
    queues: BTreeMap<QueueName, Arc<QueueTally>>,
}

impl BusGate {
    pub fn new(bus: Arc<dyn Bus>, settings: &BusSettings, stats: &Stats) -> Self {
        let queues = settings.topics.keys().map(|queue| (queue.clone(), stats.of(queue))).collect();
        Self { bus, when_down: settings.when_down, queues }
    }

    pub fn name(&self) -> &'static str {
        self.bus.name()
    }

    pub fn is_away(&self) -> bool {
        self.bus.health() != BusHealth::Ready
    }

    /// Queues whose messages it does not take, although it is there.
    pub fn refused_queues(&self) -> Vec<&str> {
        let refused = self.queues.iter().filter(|(_, tally)| tally.is_refused_by_bus());
        refused.map(|(queue, _)| queue.as_str()).collect()
    }

    /// Whether the queue's messages have to wait for it now.
    pub fn holds_back(&self, queue: &QueueName) -> bool {
        self.queues.get(queue).is_some_and(|tally| self.is_away() || tally.is_refused_by_bus())
    }

    /// Whether admissions are refused now. Not for a queue that it does not take from: that may be the fault of a single
    /// message, which must not keep the others out.
    pub fn refuses(&self) -> bool {
        self.when_down == WhenDown::Reject && self.is_away()
    }
}

impl Gateway {
    /// Whether messages of these queues have to wait for the bus. `Err` when they are not to wait, but to be refused.
    pub fn is_degraded<'a>(&self, queues: impl IntoIterator<Item = &'a QueueName>) -> Result<bool, ApiError> {
        let Some(bus) = &self.bus else { return Ok(false) };
        if !queues.into_iter().any(|queue| bus.holds_back(queue)) {
            return Ok(false);
        }
        if !bus.refuses() {
            return Ok(true);
        }
        let message = "the message bus is away; nothing was stored or counted, try again soon";
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "bus_unavailable", message);
        Err(error.retry_after_ms(AWAY_RETRY_MS))
    }
}

/// Says that a message waits for the bus.
pub fn put_degraded(headers: &mut HeaderMap, degraded: bool) {
    if degraded {
        headers.insert(DEGRADED, HeaderValue::from_static("true"));
    }
}
