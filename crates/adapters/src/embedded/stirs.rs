//! Queues whose changes are waited for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_domain::QueueName;
use tokio::sync::watch;

/// How many queues may be waited for; those beyond are looked at when the wait is over.
const QUEUES_MAX: usize = 1_000;

/// Counts of changes: the writer tells, others wait.
#[derive(Debug, Default)]
pub(super) struct Stirs {
    counts: Mutex<HashMap<QueueName, watch::Sender<u64>>>,
}

impl Stirs {
    /// From now on the queue's count is told.
    pub(super) fn begin(&self, queue: QueueName, count: u64) {
        let mut counts = self.counts();
        if counts.len() < QUEUES_MAX || counts.contains_key(&queue) {
            counts.entry(queue).or_insert_with(|| watch::channel(count).0);
        }
    }

    /// Called after every group: nothing is looked at but the queues that were waited for.
    pub(super) fn tell(&self, count: impl Fn(&QueueName) -> u64) {
        for (queue, told) in self.counts().iter() {
            let count = count(queue);
            told.send_if_modified(|before| std::mem::replace(before, count) != count);
        }
    }

    /// The queue's count when it is another than `seen`, or the wait is over.
    pub(super) async fn changed(&self, queue: &QueueName, seen: u64, wait_ms: u64) -> u64 {
        let wait = Duration::from_millis(wait_ms);
        let told = self.counts().get(queue).map(watch::Sender::subscribe);
        let Some(mut told) = told else {
            tokio::time::sleep(wait).await;
            return seen.wrapping_add(1);
        };
        match tokio::time::timeout(wait, told.wait_for(|count| *count != seen)).await {
            Ok(Ok(count)) => *count,
            _ => seen,
        }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<QueueName, watch::Sender<u64>>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
