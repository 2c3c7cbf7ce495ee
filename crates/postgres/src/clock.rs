use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_domain::{Clock, LedgerError, Timestamp};

use crate::open::Core;

/// The server's clock as far as it can be known here: what it said, and the time since then by this process'
/// monotonic clock. The wall clock of this machine has no say.
///
/// Before the ledger is open it stands at the epoch. Should the server's clock be set back, this one goes on at half
/// its pace until the server has caught up: it neither goes back nor stands still.
#[derive(Debug)]
pub struct ServerClock {
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The server's time at `begun`, in microseconds.
    zero_us: Option<i64>,
    told_us: i64,
    told_after: Duration,
}

impl ServerClock {
    pub fn new() -> Self {
        Self { begun: Instant::now(), state: Mutex::default() }
    }

    /// The server said that it was `server_ms` at some moment between those two. That moves the clock no further than
    /// it proves it wrong, so an answer that took long does no harm.
    fn learn(&self, server_ms: i64, asked: Duration, answered: Duration) {
        let earliest = server_ms.saturating_mul(1_000).saturating_sub(micros(answered));
        let latest = server_ms.saturating_mul(1_000).saturating_add(999).saturating_sub(micros(asked));
        let mut state = self.state();
        let known = state.zero_us.unwrap_or(earliest);
        state.zero_us = Some(known.clamp(earliest, latest.max(earliest)));
    }

    fn at(&self, elapsed: Duration) -> Timestamp {
        let mut state = self.state();
        let Some(zero_us) = state.zero_us else { return Timestamp::from_millis(0) };
        let slowly = state.told_us.saturating_add(micros(elapsed.saturating_sub(state.told_after)) / 2);
        state.told_us = zero_us.saturating_add(micros(elapsed)).max(slowly);
        state.told_after = state.told_after.max(elapsed);
        Timestamp::from_millis(state.told_us.div_euclid(1_000))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ServerClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        self.at(self.begun.elapsed())
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Core {
    pub async fn ask_the_time(&self) -> Result<(), LedgerError> {
        let clock = &self.options.clock;
        let asked = clock.begun.elapsed();
        let rows = self.read("SELECT now_ms()", &[]).await?;
        if let Some(row) = rows.first() {
            clock.learn(row.get(0), asked, clock.begun.elapsed());
        }
        Ok(())
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_748_779_200_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_follows_the_server_and_bears_slow_answers() {
        let clock = ServerClock::new();
        assert_eq!(clock.at(ms(5)), Timestamp::from_millis(0));
        clock.learn(NOON, ms(10), ms(12));
        assert_eq!(clock.at(ms(12)).millis(), NOON);
        assert_eq!(clock.at(ms(1_012)).millis(), NOON + 1_000);
        // Read at once, and five seconds on its way back: it proves nothing.
        clock.learn(NOON + 1_001, ms(1_012), ms(6_012));
        assert_eq!(clock.at(ms(6_012)).millis(), NOON + 6_000);
        // The server's clock was set ahead.
        clock.learn(NOON + 100_000, ms(7_000), ms(7_002));
        assert_eq!(clock.at(ms(7_002)).millis(), NOON + 100_000);
    }

    #[test]
    fn a_server_set_back_is_met_halfway() {
        let clock = ServerClock::new();
        clock.learn(NOON, ms(0), ms(0));
        assert_eq!(clock.at(ms(0)).millis(), NOON);
        clock.learn(NOON - 10_000, ms(0), ms(0));
        assert_eq!(clock.at(ms(0)).millis(), NOON);
        assert_eq!(clock.at(ms(2_000)).millis(), NOON + 1_000);
        assert!((NOON + 9_999..=NOON + 10_001).contains(&clock.at(ms(20_000)).millis()));
        assert!((NOON + 19_999..=NOON + 20_001).contains(&clock.at(ms(30_000)).millis()));
    }
}
