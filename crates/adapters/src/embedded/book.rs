use std::collections::BTreeSet;

use hashbrown::HashMap;
use tidegate_domain::limits::Quota;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::{
    Admission, Admitted, Counts, Due, EventId, MessageId, OnLimit, Outcome, QueueName, Released, Reservation,
    Reserved, Settled, Settlement, SlotConfigName, SlotConfigPut, SlotMessage, Status, Timestamp, UserId,
};

use super::bodies::Bodies;
use super::keys::Keys;
use super::line::{Arrival, Line, Slot};
use super::quotas::{Before, Quotas};
use super::rows::{AttemptRow, MessageRow, OutcomeRow, QueueRow, QuotaRow, SlotConfigRow, SlotRow, Totals};
use super::slots::{ConfigBefore, EventKey, Held, NoSlot, SlotBook, event_key};

const QUEUES_MAX: usize = 4_096;
/// Leases of one life of the ledger; beyond them come the tokens of the next.
const TOKEN_BITS: u32 = 40;

/// The ledger's state in memory. It decides, deterministically, and touches neither disk nor clock.
///
/// A group of commands is *decided* one after the other; what they mean for the disk gathers in a [`Group`].
/// Once that is on disk the group is *applied*; when it can't be written it is *reverted* and nothing has
/// happened. Only what later commands of the same group must see (counts of quotas, keys, leases being
/// settled) changes at once, with a note of how to undo it. Claims see applied state only.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) line: Line,
    pub(super) bodies: Bodies,
    pub(super) keys: Keys,
    pub(super) quotas: Quotas,
    pub(super) slots: SlotBook,
    queues: Vec<QueueName>,
    queue_ids: HashMap<QueueName, u16>,
    queues_saved: usize,
    leases: HashMap<u64, Lease>,
    leases_by_end: BTreeSet<(Timestamp, u64)>,
    totals: Totals,
    seq_next: u64,
    token_next: u64,
    pub(super) salt: u32,
    pending_max: u64,
}

#[derive(Debug)]
struct Lease {
    slot: Slot,
    token: u64,
    until: Timestamp,
    settling: bool,
}

/// The consequences of a group of commands, until they are applied or reverted.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) queues: Vec<QueueRow>,
    pub(super) messages: Vec<MessageRow>,
    pub(super) outcomes: Vec<OutcomeRow>,
    pub(super) attempts: Vec<AttemptRow>,
    pub(super) quotas: Vec<QuotaRow>,
    /// Before the rows above: a quota deleted and put again is there.
    pub(super) quotas_deleted: Vec<UserId>,
    pub(super) slot_configs: Vec<SlotConfigRow>,
    pub(super) slots: Vec<SlotRow>,
    /// After the rows above: a slot taken and given back is gone.
    pub(super) slots_removed: Vec<u64>,
    /// Set when the charged quotas get their rows: the last message that those contain.
    pub(super) quotas_flushed: Option<u64>,
    pub(super) totals: Totals,
    released: Vec<u64>,
    undo: Vec<Undo>,
}

#[derive(Debug)]
enum Undo {
    Quota(Before),
    Key(tidegate_domain::IdempotencyKey),
    SlotTaken(EventKey),
    SlotGivenBack(EventKey, Held),
    SlotConfig(ConfigBefore),
    Settling(u64),
}

/// A message that has been leased; its text is still to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leased {
    pub(super) seq: u64,
    pub(super) attempt: u32,
    pub(super) token: u64,
    pub(super) until: Timestamp,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BookLimits {
    pub(super) pending_max: u64,
    pub(super) body_cache_bytes: usize,
    pub(super) idempotency_window_ms: u64,
    pub(super) idempotency_keys_max: usize,
    pub(super) slots_max: usize,
    pub(super) slot_retention_ms: u64,
}

impl Group {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.queues.is_empty()
            && self.outcomes.is_empty()
            && self.attempts.is_empty()
            && self.quotas.is_empty()
            && self.quotas_deleted.is_empty()
            && self.slot_configs.is_empty()
            && self.slots.is_empty()
            && self.slots_removed.is_empty()
            && self.quotas_flushed.is_none()
    }
}

impl Book {
    pub(super) fn new(salt: u32, limits: BookLimits) -> Self {
        Self {
            line: Line::new(),
            bodies: Bodies::new(limits.body_cache_bytes),
            keys: Keys::new(limits.idempotency_window_ms, limits.idempotency_keys_max),
            quotas: Quotas::default(),
            slots: SlotBook::new(limits.slots_max, limits.slot_retention_ms),
            queues: Vec::new(),
            queue_ids: HashMap::new(),
            queues_saved: 0,
            leases: HashMap::new(),
            leases_by_end: BTreeSet::new(),
            totals: Totals::default(),
            seq_next: 1,
            token_next: 1,
            salt,
            pending_max: limits.pending_max,
        }
    }

    pub(super) fn begin(&self) -> Group {
        Group { totals: self.totals, ..Group::default() }
    }

    pub(super) fn admit(&mut self, admission: Admission, now: Timestamp, group: &mut Group) -> Admitted {
        if let Some(idempotency) = &admission.idempotency {
            if let Some(known) = self.keys.get(&idempotency.key, now) {
                let id = MessageId::new(known.at, known.seq, self.salt);
                let same = known.fingerprint == idempotency.fingerprint;
                return if same {
                    Admitted::Duplicate { id, at: known.at }
                } else {
                    Admitted::KeyConflict { id }
                };
            }
            if self.keys.is_full() {
                return Admitted::Full;
            }
        }
        let pending = group.totals.pending().unwrap_or(u64::MAX);
        if pending >= self.pending_max || self.seq_next >= MessageId::SEQ_MAX {
            return Admitted::Full;
        }
        if self.queues.len() >= QUEUES_MAX && !self.queue_ids.contains_key(&admission.queue) {
            return Admitted::Full;
        }
        let charged = match admission.charge.map(|user| self.quotas.charge(user, admission.on_limit, now)) {
            None => None,
            Some(Ok((charged, before))) => {
                group.undo.push(Undo::Quota(before));
                Some(charged)
            }
            Some(Err(refusal)) => return refusal,
        };

        // Past every refusal: only an admitted message makes a queue.
        let queue = self.queue_id_or_new(&admission.queue);
        let seq = self.seq_next;
        self.seq_next += 1;
        if let Some(idempotency) = &admission.idempotency {
            self.keys.insert(idempotency, seq, now);
            group.undo.push(Undo::Key(idempotency.key));
        }
        let id = MessageId::new(now, seq, self.salt);
        let asked = match admission.due {
            Due::Now => now,
            Due::At(at) => at,
        };
        let quota = charged.as_ref().map(|charged| charged.quota);
        let deferred_to = charged.as_ref().and_then(|charged| charged.deferred_to);
        // The later of what the caller asked for and what the quota allows.
        let due = deferred_to.map_or(asked, |begins| begins.max(asked));
        group.totals.admitted += 1;
        group.messages.push(MessageRow {
            seq,
            at: now,
            queue,
            lane: admission.lane,
            due,
            recipient: admission.recipient,
            charge: charged.map(|charged| charged.row),
            idempotency: admission.idempotency,
            body: admission.body,
        });
        match (deferred_to, quota) {
            (Some(_), Some(quota)) => Admitted::Deferred { id, at: now, due, quota },
            (_, quota) => Admitted::Admitted { id, at: now, quota },
        }
    }

    pub(super) fn settle(&mut self, settlement: Settlement, now: Timestamp, group: &mut Group) -> Settled {
        let seq = settlement.id.seq();
        if settlement.id.salt() != self.salt {
            return Settled::LostLease;
        }
        let Some(lease) = self.leases.get_mut(&seq) else { return Settled::LostLease };
        if lease.token != settlement.token || lease.settling || lease.until <= now {
            return Settled::LostLease;
        }
        lease.settling = true;
        group.undo.push(Undo::Settling(seq));
        let attempt = self.line.entry(lease.slot).attempts + 1;
        let latency_ms = settlement.latency_ms;
        let mut end = |status: Status, reason| {
            group.totals.settle(status);
            group.outcomes.push(OutcomeRow { seq, status, at: now, attempt, latency_ms, reason });
        };
        match settlement.outcome {
            Outcome::Delivered => end(Status::Delivered, None),
            Outcome::Dead { reason } => end(Status::Dead, Some(reason)),
            Outcome::Expired => end(Status::Expired, None),
            Outcome::Retry { delay_ms, reason } => {
                let due = now.plus_ms(delay_ms);
                group.attempts.push(AttemptRow { seq, number: attempt, at: now, latency_ms, reason, due });
            }
            Outcome::Released => group.released.push(seq),
        }
        Settled::Done
    }

    pub(super) fn put_quota(
        &mut self,
        user: UserId,
        limit: u32,
        window_ms: u64,
        now: Timestamp,
        group: &mut Group,
    ) -> Quota {
        let seq = self.seq_last();
        let (account, before) = self.quotas.put(user.clone(), limit, window_ms, now);
        let account = account.clone();
        let quota = account.quota;
        group.undo.push(Undo::Quota(before));
        // Messages up to here were charged to the old window.
        group.quotas.push(QuotaRow { user, account, seq });
        quota
    }

    pub(super) fn delete_quota(&mut self, user: UserId, group: &mut Group) -> bool {
        let Some(before) = self.quotas.delete(&user) else { return false };
        group.undo.push(Undo::Quota(before));
        group.quotas.retain(|row| row.user != user);
        group.quotas_deleted.push(user);
        true
    }

    pub(super) fn reserve(
        &mut self,
        reservation: Reservation,
        now: Timestamp,
        group: &mut Group,
    ) -> Reserved {
        let key = event_key(&reservation.event);
        if let Some(held) = self.slots.get(&key) {
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

    pub(super) fn release_slot(&mut self, event: EventId, now: Timestamp, group: &mut Group) -> Released {
        let key = event_key(&event);
        let Some(held) = self.slots.get(&key) else { return Released::UnknownEvent };
        let Some(slot) = self.slots.slot(event, &held, self.salt) else { return Released::UnknownEvent };
        if held.message > 0 {
            let fresh = group.messages.iter().any(|message| message.seq == held.message);
            let waiting = self.line.find(held.message).is_some() && !self.leases.contains_key(&held.message);
            if !(fresh || waiting) {
                return Released::Used(slot);
            }
            group.totals.settle(Status::Deleted);
            group.outcomes.push(OutcomeRow {
                seq: held.message,
                status: Status::Deleted,
                at: now,
                attempt: 0,
                latency_ms: 0,
                reason: None,
            });
        }
        self.slots.give_back(&key);
        group.undo.push(Undo::SlotGivenBack(key, held));
        group.slots_removed.push(held.seq);
        Released::Released(slot)
    }

    pub(super) fn put_slot_config(
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
    pub(super) fn forget_slots(&mut self, now: Timestamp, group: &mut Group) {
        for (event, held) in self.slots.forget(now) {
            group.slots_removed.push(held.seq);
            group.undo.push(Undo::SlotGivenBack(event, held));
        }
    }

    /// Adds what is to be written beside the commands' own rows.
    pub(super) fn finish(&mut self, group: &mut Group, flush_quotas: bool) {
        for id in self.queues_saved..self.queues.len() {
            let name = self.queues[id].clone();
            group.queues.push(QueueRow { id: queue_id(id), name });
        }
        if self.quotas.is_dirty_full() || flush_quotas && self.quotas.has_dirty() {
            let seq = self.seq_last();
            group.quotas.extend(self.quotas.dirty_rows(seq));
            group.quotas_flushed = Some(seq);
        }
    }

    /// The group is on disk: make it so here. Returns the room that each settled message leaves.
    pub(super) fn apply(&mut self, group: Group) {
        self.totals = group.totals;
        self.queues_saved = self.queues.len();
        if group.quotas_flushed.is_some() {
            self.quotas.flushed();
        }
        for message in group.messages {
            self.line.push(&Arrival {
                seq: message.seq,
                queue: message.queue,
                lane: message.lane,
                due: message.due,
                recipient: message.recipient.as_ref().map(|recipient| recipient.as_str()),
                attempts: 0,
            });
            self.bodies.insert(message);
        }
        for outcome in group.outcomes {
            if outcome.status == Status::Deleted {
                if let Some(slot) = self.line.find(outcome.seq) {
                    self.line.withdraw(slot);
                    self.bodies.remove(outcome.seq);
                }
                continue;
            }
            if let Some(lease) = self.end_lease(outcome.seq) {
                self.line.remove(lease.slot);
                self.bodies.remove(outcome.seq);
            }
        }
        for attempt in group.attempts {
            if let Some(lease) = self.end_lease(attempt.seq) {
                self.line.give_back(lease.slot, attempt.due, attempt.number);
            }
        }
        for seq in group.released {
            self.release(seq);
        }
    }

    /// The group could not be written: it never happened.
    pub(super) fn revert(&mut self, group: Group) {
        for step in group.undo.into_iter().rev() {
            match step {
                Undo::Quota(before) => self.quotas.undo(before),
                Undo::Key(key) => self.keys.undo(&key),
                Undo::SlotTaken(event) => {
                    self.slots.give_back(&event);
                }
                Undo::SlotGivenBack(event, held) => self.slots.undo_give_back(event, held),
                Undo::SlotConfig(before) => self.slots.undo_put_config(before),
                Undo::Settling(seq) => {
                    if let Some(lease) = self.leases.get_mut(&seq) {
                        lease.settling = false;
                    }
                }
            }
        }
    }

    /// Leases up to `max` messages of a queue.
    pub(super) fn claim(
        &mut self,
        queue: &QueueName,
        max: usize,
        lease_ms: u64,
        now: Timestamp,
    ) -> Vec<Leased> {
        let Some(&queue) = self.queue_ids.get(queue) else { return Vec::new() };
        let mut leased = Vec::new();
        while leased.len() < max {
            let Some(slot) = self.line.take(queue, now) else { break };
            let entry = self.line.entry(slot);
            let (seq, attempt) = (entry.seq, entry.attempts + 1);
            let (token, until) = (self.token_next, now.plus_ms(lease_ms));
            self.token_next += 1;
            self.leases.insert(seq, Lease { slot, token, until, settling: false });
            self.leases_by_end.insert((until, seq));
            leased.push(Leased { seq, attempt, token, until });
        }
        leased
    }

    /// The last sequence number that was given out.
    pub(super) fn seq_last(&self) -> u64 {
        self.seq_next - 1
    }

    /// Hands a message back as if it had not been claimed.
    pub(super) fn release(&mut self, seq: u64) {
        if let Some(lease) = self.end_lease(seq) {
            let entry = self.line.entry(lease.slot);
            let (due, attempts) = (entry.due, entry.attempts);
            self.line.give_back(lease.slot, due, attempts);
        }
    }

    /// Ends the leases whose time is up; their attempts are spent. Returns how many.
    pub(super) fn expire_leases(&mut self, now: Timestamp) -> u64 {
        let mut ended = 0;
        while let Some(&(until, seq)) = self.leases_by_end.first() {
            if until > now {
                break;
            }
            if let Some(lease) = self.end_lease(seq) {
                let entry = self.line.entry(lease.slot);
                let (due, attempts) = (entry.due, entry.attempts + 1);
                self.line.give_back(lease.slot, due, attempts);
                ended += 1;
            }
        }
        ended
    }

    /// When the next lease ends.
    pub(super) fn next_lease_end(&self) -> Option<Timestamp> {
        self.leases_by_end.first().map(|(until, _)| *until)
    }

    /// When the next message of a queue falls due.
    pub(super) fn next_due(&self, queue: &QueueName) -> Option<Timestamp> {
        self.line.next_due(*self.queue_ids.get(queue)?)
    }

    pub(super) fn queue_name(&self, id: u16) -> Option<&QueueName> {
        self.queues.get(usize::from(id))
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            admitted: self.totals.admitted,
            delivered: self.totals.delivered,
            dead: self.totals.dead,
            expired: self.totals.expired,
            deleted: self.totals.deleted,
            pending: self.line.len(),
            leased: self.leases.len() as u64,
            depth: self.line.depth(),
        }
    }

    fn queue_id_or_new(&mut self, name: &QueueName) -> u16 {
        if let Some(&id) = self.queue_ids.get(name) {
            return id;
        }
        let id = queue_id(self.queues.len());
        self.queues.push(name.clone());
        self.queue_ids.insert(name.clone(), id);
        id
    }

    fn end_lease(&mut self, seq: u64) -> Option<Lease> {
        let lease = self.leases.remove(&seq)?;
        self.leases_by_end.remove(&(lease.until, seq));
        Some(lease)
    }
}

/// How a book is rebuilt from the rows on disk, oldest message first.
impl Book {
    pub(super) fn restore_queue(&mut self, row: QueueRow) -> bool {
        let fits = usize::from(row.id) == self.queues.len();
        self.queue_ids.insert(row.name.clone(), row.id);
        self.queues.push(row.name);
        self.queues_saved = self.queues.len();
        fits
    }

    pub(super) fn restore_message(&mut self, arrival: &Arrival<'_>) {
        self.line.push(arrival);
    }

    /// `life` counts how often the ledger was opened: tokens of later lives are larger than all earlier ones, so
    /// that a worker from before a crash settles nothing.
    pub(super) fn restore_totals(&mut self, totals: Totals, seq_last: u64, life: u64) {
        self.totals = totals;
        self.seq_next = seq_last + 1;
        self.token_next = (life << TOKEN_BITS) + 1;
    }
}

fn admission_of(message: &SlotMessage, due: Timestamp) -> Admission {
    Admission {
        queue: message.queue.clone(),
        recipient: message.recipient.clone(),
        lane: message.lane,
        due: Due::At(due),
        body: message.body.clone(),
        charge: None,
        on_limit: OnLimit::Deny,
        idempotency: None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bounded by QUEUES_MAX")]
fn queue_id(index: usize) -> u16 {
    index as u16
}
