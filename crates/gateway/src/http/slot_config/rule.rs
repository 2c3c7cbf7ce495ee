use serde_json::{Map, Value};
use tidegate_domain::limits::slot::{BusinessHours, Calendar, Period, SlotRule};
use tidegate_domain::{SlotConfigName, Timestamp};
use tidegate_edge::ApiError;

use crate::config::SlotSettings;
use crate::http::fields::{CONFIG_NAME, Fields, Name};
use crate::http::times::{duration_ms, instant, iso_duration};

const MAX_PER_WINDOW: Name = Name::new("maxPerWindow", "max_per_window");
const WINDOW_SIZE: Name = Name::new("windowSize", "window_size");
const HEADROOM_WINDOWS: Name = Name::new("headroomWindows", "headroom_windows");
const BLACKOUTS: Name = Name::new("blackouts", "blackouts");
const BUSINESS_HOURS: Name = Name::new("businessHours", "business_hours");
const TIME_ZONE: Name = Name::new("timeZone", "time_zone");
const DAYS: Name = Name::new("days", "days");
const FROM: Name = Name::new("from", "from");
const TO: Name = Name::new("to", "to");

const MAX_PER_WINDOW_MAX: u32 = 1_000_000_000;
/// Each is looked at for every event.
const BLACKOUTS_MAX: usize = 1_000;

/// A configuration as an admin writes it, or every fault of it.
pub fn read(
    settings: &SlotSettings,
    object: Map<String, Value>,
    now: Timestamp,
) -> Result<(SlotConfigName, SlotRule), ApiError> {
    let mut fields = Fields::new(object);
    let name = fields.parsed_or(CONFIG_NAME, || settings.default_config.clone(), SlotConfigName::new);
    let max_per_window = fields.whole(MAX_PER_WINDOW, 1..=MAX_PER_WINDOW_MAX);
    let window_ms = fields.parsed(WINDOW_SIZE, window_size);
    let headroom_windows = if fields.has(HEADROOM_WINDOWS) {
        fields.whole(HEADROOM_WINDOWS, 0..=SlotSettings::HEADROOM_WINDOWS_MAX).map(u64::from)
    } else {
        fields.take(HEADROOM_WINDOWS);
        Some(settings.headroom_windows)
    };
    let blackouts = blackouts(&mut fields);
    let business_hours = business_hours(&mut fields);
    let calendar = Calendar { blackouts, business_hours };
    if let Some(window_ms) = window_ms
        && !ever_opens(&calendar, window_ms, now)
    {
        let size = iso_duration(window_ms);
        fields.fault::<()>(
            BUSINESS_HOURS,
            &format!("leave no room for a window of {size}: it would never open"),
        );
    }
    fields.finish()?;
    match (name, max_per_window, window_ms, headroom_windows) {
        (Some(name), Some(max_per_window), Some(window_ms), Some(headroom_windows)) => {
            Ok((name, SlotRule { max_per_window, window_ms, headroom_windows, calendar }))
        }
        _ => Err(ApiError::internal("a field without a value and without a fault")),
    }
}

fn window_size(text: &str) -> Result<u64, String> {
    let ms = duration_ms(text)?;
    if ms > SlotRule::WINDOW_MS_MAX {
        return Err(format!("must be at most {}", iso_duration(SlotRule::WINDOW_MS_MAX)));
    }
    Ok(ms)
}

fn blackouts(fields: &mut Fields) -> Vec<Period> {
    let mut periods = Vec::new();
    match fields.take(BLACKOUTS) {
        None | Some(Value::Null) => {}
        Some(Value::Array(items)) if items.len() <= BLACKOUTS_MAX => {
            for (place, item) in items.into_iter().enumerate() {
                let Value::Object(object) = item else {
                    fields.fault_at(format_args!("blackouts[{place}]"), "must be an object with from and to");
                    continue;
                };
                let mut inner = Fields::new(object);
                if let (Some(from), Some(to)) = (inner.parsed(FROM, instant), inner.parsed(TO, instant)) {
                    if from < to {
                        periods.push(Period { from, to });
                    } else {
                        inner.fault::<()>(TO, "must be later than from");
                    }
                }
                fields.absorb(inner, format_args!("blackouts[{place}]"));
            }
        }
        Some(_) => {
            fields
                .fault::<()>(BLACKOUTS, &format!("must be an array of at most {BLACKOUTS_MAX} {{from, to}}"));
        }
    }
    periods
}

fn business_hours(fields: &mut Fields) -> Option<BusinessHours> {
    let object = match fields.take(BUSINESS_HOURS) {
        None | Some(Value::Null) => return None,
        Some(Value::Object(object)) => object,
        Some(_) => {
            return fields.fault(BUSINESS_HOURS, "must be an object with timeZone, days, from and to");
        }
    };
    let mut inner = Fields::new(object);
    let text = |text: &str| Ok::<_, String>(text.to_owned());
    let zone = inner.parsed(TIME_ZONE, text);
    let days = match inner.required(DAYS) {
        Some(Value::Array(days)) if days.iter().all(Value::is_string) => {
            Some(days.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
        }
        Some(_) => inner.fault(DAYS, "must be an array of days such as \"MON\""),
        None => None,
    };
    let (from, to) = (inner.parsed(FROM, text), inner.parsed(TO, text));
    let hours = match (&zone, &days, &from, &to) {
        (Some(zone), Some(days), Some(from), Some(to)) => BusinessHours::new(zone, days, from, to).ok(),
        _ => None,
    };
    // Each part on its own, so that every wrong one is named.
    let always = (&["MON".to_owned()][..], "00:00");
    for (name, part) in [
        (TIME_ZONE, zone.map(|zone| BusinessHours::new(&zone, always.0, always.1, always.1))),
        (DAYS, days.map(|days| BusinessHours::new("UTC", &days, always.1, always.1))),
        (FROM, from.map(|from| BusinessHours::new("UTC", always.0, &from, always.1))),
        (TO, to.map(|to| BusinessHours::new("UTC", always.0, always.1, &to))),
    ] {
        if let Some(Err(wrong)) = part {
            inner.fault::<()>(name, &wrong.0);
        }
    }
    fields.absorb(inner, BUSINESS_HOURS.camel());
    hours
}

fn ever_opens(calendar: &Calendar, window_ms: u64, now: Timestamp) -> bool {
    let since_ms = now.millis().rem_euclid(window_ms.cast_signed()).unsigned_abs();
    calendar.next_open(now.minus_ms(since_ms), window_ms).is_some()
}
