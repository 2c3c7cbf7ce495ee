use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tidegate_domain::limits::slot::{BusinessHours, Calendar, Period, SlotRule};
use tidegate_domain::{LedgerError, SlotConfig, SlotConfigName, SlotConfigPut, Timestamp};
use tokio_postgres::Row;

use crate::codes::{duration, nonsense, small, unsigned};
use crate::open::Core;

/// Configurations remembered at a time: callers may ask for names that there are none of.
const REMEMBERED_MAX: usize = 10_000;

/// What this process knows of the active configurations. A reservation says which version it counts on, so that one
/// that has changed is noticed and read anew: nothing here has to expire.
#[derive(Debug, Default)]
pub struct SlotConfigs(Mutex<HashMap<SlotConfigName, Arc<SlotConfig>>>);

impl SlotConfigs {
    fn known(&self) -> MutexGuard<'_, HashMap<SlotConfigName, Arc<SlotConfig>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn forget_all(&self) {
        self.known().clear();
    }
}

impl Core {
    pub async fn active_slot_config(
        &self,
        name: &SlotConfigName,
    ) -> Result<Option<Arc<SlotConfig>>, LedgerError> {
        if let Some(config) = self.slot_configs.known().get(name) {
            return Ok(Some(config.clone()));
        }
        let Some(config) = self.slot_versions(name, 1).await?.pop().map(Arc::new) else { return Ok(None) };
        let mut known = self.slot_configs.known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(name.clone(), config.clone());
        Ok(Some(config))
    }

    /// The newest first.
    pub async fn slot_versions(
        &self,
        name: &SlotConfigName,
        max: i64,
    ) -> Result<Vec<SlotConfig>, LedgerError> {
        let sql = "SELECT version, max_per_window, window_ms, headroom_windows, calendar, created_at \
                   FROM slot_config WHERE name = $1 ORDER BY version DESC LIMIT $2";
        let rows = self.read(sql, &[&name.as_str(), &max]).await?;
        rows.iter().map(|row| config(name, row)).collect()
    }

    pub async fn put_slot_config(
        &self,
        name: SlotConfigName,
        rule: SlotRule,
    ) -> Result<SlotConfigPut, LedgerError> {
        let rows = self
            .write(
                "SELECT version, created_at, kept_window_ms, kept_until FROM put_slot_config($1, $2, $3, $4, $5)",
                &[
                    &name.as_str(),
                    &i64::from(rule.max_per_window),
                    &duration(rule.window_ms),
                    &duration(rule.headroom_windows),
                    &calendar_text(&rule.calendar),
                ],
            )
            .await?;
        self.slot_configs.known().remove(&name);
        let row = rows.first().ok_or_else(|| nonsense("answer", "nothing"))?;
        Ok(match row.get::<_, Option<i32>>(0) {
            Some(version) => SlotConfigPut::Stored(SlotConfig {
                name,
                version: small(i64::from(version)),
                rule,
                created_at: Timestamp::from_millis(row.get(1)),
            }),
            None => SlotConfigPut::WindowSizeInUse {
                window_ms: unsigned(row.get(2)),
                until: Timestamp::from_millis(row.get(3)),
            },
        })
    }
}

pub fn config(name: &SlotConfigName, row: &Row) -> Result<SlotConfig, LedgerError> {
    let text: &str = row.get(4);
    Ok(SlotConfig {
        name: name.clone(),
        version: small(i64::from(row.get::<_, i32>(0))),
        rule: SlotRule {
            max_per_window: small(row.get(1)),
            window_ms: unsigned(row.get(2)),
            headroom_windows: unsigned(row.get(3)),
            calendar: calendar(text).ok_or_else(|| nonsense("calendar", text))?,
        },
        created_at: Timestamp::from_millis(row.get(5)),
    })
}

pub fn calendar_text(calendar: &Calendar) -> String {
    let blackouts: Vec<_> =
        calendar.blackouts.iter().map(|period| [period.from.millis(), period.to.millis()]).collect();
    let hours = calendar.business_hours.as_ref().map(|hours| {
        let (from, to) = (hours.from(), hours.to());
        json!({ "zone": hours.zone_name(), "days": hours.days(), "from": from, "to": to })
    });
    json!({ "blackouts": blackouts, "hours": hours }).to_string()
}

fn calendar(text: &str) -> Option<Calendar> {
    let value: Value = serde_json::from_str(text).ok()?;
    let period = |value: &Value| {
        let at = |place: usize| value.get(place)?.as_i64().map(Timestamp::from_millis);
        Some(Period { from: at(0)?, to: at(1)? })
    };
    let blackouts: Option<Vec<_>> = value.get("blackouts")?.as_array()?.iter().map(period).collect();
    let business_hours = match value.get("hours")? {
        Value::Null => None,
        hours => {
            let word = |name: &str| hours.get(name)?.as_str();
            let days = hours.get("days")?.as_array()?.iter().filter_map(|day| Some(day.as_str()?.to_owned()));
            let days: Vec<String> = days.collect();
            Some(BusinessHours::new(word("zone")?, &days, word("from")?, word("to")?).ok()?)
        }
    };
    Some(Calendar { blackouts: blackouts?, business_hours })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendars_survive_their_text_form() {
        let days = ["MON".to_owned(), "SUN".to_owned()];
        let hours = BusinessHours::new("Europe/Berlin", &days, "22:00", "24:00").unwrap();
        let period = Period { from: Timestamp::from_millis(-5), to: Timestamp::MAX };
        let whole = Calendar { blackouts: vec![period], business_hours: Some(hours) };
        for written in [Calendar::default(), whole] {
            assert_eq!(calendar(&calendar_text(&written)), Some(written));
        }
        assert_eq!(calendar("{}"), None);
    }
}
