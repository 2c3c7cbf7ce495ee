use jiff::civil::{Time, Weekday};
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
/// The end of the year 9999: a later instant has no text that callers could send back.
const END: Timestamp = Timestamp::from_millis(253_402_300_800_000);

impl Calendar {
    /// The first window that starts at or after `from`, which starts one, and touches no closed time.
    pub fn next_open(&self, from: Timestamp, window_ms: u64) -> Option<Timestamp> {
        let mut start = from;
        for _ in 0..JUMPS_MAX {
            if start.plus_ms(window_ms) > END {
                return None;
            }
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
        blackout.into_iter().chain(hours).min().unwrap_or(END)
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
        let mut open_until = None;
        for hours in self.hours(from) {
            match open_until {
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
        // A window longer than any stretch of open hours.
        Some(Timestamp::MAX)
    }

    /// The end of the stretch of hours that holds an instant, or of as much of it as is followed.
    fn open_until(&self, from: Timestamp) -> Timestamp {
        let mut open_until = from;
        for hours in self.hours(from) {
            if hours.from > open_until {
                break;
            }
            open_until = open_until.max(hours.to);
        }
        open_until
    }

    /// Open hours in their order, what is over before `from` left out. Hours are what the clocks show: what the clocks
    /// skip in spring is missing, and what they show twice in autumn is open twice.
    fn hours(&self, from: Timestamp) -> impl Iterator<Item = Period> {
        let mut stretch = jiff::Timestamp::from_millisecond(from.millis()).ok().and_then(|from| {
            let offset = self.zone.to_offset(from);
            // Hours that began yesterday may reach into today.
            Some((from, offset, offset.to_datetime(from).date().yesterday().ok()?))
        });
        let mut days = 0;
        std::iter::from_fn(move || {
            loop {
                let (from, offset, day) = stretch?;
                days += 1;
                if days > STRETCH_DAYS_MAX {
                    return None;
                }
                // Between two changes of the clocks a time of day is one instant.
                let change = self.zone.following(from).next();
                let end = change.as_ref().map_or(jiff::Timestamp::MAX, |change| change.timestamp());
                let opens = offset.to_timestamp(day.to_datetime(self.from)).ok()?;
                if opens >= end {
                    let offset = change?.offset();
                    stretch = Some((end, offset, offset.to_datetime(end).date().yesterday().ok()?));
                    continue;
                }
                let last_day = if self.to <= self.from { day.tomorrow().ok()? } else { day };
                let closes = offset.to_timestamp(last_day.to_datetime(self.to)).ok()?;
                stretch = Some((from, offset, day.tomorrow().ok()?));
                let (opens, closes) = (opens.max(from), closes.min(end));
                if self.is_open_on(day.weekday()) && opens < closes {
                    let at = |instant: jiff::Timestamp| Timestamp::from_millis(instant.as_millisecond());
                    return Some(Period { from: at(opens), to: at(closes) });
                }
            }
        })
    }

    fn is_open_on(&self, day: Weekday) -> bool {
        self.days[usize::try_from(day.to_monday_zero_offset()).unwrap_or_default()]
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

    /// Every window of a quarter of an hour, compared with what the clocks show during it.
    #[test]
    fn hours_that_begin_or_end_while_the_clocks_change_are_what_the_clocks_show() {
        const QUARTER: u64 = 15 * 60_000;
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let spans = [
            ("02:30", "03:30"),
            ("01:00", "02:30"),
            ("02:15", "02:45"),
            ("02:00", "03:00"),
            ("23:00", "02:30"),
            ("02:30", "01:00"),
            ("02:30", "02:30"),
        ];
        for (from, to) in spans {
            let calendar = hours(&["SAT", "SUN"], from, to);
            for begins in ["2027-03-26T12:00:00Z", "2027-10-29T12:00:00Z"].map(instant) {
                for start in (0..300).map(|n| begins.plus_ms(n * QUARTER)) {
                    let local = jiff::Timestamp::from_millisecond(start.millis()).unwrap();
                    let local = local.to_zoned(berlin.clone());
                    let time = local.strftime("%H:%M").to_string();
                    let is_day =
                        |back: i8| matches!((local.weekday().to_monday_zero_offset() + 7 - back) % 7, 5 | 6);
                    let shown = if from < to {
                        is_day(0) && from <= time.as_str() && time.as_str() < to
                    } else {
                        is_day(0) && from <= time.as_str() || is_day(1) && time.as_str() < to
                    };
                    let is_open = calendar.next_open(start, QUARTER) == Some(start);
                    assert_eq!(is_open, shown, "{from}-{to} at {local}");
                    assert!(!is_open || calendar.open_until(start) >= start.plus_ms(QUARTER), "{local}");
                }
            }
        }
    }

    #[test]
    fn there_is_no_window_after_the_year_9999() {
        let last = instant("9999-12-30T22:00:00Z");
        let always = Calendar::default();
        let hour = 3_600_000;
        assert_eq!(always.next_open(last, hour), Some(last));
        assert_eq!(always.next_open(END, hour), None);
        assert_eq!(always.next_open(END.minus_ms(hour - 1), hour), None);
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
        assert_eq!(Calendar::default().open_until(ten), END);
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
