use std::collections::{BTreeMap, HashSet};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{BATCH, PER_WINDOW, REQUESTED_MS, WINDOW_MS};

/// What the client was told: every event with its time.
#[derive(Debug)]
pub struct Journal {
    slots: Vec<(String, i64)>,
}

impl Journal {
    pub fn read(answers: &[Vec<u8>]) -> anyhow::Result<Self> {
        let mut slots = Vec::with_capacity(answers.len() * BATCH);
        for answer in answers {
            let results: Vec<Value> = serde_json::from_slice(answer)?;
            for result in results {
                ensure!(result["status"] == "assigned", "not assigned: {result}");
                let event = result["eventId"].as_str().context("an event id")?.to_owned();
                let delay_ms = result["delayMs"].as_i64().context("a delay")?;
                let scheduled: jiff::Timestamp =
                    result["scheduledTime"].as_str().context("a scheduled time")?.parse()?;
                ensure!(
                    scheduled.as_millisecond() - REQUESTED_MS == delay_ms,
                    "time and delay disagree: {result}"
                );
                slots.push((event, delay_ms));
            }
        }
        Ok(Self { slots })
    }

    /// All assigned, none twice, none early, no window over its limit, the earliest windows full. How many windows
    /// that took.
    pub fn check(&self, expected: usize) -> anyhow::Result<usize> {
        ensure!(self.slots.len() == expected, "{} slots instead of {expected}", self.slots.len());
        let events: HashSet<_> = self.slots.iter().map(|(event, _)| event).collect();
        ensure!(events.len() == expected, "{} events have a slot twice", expected - events.len());
        let early = self.slots.iter().filter(|(_, delay_ms)| *delay_ms < 0).count();
        ensure!(early == 0, "{early} events are early");
        let mut windows: BTreeMap<i64, usize> = BTreeMap::new();
        for (_, delay_ms) in &self.slots {
            *windows.entry(delay_ms.div_euclid(WINDOW_MS)).or_default() += 1;
        }
        for (place, (window, held)) in (0i64..).zip(&windows) {
            let full = expected.saturating_sub(usize::try_from(place)? * PER_WINDOW).min(PER_WINDOW);
            ensure!(
                *window == place && *held == full,
                "window {window} holds {held}, and {place} should hold {full}"
            );
        }
        Ok(windows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(delays_ms: impl IntoIterator<Item = i64>) -> Journal {
        let slots = delays_ms.into_iter().enumerate().map(|(n, delay_ms)| (n.to_string(), delay_ms));
        Journal { slots: slots.collect() }
    }

    #[test]
    fn every_fault_of_a_slot_is_seen() {
        let good = || (0..250).map(|n| i64::from(n / 100) * WINDOW_MS + 7);
        assert_eq!(journal(good()).check(250).unwrap(), 3);
        let fault = |journal: Journal| journal.check(250).unwrap_err().to_string();
        assert!(fault(journal(good().take(249))).contains("249 slots"));
        assert!(
            fault(journal(good().map(|ms| if ms == 7 { ms } else { ms + WINDOW_MS }))).contains("window 2")
        );
        assert!(fault(journal((0..250).map(|n| i64::from(n / 101) * WINDOW_MS))).contains("holds 101"));
        assert!(fault(journal((0..250).map(|n| i64::from(n) - 3))).contains("3 events are early"));
        let mut twice = journal(good());
        twice.slots[9].0 = "8".into();
        assert!(fault(twice).contains("1 events have a slot twice"));
    }
}
