mod table;

use std::collections::BTreeMap;

use tidegate_domain::{Order, QueueName, QueueRule};

use self::table::Reading;
pub(super) use self::table::is_reserved;
use super::layers::{Table, check_names};
use super::problem::Problem;
use super::reader::Reader;
use super::{MS_MAX, SenderSettings};

/// The queues that the configuration names, and what holds for the others.
#[derive(Debug, Clone)]
pub struct QueuesSettings {
    pub named: BTreeMap<QueueName, QueueSettings>,
    /// Queues that nobody named come into being with their first push, and are pulled.
    pub otherwise: QueueSettings,
    /// Messages in one answer of `/queue/view`, and of `/queue/pop`.
    pub view_max: usize,
    pub pop_max: usize,
    /// Messages in one request.
    pub batch_max: usize,
    pub wait_seconds_max: u64,
    /// How long a queue that is not named has to be empty and unused before it is forgotten.
    pub forget_after_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    pub outlet: Outlet,
    pub rule: QueueRule,
    pub lease_ms: u64,
    pub attempts_max: u32,
    /// How long after its admission a message is worth keeping; `None`: as long as the ledger keeps it.
    pub retention_ms: Option<u64>,
    pub dedup: Dedup,
    /// Its name on a bus, if it has one of its own.
    pub topic: Option<String>,
}

/// Which messages without a key are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dedup {
    #[default]
    Off,
    /// Those of the same recipient with the same body.
    Content,
}

/// How messages leave a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlet {
    /// Senders push them out.
    Channel(ChannelKind),
    /// Consumers pull them.
    Pull(PullMode),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelKind {
    Log,
    Webhook,
    Inbox,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullMode {
    /// A pop is the end of its message.
    Consume,
    /// A pop leases; the consumer acks, nacks or extends.
    Reserve,
}

impl ChannelKind {
    pub const ALL: [Self; 3] = [Self::Log, Self::Webhook, Self::Inbox];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Webhook => "webhook",
            Self::Inbox => "inbox",
        }
    }
}

/// The queue of `/api/send`: there from the start, and the only one that nobody has to name.
pub const SMS: &str = "sms";

const MODES: [(&str, PullMode); 2] = [("consume", PullMode::Consume), ("reserve", PullMode::Reserve)];
const ORDERS: [(&str, Order); 2] = [("strict", Order::Strict), ("best-effort", Order::BestEffort)];
const DEDUPS: [(&str, Dedup); 2] = [("off", Dedup::Off), ("content", Dedup::Content)];
const ATTEMPTS_MAX: u64 = 1_000;
const LEASE_MS_MAX: u64 = 12 * MS_MAX;
/// A hundred years.
const RETENTION_MINUTES_MAX: u64 = 52_560_000;
const PENDING_MAX: u64 = 1_000_000_000;
const SHARE_MAX: u64 = 1_000_000;
const QUEUES_MAX: usize = 1_000;

impl QueueSettings {
    /// The rule as the ledger gets it: with the bound on attempts, after which an ended lease leaves a dead letter.
    pub fn ledger_rule(&self) -> QueueRule {
        QueueRule { attempts_max: self.attempts_max, ..self.rule }
    }
}

impl QueuesSettings {
    /// How a queue is kept, whether or not anybody named it.
    pub fn of(&self, name: &QueueName) -> &QueueSettings {
        self.named.get(name).unwrap_or(&self.otherwise)
    }

    pub fn rules(&self) -> Vec<(QueueName, QueueRule)> {
        self.named.iter().map(|(name, queue)| (name.clone(), queue.ledger_rule())).collect()
    }

    /// The queues that are pushed out, each with its channel.
    pub fn pushed(&self) -> impl Iterator<Item = (&QueueName, ChannelKind, &QueueSettings)> {
        self.named.iter().filter_map(|(name, queue)| match queue.outlet {
            Outlet::Channel(channel) => Some((name, channel, queue)),
            Outlet::Pull(_) => None,
        })
    }

    pub(super) fn read(reader: &mut Reader<'_>, tables: &[Table], sender: &SenderSettings) -> Self {
        let mode = reader.one_of("queue.mode", &MODES);
        let order = reader.one_of("queue.order", &ORDERS);
        let dedup = reader.one_of("queue.dedup", &DEDUPS);
        let rule = QueueRule {
            order: order.unwrap_or_default(),
            pending_max: reader.number("queue.pending_max", 1..=PENDING_MAX),
            pending_hard_max: reader.number("queue.pending_hard_max", 1..=PENDING_MAX),
            higher_per_lower: share(reader.number("queue.higher_per_lower", 1..=SHARE_MAX)),
            ..QueueRule::default()
        };
        if rule.pending_hard_max < rule.pending_max
            && reader.are_sound(["queue.pending_max", "queue.pending_hard_max"])
        {
            let what = format!("{} is below queue.pending_max", rule.pending_hard_max);
            reader.problem_with_fix("queue.pending_hard_max", what, "raise this, or lower the other");
        }
        let attempts_max = reader.number("queue.attempts_max", 1..=ATTEMPTS_MAX);
        let otherwise = QueueSettings {
            outlet: Outlet::Pull(mode.unwrap_or(PullMode::Consume)),
            rule,
            lease_ms: reader.number("queue.lease_ms", 1_000..=LEASE_MS_MAX),
            attempts_max: u32::try_from(attempts_max).unwrap_or(1),
            retention_ms: retention(reader.number("queue.retention_minutes", 0..=RETENTION_MINUTES_MAX)),
            dedup: dedup.unwrap_or_default(),
            topic: None,
        };
        let (view_max, pop_max) =
            (reader.size("queue.view_max", 1..=100_000), reader.size("queue.pop_max", 1..=10_000));
        let batch_max = reader.size("queue.batch_max", 1..=100_000);
        let wait_seconds_max = reader.number("queue.wait_seconds_max", 0..=300);
        let forget_after_ms =
            reader.number("queue.forget_after_minutes", 1..=RETENTION_MINUTES_MAX).saturating_mul(60_000);
        let named = read_named(tables, &otherwise, sender, &mut reader.problems);
        Self { named, otherwise, view_max, pop_max, batch_max, wait_seconds_max, forget_after_ms }
    }
}

fn read_named(
    tables: &[Table],
    otherwise: &QueueSettings,
    sender: &SenderSettings,
    problems: &mut Vec<Problem>,
) -> BTreeMap<QueueName, QueueSettings> {
    let mut named = BTreeMap::new();
    if let Some(table) = tables.get(QUEUES_MAX) {
        let problem = Problem::new(&table.origin, "queues", format!("more than {QUEUES_MAX}"));
        problems.push(problem.fix("remove some"));
    }
    check_names("queues", tables, problems);
    for table in tables {
        let mut reading = Reading { table, problems };
        let (name, queue) = (reading.name(), reading.queue(otherwise, sender));
        if let Some(name) = name {
            named.insert(name, queue);
        }
    }
    if let Ok(sms) = QueueName::new(SMS) {
        named.entry(sms).or_insert_with(|| QueueSettings {
            outlet: Outlet::Channel(ChannelKind::Log),
            lease_ms: sender.lease_ms,
            attempts_max: sender.retry.attempts_max,
            ..otherwise.clone()
        });
    }
    named
}

fn share(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(QueueRule::HIGHER_PER_LOWER)
}

fn retention(minutes: u64) -> Option<u64> {
    (minutes > 0).then_some(minutes * 60_000)
}

#[cfg(test)]
mod tests;
