//! Pushes a queue out through its channel: claim, attempt, settle.

mod attempt;
mod backoff;
mod rounds;
mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{Channel, Ledger, QueueName};

use crate::config::SenderSettings;

pub use self::supervisor::{SenderStatus, supervise};

/// Who takes the messages of one queue to one channel.
#[derive(Debug, Clone)]
pub struct Sender {
    pub queue: QueueName,
    pub ledger: Arc<dyn Ledger>,
    pub channel: Arc<dyn Channel>,
    pub settings: SenderSettings,
    /// After the stop: time for attempts under way to end.
    pub drain_timeout: Duration,
}

#[cfg(test)]
mod tests;
