use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;

use crate::Timestamp;

/// When a configuration has no capacity. A window that touches closed time has none: an event in it could be
/// scheduled into that time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calendar {
    pub blackouts: Vec<Period>,
    pub business_hours: Option<BusinessHours>,
}

/// From an instant up to, and without, another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub from: Timestamp,
    pub to: Timestamp,
}

/// The same hours on some days of the week, by the clocks of a time zone. Where they end before they begin, they
/// reach into the next day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusinessHours {
    zone: TimeZone,
    zone_name: String,
    days: [bool; 7],
    from: Time,
    to: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CalendarError(pub String);

/// Closed stretches that are jumped over before giving up: beyond every sensible calendar, and a bound.
const JUMPS_MAX: usize = 10_000;
/// A stretch of hours without a gap is followed this far.
const STRETCH_DAYS_MAX: usize = 400;

impl Calendar {
    /// The first window that starts at or after `from`, which starts one, and touches no closed time.
    pub fn next_open(&self, from: Timestamp, window_ms: u64) -> Option<Timestamp> {
        let mut start = from;
        for _ in 0..JUMPS_MAX {
            match self.closed_until(start, start.plus_ms(window_ms)) {
                None => return Some(start),
                Some(opens) => start = align_up(opens, window_ms)?,
            }
        }
        None
    }

    /// Up to when it stays open, from an instant at which it is: windows that end by then touch no closed time.
    pub fn open_until(&self, from: Timestamp) -> Timestamp {
        let blackouts = self.blackouts.iter().filter(|blackout| blackout.to > from);
        let blackout = blackouts.map(|blackout| blackout.from.max(from)).min();
        let hours = self.business_hours.as_ref().map(|hours| hours.open_until(from));
        blackout.into_iter().chain(hours).min().unwrap_or(Timestamp::MAX)
    }

    /// When a closed time that touches the span ends; `None` when the whole span is open.
    fn closed_until(&self, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
        let touching = self.blackouts.iter().filter(|blackout| blackout.from < to && blackout.to > from);
        let blackout_ends = touching.map(|blackout| blackout.to).max();
        blackout_ends.or_else(|| self.business_hours.as_ref()?.closed_until(from, to))
    }
}

impl BusinessHours {
    /// `from` and `to` as `HH:MM`, `to` up to `24:00`; `days` as `MON` … `SUN`.
    pub fn new(zone_name: &str, days: &[String], from: &str, to: &str) -> Result<Self, CalendarError> {
        let zone = TimeZone::get(zone_name).map_err(|_| {
            CalendarError(format!("{zone_name:?} is not a time zone such as \"Europe/Berlin\""))
        })?;
        let mut open_days = [false; 7];
        for day in days {
            let place = DAYS.iter().position(|name| name.eq_ignore_ascii_case(day));
            let place = place
                .ok_or_else(|| CalendarError(format!("{day:?} is not a day: use {}", DAYS.join(", "))))?;
            open_days[place] = true;
        }
        if !open_days.contains(&true) {
            return Err(CalendarError("at least one day has to be open".into()));
        }
        let to = if to == "24:00" { "00:00" } else { to };
        Ok(Self { zone, zone_name: zone_name.into(), days: open_days, from: time(from)?, to: time(to)? })
    }

    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    pub fn days(&self) -> Vec<&'static str> {
        DAYS.into_iter().zip(self.days).filter(|(_, open)| *open).map(|(day, _)| day).collect()
    }

    pub fn from(&self) -> String {
        self.from.strftime("%H:%M").to_string()
    }

    pub fn to(&self) -> String {
        self.to.strftime("%H:%M").to_string()
    }

    fn closed_until(&self, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
        let instant = jiff::Timestamp::from_millisecond(from.millis()).ok()?;
        // Hours that began yesterday may reach into today.
        let mut day = instant.to_zoned(self.zone.clone()).date().yesterday().ok()?;
        let mut open_until = None;
        for _ in 0..STRETCH_DAYS_MAX {
            if let Some(hours) = self.hours_of(day) {
                match open_until {
                    None if hours.to <= from => {}
                    // Not open yet at the span's start: it opens then.
                    None if hours.from > from => return Some(hours.from),
                    None => open_until = Some(hours.to),
                    Some(end) if hours.from <= end => open_until = Some(hours.to.max(end)),
                    Some(_) => return Some(hours.from),
                }
                if open_until.is_some_and(|end| end >= to) {
                    return None;
                }
            }
            day = day.tomorrow().ok()?;
        }
        // A window longer than any stretch of open hours.
        Some(Timestamp::MAX)
    }

    /// The end of the stretch of hours that holds an instant, or of as much of it as anybody follows.
    fn open_until(&self, from: Timestamp) -> Timestamp {
        let mut open_until = from;
        let Ok(instant) = jiff::Timestamp::from_millisecond(from.millis()) else { return from };
        let mut day = instant.to_zoned(self.zone.clone()).date().yesterday();
        for _ in 0..STRETCH_DAYS_MAX {
            let Ok(this) = day else { break };
            if let Some(hours) = self.hours_of(this) {
                if hours.from > open_until {
                    break;
                }
                open_until = open_until.max(hours.to);
            }
            day = this.tomorrow();
        }
        open_until
    }

    fn hours_of(&self, day: Date) -> Option<Period> {
        let place = match day.weekday() {
            Weekday::Monday => 0,
            Weekday::Tuesday => 1,
            Weekday::Wednesday => 2,
            Weekday::Thursday => 3,
            Weekday::Friday => 4,
            Weekday::Saturday => 5,
            Weekday::Sunday => 6,
        };
        if !self.days[place] {
            return None;
        }
        let instant = |day: Date, time: Time| {
            let zoned = day.to_datetime(time).to_zoned(self.zone.clone()).ok()?;
            Some(Timestamp::from_millis(zoned.timestamp().as_millisecond()))
        };
        let last_day = if self.to <= self.from { day.tomorrow().ok()? } else { day };
        Some(Period { from: instant(day, self.from)?, to: instant(last_day, self.to)? })
    }
}

const DAYS: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];

fn time(text: &str) -> Result<Time, CalendarError> {
    Time::strptime("%H:%M", text)
        .map_err(|_| CalendarError(format!("{text:?} is not a time of day such as \"09:30\"")))
}

fn align_up(at: Timestamp, window_ms: u64) -> Option<Timestamp> {
    let size = window_ms.cast_signed();
    let window = at.millis().checked_add(size - 1)?.div_euclid(size);
    Some(Timestamp::from_millis(window.checked_mul(size)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    fn hours(days: &[&str], from: &str, to: &str) -> Calendar {
        let days: Vec<_> = days.iter().map(|&day| day.to_owned()).collect();
        let business_hours = Some(BusinessHours::new("Europe/Berlin", &days, from, to).unwrap());
        Calendar { blackouts: Vec::new(), business_hours }
    }

    #[test]
    fn business_hours_follow_the_clocks_of_their_zone() {
        let calendar = hours(&["MON", "FRI"], "09:00", "17:00");
        // Friday evening before the clocks go forward on Sunday, 29 March 2026.
        let next = calendar.next_open(instant("2026-03-27T16:00:00Z"), 4_000).unwrap();
        assert_eq!(next, instant("2026-03-30T07:00:00Z"), "nine o'clock in summer time");
        let before = calendar.next_open(instant("2026-03-27T03:00:00Z"), 4_000).unwrap();
        assert_eq!(before, instant("2026-03-27T08:00:00Z"));
    }

    #[test]
    fn a_window_that_reaches_past_closing_time_is_closed() {
        let calendar = hours(&["MON", "TUE"], "09:00", "17:00");
        let hour = 3_600_000;
        let last = instant("2026-03-30T14:00:00Z");
        assert_eq!(calendar.next_open(last, hour), Some(last));
        let over = instant("2026-03-30T15:00:00Z");
        assert_eq!(calendar.next_open(over, hour), Some(instant("2026-03-31T07:00:00Z")));
    }

    #[test]
    fn hours_may_reach_into_the_next_day_and_around_the_clock() {
        let night = hours(&["MON"], "22:00", "06:00");
        let tuesday_morning = instant("2026-03-31T02:00:00Z");
        assert_eq!(night.next_open(tuesday_morning, 4_000), Some(tuesday_morning));
        let always = hours(&["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"], "00:00", "24:00");
        let across_midnight = instant("2026-03-31T00:00:00Z");
        assert_eq!(always.next_open(across_midnight, 86_400_000), Some(across_midnight));
    }

    #[test]
    fn a_window_longer_than_the_open_hours_never_opens() {
        assert_eq!(
            hours(&["MON"], "09:00", "17:00").next_open(instant("2026-03-30T00:00:00Z"), 86_400_000),
            None
        );
    }

    #[test]
    fn it_stays_open_up_to_the_next_closed_time() {
        let mut calendar = hours(&["MON", "TUE"], "09:00", "17:00");
        let ten = instant("2026-03-30T08:00:00Z");
        assert_eq!(calendar.open_until(ten), instant("2026-03-30T15:00:00Z"));
        let blackout = |from: &str, to: &str| Period { from: instant(from), to: instant(to) };
        calendar.blackouts.push(blackout("2026-03-30T06:00:00Z", "2026-03-30T08:00:00Z"));
        calendar.blackouts.push(blackout("2026-03-30T12:00:00Z", "2026-03-30T13:00:00Z"));
        assert_eq!(calendar.open_until(ten), instant("2026-03-30T12:00:00Z"));
        let around = hours(&["MON", "TUE"], "00:00", "24:00");
        assert_eq!(around.open_until(ten), instant("2026-03-31T22:00:00Z"), "over midnight");
        assert_eq!(Calendar::default().open_until(ten), Timestamp::MAX);
    }

    #[test]
    fn wrong_calendars_are_named() {
        let days = ["MON".to_owned()];
        let wrong = |zone, days: &[String], from, to| BusinessHours::new(zone, days, from, to).unwrap_err().0;
        assert!(wrong("Mars/Base", &days, "09:00", "17:00").contains("Mars/Base"));
        assert!(wrong("UTC", &["MO".to_owned()], "09:00", "17:00").contains("MO"));
        assert!(wrong("UTC", &[], "09:00", "17:00").contains("at least one day"));
        assert!(wrong("UTC", &days, "9 am", "17:00").contains("9 am"));
    }
}
