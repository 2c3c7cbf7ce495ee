use tidegate_domain::Timestamp;
use tidegate_domain::limits::slot::SlotRule;

/// Stretches of open time that a place is looked for in at first: some weeks of business hours. Where all of them are
/// full, it is so many times more.
const RANGES_AT_FIRST: usize = 64;
const RANGES_GROWTH: usize = 4;
/// What one statement looks through at the most, unless a single event needs more.
const RANGES_TOGETHER: usize = 32_768;

/// Where an event may land, in the terms of the tables.
#[derive(Debug, Default)]
pub struct Places {
    pub first: i64,
    /// What the first window may hold of all, in proportion to what is left of it.
    pub share: i64,
    pub first_at: i64,
    pub jitter_ms: i64,
    /// Open windows after the first, as ranges without their end. A last one that ends before it begins says that
    /// there are more of them.
    pub from: Vec<i64>,
    pub past: Vec<i64>,
}

/// How many ranges are looked through, for each event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach(usize);

impl Default for Reach {
    fn default() -> Self {
        Self(RANGES_AT_FIRST)
    }
}

impl Reach {
    /// It ends where the headroom does.
    pub fn wider(self) -> Self {
        Self(self.0.saturating_mul(RANGES_GROWTH))
    }

    /// How many events have room in one statement.
    pub fn events_max(self) -> usize {
        (RANGES_TOGETHER / self.0).max(1)
    }
}

impl Places {
    pub fn new(rule: &SlotRule, requested: Timestamp, jitter: u64, reach: Reach) -> Self {
        let first = rule.window_of(requested);
        let start = rule.window_start(first);
        let left_ms = rule.window_ms - requested.since_ms(start);
        let is_open = rule.calendar.next_open(start, rule.window_ms) == Some(start);
        let share = u128::from(rule.max_per_window) * u128::from(left_ms) / u128::from(rule.window_ms);
        let mut places = Self {
            first,
            share: if is_open { i64::try_from(share).unwrap_or(i64::MAX) } else { 0 },
            first_at: requested.plus_ms(jitter % left_ms).millis(),
            jitter_ms: (jitter % rule.window_ms).cast_signed(),
            ..Self::default()
        };
        let end = first.saturating_add_unsigned(rule.headroom_windows).saturating_add(1);
        let mut window = first.saturating_add(1);
        while window < end {
            if places.from.len() == reach.0 {
                places.from.push(window);
                places.past.push(window - 1);
                break;
            }
            let Some(open) = rule.calendar.next_open(rule.window_start(window), rule.window_ms) else {
                break;
            };
            let from = rule.window_of(open);
            let past = rule.window_of(rule.calendar.open_until(open)).min(end);
            if from >= end {
                break;
            }
            places.from.push(from);
            places.past.push(past.max(from + 1));
            window = past.max(from + 1);
        }
        places
    }
}
