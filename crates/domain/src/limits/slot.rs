//! Reserved future capacity: windows of fixed size, aligned to the epoch, each with room for so many.

mod calendar;
mod windows;

pub use calendar::{BusinessHours, Calendar, CalendarError, Period};
pub use windows::Windows;

use crate::Timestamp;

/// What places an event in time: how many per window, how long a window is, when there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRule {
    pub max_per_window: u32,
    pub window_ms: u64,
    /// How many windows past the requested one may be looked at; an event that finds no room in them gets none.
    pub headroom_windows: u64,
    pub calendar: Calendar,
}

/// Where an event landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    pub window: i64,
    pub scheduled: Timestamp,
}

impl SlotRule {
    pub const WINDOW_MS_MAX: u64 = 366 * 86_400_000;

    /// The number of the window that holds an instant.
    pub fn window_of(&self, at: Timestamp) -> i64 {
        at.millis().div_euclid(self.window_ms.cast_signed())
    }

    pub fn window_start(&self, window: i64) -> Timestamp {
        Timestamp::from_millis(window.saturating_mul(self.window_ms.cast_signed()))
    }

    /// Finds the first window with room at or after the requested time, without taking it.
    ///
    /// The window that holds the requested time counts in proportion to what is left of it. `jitter` is any
    /// number: it spreads events within their window, never before the requested time.
    pub fn place(&self, windows: &Windows, requested: Timestamp, jitter: u64) -> Option<Placement> {
        let first = self.window_of(requested);
        let elapsed_ms = requested.since_ms(self.window_start(first));
        let left_ms = self.window_ms - elapsed_ms;
        let room = u64::from(self.max_per_window) as u128 * u128::from(left_ms) / u128::from(self.window_ms);
        let is_open = self.calendar.next_open(self.window_start(first), self.window_ms)
            == Some(self.window_start(first));
        if is_open && u128::from(windows.count(first)) < room {
            let scheduled = requested.plus_ms(jitter % left_ms);
            return Some(Placement { window: first, scheduled });
        }
        let window = self.first_with_room(windows, first.checked_add(1)?, first)?;
        let scheduled = self.window_start(window).plus_ms(jitter % self.window_ms);
        Some(Placement { window, scheduled })
    }

    /// Full runs and closed times are jumped over, each in one step.
    fn first_with_room(&self, windows: &Windows, from: i64, requested: i64) -> Option<i64> {
        let mut window = from;
        loop {
            window = windows.first_open(window);
            if window.abs_diff(requested) > self.headroom_windows {
                return None;
            }
            let open = self.calendar.next_open(self.window_start(window), self.window_ms)?;
            let open = self.window_of(open);
            if open == window {
                return Some(window);
            }
            window = open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(max_per_window: u32) -> SlotRule {
        SlotRule { max_per_window, window_ms: 4_000, headroom_windows: 100, calendar: Calendar::default() }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn the_first_window_counts_in_proportion_and_never_before_the_request() {
        let (rule, mut windows) = (rule(100), Windows::new(100));
        for _ in 0..25 {
            let placed = rule.place(&windows, at(7_000), 123_456_789).unwrap();
            assert_eq!(placed.window, 1);
            assert!(placed.scheduled >= at(7_000) && placed.scheduled < at(8_000), "{placed:?}");
            windows.add(placed.window);
        }
        let next = rule.place(&windows, at(7_000), 5).unwrap();
        assert_eq!(next, Placement { window: 2, scheduled: at(8_005) });
    }

    #[test]
    fn a_request_before_1970_is_placed_too() {
        let placed = rule(100).place(&Windows::new(100), at(-1), 0).unwrap();
        // One millisecond of four thousand leaves no room for a hundredth.
        assert_eq!(placed, Placement { window: 0, scheduled: at(0) });
    }

    #[test]
    fn past_the_headroom_there_is_no_slot() {
        let (rule, mut windows) = (rule(1), Windows::new(1));
        for _ in 0..=100 {
            windows.add(rule.place(&windows, at(0), 0).unwrap().window);
        }
        assert_eq!(rule.place(&windows, at(0), 0), None);
        assert!(rule.place(&windows, at(4_000), 0).is_some());
    }

    #[test]
    fn closed_times_are_jumped_over() {
        let blackout = Period { from: at(8_500), to: at(100_000_000) };
        let calendar = Calendar { blackouts: vec![blackout], business_hours: None };
        let rule = SlotRule { calendar, headroom_windows: 1_000_000, ..rule(1) };
        let mut windows = Windows::new(1);
        let mut landed = Vec::new();
        for _ in 0..3 {
            let placed = rule.place(&windows, at(0), 0).unwrap();
            windows.add(placed.window);
            landed.push(placed.window);
        }
        // The window from 8,000 overlaps the blackout and has no room.
        assert_eq!(landed, [0, 1, 25_000]);
    }
}
