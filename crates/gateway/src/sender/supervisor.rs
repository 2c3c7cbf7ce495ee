use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Sender;
use super::rounds::Rounds;
use crate::stop::Stop;

const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Whether all senders run, for readiness.
#[derive(Debug)]
pub struct SenderStatus {
    expected: usize,
    running: AtomicUsize,
}

impl SenderStatus {
    pub fn new(expected: usize) -> Self {
        Self { expected, running: AtomicUsize::new(0) }
    }

    /// True, too, where there are none to run.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) >= self.expected
    }
}

/// Keeps the sender running until the stop. A sender that ends by itself is a fault: readiness says so, the
/// log too, and it is started again. What it held comes back when its leases end.
pub async fn supervise(sender: Sender, mut stop: Stop, status: Arc<SenderStatus>) {
    while !stop.is_set() {
        status.running.fetch_add(1, Ordering::Relaxed);
        let ended = tokio::spawn(Rounds::new(sender.clone(), stop.clone()).run()).await;
        status.running.fetch_sub(1, Ordering::Relaxed);
        if ended.is_ok() && stop.is_set() {
            return;
        }
        metrics::counter!("tidegate_sender_restarts_total").increment(1);
        tracing::error!(queue = %sender.queue, "the sender ended by itself and is started again");
        let _ = tokio::time::timeout(RESTART_DELAY, stop.wait()).await;
    }
}
