use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{QueueCounts, QueueName, Queues};
use tokio::time::Instant;

use super::Stats;
use super::alarm::{Bell, Event, Notice};
use crate::config::StatsSettings;

const PERIOD: Duration = Duration::from_secs(1);
/// A queue is well again at four fifths of the depth that made it a warning: around the threshold itself, it would
/// be one all the time.
const WELL_TENTHS: u64 = 8;

/// Says regularly how things go, and warns when a queue grows too deep.
#[derive(Debug)]
pub struct Reporter {
    pub stats: Arc<Stats>,
    pub queues: Arc<dyn Queues>,
    pub settings: StatsSettings,
    /// Takes what is worth a warning, or drops it: this never waits.
    pub alarm: Option<Bell>,
}

/// The queues that were last found too deep.
#[derive(Debug, Default)]
pub struct Watch(BTreeSet<QueueName>);

impl Reporter {
    pub async fn run(self) -> Infallible {
        let mut ticks = tokio::time::interval(PERIOD);
        let (mut watch, mut logged) = (Watch::default(), Instant::now());
        loop {
            ticks.tick().await;
            self.stats.sample();
            // A ledger that does not answer is somebody else's news.
            let counted = self.stats.names();
            let counts = match self.queues.queue_counts().await {
                Ok(counts) => {
                    let is_known = |name: &QueueName| counts.binary_search_by(|c| c.queue.cmp(name)).is_ok();
                    self.stats.forget(counted.into_iter().filter(|name| !is_known(name)));
                    counts
                }
                Err(_) => Vec::new(),
            };
            for notice in watch.look(&counts, self.settings.depth_warning) {
                if let Some(alarm) = &self.alarm {
                    alarm.ring(notice);
                }
            }
            if let Some(period) = self.settings.log_period.filter(|period| logged.elapsed() >= *period) {
                logged += period;
                self.log(&counts);
            }
        }
    }

    fn log(&self, counts: &[QueueCounts]) {
        let rates = self.stats.total_rates();
        let [high, normal, low] = counts.iter().fold([0; 3], |sum, queue| {
            [sum[0] + queue.depth[0], sum[1] + queue.depth[1], sum[2] + queue.depth[2]]
        });
        tracing::info!(
            processed_per_second = rates.processed_per_second,
            processing_ms_average = rates.processing_ms_average,
            retry_rate = rates.retry_rate,
            failure_rate = rates.failure_rate,
            depth_high = high,
            depth_normal = normal,
            depth_low = low,
            "throughput"
        );
    }
}

impl Watch {
    /// Warns once when a queue passes the threshold, and tells once when it is well again. 0: never.
    pub fn look(&mut self, counts: &[QueueCounts], threshold: u64) -> Vec<Notice> {
        let mut notices = Vec::new();
        for queue in counts {
            let depth: u64 = queue.depth.iter().sum();
            let event = if threshold > 0 && depth > threshold && self.0.insert(queue.queue.clone()) {
                metrics::counter!("tidegate_queue_depth_warnings_total").increment(1);
                tracing::warn!(queue = %queue.queue, depth, threshold, "the queue is deeper than its threshold");
                Event::TooDeep
            } else if depth <= threshold.saturating_mul(WELL_TENTHS) / 10 && self.0.remove(&queue.queue) {
                tracing::info!(queue = %queue.queue, depth, threshold, "the queue's depth is well again");
                Event::WellAgain
            } else {
                continue;
            };
            notices.push(Notice { event, queue: queue.queue.clone(), depth, threshold });
        }
        notices
    }

    #[cfg(test)]
    fn warned(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_stays_until_the_queue_is_well_below_the_threshold() {
        let at = |depth| {
            let queue = QueueName::new("jobs").unwrap();
            [QueueCounts { queue, paused: false, depth: [0, depth, 0], leased: 0 }]
        };
        let mut watch = Watch::default();
        let warned = [100, 101, 99, 81, 80, 99, 101].map(|depth| {
            watch.look(&at(depth), 100);
            watch.warned()
        });
        assert_eq!(warned, [0, 1, 1, 1, 0, 0, 1]);
        let mut never = Watch::default();
        never.look(&at(u64::MAX), 0);
        assert_eq!(never.warned(), 0);
    }
}
