use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tidegate_domain::{Bus, Channel, Clock, Ledger, QueueName, Queues, Slots, Transit};
use tidegate_edge::{Edge, PolicyGate, Principals, serve};
use tokio::net::TcpListener;

use crate::config::{ChannelKind, QueueSettings, SMS, SenderSettings, Settings};
use crate::devices::Devices;
use crate::http::{Gateway, probes, routes};
use crate::limiters::Limiters;
use crate::pickup::Pickup;
use crate::relay::Relay;
use crate::sender::{Arrivals, Sender, SharedChannel, supervise};
use crate::stats::{Alarm, Reporter, Stats, ring};
use crate::stop::StopSignal;
use crate::telemetry;

/// The channels that are there to push queues out, and what messages travel by on their way there.
#[derive(Debug, Default)]
pub struct Channels {
    by_kind: BTreeMap<ChannelKind, Arc<dyn Channel>>,
    /// What the channel "inbox" serves.
    pub devices: Option<Arc<dyn Devices>>,
    /// Whom a queue that gets too deep is reported to.
    pub alarm: Option<Arc<dyn Alarm>>,
    /// Between gateways and senders, if the settings want one.
    pub bus: Option<Arc<dyn Bus>>,
}

impl Channels {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn insert(&mut self, kind: ChannelKind, channel: Arc<dyn Channel>) {
        self.by_kind.insert(kind, channel);
    }

    pub fn contains(&self, kind: ChannelKind) -> bool {
        self.by_kind.contains_key(&kind)
    }
}

const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

/// The ledger can't go on: the process has to end without touching the disk again, and recover from it.
#[derive(Debug, thiserror::Error)]
#[error("the ledger failed for good: {reason}")]
pub struct LedgerFailed {
    pub reason: String,
}

/// Serves until `shutdown` resolves, then drains: not ready at once, requests and attempts under way finished
/// or handed back within the drain time. The ledger stays open; whoever opened it closes it.
///
/// `listener` may have been bound long before: nothing is answered until this runs.
pub async fn run(
    settings: Settings,
    listener: TcpListener,
    ledger: Arc<impl Ledger + Slots + Queues + Transit>,
    channels: Channels,
    clock: Arc<dyn Clock>,
    limiters: impl Into<Limiters>,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let (role, queue) = (settings.role, QueueName::new(SMS)?);
    let (devices, alarm, bus) = (channels.devices.clone(), channels.alarm.clone(), channels.bus.clone());
    let channels = shared_channels(&settings, channels, &clock)?;
    let metrics = telemetry::metrics();
    let limiters = limiters.into();
    let gate = PolicyGate::new(limiters.policies.engine.clone(), settings.gate.clone());
    let gateway = Gateway::new(ledger.clone(), clock.clone(), &settings, queue, limiters, metrics.clone());
    let gateway = gateway.with_channels(channels.values().cloned().collect(), devices.clone());
    let gateway = Arc::new(gateway.with_bus(bus.clone(), &settings));
    let senders = senders(&settings, &ledger, &channels, bus.as_ref(), &gateway.stats);
    let pickups = pickups(&settings, &ledger, devices.as_deref(), &gateway.stats)?;
    let relays = relays(&settings, &ledger, bus.as_ref(), &gateway.stats);
    let (stats, queues) = (gateway.stats.clone(), ledger.clone());
    let reporter = Reporter {
        stats,
        queues,
        settings: settings.stats.clone(),
        alarm: alarm.map(|alarm| ring(alarm, &clock)),
    };
    let open = settings.principals.is_empty();
    let principals = if open {
        Principals::none()
    } else {
        // Devices have tokens.
        Principals::new(settings.principals).map_err(anyhow::Error::msg)?.leaving("/inbox/")
    };
    let edge = Edge::with_policies(settings.limits, principals, clock, open, Some(gate));

    let (signal, stop) = StopSignal::new();
    // Should this function be dropped, `signal` goes with it, and the senders take that as their stop.
    let mut sending = Vec::new();
    for sender in senders {
        let (queue, status) = (sender.queue.clone(), gateway.sender.clone());
        let work = move |stop| sender.clone().run(stop);
        sending.push(tokio::spawn(supervise("sender", queue, work, stop.clone(), status)));
    }
    for pickup in pickups {
        let (queue, status) = (pickup.queue.clone(), gateway.sender.clone());
        let work = move |stop| pickup.clone().run(stop);
        sending.push(tokio::spawn(supervise("pick-up", queue, work, stop.clone(), status)));
    }
    for relay in relays {
        let (queue, status) = (relay.queue.clone(), gateway.relay.clone());
        let work = move |stop| relay.clone().run(stop);
        sending.push(tokio::spawn(supervise("relay", queue, work, stop.clone(), status)));
    }
    let app = edge.wrap(if role.serves_api() { routes(gateway.clone()) } else { probes(gateway.clone()) });
    let draining = async {
        shutdown.await;
        gateway.drain();
        signal.stop();
    };
    let serving = async {
        serve(listener, app, edge, draining).await;
        for sender in sending {
            sender.await.context("a sender's supervisor died")?;
        }
        Ok(())
    };
    tokio::select! {
        ended = serving => ended,
        reason = ledger.failed() => Err(LedgerFailed { reason }.into()),
        never = upkeep(&metrics) => match never {},
        never = reporter.run() => match never {},
    }
}

/// The channels that queues are pushed out by, each with what its queues share.
fn shared_channels(
    settings: &Settings,
    mut channels: Channels,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<BTreeMap<ChannelKind, Arc<SharedChannel>>> {
    let mut shared = BTreeMap::new();
    let own = &settings.sender;
    for (name, kind, _) in settings.pushed() {
        // Devices come and read: there is no provider to spare.
        if shared.contains_key(&kind) || kind == ChannelKind::Inbox {
            continue;
        }
        let channel = channels.by_kind.remove(&kind);
        let channel = channel.with_context(|| {
            format!("queue {name} has the channel {:?}, which is not set up", kind.as_str())
        })?;
        let (jitter, clock) = (own.retry_jitter_percent, clock.clone());
        let one = SharedChannel::new(channel, settings.concurrency(kind), own.breaker, jitter, clock);
        shared.insert(kind, Arc::new(one));
    }
    Ok(shared)
}

/// One sender for every queue that this process pushes out.
fn senders(
    settings: &Settings,
    ledger: &Arc<impl Ledger + Queues + Transit>,
    channels: &BTreeMap<ChannelKind, Arc<SharedChannel>>,
    bus: Option<&Arc<dyn Bus>>,
    stats: &Stats,
) -> Vec<Sender> {
    let arrivals = |queue: &QueueName| {
        let bus = bus.filter(|_| settings.bus.as_ref().is_some_and(|bus| bus.carries(queue)))?;
        Some(Arc::new(Arrivals::new(bus.clone(), ledger.clone(), ledger.clone(), queue.clone())))
    };
    let sender = |(name, kind, queue): (&QueueName, ChannelKind, &QueueSettings)| {
        Some(Sender {
            queue: name.clone(),
            ledger: ledger.clone(),
            queues: ledger.clone(),
            arrivals: arrivals(name),
            channel: channels.get(&kind)?.clone(),
            settings: sender_settings(settings, kind, queue),
            tally: stats.of(name),
            drain_timeout: settings.limits.drain_timeout,
        })
    };
    settings.pushed().filter_map(sender).collect()
}

fn sender_settings(settings: &Settings, kind: ChannelKind, queue: &QueueSettings) -> SenderSettings {
    let mut own = settings.sender.clone();
    own.concurrency = settings.concurrency(kind);
    own.lease_ms = queue.lease_ms;
    own.retry.attempts_max = queue.attempts_max;
    own
}

/// One pick-up for every queue whose messages devices read.
fn pickups(
    settings: &Settings,
    ledger: &Arc<impl Ledger + Queues>,
    devices: Option<&dyn Devices>,
    stats: &Stats,
) -> anyhow::Result<Vec<Pickup>> {
    let inboxes = settings.pushed().filter(|(_, kind, _)| *kind == ChannelKind::Inbox);
    let pickup = |(name, kind, queue): (&QueueName, ChannelKind, &QueueSettings)| {
        let devices = devices
            .with_context(|| format!("queue {name} has the channel \"inbox\", which is not set up"))?;
        Ok(Pickup {
            queue: name.clone(),
            ledger: ledger.clone(),
            queues: ledger.clone(),
            desk: devices.desk(name),
            settings: sender_settings(settings, kind, queue),
            tally: stats.of(name),
            drain_timeout: settings.limits.drain_timeout,
        })
    };
    inboxes.map(pickup).collect()
}

/// One relay for every queue that travels, where requests are taken.
fn relays(
    settings: &Settings,
    ledger: &Arc<impl Ledger + Transit>,
    bus: Option<&Arc<dyn Bus>>,
    stats: &Stats,
) -> Vec<Relay> {
    let (Some(bus), Some(rules)) = (bus, settings.bus.as_ref().filter(|_| settings.role.serves_api())) else {
        return Vec::new();
    };
    let relay = |(name, _, queue): (&QueueName, ChannelKind, &QueueSettings)| {
        let mut retry = settings.sender.retry;
        retry.attempts_max = queue.attempts_max;
        rules.carries(name).then(|| Relay {
            queue: name.clone(),
            ledger: ledger.clone(),
            transit: ledger.clone(),
            bus: bus.clone(),
            batch: settings.sender.batch,
            in_transit_max: rules.in_transit_max,
            transit_ms: rules.transit_ms,
            retry,
            tally: stats.of(name),
        })
    };
    settings.queues.pushed().filter_map(relay).collect()
}

/// The recorder keeps every sample of a histogram until somebody looks; without scrapes, that is us.
async fn upkeep(metrics: &crate::http::MetricsHandle) -> std::convert::Infallible {
    let mut ticks = tokio::time::interval(UPKEEP_PERIOD);
    loop {
        ticks.tick().await;
        metrics.0.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use tidegate_adapters::channels::log::LogChannel;
    use tidegate_domain::Health;
    use tidegate_testkit::Setup;

    use super::*;
    use crate::config::{Loaded, Sources};
    use crate::faulty::FaultyLedger;

    #[tokio::test]
    async fn a_ledger_that_fails_for_good_ends_the_run() {
        let settings = Loaded::from_sources(&Sources::default()).unwrap().settings;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ledger = Arc::new(FaultyLedger::new(Setup::default()));
        let channel: Arc<dyn Channel> = Arc::new(LogChannel::to(std::io::sink()).unwrap());
        let mut channels = Channels::new();
        channels.insert(ChannelKind::Log, channel);
        let (clock, never) = (Setup::default().clock, std::future::pending());
        let policies =
            crate::wiring::policies(&settings, clock.clone(), Box::new(|| Ok(Vec::new()))).await.unwrap();
        let running = tokio::spawn(run(settings, listener, ledger.clone(), channels, clock, policies, never));
        ledger.set_health(Health::Failed("fsync: input/output error".to_owned()));
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.downcast_ref::<LedgerFailed>().unwrap().reason, "fsync: input/output error");
    }
}
