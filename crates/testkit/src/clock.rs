use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tidegate_domain::{Clock, Timestamp};

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct TestClock {
    wall_ms: AtomicI64,
    monotonic_ns: AtomicU64,
}

impl TestClock {
    /// 2025-11-15T22:00:00Z: far enough from zero that a clock can be set back by years.
    pub const START: Timestamp = Timestamp::from_millis(1_763_244_000_000);

    pub fn new() -> Self {
        Self { wall_ms: AtomicI64::new(Self::START.millis()), monotonic_ns: AtomicU64::new(0) }
    }

    pub fn advance_ms(&self, ms: u64) {
        self.set(self.now().plus_ms(ms));
    }

    /// May go back, as a wall clock does between two lives of a process. Within one life the [`Clock`]
    /// contract forbids it: close the ledger first.
    /// Monotonic time follows it forward only.
    pub fn set(&self, at: Timestamp) {
        self.advance_ns(at.since_ms(self.now()).saturating_mul(1_000_000));
        self.wall_ms.store(at.millis(), Ordering::SeqCst);
    }

    /// Moves monotonic time alone, by less than the wall clock can show.
    pub fn advance_ns(&self, ns: u64) {
        self.monotonic_ns.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.wall_ms.load(Ordering::SeqCst))
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }
}
