use std::time::{Duration, Instant};

use tidegate_bus::Malformed;

const LINES_MAX: u32 = 10;
const PER: Duration = Duration::from_secs(10);

/// Records that make no sense: each is counted and told of, but a flood of them does not flood the log.
#[derive(Debug)]
pub struct Strange {
    queue: String,
    since: Instant,
    lines: u32,
    untold: u64,
}

impl Strange {
    pub fn new(queue: String) -> Self {
        Self { queue, since: Instant::now(), lines: 0, untold: 0 }
    }

    pub fn count(&mut self, topic: &str, partition: i32, offset: i64, why: &Malformed) {
        metrics::counter!("tidegate_bus_malformed_total", "bus" => "kafka", "queue" => self.queue.clone())
            .increment(1);
        if self.may_tell(Instant::now()) {
            let untold = std::mem::take(&mut self.untold);
            tracing::warn!(
                queue = self.queue,
                topic,
                partition,
                offset,
                untold,
                "skipped a record that can't be read: {why}"
            );
        }
    }

    fn may_tell(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= PER {
            (self.since, self.lines) = (now, 0);
        }
        let may = self.lines < LINES_MAX;
        self.lines += u32::from(may);
        self.untold += u64::from(!may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_of_in_few_lines() {
        let mut strange = Strange::new("sms".to_owned());
        let begun = strange.since;
        let told = (0..1_000).filter(|_| strange.may_tell(begun)).count();
        assert_eq!((told, strange.untold), (10, 990));
        assert!(strange.may_tell(begun + PER));
    }
}
