use std::fmt::Debug;

/// A point in time: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// The one door to time.
///
/// `now` never goes back within a process, even when the wall clock is set back. Across a restart it
/// may; whoever keeps a timestamp on disk has to bear an earlier `now`.
pub trait Clock: Debug + Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// For intervals within a process: never goes back, and does not follow the wall clock anywhere. Its zero
    /// means nothing.
    fn monotonic_ns(&self) -> u64;
}

impl Timestamp {
    pub const MAX: Self = Self(i64::MAX);

    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms))
    }

    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub_unsigned(ms))
    }

    /// Elapsed time is never negative: zero when `earlier` lies ahead.
    pub const fn since_ms(self, earlier: Self) -> u64 {
        if self.0 > earlier.0 { self.0.abs_diff(earlier.0) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_never_negative() {
        let (a, b) = (Timestamp::from_millis(5), Timestamp::from_millis(9));
        assert_eq!((b.since_ms(a), a.since_ms(b)), (4, 0));
        assert_eq!(Timestamp::MAX.plus_ms(1), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.since_ms(Timestamp::from_millis(i64::MIN)), u64::MAX);
    }
}
