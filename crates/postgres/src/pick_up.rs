use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_domain::{Claim, LedgerError, PickUp, QueueName};
use tokio::sync::watch;

use crate::Postgres;
use crate::claims::{TAKEN_MAX, claim};
use crate::codes::duration;

/// Behind the columns of a claim.
const BACK_IN_LINE: usize = 14;
/// How many queues may be waited for; those beyond are looked at when the wait is over.
const QUEUES_MAX: usize = 1_000;

/// Counts of changes, as far as this process hears of them.
#[derive(Debug, Default)]
pub struct Stirs {
    counts: Mutex<HashMap<QueueName, watch::Sender<u64>>>,
}

impl Stirs {
    pub fn stir(&self, queue: &QueueName) {
        if let Some(count) = self.counts().get(queue) {
            count.send_modify(|count| *count += 1);
        }
    }

    pub fn stir_all(&self) {
        self.counts().values().for_each(|count| count.send_modify(|count| *count += 1));
    }

    /// The queue's count when it is another than `seen`, or the wait is over.
    pub async fn changed(&self, queue: QueueName, seen: u64, wait_ms: u64) -> u64 {
        let told = {
            let mut counts = self.counts();
            // Counts begin at 1: 0 is what those have seen who have not asked before.
            if counts.len() < QUEUES_MAX || counts.contains_key(&queue) {
                Some(counts.entry(queue).or_insert_with(|| watch::channel(1).0).subscribe())
            } else {
                None
            }
        };
        let wait = Duration::from_millis(wait_ms);
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

impl Postgres {
    /// Not through the queue's line, where claims of any recipient wait: those who pick up ask for theirs alone.
    pub(crate) async fn pick_up_now(&self, request: PickUp) -> Result<Vec<Claim>, LedgerError> {
        let PickUp { queue, recipients, max, lease_ms } = request;
        let names: BTreeSet<&str> = recipients.iter().map(tidegate_domain::Recipient::as_str).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let max = i32::try_from(max.min(TAKEN_MAX)).unwrap_or(i32::MAX);
        if names.is_empty() || max == 0 {
            return Ok(Vec::new());
        }
        let core = &self.core;
        let bytes_max = i64::try_from(core.options.batch_bytes_max).unwrap_or(i64::MAX);
        let sql = "SELECT * FROM pick_up($1, $2, $3, $4, $5, $6)";
        let (lease_ms, attempts_max) = (duration(lease_ms), core.options.attempts_max(&queue));
        let rows =
            core.write(sql, &[&queue.as_str(), &names, &max, &lease_ms, &bytes_max, &attempts_max]).await?;
        if rows.first().is_some_and(|row| row.get::<_, i32>(BACK_IN_LINE) > 0) {
            core.wakes.wake(&queue);
        }
        Ok(rows.iter().map(|row| claim(core, &queue, row)).collect())
    }
}
