use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{BATCH_BYTES_MAX, QueueName, QueueRule};

use crate::codes::bounded;
use crate::{ServerClock, SessionHook};

#[derive(Debug, Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database`, or libpq's words.
    pub url: String,
    pub tls: Tls,
    pub connections_max: usize,
    /// How long a call waits for a free connection.
    pub connection_wait: Duration,
    pub connect_timeout: Duration,
    /// How long the server may take for one statement, and wait for one lock.
    pub statement_timeout: Duration,
    pub lock_timeout: Duration,
    /// Items of one kind that may wait for the next round trip, and how many of them it takes at the most.
    pub intake_max: usize,
    pub batch_max: usize,
    /// Bytes of bodies that one claim or pop answers; one message always fits.
    pub batch_bytes_max: usize,
    pub pending_max: u64,
    /// How many when the last ones are urgent.
    pub pending_hard_max: u64,
    pub idempotency_window_ms: u64,
    /// How long delivered, expired and deleted messages can be looked up.
    pub retention_ms: u64,
    /// How many messages stand in one partition of the tables, to be dropped together.
    pub partition_messages: u64,
    pub slots_max: u64,
    pub slot_retention_ms: u64,
    /// How queues are kept, by name; those not named follow `queue_rule`.
    pub queue_rules: Vec<(QueueName, QueueRule)>,
    pub queue_rule: QueueRule,
    /// How long a queue that is not named has to be empty and unused before it is forgotten.
    pub queue_forget_after_ms: u64,
    /// How often who waits for a message looks by himself, should no notification come.
    pub poll: Duration,
    /// At most one notification goes out to the other processes in that time.
    pub notify_every: Duration,
    pub sweep_every: Duration,
    /// How many rows of settled messages may lie about in a table, besides a twentieth of its size.
    pub dead_rows_max: i64,
    /// Whether a server may be used that does not sync what it commits.
    pub allow_unsafe_server: bool,
    /// Learns the server's time while the ledger is open.
    pub clock: Arc<ServerClock>,
    /// Run on every connection before each use. For tests.
    pub session_hook: Option<SessionHook>,
}

/// How connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    Off,
    /// The server's certificate and name are verified, against the given file of certificates or the system's.
    On {
        roots: Option<PathBuf>,
    },
}

impl Options {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls: Tls::Off,
            connections_max: 16,
            connection_wait: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(3),
            intake_max: 8_192,
            batch_max: 512,
            batch_bytes_max: BATCH_BYTES_MAX,
            pending_max: 50_000_000,
            pending_hard_max: 55_000_000,
            idempotency_window_ms: 86_400_000,
            retention_ms: 3 * 86_400_000,
            partition_messages: 5_000_000,
            slots_max: 50_000_000,
            slot_retention_ms: 86_400_000,
            queue_rules: Vec::new(),
            queue_rule: QueueRule::default(),
            queue_forget_after_ms: QueueRule::FORGET_AFTER_MS,
            poll: Duration::from_millis(250),
            notify_every: Duration::from_millis(10),
            sweep_every: Duration::from_secs(1),
            dead_rows_max: 20_000,
            allow_unsafe_server: false,
            clock: Arc::default(),
            session_hook: None,
        }
    }

    /// As the database's functions take it.
    pub(crate) fn partition_size(&self) -> i64 {
        bounded(self.partition_messages.max(1))
    }

    /// How many messages may be pending, and how many more if they are urgent.
    pub(crate) fn room(&self) -> (i64, i64) {
        let spare = self.pending_hard_max.saturating_sub(self.pending_max);
        (bounded(self.pending_max), bounded(spare))
    }

    /// Attempts of a queue's messages, as the database's functions take it.
    pub(crate) fn attempts_max(&self, queue: &QueueName) -> i32 {
        integer(self.rule_of(queue))
    }

    /// The same of every queue by name; '' is every other one.
    pub(crate) fn attempts_maxima(&self) -> (Vec<&str>, Vec<i32>) {
        let named = self.queue_rules.iter().map(|(name, rule)| (name.as_str(), integer(*rule)));
        named.chain([("", integer(self.queue_rule))]).unzip()
    }

    pub(crate) fn rule_of(&self, queue: &QueueName) -> QueueRule {
        let named = self.queue_rules.iter().find(|(name, _)| name == queue);
        named.map_or(self.queue_rule, |(_, rule)| *rule)
    }
}

fn integer(rule: QueueRule) -> i32 {
    i32::try_from(rule.attempts_max).unwrap_or(i32::MAX)
}
