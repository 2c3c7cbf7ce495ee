//! The rows of slots and of their configurations.

use std::sync::LazyLock;

use rusqlite::{Connection, Row, params};
use tidegate_domain::limits::slot::{BusinessHours, Calendar, Period, SlotRule};
use tidegate_domain::{EventId, SlotConfig, SlotConfigName, Timestamp};

use super::super::book::{Book, Group};
use super::super::rows::{SlotConfigRow, SlotRow};
use super::super::slots::Held;
use super::insert::{Insert, Values};
use super::{Store, StoreError, as_i64, checksum, unsound};

pub(super) const TABLES: &str = "
    -- Every version; the newest of a config is the active one.
    CREATE TABLE slot_config (
        config INTEGER NOT NULL,
        version INTEGER NOT NULL,
        name TEXT NOT NULL,
        max INTEGER NOT NULL,
        window_ms INTEGER NOT NULL,
        headroom INTEGER NOT NULL,
        created INTEGER NOT NULL,
        blackouts TEXT NOT NULL,     -- from:to from:to …
        zone TEXT,                   -- business hours, if any
        days TEXT,
        open_from TEXT,
        open_to TEXT,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (config, version)
    ) STRICT, WITHOUT ROWID;

    -- An event's place in a window. No row: it has none, or gave it back.
    CREATE TABLE slot (
        seq INTEGER PRIMARY KEY,
        config INTEGER NOT NULL,
        version INTEGER NOT NULL,    -- of the config, at the time
        window INTEGER NOT NULL,     -- its number: window × window_ms is its start
        requested INTEGER NOT NULL,
        scheduled INTEGER NOT NULL,
        created INTEGER NOT NULL,
        message INTEGER NOT NULL,    -- the seq of its message, or 0
        event TEXT NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT;
";

pub(super) fn write(db: &Connection, group: &Group) -> rusqlite::Result<()> {
    for row in &group.slot_configs {
        write_config(db, row)?;
    }
    INSERT.run(db, &group.slots, put_slot)?;
    if !group.slots_removed.is_empty() {
        let mut delete = db.prepare_cached("DELETE FROM slot WHERE seq = ?1")?;
        for seq in &group.slots_removed {
            delete.execute([as_i64(*seq)])?;
        }
    }
    Ok(())
}

static INSERT: LazyLock<Insert> = LazyLock::new(|| {
    let columns = [
        "seq",
        "config",
        "version",
        "window",
        "requested",
        "scheduled",
        "created",
        "message",
        "checksum",
        "event",
    ];
    Insert::new("slot", &columns)
});

fn put_slot(row: &SlotRow, values: &mut Values<'_, '_>) -> rusqlite::Result<()> {
    let Held { seq, window, requested, scheduled, created, message, version, config } = row.held;
    values.put_all([as_i64(seq), config.into(), version.into(), window])?;
    values.put_all([requested.millis(), scheduled.millis(), created.millis(), as_i64(message)])?;
    values.put(checksum::of_slot(row))?;
    values.put(row.event.as_str())
}

fn write_config(db: &Connection, row: &SlotConfigRow) -> rusqlite::Result<()> {
    let SlotConfig { name, version, rule, created_at } = &row.stored;
    let SlotRule { max_per_window, window_ms, headroom_windows, calendar } = rule;
    let blackouts: Vec<_> =
        calendar.blackouts.iter().map(|p| format!("{}:{}", p.from.millis(), p.to.millis())).collect();
    let hours = calendar.business_hours.as_ref();
    let numbers = [
        i64::from(row.config),
        i64::from(*version),
        i64::from(*max_per_window),
        as_i64(*window_ms),
        as_i64(*headroom_windows),
        created_at.millis(),
    ];
    let texts = [
        Some(name.to_string()),
        Some(blackouts.join(" ")),
        hours.map(|hours| hours.zone_name().to_owned()),
        hours.map(|hours| hours.days().join(" ")),
        hours.map(BusinessHours::from),
        hours.map(BusinessHours::to),
    ];
    let sum = checksum::of_columns(&numbers, &texts.each_ref().map(Option::as_deref));
    let [name, blackouts, zone, days, from, to] = texts;
    let [config, version, max, window_ms, headroom, created] = numbers;
    db.prepare_cached(
        "INSERT INTO slot_config (config, version, name, max, window_ms, headroom, created, blackouts, zone, days,
         open_from, open_to, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        config, version, name, max, window_ms, headroom, created, blackouts, zone, days, from, to, sum
    ])?;
    Ok(())
}

impl Store {
    pub(super) fn recover_slots(&self, book: &mut Book) -> Result<(), StoreError> {
        let sound = self.each_slot_config(|config, stored| {
            stored.is_some_and(|stored| book.slots.restore_config(stored) == Some(config))
        })?;
        self.require(sound, "a slot configuration makes no sense")?;
        let sql = format!("SELECT {SLOT} FROM slot ORDER BY seq");
        let sound = self.each(&sql, [], |row| {
            let seq: i64 = row.get(0)?;
            let stored = Some(slot_of(row).ok().flatten().ok_or_else(|| unsound("slot", &seq))?);
            let version = |row: &SlotRow| book.slots.has_version(row.held.config, row.held.version);
            let sound = stored.filter(version).map(|stored| book.slots.restore(&stored));
            Ok(sound.is_some())
        })?;
        self.require(sound, "a slot names a version of its configuration that there is not")
    }

    /// Every version, in order; none where it makes no sense.
    pub(super) fn each_slot_config(
        &self,
        mut step: impl FnMut(u16, Option<SlotConfig>) -> bool,
    ) -> Result<bool, StoreError> {
        let sql = format!("SELECT {CONFIG} FROM slot_config ORDER BY config, version");
        self.each(&sql, [], |row| {
            require_sound(row)?;
            Ok(step(row.get(0)?, config_of(row)?))
        })
    }
}

pub(super) const CONFIG: &str = "config, name, version, max, window_ms, headroom, created, blackouts, zone, days, \
     open_from, open_to, checksum";

pub(super) const SLOT: &str =
    "seq, config, window, requested, scheduled, created, message, event, checksum, version";

/// From the columns of [`SLOT`]; `None` when it is not what was written.
pub(super) fn slot_of(row: &Row<'_>) -> rusqlite::Result<Option<SlotRow>> {
    let Ok(event) = EventId::new(row.get_ref(7)?.as_str()?) else { return Ok(None) };
    let held = Held {
        seq: row.get(0)?,
        config: row.get(1)?,
        window: row.get(2)?,
        requested: Timestamp::from_millis(row.get(3)?),
        scheduled: Timestamp::from_millis(row.get(4)?),
        created: Timestamp::from_millis(row.get(5)?),
        message: row.get(6)?,
        version: row.get(9)?,
    };
    let stored = SlotRow { event, held };
    let sound = checksum::of_slot(&stored) == row.get::<_, i64>(8)?;
    Ok(sound.then_some(stored))
}

/// From the columns of [`CONFIG`]: the checksum that fits the others.
pub(super) fn sum_of_config(row: &Row<'_>) -> rusqlite::Result<i64> {
    let number = |column: usize| row.get::<_, i64>(column);
    let numbers = [number(0)?, number(2)?, number(3)?, number(4)?, number(5)?, number(6)?];
    let text = |column: usize| row.get_ref(column).and_then(|value| Ok(value.as_str_or_null()?));
    let texts = [text(1)?, text(7)?, text(8)?, text(9)?, text(10)?, text(11)?];
    Ok(checksum::of_columns(&numbers, &texts))
}

/// From the columns of [`CONFIG`].
pub(super) fn require_sound(row: &Row<'_>) -> rusqlite::Result<()> {
    let (config, version): (i64, i64) = (row.get(0)?, row.get(2)?);
    let sound = sum_of_config(row).is_ok_and(|sum| row.get(12) == Ok(sum));
    if sound { Ok(()) } else { Err(unsound("slot_config", &format!("{config}, {version}"))) }
}

fn config_of(row: &Row<'_>) -> rusqlite::Result<Option<SlotConfig>> {
    let zone: Option<String> = row.get(8)?;
    let business_hours = match zone {
        None => None,
        Some(zone) => {
            let (days, from, to): (String, String, String) = (row.get(9)?, row.get(10)?, row.get(11)?);
            let days: Vec<_> = days.split_ascii_whitespace().map(str::to_owned).collect();
            match BusinessHours::new(&zone, &days, &from, &to) {
                Ok(hours) => Some(hours),
                Err(_) => return Ok(None),
            }
        }
    };
    let (Some(blackouts), Ok(name)) =
        (periods_of(row.get_ref(7)?.as_str()?), SlotConfigName::new(row.get_ref(1)?.as_str()?))
    else {
        return Ok(None);
    };
    let rule = SlotRule {
        max_per_window: row.get(3)?,
        window_ms: row.get(4)?,
        headroom_windows: row.get(5)?,
        calendar: Calendar { blackouts, business_hours },
    };
    Ok(Some(SlotConfig { name, version: row.get(2)?, rule, created_at: Timestamp::from_millis(row.get(6)?) }))
}

fn periods_of(text: &str) -> Option<Vec<Period>> {
    let instant = |text: &str| text.parse().ok().map(Timestamp::from_millis);
    let period = |text: &str| {
        let (from, to) = text.split_once(':')?;
        Some(Period { from: instant(from)?, to: instant(to)? })
    };
    text.split_ascii_whitespace().map(period).collect()
}
