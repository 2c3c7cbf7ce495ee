use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::{Pieces, SpanParser};
use tidegate_domain::Timestamp;

const INSTANT: &str = "must be an ISO-8601 instant with its offset, such as \"2025-06-01T12:00:00Z\"";
const DURATION: &str = "must be an ISO-8601 duration, such as \"PT4S\" or \"PT1M30S\"";

pub const EPOCH: DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);

const NANOS_PER_MS: i128 = 1_000_000;
const NANOS_PER_S: i128 = 1_000_000_000;
const DAY_MS: i64 = 86_400_000;

/// The last one that has a year of four digits.
const LAST_MS: i64 = 253_402_300_799_999;

/// An instant, rounded up to the millisecond: what happens at it or later is never earlier than was asked for.
pub fn instant(text: &str) -> Result<Timestamp, String> {
    let nanos = text.parse().map(jiff::Timestamp::as_nanosecond).ok().or_else(|| last_hours_nanos(text));
    match nanos {
        Some(nanos) => {
            let ms = nanos.div_euclid(NANOS_PER_MS) + i128::from(nanos.rem_euclid(NANOS_PER_MS) > 0);
            let ms = i64::try_from(ms).ok().filter(|ms| *ms <= LAST_MS);
            ms.map(Timestamp::from_millis).ok_or_else(|| format!("is after the year 9999: {INSTANT}"))
        }
        None if text.parse::<jiff::civil::DateTime>().is_ok() => {
            Err(format!("has no offset, so it could be any of 24 hours: {INSTANT}"))
        }
        None => Err(INSTANT.to_owned()),
    }
}

/// jiff's instants end some 26 hours before the year 10000, so that each has a local time in every zone. The end of the
/// year 9999 is what callers write for "never", so it is read from its parts.
fn last_hours_nanos(text: &str) -> Option<i128> {
    let pieces = Pieces::parse(text).ok()?;
    let (time, offset) = (pieces.time()?, pieces.to_numeric_offset()?);
    let since_epoch = pieces.date().to_datetime(time).duration_since(EPOCH);
    let nanos = since_epoch.as_nanos() - i128::from(offset.seconds()) * NANOS_PER_S;
    (nanos > jiff::Timestamp::MAX.as_nanosecond()).then_some(nanos)
}

/// A duration in milliseconds. Days have 24 hours and weeks seven days, as windows are counted from the epoch and
/// know no calendar.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    if !text.starts_with(['P', 'p', '-', '+']) {
        return Err(DURATION.to_owned());
    }
    let span = SpanParser::new().parse_span(text).map_err(|_| DURATION.to_owned())?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(format!("is in years or months, which differ in length: {DURATION}"));
    }
    let days = i64::from(span.get_weeks()) * 7 + i64::from(span.get_days());
    let rest = span.weeks(0).days(0);
    let total = SignedDuration::try_from(rest)
        .ok()
        .and_then(|rest| rest.checked_add(SignedDuration::from_millis(days.checked_mul(DAY_MS)?)))
        .ok_or_else(|| DURATION.to_owned())?;
    if total.as_nanos() % NANOS_PER_MS != 0 {
        return Err("must be a whole number of milliseconds".to_owned());
    }
    match u64::try_from(total.as_millis()) {
        Ok(0) | Err(_) => Err("must be at least 1 millisecond, \"PT0.001S\"".to_owned()),
        Ok(ms) => Ok(ms),
    }
}

/// In hours, minutes and seconds.
pub fn iso_duration(ms: u64) -> String {
    SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_need_an_offset_and_are_never_rounded_down() {
        let noon = Timestamp::from_millis(1_748_779_200_000);
        for text in ["2025-06-01T12:00:00Z", "2025-06-01T14:00:00+02:00", "2025-06-01t12:00:00.000z"] {
            assert_eq!(instant(text), Ok(noon), "{text}");
        }
        assert_eq!(instant("2025-06-01T12:00:00.000000001Z"), Ok(noon.plus_ms(1)));
        assert_eq!(instant("1969-12-31T23:59:59.9991Z"), Ok(Timestamp::from_millis(0)));
        assert!(instant("2025-06-01T12:00:00").unwrap_err().starts_with("has no offset"));
        for wrong in ["", "tomorrow", "2025-06-01", "1748779200000", "2025-13-01T12:00:00Z", "12:00Z"] {
            assert!(instant(wrong).unwrap_err().contains("ISO-8601"), "{wrong}");
        }
    }

    #[test]
    fn the_last_instant_of_four_digits_is_one() {
        let last = Timestamp::from_millis(LAST_MS);
        for text in ["9999-12-31T23:59:59.999Z", "9999-12-31T22:59:59.999-01:00", "9999-12-31T23:59:59.9989Z"]
        {
            assert_eq!(instant(text), Ok(last), "{text}");
        }
        assert_eq!(instant("9999-12-31T23:59:59Z"), Ok(last.minus_ms(999)));
        assert_eq!(instant("9999-12-30T22:00:01Z"), Ok(last.minus_ms(26 * 3_600_000 - 1_001)));
        for beyond in ["9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.9999Z"] {
            assert!(instant(beyond).unwrap_err().starts_with("is after the year 9999"), "{beyond}");
        }
        assert!(instant("9999-12-31T23:59:59").unwrap_err().starts_with("has no offset"));
    }

    #[test]
    fn durations_are_exact_or_refused_with_the_reason() {
        for (text, ms) in [
            ("PT4S", 4_000),
            ("PT0.25S", 250),
            ("PT1M30S", 90_000),
            ("P1DT1H", 90_000_000),
            ("pt1h", 3_600_000),
        ] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        assert_eq!(duration_ms("P2W"), Ok(14 * 86_400_000));
        assert!(duration_ms("P1M").unwrap_err().contains("months"));
        assert!(duration_ms("P1Y").unwrap_err().contains("years"));
        assert!(duration_ms("PT0.0005S").unwrap_err().contains("whole number of milliseconds"));
        for wrong in ["PT0S", "-PT4S"] {
            assert!(duration_ms(wrong).unwrap_err().contains("at least 1 millisecond"), "{wrong}");
        }
        for wrong in ["", "4s", "4", "PT", "P", "PT4", "PT-4S", "four seconds"] {
            assert!(duration_ms(wrong).unwrap_err().contains("PT4S"), "{wrong}");
        }
        for ms in [1, 4_000, 90_000, 86_400_000] {
            assert_eq!(duration_ms(&iso_duration(ms)), Ok(ms));
        }
        assert_eq!(iso_duration(4_000), "PT4S");
    }
}
