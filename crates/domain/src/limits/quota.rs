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

/// Deferred messages that are still to go out: when, and how many. Those that go out before the current window ends are part
/// of its count already. While there are later ones, windows follow one another without gaps, each beginning when the one
/// before it ends. A change of the quota moves windows, and never these times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deferrals {
    dues: VecDeque<(Timestamp, u32)>,
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
        deferrals.forget_until(now);
        if now.since_ms(self.since) >= self.window_ms {
            self.since = now;
            self.count = 0;
        }
        if self.count >= self.limit {
            return Charge::Denied { retry_after_ms: self.resets_in_ms(now) };
        }
        self.count += 1;
        Charge::Passed
    }

    /// Counts one message in the first later window with room and says when that begins, if it does so within
    /// the horizon, and how many go out then. Only after a denied [`charge`](Quota::charge) at the same `now`.
    pub fn defer(
        &self,
        deferrals: &mut Deferrals,
        now: Timestamp,
        horizon_ms: u64,
    ) -> Option<(Timestamp, u32)> {
        let mut place = deferrals.dues.partition_point(|(due, _)| *due < self.end());
        for number in 1..=Deferrals::DUES_MAX as u64 {
            let begins = self.since.plus_ms(self.window_ms.saturating_mul(number));
            if begins.since_ms(now) > horizon_ms {
                return None;
            }
            let within = deferrals
                .dues
                .iter()
                .skip(place)
                .take_while(|(due, _)| due.since_ms(begins) < self.window_ms);
            let (dues, held) =
                within.fold((0, 0u32), |(dues, held), (_, count)| (dues + 1, held.saturating_add(*count)));
            if held < self.limit {
                return deferrals.add(place, begins).map(|count| (begins, count));
            }
            place += dues;
        }
        None
    }

    /// A new limit or window for the same user: a fresh window at `now`. What was deferred stays due when it was,
    /// and counts against the windows it now falls into.
    pub fn reconfigure(rule: QuotaRule, now: Timestamp, deferrals: &mut Deferrals) -> Self {
        let QuotaRule { limit, window_ms, exempts_high } = rule;
        deferrals.forget_until(now);
        let quota = Self { exempts_high, ..Self::new(limit, window_ms, now) };
        Self { count: deferrals.count_within(now, quota.end()), ..quota }
    }

    /// What stays of a quota that is deleted: what was deferred and is still to go out, to be counted should the user have a
    /// quota again by then. A limit of zero, which no quota has, tells it from the others.
    pub fn deleted(&self, deferrals: &mut Deferrals, now: Timestamp) -> Option<Self> {
        deferrals.forget_until(now);
        (!deferrals.is_empty()).then_some(Self { limit: 0, count: 0, ..*self })
    }

    /// Whether a message passes even when the window is full.
    pub fn lets_pass(&self, lane: Lane) -> bool {
        self.exempts_high && lane == Lane::High
    }

    pub const fn is_deleted(&self) -> bool {
        self.limit == 0
    }

    /// Moves on to the window that `now` is in, or to the last one with deferred messages.
    fn open_deferred(&mut self, deferrals: &Deferrals, now: Timestamp) {
        let last = deferrals.last().filter(|last| *last >= self.end() && now >= self.end());
        if let Some(last) = last {
            let windows = last.min(now).since_ms(self.since) / self.window_ms;
            self.since = self.since.plus_ms(windows.saturating_mul(self.window_ms));
            self.count = deferrals.count_within(self.since, self.end());
        }
    }

    fn end(&self) -> Timestamp {
        self.since.plus_ms(self.window_ms)
    }

    /// The quota as a charge at `now` would find it: windows with deferred messages that have begun are open.
    pub fn seen_at(&self, deferrals: &Deferrals, now: Timestamp) -> Self {
        let mut seen = *self;
        seen.open_deferred(deferrals, now);
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
    /// Later windows that one user's messages may reach into, and different times at which they may go out. More would
    /// make the row of one user large, and every deferral slower.
    pub const DUES_MAX: usize = 1_000;

    pub fn is_empty(&self) -> bool {
        self.dues.is_empty()
    }

    /// When the last messages go out.
    pub fn last(&self) -> Option<Timestamp> {
        self.dues.back().map(|(due, _)| *due)
    }

    pub fn dues(&self) -> impl Iterator<Item = (Timestamp, u32)> {
        self.dues.iter().copied()
    }

    /// Sets how many go out then, as they were stored.
    pub fn restore(&mut self, due: Timestamp, count: u32) {
        match self.dues.binary_search_by_key(&due, |(due, _)| *due) {
            Ok(place) => self.dues[place].1 = count,
            Err(place) => self.dues.insert(place, (due, count)),
        }
    }

    /// Those that have gone out by then are part of a count, or of the past.
    pub fn forget_until(&mut self, now: Timestamp) {
        let gone = self.dues.partition_point(|(due, _)| *due <= now);
        self.dues.drain(..gone);
    }

    fn count_within(&self, from: Timestamp, end: Timestamp) -> u32 {
        let within = self.dues.iter().filter(|(due, _)| (from..end).contains(due));
        within.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// One message more; says how many go out then. `place` is that of the first at that time or after it.
    fn add(&mut self, place: usize, due: Timestamp) -> Option<u32> {
        if self.dues.get(place).is_none_or(|(next, _)| *next != due) {
            if self.dues.len() >= Self::DUES_MAX {
                return None;
            }
            self.dues.insert(place, (due, 0));
        }
        let (_, count) = self.dues.get_mut(place)?;
        *count = count.saturating_add(1);
        Some(*count)
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
        assert_eq!(deferrals.dues().collect::<Vec<_>>(), [(at(3_000), 1)]);
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
        // With those at 3,000 and 4,000 it is the third in the window from 2,500, and the first to go out then.
        assert_eq!(quota.defer(&mut deferrals, at(600), 10_000), Some((at(2_500), 1)));
        assert_eq!(quota.defer(&mut deferrals, at(600), 10_000), Some((at(4_500), 1)));
    }

    #[test]
    fn reconfiguring_again_and_again_forgets_nothing_that_is_still_to_go_out() {
        let (quota, mut deferrals) = (Quota::new(2, 1_000, at(0)), Deferrals::default());
        for _ in 0..4 {
            quota.defer(&mut deferrals, at(0), 10_000).unwrap();
        }
        for now in [0, 100, 300] {
            let quota = Quota::reconfigure(rule(2, 1_500), at(now), &mut deferrals);
            assert_eq!(quota.count, 2, "at {now}");
        }
        // Windows of 700 from 950 on: until 1,650, 2,350, 3,050.
        let mut quota = Quota::reconfigure(rule(2, 700), at(950), &mut deferrals);
        assert_eq!(quota.count, 2);
        assert!(matches!(quota.charge(&mut deferrals, at(1_649)), Charge::Denied { retry_after_ms: 1 }));
        assert!(matches!(quota.charge(&mut deferrals, at(1_700)), Charge::Denied { retry_after_ms: 650 }));
        // The window has begun, and two of its messages have not gone out yet.
        let again = Quota::reconfigure(rule(2, 700), at(1_900), &mut deferrals);
        assert_eq!(again.count, 2);
        assert_eq!(Quota::reconfigure(rule(2, 700), at(2_000), &mut deferrals).count, 0);
    }
}
