use std::time::Duration;

use anyhow::{Result, bail};

use crate::services::{Kafka, RabbitMq};

/// What stands between gateways and senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BusKind {
    /// Senders claim from the database.
    #[default]
    None,
    Kafka,
    RabbitMq,
}

/// A private broker.
#[derive(Debug)]
pub enum Broker {
    Kafka(Kafka),
    RabbitMq(RabbitMq),
}

impl Broker {
    pub fn start(kind: BusKind) -> Result<Option<Self>> {
        Ok(match kind {
            BusKind::None => None,
            BusKind::Kafka => Some(Self::Kafka(Kafka::start()?)),
            BusKind::RabbitMq => Some(Self::RabbitMq(RabbitMq::start()?)),
        })
    }

    /// The lines of a node's settings. Those with another group number receive everything from the beginning.
    pub fn settings(&self, group: usize) -> String {
        match self {
            Self::Kafka(kafka) => format!(
                "kind = \"kafka\"\n[kafka]\nbrokers = [\"{}\"]\ngroup = \"senders-{group}\"\npartitions = 6\n\
                 publish_timeout_ms = 2000\n",
                kafka.bootstrap()
            ),
            Self::RabbitMq(rabbitmq) => {
                format!(
                    "kind = \"rabbitmq\"\n[rabbitmq]\nurl = \"{}\"\npublish_timeout_ms = 2000\n",
                    rabbitmq.url()
                )
            }
        }
    }

    /// How long what was just declared must be left alone. A quorum queue that is killed soon after its declaration
    /// never comes back, for its name is on disk only seconds later; that is RabbitMQ's own, and no fault of those who
    /// use it.
    pub fn settles_within(&self) -> Duration {
        match self {
            Self::Kafka(_) => Duration::ZERO,
            Self::RabbitMq(_) => Duration::from_secs(6),
        }
    }

    pub fn kill(&mut self) -> Result<()> {
        match self {
            Self::Kafka(kafka) => kafka.kill(),
            Self::RabbitMq(rabbitmq) => rabbitmq.kill(),
        }
    }

    pub fn restart(&mut self) -> Result<()> {
        match self {
            Self::Kafka(kafka) => kafka.restart(),
            Self::RabbitMq(rabbitmq) => rabbitmq.restart(),
        }
    }

    /// SIGSTOP.
    pub fn stop(&self) -> Result<()> {
        match self {
            Self::Kafka(kafka) => kafka.stop(),
            Self::RabbitMq(rabbitmq) => rabbitmq.stop(),
        }
    }

    pub fn resume(&self) -> Result<()> {
        match self {
            Self::Kafka(kafka) => kafka.resume(),
            Self::RabbitMq(rabbitmq) => rabbitmq.resume(),
        }
    }

    /// It takes nothing until it has room again.
    pub fn set_full(&self, full: bool) -> Result<()> {
        match self {
            Self::Kafka(_) => bail!("Kafka has no such alarm"),
            Self::RabbitMq(rabbitmq) => rabbitmq.alarm(full),
        }
    }

    /// Everything that is on it is gone, and where it was too.
    pub fn lose(&self, name: &str) -> Result<()> {
        match self {
            Self::Kafka(_) => bail!("not with Kafka"),
            Self::RabbitMq(rabbitmq) => {
                for lane in ["", ".high", ".low"] {
                    rabbitmq.ctl(&["delete_queue", &format!("{name}{lane}")])?;
                }
                Ok(())
            }
        }
    }
}
