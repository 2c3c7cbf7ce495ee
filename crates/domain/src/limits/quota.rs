use std::collections::VecDeque;

use crate::{Lane, Timestamp};

/// A fixed window per user, refreshed lazily: nothing runs in the background, the first charge after the
/// window's end opens the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub limit: u32,
    pub window_ms: u64,
    pub count: u32,
    pub since: Timestamp,
    /// Whether messages of the high lane pass when the window is full, uncounted.
    pub exempts_high: bool,
}

/// A quota as it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaRule {
    pub limit: u32,
    pub window_ms: u64,
    /// Messages of the high lane are never denied nor deferred: they take what is there of the window, and pass without it.
    pub exempts_high: bool,
}

/// Later windows that already hold deferred messages, by when they begin. They follow one another without gaps:
/// each begins when the one before it ends, as the first charge after that end would have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deferrals {
    windows: VecDeque<(Timestamp, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Passed,
    Denied { retry_after_ms: u64 },
}

impl Quota {
    /// Configuring resets the count and opens a window at `now`.
    pub const fn new(limit: u32, window_ms: u64, now: Timestamp) -> Self {
        Self { limit, window_ms, count: 0, since: now, exempts_high: false }
    }

    /// Counts one message, or says how long until the window ends.
    ///
    /// A window that seems to begin in the future (the clock was set back while the process was down) begins
    /// now instead and keeps its count: never more than the limit, and never shut longer than one window.
    pub fn charge(&mut self, deferrals: &mut Deferrals, now: Timestamp) -> Charge {
        if self.since > now {
            self.since = now;
        }
        self.open_deferred(deferrals, now);
        if now.since_ms(self.since) >= self.window_ms {
            self.since = now;
            // What is already due within the new window is part of it.
            self.count = deferrals.take_before(now.plus_ms(self.window_ms));
        }
        if self.count >= self.limit {
            return Charge::Denied { retry_after_ms: self.resets_in_ms(now) };
        }
        self.count += 1;
        Charge::Passed
    }

    /// Counts one message in the first later window with room and says when that begins, if it does so within
    /// the horizon. Only after a denied [`charge`](Quota::charge) at the same `now`.
    pub fn defer(
        &self,
        deferrals: &mut Deferrals,
        now: Timestamp,
        horizon_ms: u64,
    ) -> Option<(Timestamp, u32)> {
        let last = deferrals.windows.back().copied();
        let room = deferrals.windows.iter_mut().find(|(_, count)| *count < self.limit);
        let (begins, count) = match (room, last) {
            (Some((begins, count)), _) => (*begins, count),
            (None, last) => {
                let after = last.map_or(self.since, |(begins, _)| begins);
                let begins = after.plus_ms(self.window_ms);
                if deferrals.windows.len() >= Deferrals::WINDOWS_MAX || begins.since_ms(now) > horizon_ms {
                    return None;
                }
                deferrals.windows.push_back((begins, 0));
                let (begins, count) = deferrals.windows.back_mut()?;
                (*begins, count)
            }
        };
        if begins.since_ms(now) > horizon_ms {
            return None;
        }
        *count += 1;
        Some((begins, *count))
    }

    /// A new limit or window for the same user: a fresh window at `now`. What was deferred stays due when it was,
    /// and counts against the windows it now falls into.
    pub fn reconfigure(rule: QuotaRule, now: Timestamp, deferrals: &mut Deferrals) -> Self {
        let QuotaRule { limit, window_ms, exempts_high } = rule;
        let mut quota = Self { exempts_high, ..Self::new(limit, window_ms, now) };
        let former = std::mem::take(&mut deferrals.windows);
        for (begins, count) in former.into_iter().filter(|(begins, _)| *begins > now) {
            match begins.since_ms(now) / window_ms {
                0 => quota.count = quota.count.saturating_add(count),
                later => deferrals.restore(now.plus_ms(later.saturating_mul(window_ms)), count, true),
            }
        }
        deferrals.fill_gaps(now, window_ms);
        quota
    }

    /// What stays of a quota that is deleted: later windows that hold messages, to be counted should the user have a quota
    /// again before they are over. A limit of zero, which no quota has, tells it from the others.
    pub fn deleted(&self, deferrals: &mut Deferrals, now: Timestamp) -> Option<Self> {
        deferrals.windows.retain(|(begins, count)| *begins > now && *count > 0);
        (!deferrals.is_empty()).then_some(Self { limit: 0, count: 0, ..*self })
    }

    /// Whether a message passes even when the window is full.
    pub fn lets_pass(&self, lane: Lane) -> bool {
        self.exempts_high && lane == Lane::High
    }

    pub const fn is_deleted(&self) -> bool {
        self.limit == 0
    }

    fn open_deferred(&mut self, deferrals: &mut Deferrals, now: Timestamp) {
        while let Some((begins, count)) =
            deferrals.windows.front().copied().filter(|(begins, _)| *begins <= now)
        {
            deferrals.windows.pop_front();
            if begins > self.since {
                self.since = begins;
                self.count = count;
            } else {
                self.count = self.count.saturating_add(count);
            }
        }
    }

    /// The quota as a charge at `now` would find it: deferred windows that have begun are open.
    pub fn seen_at(&self, deferrals: &Deferrals, now: Timestamp) -> Self {
        let (mut seen, mut deferrals) = (*self, deferrals.clone());
        seen.open_deferred(&mut deferrals, now);
        seen
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

impl Deferrals {
    /// Later windows that one user's messages may reach into.
    pub const WINDOWS_MAX: usize = 1_000;

    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// When the last one begins.
    pub fn last(&self) -> Option<Timestamp> {
        self.windows.back().map(|(begins, _)| *begins)
    }

    pub fn windows(&self) -> impl Iterator<Item = (Timestamp, u32)> {
        self.windows.iter().copied()
    }

    /// Sets, or adds to, the count of a window; for whoever kept them elsewhere.
    pub fn restore(&mut self, begins: Timestamp, count: u32, add: bool) {
        match self.windows.binary_search_by_key(&begins, |(begins, _)| *begins) {
            Ok(place) if add => self.windows[place].1 = self.windows[place].1.saturating_add(count),
            Ok(place) => self.windows[place].1 = count,
            Err(place) => self.windows.insert(place, (begins, count)),
        }
    }

    /// Forgets the windows that begin before `end` and says how much they held.
    pub fn take_before(&mut self, end: Timestamp) -> u32 {
        let mut taken: u32 = 0;
        while let Some((_, count)) = self.windows.front().copied().filter(|(begins, _)| *begins < end) {
            self.windows.pop_front();
            taken = taken.saturating_add(count);
        }
        taken
    }

    fn fill_gaps(&mut self, since: Timestamp, window_ms: u64) {
        let Some((last, _)) = self.windows.back().copied() else { return };
        let mut begins = since.plus_ms(window_ms);
        while begins < last && self.windows.len() < Self::WINDOWS_MAX {
            self.restore(begins, 0, true);
            begins = begins.plus_ms(window_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(quota: &mut Quota, now: Timestamp) -> Charge {
        quota.charge(&mut Deferrals::default(), now)
    }

    const fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn rule(limit: u32, window_ms: u64) -> QuotaRule {
        QuotaRule { limit, window_ms, exempts_high: false }
    }

    #[test]
    fn the_window_opens_again_exactly_when_it_has_elapsed() {
        let mut quota = Quota::new(2, 60_000, at(0));
        assert_eq!(charge(&mut quota, at(1)), Charge::Passed);
        assert_eq!(charge(&mut quota, at(2)), Charge::Passed);
        assert_eq!(charge(&mut quota, at(59_999)), Charge::Denied { retry_after_ms: 1 });
        assert_eq!(charge(&mut quota, at(60_000)), Charge::Passed);
        assert_eq!((quota.count, quota.since, quota.remaining(at(60_000))), (1, at(60_000), 1));
    }

    #[test]
    fn a_clock_set_back_neither_adds_room_nor_shuts_the_user_out() {
        let mut quota = Quota { count: 1, ..Quota::new(2, 60_000, at(1_000_000)) };
        assert_eq!(charge(&mut quota, at(5_000)), Charge::Passed);
        assert_eq!(charge(&mut quota, at(5_000)), Charge::Denied { retry_after_ms: 60_000 });
        assert_eq!(charge(&mut quota, at(65_000)), Charge::Passed);
    }

    #[test]
    fn deferred_messages_fill_later_windows_and_count_there() {
        let (mut quota, mut deferrals) = (Quota::new(2, 1_000, at(0)), Deferrals::default());
        for _ in 0..2 {
            assert_eq!(quota.charge(&mut deferrals, at(10)), Charge::Passed);
        }
        assert!(matches!(quota.charge(&mut deferrals, at(10)), Charge::Denied { .. }));
        let begins: Vec<_> =
            (0..5).map(|_| quota.defer(&mut deferrals, at(10), 10_000).unwrap().0.millis()).collect();
        assert_eq!(begins, [1_000, 1_000, 2_000, 2_000, 3_000]);
        assert!(matches!(quota.charge(&mut deferrals, at(1_500)), Charge::Denied { retry_after_ms: 500 }));
        assert_eq!(quota.charge(&mut deferrals, at(3_400)), Charge::Passed);
        assert_eq!((quota.since, quota.count), (at(3_000), 2));
        assert!(matches!(quota.charge(&mut deferrals, at(3_999)), Charge::Denied { retry_after_ms: 1 }));
        assert_eq!(quota.charge(&mut deferrals, at(4_700)), Charge::Passed);
        assert_eq!((quota.since, quota.count), (at(4_700), 1));
    }

    #[test]
    fn nothing_is_deferred_past_the_horizon() {
        let (mut quota, mut deferrals) = (Quota::new(1, 1_000, at(0)), Deferrals::default());
        assert_eq!(quota.charge(&mut deferrals, at(0)), Charge::Passed);
        assert!(quota.defer(&mut deferrals, at(0), 999).is_none());
        assert_eq!(quota.defer(&mut deferrals, at(0), 1_000), Some((at(1_000), 1)));
        assert!(quota.defer(&mut deferrals, at(0), 1_999).is_none());
    }

    #[test]
    fn a_deleted_quota_leaves_what_is_still_to_be_counted() {
        let (quota, mut deferrals) = (Quota::new(1, 1_000, at(0)), Deferrals::default());
        for _ in 0..3 {
            quota.defer(&mut deferrals, at(0), 10_000).unwrap();
        }
        let left = quota.deleted(&mut deferrals, at(2_000)).unwrap();
        assert!(left.is_deleted() && !quota.is_deleted());
        assert_eq!(deferrals.windows().collect::<Vec<_>>(), [(at(3_000), 1)]);
        let mut again = Quota::reconfigure(rule(1, 1_000), at(2_000), &mut deferrals);
        assert_eq!(again.charge(&mut deferrals, at(2_000)), Charge::Passed);
        assert_eq!(again.defer(&mut deferrals, at(2_000), 10_000), Some((at(4_000), 1)));
        assert_eq!(quota.deleted(&mut deferrals, at(9_000)), None);
    }

    #[test]
    fn reconfiguring_keeps_what_was_deferred_in_the_windows_it_falls_into() {
        let (quota, mut deferrals) = (Quota::new(1, 1_000, at(0)), Deferrals::default());
        for _ in 0..4 {
            quota.defer(&mut deferrals, at(0), 10_000).unwrap();
        }
        let mut quota = Quota::reconfigure(rule(3, 2_000), at(500), &mut deferrals);
        // Due at 1,000 and 2,000: in the window until 2,500. At 3,000 and 4,000: in the next.
        assert_eq!(quota.count, 2);
        assert_eq!(quota.charge(&mut deferrals, at(600)), Charge::Passed);
        assert!(matches!(quota.charge(&mut deferrals, at(600)), Charge::Denied { retry_after_ms: 1_900 }));
        assert_eq!(quota.defer(&mut deferrals, at(600), 10_000), Some((at(2_500), 3)));
    }
}
