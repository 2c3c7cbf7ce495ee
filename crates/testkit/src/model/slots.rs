use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::{
    Admission, Admitted, Due, EventId, Forecast, OnLimit, Released, Reservation, Reserved, Slot, SlotConfig,
    SlotConfigName, SlotConfigPut, Status, Timestamp,
};

use super::rules::Rules;
use crate::Setup;

#[derive(Debug, Default)]
pub struct SlotBook {
    /// Every version of every configuration, in the order they came.
    configs: Vec<SlotConfig>,
    taken: Vec<Taken>,
}

#[derive(Debug)]
struct Taken {
    slot: Slot,
    /// The end of the window that it was assigned in.
    ends: Timestamp,
}

impl Rules {
    pub fn put_slot_config(&mut self, name: SlotConfigName, rule: SlotRule, now: Timestamp) -> SlotConfigPut {
        let book = &mut self.slots;
        if let Some(former) = book.active(&name).filter(|former| former.window_ms != rule.window_ms) {
            let end_of =
                |slot: &Slot| former.window_start(former.window_of(slot.scheduled)).plus_ms(former.window_ms);
            let ends = book.slots_of(&name).map(end_of).max();
            if let Some(until) = ends.filter(|ends| *ends > now) {
                return SlotConfigPut::WindowSizeInUse { window_ms: former.window_ms, until };
            }
        }
        let former_versions = book.configs.iter().filter(|config| config.name == name).count();
        let version = u32::try_from(former_versions + 1).expect("few versions");
        let config = SlotConfig { name, version, rule, created_at: now };
        book.configs.push(config.clone());
        SlotConfigPut::Stored(config)
    }

    pub fn slot_config(&self, name: &SlotConfigName) -> Vec<SlotConfig> {
        self.slots.configs.iter().rev().filter(|config| config.name == *name).cloned().collect()
    }

    pub fn reserve(&mut self, asked: Reservation, now: Timestamp, setup: &Setup) -> Reserved {
        if let Some(slot) = self.slot(&asked.event) {
            return Reserved::Existing(slot);
        }
        let Some(rule) = self.slots.active(&asked.config) else { return Reserved::UnknownConfig };
        if self.slots.taken.len() >= setup.slots_max {
            return Reserved::Full;
        }
        let Some((window_start, scheduled)) =
            self.slots.place(&asked.config, &rule, asked.requested, asked.jitter)
        else {
            return Reserved::NoRoom;
        };
        let mut message = None;
        if let Some(carried) = asked.message {
            let admission = Admission {
                queue: carried.queue,
                recipient: carried.recipient,
                lane: carried.lane,
                due: Due::At(scheduled),
                body: carried.body,
                charge: None,
                on_limit: OnLimit::Deny,
                idempotency: None,
                expires: None,
                headers: carried.headers,
                ack_required: false,
            };
            match self.admit(admission, now, setup) {
                Admitted::Admitted { id, .. } => message = Some(id),
                _ => return Reserved::Full,
            }
        }
        let slot = Slot {
            event: asked.event,
            config: asked.config,
            requested: asked.requested,
            scheduled,
            window_start,
            created_at: now,
            message,
        };
        let ends = window_start.plus_ms(rule.window_ms);
        self.slots.taken.push(Taken { slot: slot.clone(), ends });
        Reserved::Assigned(slot)
    }

    pub fn slot(&self, event: &EventId) -> Option<Slot> {
        self.slots.taken.iter().find(|taken| taken.slot.event == *event).map(|taken| taken.slot.clone())
    }

    pub fn release(&mut self, event: &EventId, now: Timestamp) -> Released {
        let Some(slot) = self.slot(event) else { return Released::UnknownEvent };
        if let Some(id) = slot.message {
            let row = self.rows.iter_mut().find(|row| row.record.id == id).expect("a slot's message");
            if !row.is_pending() || row.lease.is_some() {
                return Released::Used(slot);
            }
            row.end(Status::Deleted, now);
        }
        self.slots.taken.retain(|taken| taken.slot.event != *event);
        Released::Released(slot)
    }

    pub fn forecast(
        &self,
        config: &SlotConfigName,
        requested: Timestamp,
        jitter: u64,
        setup: &Setup,
    ) -> Forecast {
        let Some(rule) = self.slots.active(config) else { return Forecast::UnknownConfig };
        let placed = self.slots.place(config, &rule, requested, jitter);
        match placed.filter(|_| self.slots.taken.len() < setup.slots_max) {
            Some((window_start, scheduled)) => Forecast::At { window_start, scheduled },
            None => Forecast::NoRoom,
        }
    }

    /// Slots whose window and whose reservation both lie far enough behind.
    pub fn forget_slots(&mut self, now: Timestamp, retention_ms: u64) {
        let over = |taken: &Taken| taken.ends.max(taken.slot.created_at).plus_ms(retention_ms) <= now;
        self.slots.taken.retain(|taken| !over(taken));
    }
}

impl SlotBook {
    fn active(&self, name: &SlotConfigName) -> Option<SlotRule> {
        self.configs.iter().rev().find(|config| config.name == *name).map(|config| config.rule.clone())
    }

    fn slots_of(&self, name: &SlotConfigName) -> impl Iterator<Item = &Slot> {
        self.taken.iter().map(|taken| &taken.slot).filter(move |slot| slot.config == *name)
    }

    /// Window after window from the requested one, each asked for what is left of it after the requested time:
    /// its share of the maximum, less what it holds.
    fn place(
        &self,
        name: &SlotConfigName,
        rule: &SlotRule,
        requested: Timestamp,
        jitter: u64,
    ) -> Option<(Timestamp, Timestamp)> {
        let past_ms = requested.millis().rem_euclid(rule.window_ms.cast_signed()).unsigned_abs();
        let mut start = requested.minus_ms(past_ms);
        for _ in 0..=rule.headroom_windows {
            let from = start.max(requested);
            let end = start.plus_ms(rule.window_ms);
            let left_ms = end.since_ms(from);
            let room = u128::from(rule.max_per_window) * u128::from(left_ms) / u128::from(rule.window_ms);
            let held = self.slots_of(name).filter(|slot| (start..end).contains(&slot.scheduled)).count();
            let is_open = rule.calendar.next_open(start, rule.window_ms) == Some(start);
            if is_open && (held as u128) < room {
                return Some((start, from.plus_ms(jitter % left_ms)));
            }
            start = end;
        }
        None
    }
}
