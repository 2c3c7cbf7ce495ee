use crate::Timestamp;

/// A fixed window per user, refreshed lazily: nothing runs in the background, the first charge after the
/// window's end opens the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub limit: u32,
    pub window_ms: u64,
    pub count: u32,
    pub since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Passed,
    Denied { retry_after_ms: u64 },
}

impl Quota {
    /// Configuring resets the count and opens a window at `now`.
    pub const fn new(limit: u32, window_ms: u64, now: Timestamp) -> Self {
        Self { limit, window_ms, count: 0, since: now }
    }

    /// Counts one message, or says how long until the window ends.
    ///
    /// A window that seems to begin in the future (the clock was set back while the process was down) begins
    /// now instead and keeps its count: never more than the limit, and never shut longer than one window.
    pub fn charge(&mut self, now: Timestamp) -> Charge {
        if self.since > now {
            self.since = now;
        }
        if now.since_ms(self.since) >= self.window_ms {
            self.count = 1;
            self.since = now;
            return Charge::Passed;
        }
        if self.count >= self.limit {
            return Charge::Denied { retry_after_ms: self.resets_in_ms(now) };
        }
        self.count += 1;
        Charge::Passed
    }

    /// What is left at `now`, without touching the window.
    pub fn remaining(&self, now: Timestamp) -> u32 {
        let elapsed = now.since_ms(self.since) >= self.window_ms;
        if elapsed { self.limit } else { self.limit.saturating_sub(self.count) }
    }

    /// Time until the window ends; zero when it has.
    pub fn resets_in_ms(&self, now: Timestamp) -> u64 {
        self.window_ms.saturating_sub(now.since_ms(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn the_window_opens_again_exactly_when_it_has_elapsed() {
        let mut quota = Quota::new(2, 60_000, at(0));
        assert_eq!(quota.charge(at(1)), Charge::Passed);
        assert_eq!(quota.charge(at(2)), Charge::Passed);
        assert_eq!(quota.charge(at(59_999)), Charge::Denied { retry_after_ms: 1 });
        assert_eq!(quota.charge(at(60_000)), Charge::Passed);
        assert_eq!((quota.count, quota.since, quota.remaining(at(60_000))), (1, at(60_000), 1));
    }

    #[test]
    fn a_clock_set_back_neither_adds_room_nor_shuts_the_user_out() {
        let mut quota = Quota { limit: 2, window_ms: 60_000, count: 1, since: at(1_000_000) };
        assert_eq!(quota.charge(at(5_000)), Charge::Passed);
        assert_eq!(quota.charge(at(5_000)), Charge::Denied { retry_after_ms: 60_000 });
        assert_eq!(quota.charge(at(65_000)), Charge::Passed);
    }
}
