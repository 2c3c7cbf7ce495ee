use std::ops::RangeInclusive;

use tidegate_domain::{Order, QueueName, QueueRule};

use super::{
    ATTEMPTS_MAX, ChannelKind, DEDUPS, LEASE_MS_MAX, MODES, ORDERS, Outlet, PENDING_MAX, QueueSettings,
    RETENTION_MINUTES_MAX, SHARE_MAX, retention, share,
};
use crate::config::SenderSettings;
use crate::config::layers::{Entry, Table};
use crate::config::problem::{Problem, choose, did_you_mean};

const KEYS: [&str; 12] = [
    "name",
    "channel",
    "mode",
    "order",
    "dedup",
    "lease_ms",
    "attempts_max",
    "retention_minutes",
    "pending_max",
    "pending_hard_max",
    "higher_per_lower",
    "topic",
];

const TOPIC_BYTES_MAX: usize = 200;

/// One `[[queues]]` table on its way to settings; what is wrong goes to `problems`.
pub struct Reading<'a> {
    pub table: &'a Table,
    pub problems: &'a mut Vec<Problem>,
}

impl<'a> Reading<'a> {
    pub fn name(&mut self) -> Option<QueueName> {
        let Some(entry) = self.entry("name") else {
            self.problem("name", "is missing".to_owned(), "add name = …");
            return None;
        };
        let named = entry.value.as_str().ok_or("must be text in quotes".to_owned());
        let named = named.and_then(|text| QueueName::new(text).map_err(|wrong| wrong.0.to_owned()));
        named.map_err(|what| self.problem("name", what, "choose another")).ok()
    }

    /// What the table does not say comes from the defaults: of the sender for pushed queues, else of `[queue]`. So does
    /// what it says wrongly, which is a problem and never used.
    pub fn queue(&mut self, otherwise: &QueueSettings, sender: &SenderSettings) -> QueueSettings {
        self.check_keys();
        let channels = ChannelKind::ALL.map(|channel| (channel.as_str(), channel));
        let outlet = match (self.entry("channel"), self.entry("mode")) {
            (Some(_), Some(_)) => {
                let fix = "remove one: a queue with a channel is pushed out, the others are pulled";
                self.problem("mode", "does not go with a channel".to_owned(), fix);
                self.choice("channel", &channels).map(Outlet::Channel)
            }
            (Some(_), None) => self.choice("channel", &channels).map(Outlet::Channel),
            (None, Some(_)) => self.choice("mode", &MODES).map(Outlet::Pull),
            (None, None) => Some(otherwise.outlet),
        };
        let order = match self.entry("order") {
            Some(_) => self.choice("order", &ORDERS),
            None => Some(otherwise.rule.order),
        };
        let order = if outlet == Some(Outlet::Channel(ChannelKind::Inbox)) {
            if self.entry("order").is_some() && order == Some(Order::BestEffort) {
                let fix = "remove it: a recipient's devices read its messages in their order";
                self.problem("order", "does not go with the channel \"inbox\"".to_owned(), fix);
            }
            // Whatever [queue] says of the others.
            Some(Order::Strict)
        } else {
            order
        };
        let dedup = match self.entry("dedup") {
            Some(_) => self.choice("dedup", &DEDUPS),
            None => Some(otherwise.dedup),
        };
        let pushed = matches!(outlet, Some(Outlet::Channel(_)));
        let (lease_ms, attempts_max) = if pushed {
            (sender.lease_ms, sender.retry.attempts_max)
        } else {
            (otherwise.lease_ms, otherwise.attempts_max)
        };
        let lease_ms = self.whole("lease_ms", 1_000..=LEASE_MS_MAX, lease_ms);
        let attempts_max = self.whole("attempts_max", 1..=ATTEMPTS_MAX, attempts_max.into());
        let default_minutes = otherwise.retention_ms.unwrap_or(0) / 60_000;
        let minutes = self.whole("retention_minutes", 0..=RETENTION_MINUTES_MAX, default_minutes);
        let pending_max = self.whole("pending_max", 1..=PENDING_MAX, otherwise.rule.pending_max);
        let hard_max = otherwise.rule.pending_hard_max.max(pending_max.unwrap_or(0));
        let hard_max = self.whole("pending_hard_max", 1..=PENDING_MAX, hard_max);
        if let (Some(max), Some(hard_max)) = (pending_max, hard_max.filter(|hard| Some(*hard) < pending_max))
        {
            let what = format!("{hard_max} is below pending_max ({max})");
            self.problem("pending_hard_max", what, "raise this, or lower the other");
        }
        let higher_per_lower =
            self.whole("higher_per_lower", 1..=SHARE_MAX, otherwise.rule.higher_per_lower.into());
        if let Some(what) = lease_ms.filter(|_| pushed).and_then(|ms| sender.too_short(ms)) {
            self.problem("lease_ms", what, "raise the lease");
        }
        let topic = self.topic(outlet);
        let attempts_max = attempts_max.and_then(|number| u32::try_from(number).ok());
        QueueSettings {
            topic,
            dedup: dedup.unwrap_or_default(),
            outlet: outlet.unwrap_or(otherwise.outlet),
            rule: QueueRule {
                order: order.unwrap_or_default(),
                pending_max: pending_max.unwrap_or(1),
                pending_hard_max: hard_max.unwrap_or(1),
                higher_per_lower: higher_per_lower.map_or(otherwise.rule.higher_per_lower, share),
                ..QueueRule::default()
            },
            lease_ms: lease_ms.unwrap_or(otherwise.lease_ms),
            attempts_max: attempts_max.unwrap_or(1),
            retention_ms: minutes.and_then(retention),
        }
    }

    /// What Kafka and RabbitMQ both take for a name.
    fn topic(&mut self, outlet: Option<Outlet>) -> Option<String> {
        let topic = &self.entry("topic")?.value;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let known = topic.as_str().filter(|name| {
            (1..=TOPIC_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) && !is_reserved(name)
        });
        if known.is_none() {
            let what = format!(
                "{topic} must be 1 to {TOPIC_BYTES_MAX} letters, digits, '.', '_' or '-', and not begin with '.' or \"amq.\""
            );
            self.problem("topic", what, "such as \"sms-outbound\"");
        }
        if matches!(outlet, Some(Outlet::Pull(_) | Outlet::Channel(ChannelKind::Inbox))) {
            let fix = "remove it: what is pulled, or kept for devices, does not travel";
            self.problem("topic", "is for queues with a channel that senders push out".to_owned(), fix);
        }
        known.map(str::to_owned)
    }

    pub fn problem(&mut self, key: &str, what: String, fix: &str) {
        let origin = self.entry(key).map_or(&self.table.origin, |entry| &entry.origin);
        self.problems.push(Problem::new(origin, &format!("queues.{key}"), what).fix(fix));
    }

    fn check_keys(&mut self) {
        for (key, entry) in &self.table.entries {
            if !KEYS.contains(&key.as_str()) {
                let problem = Problem::new(&entry.origin, &format!("queues.{key}"), "no such key");
                self.problems.push(problem.fix(did_you_mean(key, KEYS)));
            }
        }
    }

    fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let value = &self.entry(key)?.value;
        let found = choices.iter().find(|(name, _)| value.as_str() == Some(name));
        if found.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let fix = choose(value.as_str().unwrap_or_default(), &names);
            self.problem(key, format!("{value} is not known"), &fix);
        }
        found.map(|(_, value)| *value)
    }

    fn whole(&mut self, key: &str, range: RangeInclusive<u64>, default: u64) -> Option<u64> {
        let Some(entry) = self.entry(key) else { return Some(default) };
        let number = entry.value.as_integer().and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let fix = format!("choose {} to {}", range.start(), range.end());
            self.problem(key, format!("{} is no whole number in range", entry.value), &fix);
        }
        number
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.table.entries.get(key)
    }
}

/// Kafka refuses names that begin with two dots, RabbitMQ those in its own name.
pub fn is_reserved(topic: &str) -> bool {
    topic.starts_with('.') || topic.starts_with("amq.")
}
