//! What callers see: one file per resource. Handlers speak to the ledger's port and to nothing behind it.

mod admission;
mod answer;
mod bus;
mod dead_letters;
mod envelope;
mod failure;
mod fields;
mod health;
mod idempotency;
mod inbox;
mod index;
mod large;
mod messages;
mod metrics;
mod options;
mod policies;
pub mod priority;
mod query;
mod queue;
mod quota;
mod send;
mod slot_config;
mod slots;
mod stats;
mod times;
mod trace;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusHandle;
use tidegate_domain::{Bus, Clock, Ledger, QueueName, Queues, Slots};
use tidegate_edge::{GateOptions, Limits};
use tokio::sync::Semaphore;

use crate::accelerator::Accelerated;
use crate::config::{QueuesSettings, Role, Settings, SlotSettings};
use crate::devices::Devices;
use crate::limiters::Limiters;
use crate::live_policies::LivePolicies;
use crate::randomness::Randomness;
use crate::sender::{SenderStatus, SharedChannel};
use crate::stats::Stats;

use self::bus::BusGate;
use self::large::LargeAnswers;

pub use self::answer::iso;

/// What the handlers share.
#[derive(Debug)]
pub struct Gateway {
    pub ledger: Arc<dyn Ledger>,
    /// The same one, if it is accelerated.
    pub accelerated: Option<Arc<Accelerated>>,
    /// The same ledger's.
    pub slots: Arc<dyn Slots>,
    pub queues: Arc<dyn Queues>,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    pub batch_limits: Limits,
    /// Where `/api/send` puts its messages.
    pub queue: QueueName,
    /// One permit per admission under way, taken before its body is read.
    pub intake: Semaphore,
    pub large_answers: LargeAnswers,
    pub defer_horizon_ms: u64,
    pub slot_settings: SlotSettings,
    pub queue_settings: QueuesSettings,
    pub randomness: Randomness,
    pub policies: Arc<LivePolicies>,
    pub gate: GateOptions,
    pub sender: Arc<SenderStatus>,
    pub relay: Arc<SenderStatus>,
    /// What messages travel by to their senders, if they do.
    pub bus: Option<BusGate>,
    pub role: Role,
    pub channels: Vec<Arc<SharedChannel>>,
    pub devices: Option<Arc<dyn Devices>>,
    pub stats: Arc<Stats>,
    pub metrics: MetricsHandle,
    draining: AtomicBool,
}

#[derive(Clone)]
pub struct MetricsHandle(pub PrometheusHandle);

impl Gateway {
    pub fn new(
        ledger: Arc<impl Ledger + Slots + Queues>,
        clock: Arc<dyn Clock>,
        settings: &Settings,
        queue: QueueName,
        limiters: impl Into<Limiters>,
        metrics: MetricsHandle,
    ) -> Self {
        let Limiters { policies, quota_cache } = limiters.into();
        let accelerated = quota_cache.map(|cache| Arc::new(Accelerated::new(ledger.clone(), cache)));
        Self {
            ledger: accelerated.clone().map_or(ledger.clone() as Arc<dyn Ledger>, |ledger| ledger),
            accelerated,
            slots: ledger.clone(),
            queues: ledger,
            stats: Arc::new(Stats::new(clock.clone())),
            channels: Vec::new(),
            devices: None,
            clock,
            limits: settings.limits,
            batch_limits: settings.batch_limits,
            queue,
            intake: Semaphore::new(settings.intake_max.min(Semaphore::MAX_PERMITS)),
            large_answers: LargeAnswers::default(),
            defer_horizon_ms: settings.defer_horizon_ms,
            slot_settings: settings.slots.clone(),
            queue_settings: settings.queues.clone(),
            randomness: Randomness::new(),
            policies,
            gate: settings.gate.clone(),
            sender: Arc::new(SenderStatus::new(settings.pushed().count())),
            relay: Arc::new(SenderStatus::new(0)),
            bus: None,
            role: settings.role,
            metrics,
            draining: AtomicBool::new(false),
        }
    }

    #[must_use]
    pub fn with_channels(
        mut self,
        channels: Vec<Arc<SharedChannel>>,
        devices: Option<Arc<dyn Devices>>,
    ) -> Self {
        (self.channels, self.devices) = (channels, devices);
        self
    }

    #[must_use]
    pub fn with_bus(mut self, bus: Option<Arc<dyn Bus>>, settings: &Settings) -> Self {
        let (Some(bus), Some(rules)) = (bus, &settings.bus) else { return self };
        if settings.role.serves_api() {
            self.relay = Arc::new(SenderStatus::new(rules.topics.len()));
        }
        self.bus = Some(BusGate::new(bus, rules, &self.stats));
        self
    }

    /// From now on the gateway is not ready; what is under way goes on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for MetricsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetricsHandle")
    }
}

pub fn routes(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/", get(index::show))
        .route("/admin/policies", get(policies::list))
        .route("/admin/policies/reload", post(policies::reload))
        .route("/admin/policies/{name}/keys/{key}", get(policies::peek).delete(policies::reset))
        .route("/admin/rate-limit/cache/flush", post(slot_config::flush))
        .route("/admin/rate-limit/config", get(slot_config::show).post(slot_config::put))
        .route("/api/config", get(quota::list).post(quota::put))
        .route("/api/config/{userId}", get(quota::show).delete(quota::delete))
        .route("/api/send", post(send::send))
        .route("/api/v1/slots", post(slots::assign))
        .route("/api/v1/slots/batch", post(slots::assign_many))
        .route("/api/v1/slots/forecast", get(slots::forecast))
        .route("/api/v1/slots/{eventId}", get(slots::show).delete(slots::release))
        .route("/api/v1/stats", get(stats::show))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics::render))
        .merge(dead_letters::routes())
        .merge(inbox::routes())
        .merge(messages::routes())
        .merge(queue::routes())
        .with_state(gateway)
}

/// What a process that only sends is asked: how it is.
pub fn probes(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics::render))
        .fallback(health::no_api)
        .with_state(gateway)
}

#[cfg(test)]
mod tests;
