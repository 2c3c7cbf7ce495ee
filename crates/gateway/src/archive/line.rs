//! The lines' words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_domain::limits::slot::{BusinessHours, Calendar, Period, SlotRule};
use tidegate_domain::limits::{Deferrals, Quota};
use tidegate_domain::transfer::{
    Books, Entry, Inventory, KeyEntry, Kind, Manifest, QueueEntry, QuotaEntry, SlotEntry, Stock,
};
use tidegate_domain::{
    EventId, Fingerprint, IdempotencyKey, MessageId, QueueName, SlotConfig, SlotConfigName, Timestamp, UserId,
};

use super::text::{self, MessageLine};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    Archive(Head),
    Queue(QueueLine),
    Quota(QuotaLine),
    SlotConfig(SlotConfigLine),
    Slot(SlotLine),
    Message(Box<MessageLine>),
    Key(KeyLine),
    End(End),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Head {
    pub version: u32,
    salt: u32,
    seq_last: u64,
    token_last: u64,
    books: BooksLine,
    counts: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BooksLine {
    admitted: u64,
    delivered: u64,
    dead: u64,
    expired: u64,
    deleted: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct End {
    counts: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueLine {
    name: String,
    paused: bool,
}

/// Times are milliseconds since 1970, here and everywhere.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuotaLine {
    user: String,
    limit: u32,
    window_ms: u64,
    count: u32,
    since: i64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exempts_high: bool,
    /// Deferred messages: when they are due, and how many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deferred: Vec<(i64, u32)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SlotConfigLine {
    name: String,
    version: u32,
    max_per_window: u32,
    window_ms: u64,
    headroom_windows: u64,
    created_at: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blackouts: Vec<(i64, i64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    business_hours: Option<HoursLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HoursLine {
    time_zone: String,
    days: Vec<String>,
    from: String,
    to: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SlotLine {
    event: String,
    config: String,
    generation: u32,
    window: i64,
    requested: i64,
    scheduled: i64,
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyLine {
    key: String,
    fingerprint: String,
    seq: u64,
    admitted_at: i64,
}

/// What is wrong with a line that its sum says is what was written.
pub type Nonsense = String;

impl Line {
    pub fn head(manifest: &Manifest) -> Self {
        let Books { admitted, delivered, dead, expired, deleted } = manifest.stock.books;
        Self::Archive(Head {
            version: super::VERSION,
            salt: manifest.salt,
            seq_last: manifest.seq_last,
            token_last: manifest.token_last,
            books: BooksLine { admitted, delivered, dead, expired, deleted },
            counts: counts(&manifest.stock.inventory),
        })
    }

    pub fn end(written: &Inventory) -> Self {
        Self::End(End { counts: counts(written) })
    }

    pub fn of(entry: Entry) -> Self {
        match entry {
            Entry::Queue(QueueEntry { name, paused }) => {
                Self::Queue(QueueLine { name: name.to_string(), paused })
            }
            Entry::Quota(entry) => Self::Quota(quota_line(&entry)),
            Entry::SlotConfig(config) => Self::SlotConfig(slot_config_line(config)),
            Entry::Slot(slot) => Self::Slot(SlotLine {
                event: slot.event.to_string(),
                config: slot.config.to_string(),
                generation: slot.generation,
                window: slot.window,
                requested: slot.requested.millis(),
                scheduled: slot.scheduled.millis(),
                created_at: slot.created_at.millis(),
                message: slot.message,
            }),
            Entry::Message(message) => Self::Message(Box::new(text::line(*message))),
            Entry::Key(key) => Self::Key(KeyLine {
                key: text::base64(&key.key.0),
                fingerprint: text::base64(&key.fingerprint.0),
                seq: key.seq,
                admitted_at: key.admitted_at.millis(),
            }),
        }
    }

    /// `None` for the first line and the last.
    pub fn entry(self) -> Result<Option<Entry>, Nonsense> {
        Ok(Some(match self {
            Self::Archive(_) | Self::End(_) => return Ok(None),
            Self::Queue(QueueLine { name, paused }) => {
                Entry::Queue(QueueEntry { name: named("queue", &name, QueueName::new)?, paused })
            }
            Self::Quota(line) => Entry::Quota(quota(line)?),
            Self::SlotConfig(line) => Entry::SlotConfig(slot_config(line)?),
            Self::Slot(line) => Entry::Slot(SlotEntry {
                event: named("event", &line.event, EventId::new)?,
                config: named("slot config", &line.config, SlotConfigName::new)?,
                generation: line.generation,
                window: line.window,
                requested: Timestamp::from_millis(line.requested),
                scheduled: Timestamp::from_millis(line.scheduled),
                created_at: Timestamp::from_millis(line.created_at),
                message: line.message,
            }),
            Self::Message(line) => Entry::Message(Box::new(text::message(*line)?)),
            Self::Key(line) => Entry::Key(KeyEntry {
                key: IdempotencyKey(hash(&line.key)?),
                fingerprint: Fingerprint(hash(&line.fingerprint)?),
                seq: line.seq,
                admitted_at: Timestamp::from_millis(line.admitted_at),
            }),
        }))
    }
}

/// Larger numbers than a ledger comes to would run over in the next.
const COUNT_MAX: u64 = 1 << 48;
const TOKEN_MAX: u64 = 1 << 62;

impl Head {
    pub fn manifest(&self) -> Result<Manifest, Nonsense> {
        let BooksLine { admitted, delivered, dead, expired, deleted } = self.books;
        let within = |what: &str, number: u64, max: u64| {
            if number <= max { Ok(()) } else { Err(format!("{what} {number} is larger than any ledger's")) }
        };
        within("salt", self.salt.into(), MessageId::SALT_MAX.into())?;
        within("seqLast", self.seq_last, MessageId::SEQ_MAX / 2)?;
        within("tokenLast", self.token_last, TOKEN_MAX)?;
        for count in self.counts.values().chain([&admitted, &delivered, &dead, &expired, &deleted]) {
            within("count", *count, COUNT_MAX)?;
        }
        Ok(Manifest {
            salt: self.salt,
            seq_last: self.seq_last,
            token_last: self.token_last,
            stock: Stock {
                inventory: inventory(&self.counts),
                books: Books { admitted, delivered, dead, expired, deleted },
            },
        })
    }
}

impl End {
    pub fn inventory(&self) -> Inventory {
        inventory(&self.counts)
    }
}

pub fn named<T, E: std::fmt::Display>(
    what: &str,
    text: &str,
    new: impl Fn(&str) -> Result<T, E>,
) -> Result<T, Nonsense> {
    new(text).map_err(|error| format!("{what} {text:?} {error}"))
}

fn counts(inventory: &Inventory) -> BTreeMap<String, u64> {
    Kind::ALL.into_iter().map(|kind| (kind.as_str().to_owned(), inventory.of(kind))).collect()
}

fn inventory(counts: &BTreeMap<String, u64>) -> Inventory {
    let mut inventory = Inventory::default();
    for kind in Kind::ALL {
        inventory.add(kind, counts.get(kind.as_str()).copied().unwrap_or(0));
    }
    inventory
}

fn hash(text: &str) -> Result<[u8; 16], Nonsense> {
    text::bytes(text)?.try_into().map_err(|_| format!("{text:?} is no hash"))
}

fn quota_line(QuotaEntry { user, quota, deferrals }: &QuotaEntry) -> QuotaLine {
    QuotaLine {
        user: user.to_string(),
        limit: quota.limit,
        window_ms: quota.window_ms,
        count: quota.count,
        since: quota.since.millis(),
        exempts_high: quota.exempts_high,
        deferred: deferrals.dues().map(|(due, count)| (due.millis(), count)).collect(),
    }
}

/// Longer than any that can be configured.
const QUOTA_WINDOW_MS_MAX: u64 = 100 * 366 * 86_400_000;

fn quota(line: QuotaLine) -> Result<QuotaEntry, Nonsense> {
    let mut deferrals = Deferrals::default();
    for (due, count) in line.deferred {
        deferrals.restore(Timestamp::from_millis(due), count);
    }
    let QuotaLine { limit, window_ms, count, since, exempts_high, .. } = line;
    if window_ms == 0 || window_ms > QUOTA_WINDOW_MS_MAX {
        return Err(format!("a quota's window of {window_ms} ms"));
    }
    let quota = Quota { count, exempts_high, ..Quota::new(limit, window_ms, Timestamp::from_millis(since)) };
    Ok(QuotaEntry { user: named("user", &line.user, UserId::new)?, quota, deferrals })
}

fn slot_config_line(SlotConfig { name, version, rule, created_at }: SlotConfig) -> SlotConfigLine {
    let hours = rule.calendar.business_hours.map(|hours| HoursLine {
        time_zone: hours.zone_name().to_owned(),
        days: hours.days().into_iter().map(str::to_owned).collect(),
        from: hours.from(),
        to: hours.to(),
    });
    let blackouts = rule.calendar.blackouts.iter();
    SlotConfigLine {
        name: name.to_string(),
        version,
        max_per_window: rule.max_per_window,
        window_ms: rule.window_ms,
        headroom_windows: rule.headroom_windows,
        created_at: created_at.millis(),
        blackouts: blackouts.map(|period| (period.from.millis(), period.to.millis())).collect(),
        business_hours: hours,
    }
}

fn slot_config(line: SlotConfigLine) -> Result<SlotConfig, Nonsense> {
    let hours = |line: HoursLine| BusinessHours::new(&line.time_zone, &line.days, &line.from, &line.to);
    let business_hours = line.business_hours.map(hours).transpose().map_err(|error| error.to_string())?;
    let period = |(from, to)| Period { from: Timestamp::from_millis(from), to: Timestamp::from_millis(to) };
    if line.window_ms == 0 || line.window_ms > SlotRule::WINDOW_MS_MAX {
        return Err(format!("a window of {} ms", line.window_ms));
    }
    Ok(SlotConfig {
        name: named("slot config", &line.name, SlotConfigName::new)?,
        version: line.version,
        rule: SlotRule {
            max_per_window: line.max_per_window,
            window_ms: line.window_ms,
            headroom_windows: line.headroom_windows,
            calendar: Calendar {
                blackouts: line.blackouts.into_iter().map(period).collect(),
                business_hours,
            },
        },
        created_at: Timestamp::from_millis(line.created_at),
    })
}
