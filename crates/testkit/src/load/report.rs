use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What a run of the load client saw.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub statuses: BTreeMap<u16, u64>,
    pub unknown: u64,
    pub elapsed: Duration,
    /// In microseconds, sorted once reports are put together.
    latencies_us: Vec<u32>,
}

impl Report {
    pub fn responses(&self) -> u64 {
        self.statuses.values().sum()
    }

    pub fn per_second(&self) -> f64 {
        self.responses() as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// The latency that the given share of the responses stayed within: `quantile(0.99)`.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.latencies_us.len().saturating_sub(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
        let place = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
        Duration::from_micros(self.latencies_us.get(place).copied().unwrap_or(0).into())
    }

    /// Puts two runs together: the time is the longer one's.
    pub fn merge(&mut self, other: Self) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.unknown += other.unknown;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.latencies_us.extend(other.latencies_us);
        // A stable sort, which takes sorted runs for what they are.
        self.latencies_us.sort();
    }

    pub(super) fn count(&mut self, status: u16, latency: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.latencies_us.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }

    pub(super) fn finish(&mut self, elapsed: Duration) {
        self.elapsed = elapsed;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99) = (self.quantile(0.5), self.quantile(0.99));
        write!(f, "{:.0} responses/s, p50 {p50:.1?}, p99 {p99:.1?}, statuses", self.per_second())?;
        for (status, count) in &self.statuses {
            write!(f, " {status}×{count}")?;
        }
        write!(f, ", {} unknown", self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_taken_over_all_connections() {
        let mut total = Report::default();
        for connection in 0..10u64 {
            let mut report = Report::default();
            for n in 1..=10 {
                report.count(200, Duration::from_micros(connection * 10 + n));
            }
            total.merge(report);
        }
        total.finish(Duration::from_secs(2));
        assert_eq!((total.responses(), total.per_second()), (100, 50.0));
        assert_eq!(total.quantile(0.5), Duration::from_micros(51));
        assert_eq!(total.quantile(0.99), Duration::from_micros(99));
        assert_eq!(Report::default().quantile(0.5), Duration::ZERO);
    }
}
