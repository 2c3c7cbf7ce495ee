//! Pushes queues out through their channels: claim, attempt, settle.

mod arrivals;
mod attempt;
mod backoff;
mod outlet;
mod rounds;
mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{Ledger, QueueName, Queues};

use crate::config::SenderSettings;
use crate::stats::QueueTally;
use crate::stop::Stop;

use self::rounds::Rounds;

pub use self::arrivals::Arrivals;
pub use self::attempt::{count, handed_back, hopeless};
pub use self::backoff::Backoff;
pub use self::outlet::{BreakerReport, SharedChannel};
pub use self::rounds::settle;
pub use self::supervisor::{SenderStatus, supervise};

/// Who takes the messages of one queue to one channel.
#[derive(Debug, Clone)]
pub struct Sender {
    pub queue: QueueName,
    pub ledger: Arc<dyn Ledger>,
    /// The same ledger's.
    pub queues: Arc<dyn Queues>,
    /// What messages come over, unless they are claimed from the ledger.
    pub arrivals: Option<Arc<Arrivals>>,
    /// Shared with the other queues of the channel.
    pub channel: Arc<SharedChannel>,
    pub settings: SenderSettings,
    pub tally: Arc<QueueTally>,
    /// After the stop: time for attempts under way to end.
    pub drain_timeout: Duration,
}

impl Sender {
    pub async fn run(self, stop: Stop) {
        Rounds::new(self, stop).run().await;
    }
}

#[cfg(test)]
mod tests;
