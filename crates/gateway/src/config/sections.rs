use std::net::SocketAddr;

use super::{
    ChannelsSettings, KafkaSettings, LedgerSettings, PostgresSettings, RabbitMqSettings, RedisSettings,
    StatsSettings,
};

/// What adapters understand better than the configuration does, whether it is used or not: a slip should not wait for
/// the day of the change.
#[derive(Debug)]
pub struct Sections {
    /// `None` when it makes no sense.
    pub listen: Option<SocketAddr>,
    /// The ledger in use; `None` when none is chosen rightly.
    pub ledger: Option<LedgerSettings>,
    pub postgres: PostgresSettings,
    pub redis: RedisSettings,
    pub kafka: KafkaSettings,
    pub rabbitmq: RabbitMqSettings,
    pub channels: ChannelsSettings,
    pub stats: StatsSettings,
}

/// What an adapter finds wrong with a setting, without any text of it that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub key: &'static str,
    pub what: String,
    pub fix: String,
}

impl Fault {
    pub fn new(key: &'static str, what: impl ToString, fix: &str) -> Self {
        Self { key, what: what.to_string(), fix: fix.to_owned() }
    }
}
