//! Hands a queue's messages to recipients that listen at this process: pick up, offer, settle.

mod work;

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{Ledger, QueueName, Queues};

use crate::config::SenderSettings;
use crate::devices::Desk;
use crate::stats::QueueTally;
use crate::stop::Stop;

use self::work::Work;

/// Who takes the messages of one queue to the devices of their recipients.
///
/// Only what waits for recipients that listen here just now is leased. A message that no connection took goes back untried,
/// with no attempt spent, so several processes can serve the same queue, each for the devices that are connected to it.
#[derive(Debug, Clone)]
pub struct Pickup {
    pub queue: QueueName,
    pub ledger: Arc<dyn Ledger>,
    /// The same ledger's.
    pub queues: Arc<dyn Queues>,
    pub desk: Arc<dyn Desk>,
    pub settings: SenderSettings,
    pub tally: Arc<QueueTally>,
    /// After the stop: time for what is being written to devices.
    pub drain_timeout: Duration,
}

impl Pickup {
    pub async fn run(self, stop: Stop) {
        Work::new(self, stop).run().await;
    }
}

#[cfg(test)]
mod tests;
