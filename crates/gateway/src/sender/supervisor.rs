use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_domain::QueueName;

use crate::stop::Stop;

const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Whether all senders (or all relays) run, for readiness.
#[derive(Debug)]
pub struct SenderStatus {
    expected: usize,
    running: AtomicUsize,
}

impl SenderStatus {
    pub fn new(expected: usize) -> Self {
        Self { expected, running: AtomicUsize::new(0) }
    }

    #[cfg(test)]
    pub fn assume_running(&self) {
        self.running.store(self.expected, Ordering::Relaxed);
    }

    /// True, too, where there are none to run.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) >= self.expected
    }
}

/// Keeps a sender or a relay running until the stop. One that ends by itself is a fault: readiness says so, the log too,
/// and it is started again. What it held comes back when its leases end.
pub async fn supervise<F>(
    what: &'static str,
    queue: QueueName,
    work: impl Fn(Stop) -> F,
    mut stop: Stop,
    status: Arc<SenderStatus>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    while !stop.is_set() {
        status.running.fetch_add(1, Ordering::Relaxed);
        let ended = tokio::spawn(work(stop.clone())).await;
        status.running.fetch_sub(1, Ordering::Relaxed);
        if ended.is_ok() && stop.is_set() {
            return;
        }
        metrics::counter!("tidegate_sender_restarts_total").increment(1);
        tracing::error!(%queue, "the {what} ended by itself and is started again");
        let _ = tokio::time::timeout(RESTART_DELAY, stop.wait()).await;
    }
}
