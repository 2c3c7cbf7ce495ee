use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;
use tidegate_domain::limits::slot::{Placement, SlotRule, Windows};
use tidegate_domain::{
    EventId, Forecast, MessageId, Reservation, Slot, SlotConfig, SlotConfigName, SlotConfigPut, Timestamp,
};

use super::events::{EventKey, Events};
use super::rows::SlotRow;

const CONFIGS_MAX: usize = 1_024;
const VERSIONS_MAX: usize = 10_000;
/// Old slots that one group forgets at the most.
const FORGET_MAX: usize = 1_000;
/// Entries of slots given back that may wait for their end, beside two for each slot.
const ENDED_MAX: usize = 1_024;

/// Which events hold which slots, and how full that makes the windows.
#[derive(Debug)]
pub(super) struct SlotBook {
    configs: Vec<Config>,
    by_name: HashMap<SlotConfigName, u16>,
    held: Events,
    /// When a slot may be forgotten, soonest first. Slots given back meanwhile are passed over.
    by_end: BinaryHeap<Reverse<(Timestamp, EventKey)>>,
    seq_next: u64,
    slots_max: usize,
    retention_ms: u64,
}

#[derive(Debug)]
struct Config {
    versions: Vec<SlotConfig>,
    /// Of the size that the newest version says. All slots count in the window that they lie in, those of earlier versions too.
    windows: Windows,
}

/// A slot, less the event's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) seq: u64,
    pub(super) window: i64,
    pub(super) requested: Timestamp,
    pub(super) scheduled: Timestamp,
    pub(super) created: Timestamp,
    /// The sequence number of its message, or zero. It was admitted when the slot was created.
    pub(super) message: u64,
    /// The configuration's version at the time.
    pub(super) version: u32,
    pub(super) config: u16,
}

/// How a configuration was before its newest version.
#[derive(Debug)]
pub(super) struct ConfigBefore {
    id: u16,
    windows: Windows,
}

/// Why an event got no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoSlot {
    UnknownConfig,
    NoRoom,
    Full,
}

impl ConfigBefore {
    pub(super) fn id(&self) -> u16 {
        self.id
    }
}

impl SlotBook {
    pub(super) fn new(slots_max: usize, retention_ms: u64) -> Self {
        Self {
            configs: Vec::new(),
            by_name: HashMap::new(),
            held: Events::new(),
            by_end: BinaryHeap::new(),
            seq_next: 1,
            slots_max,
            retention_ms,
        }
    }

    pub(super) fn key(&self, event: &EventId) -> EventKey {
        self.held.key(event)
    }

    pub(super) fn get(&self, event: EventKey) -> Option<Held> {
        self.held.get(event)
    }

    /// Where an event would land.
    pub(super) fn place(
        &self,
        name: &SlotConfigName,
        requested: Timestamp,
        jitter: u64,
    ) -> Result<(u16, Placement), NoSlot> {
        let id = *self.by_name.get(name).ok_or(NoSlot::UnknownConfig)?;
        let config = &self.configs[usize::from(id)];
        let rule = config.rule().ok_or(NoSlot::UnknownConfig)?;
        if self.held.len() >= self.slots_max {
            return Err(NoSlot::Full);
        }
        rule.place(&config.windows, requested, jitter).map(|placed| (id, placed)).ok_or(NoSlot::NoRoom)
    }

    pub(super) fn forecast(&self, name: &SlotConfigName, requested: Timestamp, jitter: u64) -> Forecast {
        match self.place(name, requested, jitter) {
            Ok((config, placed)) => Forecast::At {
                window_start: self.window_start(
                    config,
                    self.configs[usize::from(config)].version(),
                    placed.window,
                ),
                scheduled: placed.scheduled,
            },
            Err(NoSlot::UnknownConfig) => Forecast::UnknownConfig,
            Err(NoSlot::NoRoom | NoSlot::Full) => Forecast::NoRoom,
        }
    }

    /// Takes the place for an event and says what to write.
    pub(super) fn take(
        &mut self,
        reservation: &Reservation,
        (config, placed): (u16, Placement),
        message: u64,
        now: Timestamp,
    ) -> SlotRow {
        let held = Held {
            seq: self.seq_next,
            window: placed.window,
            requested: reservation.requested,
            scheduled: placed.scheduled,
            created: now,
            message,
            version: self.configs[usize::from(config)].version(),
            config,
        };
        let row = SlotRow { event: reservation.event.clone(), held };
        self.restore(&row);
        row
    }

    /// Gives a place back. Its row is still to be removed.
    pub(super) fn give_back(&mut self, event: EventKey) -> Option<Held> {
        let held = self.held.remove(event)?;
        let config = &mut self.configs[usize::from(held.config)];
        if let Some(window) = config.window_of(&held) {
            config.windows.remove(window);
        }
        if self.by_end.len() > 2 * self.held.len() + ENDED_MAX {
            self.by_end = self.held.iter().map(|(event, held)| Reverse((self.end_of(held), event))).collect();
        }
        Some(held)
    }

    /// Takes a given-back place again.
    pub(super) fn undo_give_back(&mut self, event: EventKey, held: Held) {
        self.hold(event, held);
    }

    /// Makes a rule the active one. The second is what to undo, or `None` when nothing has changed.
    pub(super) fn put_config(
        &mut self,
        name: &SlotConfigName,
        rule: SlotRule,
        now: Timestamp,
    ) -> (SlotConfigPut, Option<ConfigBefore>) {
        let known = self.by_name.get(name).copied();
        let Some(id) = known.or_else(|| self.new_config(name, &rule)) else {
            return (SlotConfigPut::Full, None);
        };
        let config = &self.configs[usize::from(id)];
        if config.versions.len() >= VERSIONS_MAX {
            return (SlotConfigPut::Full, None);
        }
        let before = ConfigBefore { id, windows: config.windows.clone() };
        if let Some(former) = config.rule().filter(|former| former.window_ms != rule.window_ms) {
            let until = config.windows.last().map(|last| former.window_start(last).plus_ms(former.window_ms));
            if let Some(until) = until.filter(|until| *until > now) {
                return (SlotConfigPut::WindowSizeInUse { window_ms: former.window_ms, until }, None);
            }
        }
        let version = config.version() + 1;
        let stored = SlotConfig { name: name.clone(), version, rule, created_at: now };
        self.activate(id, stored.clone());
        (SlotConfigPut::Stored(stored), Some(before))
    }

    pub(super) fn undo_put_config(&mut self, before: ConfigBefore) {
        let config = &mut self.configs[usize::from(before.id)];
        config.versions.pop();
        config.windows = before.windows;
        // It was made for this version. Its number must go to the next one, as it will after a restart.
        if config.versions.is_empty() {
            self.configs.pop();
            self.by_name.retain(|_, id| *id != before.id);
        }
    }

    /// The newest first.
    pub(super) fn versions(&self, name: &SlotConfigName) -> Vec<SlotConfig> {
        let config = self.by_name.get(name).map(|id| &self.configs[usize::from(*id)]);
        config.map_or_else(Vec::new, |config| config.versions.iter().rev().cloned().collect())
    }

    /// A slot as the port tells it.
    pub(super) fn slot(&self, event: EventId, held: &Held, salt: u32) -> Option<Slot> {
        let config = self.configs.get(usize::from(held.config))?.versions.first()?.name.clone();
        let message = (held.message > 0).then(|| MessageId::new(held.created, held.message, salt));
        let window_start = self.window_start(held.config, held.version, held.window);
        let Held { requested, scheduled, created, .. } = *held;
        Some(Slot { event, config, requested, scheduled, window_start, created_at: created, message })
    }

    fn window_start(&self, config: u16, version: u32, window: i64) -> Timestamp {
        let versions = self.configs.get(usize::from(config)).map(|config| &config.versions);
        let version = versions.and_then(|versions| versions.get((version as usize).checked_sub(1)?));
        version.map_or_else(Timestamp::default, |version| version.rule.window_start(window))
    }

    /// Forgets slots whose time is over, a bounded number at a call.
    pub(super) fn forget(&mut self, now: Timestamp) -> Vec<(EventKey, Held)> {
        let mut forgotten = Vec::new();
        while forgotten.len() < FORGET_MAX
            && let Some(Reverse((end, event))) = self.by_end.peek().copied()
            && end <= now
        {
            self.by_end.pop();
            // Given back meanwhile, or taken anew and not yet over: then it has another entry.
            let over = self.held.get(event).is_some_and(|held| self.end_of(&held) <= now);
            if over && let Some(held) = self.give_back(event) {
                forgotten.push((event, held));
            }
        }
        forgotten
    }

    pub(super) fn has_old(&self, now: Timestamp) -> bool {
        self.by_end.peek().is_some_and(|Reverse((end, _))| *end <= now)
    }

    pub(super) fn restore_config(&mut self, stored: SlotConfig) -> Option<u16> {
        let known = self.by_name.get(&stored.name).copied();
        let id = known.or_else(|| self.new_config(&stored.name, &stored.rule))?;
        self.activate(id, stored);
        Some(id)
    }

    fn activate(&mut self, id: u16, stored: SlotConfig) {
        let SlotRule { max_per_window, window_ms, .. } = stored.rule;
        let config = &mut self.configs[usize::from(id)];
        if config.rule().is_some_and(|former| former.window_ms != window_ms) {
            config.windows = Windows::new(max_per_window);
            let slots = self.held.iter().map(|(_, held)| held).filter(|held| held.config == id);
            slots.for_each(|held| config.windows.add(stored.rule.window_of(held.scheduled)));
        }
        config.windows.set_max(max_per_window);
        config.versions.push(stored);
    }

    pub(super) fn restore(&mut self, row: &SlotRow) {
        self.seq_next = self.seq_next.max(row.held.seq + 1);
        self.hold(self.key(&row.event), row.held);
    }

    fn hold(&mut self, event: EventKey, held: Held) {
        let config = &mut self.configs[usize::from(held.config)];
        if let Some(window) = config.window_of(&held) {
            config.windows.add(window);
        }
        self.held.insert(event, held);
        self.by_end.push(Reverse((self.end_of(&held), event)));
    }

    pub(super) fn has_version(&self, id: u16, version: u32) -> bool {
        self.configs.get(usize::from(id)).is_some_and(|config| (1..=config.version()).contains(&version))
    }

    /// Both its window and its reservation have to lie far enough behind.
    fn end_of(&self, held: &Held) -> Timestamp {
        let window_end = self.window_start(held.config, held.version, held.window.saturating_add(1));
        window_end.max(held.created).plus_ms(self.retention_ms)
    }

    fn new_config(&mut self, name: &SlotConfigName, rule: &SlotRule) -> Option<u16> {
        if self.configs.len() >= CONFIGS_MAX {
            return None;
        }
        let id = u16::try_from(self.configs.len()).ok()?;
        self.configs.push(Config { versions: Vec::new(), windows: Windows::new(rule.max_per_window) });
        self.by_name.insert(name.clone(), id);
        Some(id)
    }
}

impl Config {
    fn rule(&self) -> Option<&SlotRule> {
        self.versions.last().map(|version| &version.rule)
    }

    fn version(&self) -> u32 {
        u32::try_from(self.versions.len()).unwrap_or(u32::MAX)
    }

    /// The window that a slot lies in now.
    fn window_of(&self, held: &Held) -> Option<i64> {
        self.rule().map(|rule| rule.window_of(held.scheduled))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_domain::limits::slot::Calendar;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn rule() -> SlotRule {
        SlotRule {
            max_per_window: 1,
            window_ms: 1_000,
            headroom_windows: 9_000,
            calendar: Calendar::default(),
        }
    }

    fn put(book: &mut SlotBook, name: &str) -> ConfigBefore {
        book.put_config(&SlotConfigName::new(name).unwrap(), rule(), NOW).1.unwrap()
    }

    fn reserve(book: &mut SlotBook, event: &str) -> EventKey {
        let config = SlotConfigName::new("a").unwrap();
        let event = EventId::new(event).unwrap();
        let placed = book.place(&config, NOW, 0).unwrap();
        let reservation = Reservation { event, config, requested: NOW, jitter: 0, message: None };
        book.take(&reservation, placed, 0, NOW);
        book.key(&reservation.event)
    }

    #[test]
    fn a_config_that_was_not_kept_leaves_its_number_to_the_next() {
        let mut book = SlotBook::new(10, 0);
        put(&mut book, "kept");
        let again = put(&mut book, "kept");
        let (lost, lost_too) = (put(&mut book, "lost"), put(&mut book, "lost-too"));
        book.undo_put_config(lost_too);
        book.undo_put_config(lost);
        book.undo_put_config(again);
        assert_eq!((put(&mut book, "next").id(), put(&mut book, "kept").id()), (1, 0));
        assert!(book.versions(&SlotConfigName::new("lost").unwrap()).is_empty());
    }

    #[test]
    fn slots_given_back_leave_nothing_behind() {
        let mut book = SlotBook::new(10, 86_400_000);
        put(&mut book, "a");
        let kept = reserve(&mut book, "kept");
        for n in 0..10_000 {
            let event = reserve(&mut book, &n.to_string());
            book.give_back(event).unwrap();
            assert!(book.by_end.len() <= 2 + ENDED_MAX, "{} after {n}", book.by_end.len());
        }
        let over = NOW.plus_ms(2 * 86_400_000);
        assert_eq!(book.forget(over).into_iter().map(|(event, _)| event).collect::<Vec<_>>(), [kept]);
        assert!(!book.has_old(over));
    }
}
