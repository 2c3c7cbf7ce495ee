//! How messages end, or begin anew, without a lease.

use tidegate_domain::{
    Acked, AttemptResult, Cancelled, LedgerError, MessageId, QueueName, Requeue, Requeued, Status, Timestamp,
};

use super::super::line::{Arrival, Slot};
use super::super::rows::{AttemptRow, DeadLetter, LateAckRow, MessageRow, OutcomeRow, Past, RequeueRow};
use super::{Book, Group, Leased, Undo};

/// Expired messages that one group settles at the most.
const EXPIRE_MAX: usize = 1_000;
/// Messages that a purge takes back at a time; few in tests, so that a purge of little has its slices too.
pub(in crate::embedded) const PURGE_MAX: usize = if cfg!(test) { 4 } else { 500 };

/// Bytes of bodies that a purge erases at a time: each is overwritten in its commit.
const PURGE_BYTES_MAX: u64 = 4 << 20;

/// How long a message that can't be read is set aside, so that others go on, before it is tried and told of again.
pub(in crate::embedded) const UNREADABLE_MS: u64 = 60_000;
/// Messages that a pop fails to read at the most.
const UNREADABLE_MAX: usize = 100;

/// A message's text, as the disk has it.
pub(in crate::embedded) enum Text {
    Sound(MessageRow),
    Damaged,
    Unreadable(LedgerError),
}

/// What a pop took, and what it could not read.
#[derive(Debug, Default)]
pub(in crate::embedded) struct Popped {
    pub(in crate::embedded) taken: Vec<(Leased, MessageRow)>,
    pub(in crate::embedded) unread: Vec<LedgerError>,
}

impl Book {
    /// Takes messages for good, with their texts: what can't be read must not be taken, so `read` is asked for what is
    /// no longer in memory. They leave the line at once, so that the next of their recipients may go too. What can't be
    /// read is put off. What does not fit into the bound in bytes stays where it is.
    pub(in crate::embedded) fn pop(
        &mut self,
        queue: &QueueName,
        max: usize,
        now: Timestamp,
        group: &mut Group,
        read: impl Fn(u64) -> Text,
    ) -> Popped {
        let mut popped = Popped::default();
        let Some(queue) = self.queues.id(queue).filter(|queue| self.queues.hands_out(*queue)) else {
            return popped;
        };
        group.undo.push(Undo::Turn(queue, self.line.turn(queue)));
        let higher_per_lower = self.queues.rule(queue).higher_per_lower;
        let (mut passed, mut bytes) = (Vec::new(), 0);
        while popped.taken.len() < max && popped.unread.len() < UNREADABLE_MAX {
            let turn = self.line.turn(queue);
            let Some(slot) = self.line.take(queue, higher_per_lower, now) else { break };
            let entry = self.line.entry(slot);
            let (seq, tries, due, body_bytes) =
                (entry.seq, entry.tries, entry.due, entry.body_bytes as usize);
            if group.ended(seq).is_some() {
                passed.push(slot);
                continue;
            }
            if !popped.taken.is_empty() && bytes + body_bytes > self.batch_bytes_max {
                self.line.set_turn(queue, turn);
                self.line.give_back(slot, due, tries);
                break;
            }
            let text = self.bodies.get(seq).cloned().map_or_else(|| read(seq), Text::Sound);
            let (row, status, reason) = match text {
                Text::Sound(row) => (Some(row), Status::Delivered, None),
                Text::Damaged => (None, Status::Dead, Some("damaged on disk".to_owned())),
                Text::Unreadable(error) => {
                    self.line.set_turn(queue, turn);
                    self.line.give_back(slot, now.plus_ms(UNREADABLE_MS), tries);
                    popped.unread.push(error);
                    continue;
                }
            };
            // What is damaged was not tried.
            let attempt = if row.is_some() { tries.last + 1 } else { 0 };
            group.undo.push(Undo::Popped(self.line.pluck(slot)));
            // The line knows already that there is one less.
            group.change_pending(queue, 0);
            group.end(OutcomeRow { seq, status, at: now, attempt, latency_ms: 0, reason });
            let leased = Leased {
                seq,
                attempt,
                failures: tries.failures.into(),
                ack_attempts: tries.acks.into(),
                token: self.take_token(),
                until: now,
            };
            if let Some(row) = row {
                bytes += body_bytes;
                popped.taken.push((leased, row));
            }
        }
        for slot in passed {
            let entry = self.line.entry(slot);
            let (due, tries) = (entry.due, entry.tries);
            self.line.give_back(slot, due, tries);
        }
        popped
    }

    pub(in crate::embedded) fn ack(
        &mut self,
        id: MessageId,
        required: bool,
        now: Timestamp,
        group: &mut Group,
    ) -> Acked {
        let seq = id.seq();
        if id.salt() != self.salt {
            return Acked::Unknown;
        }
        if let Some(status) = group.ended(seq) {
            return if status == Status::Delivered { Acked::Already } else { Acked::NotAwaited };
        }
        let Some(slot) = self.line.find(seq) else { return Acked::Unknown };
        let tries = self.line.entry(slot).tries;
        // A settlement of this group that leaves the message pending does not stand against its ack.
        let settling = self.leases.get(&seq).is_some_and(|lease| lease.settling);
        let settled = settling.then(|| group.attempts.iter().find(|attempt| attempt.seq == seq)).flatten();
        let held = !settling && self.leases.contains_key(&seq);
        let under_way = held && self.leases.get(&seq).is_some_and(|lease| !lease.in_transit);
        let accepted = tries.acks > 0 || settled.is_some_and(|row| row.result == AttemptResult::Accepted);
        let been_out = under_way || tries.last > 0 || settled.is_some();
        if !(accepted || required && been_out) {
            return Acked::NotAwaited;
        }
        if let Some(lease) = self.leases.get_mut(&seq).filter(|_| held) {
            lease.settling = true;
            group.undo.push(Undo::Settling(seq));
        }
        // The attempt that it acknowledges is recorded already, unless it is the one under way.
        let attempt = if under_way && tries.acks == 0 { tries.last + 1 } else { 0 };
        let status = Status::Delivered;
        self.end_with(OutcomeRow { seq, status, at: now, attempt, latency_ms: 0, reason: None }, group);
        Acked::Acked
    }

    /// For a message that is dead or has expired: on disk, or in this very group. Its recipient knows better.
    pub(in crate::embedded) fn ack_late(
        &mut self,
        seq: u64,
        past: Past,
        required: bool,
        now: Timestamp,
        group: &mut Group,
    ) -> Acked {
        let in_group = group.outcomes.iter().position(|outcome| outcome.seq == seq);
        let ended = in_group.map(|place| group.outcomes[place].clone()).or(past.outcome);
        let Some(ended) = ended else { return Acked::Unknown };
        let settled = group.attempts.iter().filter(|attempt| attempt.seq == seq);
        let accepted = past.accepted || settled.clone().any(|row| row.result == AttemptResult::Accepted);
        let tried = past.tried || ended.attempt > 0 || settled.count() > 0;
        if !(accepted || required && (tried || ended.status == Status::Dead)) {
            return Acked::NotAwaited;
        }
        group.totals.deliver_late(ended.status);
        group.ending.insert(seq, Status::Delivered);
        let last = ended.failed_attempt(past.due);
        let status = Status::Delivered;
        let outcome = OutcomeRow { seq, status, at: now, attempt: 0, latency_ms: 0, reason: None };
        match in_group {
            Some(place) => {
                group.outcomes[place] = outcome;
                group.attempts.extend(last);
            }
            None => group.acked_late.push(LateAckRow { last, outcome }),
        }
        Acked::Acked
    }

    pub(in crate::embedded) fn cancel(
        &mut self,
        id: MessageId,
        now: Timestamp,
        group: &mut Group,
    ) -> Cancelled {
        let seq = id.seq();
        if id.salt() != self.salt {
            return Cancelled::Unknown;
        }
        if group.ended(seq).is_some() {
            return Cancelled::Ended;
        }
        if self.line.find(seq).is_none() {
            return Cancelled::Unknown;
        }
        if !self.is_waiting(seq) {
            return Cancelled::UnderWay;
        }
        if self.is_sent(seq, group) {
            return Cancelled::Sent;
        }
        self.write_end(seq, Status::Deleted, now, group);
        Cancelled::Cancelled
    }

    /// Settles messages whose time is over and that nobody holds, a bounded number at a call.
    pub(in crate::embedded) fn expire_messages(&mut self, now: Timestamp, group: &mut Group) {
        let over: Vec<u64> =
            self.line.expired(now).filter(|seq| self.is_waiting(*seq)).take(EXPIRE_MAX).collect();
        for seq in over {
            if group.ended(seq).is_none() {
                self.write_end(seq, Status::Expired, now, group);
            }
        }
    }

    pub(in crate::embedded) fn has_expired(&self, now: Timestamp) -> bool {
        self.line.expired(now).any(|seq| self.is_waiting(seq))
    }

    /// Takes back some of a queue's messages; those that can't be erased stay. Returns how many, and where to go on.
    pub(in crate::embedded) fn purge(
        &mut self,
        queue: &QueueName,
        from: Slot,
        now: Timestamp,
        group: &mut Group,
    ) -> (u64, Option<Slot>) {
        let Some(queue) = self.queues.id(queue) else { return (0, None) };
        let (seqs, next) = self.line.some_of(queue, from, PURGE_MAX, PURGE_BYTES_MAX);
        let mut purged = 0;
        for seq in seqs {
            let changeable = !self.unchangeable.contains(&seq) && !self.is_sent(seq, group);
            if changeable && self.is_waiting(seq) && group.ended(seq).is_none() {
                self.write_end(seq, Status::Deleted, now, group);
                purged += 1;
            }
        }
        (purged, next)
    }

    /// Makes a dead letter pending again.
    pub(in crate::embedded) fn requeue(
        &mut self,
        dead: DeadLetter,
        requeue: Requeue,
        now: Timestamp,
        group: &mut Group,
    ) -> Requeued {
        let DeadLetter { mut message, last, tries, body_bytes } = dead;
        if group.ended(message.seq).is_some() {
            return Requeued::NotDead;
        }
        let pending = self.pending_in(message.queue, group);
        let forgotten = self.queues.get(message.queue).is_none();
        let name = self.queues.recalled(message.queue).filter(|_| forgotten).cloned();
        if message.expires.is_some_and(|at| at <= now.plus_ms(requeue.delay_ms)) {
            return Requeued::Expired;
        }
        if !self.has_room(message.lane, group) {
            return Requeued::Full;
        }
        if name.as_ref().is_some_and(|name| !self.queues.has_place_for(name)) {
            return Requeued::Full;
        }
        if !self.queues.rule(message.queue).lets_in(pending, message.lane) {
            return Requeued::QueueFull;
        }
        if let Some(name) = name {
            self.make_queue(name, group);
        }
        group.ending.insert(message.seq, Status::Pending);
        group.totals.dead = group.totals.dead.saturating_sub(1);
        group.change_pending(message.queue, 1);
        let tries = tries.requeued();
        let attempt = AttemptRow {
            seq: message.seq,
            number: tries.last,
            at: now,
            latency_ms: 0,
            reason: None,
            due: now.plus_ms(requeue.delay_ms),
            result: AttemptResult::Requeued,
            order: self.take_seq(),
        };
        let edited = requeue.body.is_some();
        message.body = requeue.body.unwrap_or_default();
        let body_bytes = if edited { message.body_bytes() } else { body_bytes };
        group.requeued.push(RequeueRow { message, last, attempt, tries, edited, body_bytes });
        Requeued::Requeued
    }

    /// Removes a dead letter; the caller has seen that it is one.
    pub(in crate::embedded) fn delete_dead(&mut self, seq: u64, group: &mut Group) -> bool {
        if group.ended(seq).is_some() {
            return false;
        }
        group.ending.insert(seq, Status::Deleted);
        group.totals.dead = group.totals.dead.saturating_sub(1);
        group.totals.deleted += 1;
        group.dead_deleted.push(seq);
        true
    }

    /// Pending, and nobody holds a lease on it, or only until this group is on disk.
    pub(in crate::embedded) fn is_waiting(&self, seq: u64) -> bool {
        self.line.find(seq).is_some() && self.leases.get(&seq).is_none_or(|lease| lease.settling)
    }

    /// A channel has accepted it, before or in this group.
    fn is_sent(&self, seq: u64, group: &Group) -> bool {
        let accepted = self.line.find(seq).is_some_and(|slot| self.line.entry(slot).tries.acks > 0);
        let mut settled = group.attempts.iter().filter(|attempt| attempt.seq == seq);
        accepted || settled.any(|attempt| attempt.result == AttemptResult::Accepted)
    }

    /// An end that is no attempt.
    pub(super) fn write_end(&self, seq: u64, status: Status, now: Timestamp, group: &mut Group) {
        self.end_with(OutcomeRow { seq, status, at: now, attempt: 0, latency_ms: 0, reason: None }, group);
    }

    pub(super) fn revive(&mut self, row: &RequeueRow) {
        let recipient = self.ordering_key(row.message.queue, row.message.recipient.as_ref());
        self.line.push(&Arrival {
            seq: row.message.seq,
            queue: row.message.queue,
            lane: row.message.lane,
            due: row.attempt.due,
            recipient,
            expires: row.message.expires,
            tries: row.tries,
            body_bytes: row.body_bytes,
        });
    }
}
