use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tidegate_domain::{Clock, Timestamp};

/// Follows the wall clock forward and the monotonic clock when the wall clock is set back: it neither goes
/// back nor stands still.
#[derive(Debug)]
pub struct SystemClock {
    last: Mutex<(Timestamp, Instant)>,
    begun: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        let begun = Instant::now();
        Self { last: Mutex::new((wall(), begun)), begun }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let instant = Instant::now();
        let steady = last.0.plus_ms(millis(instant.duration_since(last.1)));
        let now = wall().max(steady);
        // Keeping the pair while less than a millisecond has passed would otherwise lose the fraction for ever.
        if now > last.0 {
            *last = (now, instant);
        }
        now
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(0).plus_ms(millis(since_epoch))
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_set_back_does_not_turn_time_back() {
        let clock = SystemClock::new();
        let ahead = wall().plus_ms(3_600_000);
        *clock.last.lock().unwrap() = (ahead, Instant::now());
        let first = clock.now();
        assert!(first >= ahead);
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(clock.now() > first, "time went on");
    }
}
