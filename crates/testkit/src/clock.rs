use std::sync::atomic::{AtomicI64, Ordering};

use tidegate_domain::{Clock, Timestamp};

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct TestClock(AtomicI64);

impl TestClock {
    /// 2025-11-15T22:00:00Z: far enough from zero that a clock can be set back by years.
    pub const START: Timestamp = Timestamp::from_millis(1_763_244_000_000);

    pub fn new() -> Self {
        Self(AtomicI64::new(Self::START.millis()))
    }

    pub fn advance_ms(&self, ms: u64) {
        self.set(self.now().plus_ms(ms));
    }

    /// May go back, as a wall clock does between two lives of a process. Within one life the [`Clock`]
    /// contract forbids it: close the ledger first.
    pub fn set(&self, at: Timestamp) {
        self.0.store(at.millis(), Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}
