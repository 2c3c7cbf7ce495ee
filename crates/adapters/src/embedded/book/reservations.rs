//! Slots in the book.

use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::{
    Admission, Admitted, Due, EventId, Released, Reservation, Reserved, SlotConfigName, SlotConfigPut,
    SlotMessage, Status, Timestamp,
};

use super::super::rows::SlotConfigRow;
use super::super::slots::NoSlot;
use super::{Book, Group, Undo};

impl Book {
    pub(in crate::embedded) fn reserve(
        &mut self,
        reservation: Reservation,
        now: Timestamp,
        group: &mut Group,
    ) -> Reserved {
        let key = self.slots.key(&reservation.event);
        if let Some(held) = self.slots.get(key) {
            let slot = self.slots.slot(reservation.event, &held, self.salt);
            return slot.map_or(Reserved::UnknownConfig, Reserved::Existing);
        }
        let placed = match self.slots.place(&reservation.config, reservation.requested, reservation.jitter) {
            Ok(placed) => placed,
            Err(NoSlot::UnknownConfig) => return Reserved::UnknownConfig,
            Err(NoSlot::NoRoom) => return Reserved::NoRoom,
            Err(NoSlot::Full) => return Reserved::Full,
        };
        let message = match &reservation.message {
            None => 0,
            Some(message) => match self.admit(admission_of(message, placed.1.scheduled), now, group) {
                Admitted::Admitted { id, .. } => id.seq(),
                _ => return Reserved::Full,
            },
        };
        let row = self.slots.take(&reservation, placed, message, now);
        let slot = self.slots.slot(reservation.event, &row.held, self.salt);
        group.undo.push(Undo::SlotTaken(key));
        group.slots.push(row);
        slot.map_or(Reserved::UnknownConfig, Reserved::Assigned)
    }

    /// Whether the slot's message can't be erased.
    pub(in crate::embedded) fn is_slot_unchangeable(&self, event: &EventId) -> bool {
        let held = self.slots.get(self.slots.key(event));
        held.is_some_and(|held| self.unchangeable.contains(&held.message))
    }

    pub(in crate::embedded) fn release_slot(
        &mut self,
        event: EventId,
        now: Timestamp,
        group: &mut Group,
    ) -> Released {
        let key = self.slots.key(&event);
        let Some(held) = self.slots.get(key) else { return Released::UnknownEvent };
        let Some(slot) = self.slots.slot(event, &held, self.salt) else { return Released::UnknownEvent };
        if held.message > 0 {
            let fresh = group.messages.iter().find(|message| message.seq == held.message);
            let fresh = fresh.map(|message| message.queue);
            let waiting = fresh.is_some() || self.is_waiting(held.message);
            if !waiting || group.ended(held.message).is_some() {
                return Released::Used(slot);
            }
            if let Some(queue) = fresh {
                group.change_pending(queue, -1);
            }
            self.write_end(held.message, Status::Deleted, now, group);
        }
        self.slots.give_back(key);
        group.undo.push(Undo::SlotGivenBack(key, held));
        group.slots_removed.push(held.seq);
        Released::Released(slot)
    }

    pub(in crate::embedded) fn put_slot_config(
        &mut self,
        name: &SlotConfigName,
        rule: SlotRule,
        now: Timestamp,
        group: &mut Group,
    ) -> SlotConfigPut {
        let (put, before) = self.slots.put_config(name, rule, now);
        if let (SlotConfigPut::Stored(stored), Some(before)) = (&put, before) {
            group.slot_configs.push(SlotConfigRow { config: before.id(), stored: stored.clone() });
            group.undo.push(Undo::SlotConfig(before));
        }
        put
    }

    /// Slots whose time is over go, a bounded number at a call.
    pub(in crate::embedded) fn forget_slots(&mut self, now: Timestamp, group: &mut Group) {
        for (event, held) in self.slots.forget(now) {
            group.slots_removed.push(held.seq);
            group.undo.push(Undo::SlotGivenBack(event, held));
        }
    }
}

fn admission_of(message: &SlotMessage, due: Timestamp) -> Admission {
    let mut admission = Admission::new(message.queue.clone(), message.body.clone());
    admission.recipient = message.recipient.clone();
    admission.lane = message.lane;
    admission.headers = message.headers.clone();
    admission.due = Due::At(due);
    admission
}
