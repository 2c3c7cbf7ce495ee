//! Who holds which message, and how that ends.

use tidegate_domain::{
    AttemptResult, Extension, Outcome, QueueName, Settled, Settlement, Status, Timestamp, lapsed_reason,
};

use super::super::line::Slot;
use super::super::rows::{AttemptRow, OutcomeRow};
use super::{Book, Group, Lease, Leased, Undo};

/// How far a claim looks ahead: as far as it went itself, within these.
const UPCOMING_MIN: usize = 32;
const UPCOMING_MAX: usize = 512;
/// Messages that one group gives up at the most.
const GIVEN_UP_MAX: usize = 1_000;

impl Book {
    /// Leases up to `max` messages of a queue, and no more than fit into the bound in bytes.
    pub(in crate::embedded) fn claim(
        &mut self,
        queue: &QueueName,
        max: usize,
        lease_ms: u64,
        now: Timestamp,
    ) -> Vec<Leased> {
        self.lease(queue, max, lease_ms, false, now)
    }

    pub(super) fn lease(
        &mut self,
        queue: &QueueName,
        max: usize,
        lease_ms: u64,
        in_transit: bool,
        now: Timestamp,
    ) -> Vec<Leased> {
        let Some(queue) = self.queues.id(queue).filter(|queue| self.queues.hands_out(*queue)) else {
            return Vec::new();
        };
        let higher_per_lower = self.queues.rule(queue).higher_per_lower;
        let (mut leased, mut bytes) = (Vec::new(), 0);
        while leased.len() < max {
            let turn = self.line.turn(queue);
            let Some(slot) = self.line.take(queue, higher_per_lower, now) else { break };
            let entry = self.line.entry(slot);
            let (due, tries) = (entry.due, entry.tries);
            bytes += entry.body_bytes as usize;
            if bytes > self.batch_bytes_max && !leased.is_empty() {
                self.line.set_turn(queue, turn);
                self.line.give_back(slot, due, tries);
                break;
            }
            leased.push(self.lease_taken(slot, queue, lease_ms, in_transit, now));
        }
        leased
    }

    /// A lease on a message that was taken from its lane.
    pub(super) fn lease_taken(
        &mut self,
        slot: Slot,
        queue: u32,
        lease_ms: u64,
        in_transit: bool,
        now: Timestamp,
    ) -> Leased {
        let entry = self.line.entry(slot);
        let (seq, tries) = (entry.seq, entry.tries);
        let (token, until) = (self.take_token(), now.plus_ms(lease_ms));
        self.leases.insert(seq, Lease { slot, token, until, settling: false, in_transit });
        self.leases_by_end.insert((until, seq));
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.leased += 1;
            queue.in_transit += usize::from(in_transit);
        }
        Leased {
            seq,
            attempt: tries.last + 1,
            failures: tries.failures.into(),
            ack_attempts: tries.acks.into(),
            token,
            until,
        }
    }

    /// Settles, and says which message of the same recipient comes next, if this one ends.
    pub(in crate::embedded) fn advance(
        &mut self,
        settlement: Settlement,
        now: Timestamp,
        group: &mut Group,
    ) -> (Settled, Option<u64>) {
        let lease = self.leases.get(&settlement.id.seq()).filter(|_| settlement.outcome.ends_message());
        let next = lease.and_then(|lease| self.line.behind(lease.slot));
        let settled = self.settle(settlement, now, group);
        (settled, next.filter(|_| settled == Settled::Done))
    }

    /// Leases this very message, if a claim could take it now.
    pub(in crate::embedded) fn follow(
        &mut self,
        seq: u64,
        lease_ms: u64,
        now: Timestamp,
    ) -> Option<(QueueName, Leased)> {
        let slot = self.line.find(seq)?;
        let queue = self.line.entry(slot).queue;
        let name = self.queues.get(queue).filter(|queue| !queue.paused)?.name.clone();
        let taken = self.line.take_head(slot, now);
        taken.then(|| (name, self.lease_taken(slot, queue, lease_ms, false, now)))
    }

    /// What will be claimed next for the first time and has no text in memory, as far as can be foreseen. Asked
    /// after every claim, it also finds out whether the queue's texts are worth keeping.
    pub(in crate::embedded) fn upcoming(
        &mut self,
        queue: &QueueName,
        max: usize,
        now: Timestamp,
    ) -> Vec<u64> {
        let Some(queue) = self.queues.id(queue) else { return Vec::new() };
        let heads = self.line.heads(queue, now).take(UPCOMING_MAX).filter(|entry| entry.tries.last == 0);
        let untold = heads.map(|entry| entry.seq).filter(|seq| self.bodies.get(*seq).is_none());
        let mut upcoming: Vec<_> = untold.collect();
        self.set_backlog(queue, upcoming.len() == UPCOMING_MAX);
        upcoming.truncate(max.clamp(UPCOMING_MIN, UPCOMING_MAX));
        upcoming
    }

    pub(in crate::embedded) fn has_no_backlog(&mut self, queue: &QueueName) {
        if let Some(queue) = self.queues.id(queue) {
            self.set_backlog(queue, false);
        }
    }

    fn set_backlog(&mut self, queue: u32, backlog: bool) {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.backlog = backlog;
        }
    }

    pub(in crate::embedded) fn settle(
        &mut self,
        settlement: Settlement,
        now: Timestamp,
        group: &mut Group,
    ) -> Settled {
        let seq = settlement.id.seq();
        let Some(lease) = self.current_lease(settlement.id, settlement.token, now) else {
            return Settled::LostLease;
        };
        lease.settling = true;
        let slot = lease.slot;
        group.undo.push(Undo::Settling(seq));
        let attempt = self.line.entry(slot).tries.last + 1;
        let latency_ms = settlement.latency_ms;
        let (due, result, reason) = match settlement.outcome.within_bounds() {
            Outcome::Delivered => {
                self.end_with(
                    OutcomeRow { seq, status: Status::Delivered, at: now, attempt, latency_ms, reason: None },
                    group,
                );
                return Settled::Done;
            }
            Outcome::Dead { reason } => {
                let reason = Some(reason);
                self.end_with(
                    OutcomeRow { seq, status: Status::Dead, at: now, attempt, latency_ms, reason },
                    group,
                );
                return Settled::Done;
            }
            // These two are no attempts.
            Outcome::GivenUp { reason } => {
                let reason = Some(reason);
                self.end_with(
                    OutcomeRow { seq, status: Status::Dead, at: now, attempt: 0, latency_ms: 0, reason },
                    group,
                );
                return Settled::Done;
            }
            Outcome::Expired => {
                self.write_end(seq, Status::Expired, now, group);
                return Settled::Done;
            }
            Outcome::Held { for_ms } => {
                group.held.push((seq, now.plus_ms(for_ms)));
                return Settled::Done;
            }
            Outcome::Released => {
                group.released.push(seq);
                return Settled::Done;
            }
            Outcome::Retry { delay_ms, reason } => {
                (now.plus_ms(delay_ms), AttemptResult::Failed, Some(reason))
            }
            Outcome::Accepted { ack_within_ms } => {
                (now.plus_ms(ack_within_ms), AttemptResult::Accepted, None)
            }
        };
        group.attempts.push(AttemptRow {
            seq,
            number: attempt,
            at: now,
            latency_ms,
            reason,
            due,
            result,
            order: 0,
        });
        Settled::Done
    }

    /// Needs no disk: a crash voids leases anyway.
    pub(in crate::embedded) fn extend(&mut self, extension: &Extension, now: Timestamp) -> Settled {
        let seq = extension.id.seq();
        let Some(lease) = self.current_lease(extension.id, extension.token, now) else {
            return Settled::LostLease;
        };
        let until = now.plus_ms(extension.lease_ms);
        let before = std::mem::replace(&mut lease.until, until);
        self.leases_by_end.remove(&(before, seq));
        self.leases_by_end.insert((until, seq));
        Settled::Done
    }

    /// Hands a message back as if it had not been claimed.
    pub(in crate::embedded) fn release(&mut self, seq: u64) {
        if let Some(lease) = self.end_lease(seq) {
            let entry = self.line.entry(lease.slot);
            let (due, tries) = (entry.due, entry.tries);
            self.line.give_back(lease.slot, due, tries);
        }
    }

    /// Ends the leases whose time is up; their attempts are spent, if they had begun. Those that were the last attempt of
    /// their message are left to [`give_up`](Book::give_up), which needs the disk. Returns how many have ended.
    pub(in crate::embedded) fn expire_leases(&mut self, now: Timestamp) -> u64 {
        let mut ended = 0;
        while let Some(&(until, seq)) = self.leases_by_end.first() {
            if until > now {
                break;
            }
            if self.is_exhausted(seq) {
                self.leases_by_end.remove(&(until, seq));
                self.exhausted.push_back(seq);
                ended += 1;
                continue;
            }
            if let Some(lease) = self.end_lease(seq) {
                let entry = self.line.entry(lease.slot);
                let tries = if lease.in_transit { entry.tries } else { entry.tries.failed() };
                let due = entry.due;
                self.line.give_back(lease.slot, due, tries);
                ended += 1;
            }
        }
        ended
    }

    /// Whether its lease is that of the last attempt that its queue's rule grants.
    fn is_exhausted(&self, seq: u64) -> bool {
        let Some(lease) = self.leases.get(&seq).filter(|lease| !lease.in_transit) else { return false };
        let entry = self.line.entry(lease.slot);
        self.queues.rule(entry.queue).is_exhausted(entry.tries.failures.into())
    }

    pub(in crate::embedded) fn has_exhausted(&self) -> bool {
        !self.exhausted.is_empty()
    }

    /// Makes dead letters of messages whose last lease ended unsettled, a bounded number at a call.
    pub(in crate::embedded) fn give_up(&mut self, now: Timestamp, group: &mut Group) {
        let given_up: Vec<u64> = self.exhausted.drain(..self.exhausted.len().min(GIVEN_UP_MAX)).collect();
        for seq in given_up {
            let Some(lease) = self.leases.get_mut(&seq) else { continue };
            lease.settling = true;
            group.undo.push(Undo::GivenUp(seq));
            let tries = self.line.entry(lease.slot).tries.failed();
            let (status, reason) = (Status::Dead, Some(lapsed_reason(tries.failures.into())));
            let outcome = OutcomeRow { seq, status, at: now, attempt: tries.last, latency_ms: 0, reason };
            self.end_with(outcome, group);
        }
    }

    /// When the next lease ends.
    pub(in crate::embedded) fn next_lease_end(&self) -> Option<Timestamp> {
        self.leases_by_end.first().map(|(until, _)| *until)
    }

    pub(super) fn take_token(&mut self) -> u64 {
        let token = self.token_next;
        self.token_next += 1;
        token
    }

    pub(super) fn end_lease(&mut self, seq: u64) -> Option<Lease> {
        let lease = self.leases.remove(&seq)?;
        self.leases_by_end.remove(&(lease.until, seq));
        let queue = self.line.entry(lease.slot).queue;
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.leased -= 1;
            queue.in_transit -= usize::from(lease.in_transit);
        }
        Some(lease)
    }

    /// The message's lease, if it is this one and nobody is settling it.
    pub(super) fn current_lease(
        &mut self,
        id: tidegate_domain::MessageId,
        token: u64,
        now: Timestamp,
    ) -> Option<&mut Lease> {
        if id.salt() != self.salt {
            return None;
        }
        let lease = self.leases.get_mut(&id.seq())?;
        (lease.token == token && !lease.settling && lease.until > now).then_some(lease)
    }

    pub(super) fn end_with(&self, outcome: OutcomeRow, group: &mut Group) {
        if let Some(slot) = self.line.find(outcome.seq) {
            group.change_pending(self.line.entry(slot).queue, -1);
        }
        group.end(outcome);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_domain::{Admission, Lane};

    use super::super::super::queues::QueueRules;
    use super::super::BookLimits;
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn book() -> Book {
        let limits = BookLimits {
            pending_max: 10_000,
            pending_hard_max: 10_000,
            body_cache_bytes: 4_000,
            idempotency_window_ms: 0,
            idempotency_keys_max: 0,
            slots_max: 0,
            slot_retention_ms: 0,
            batch_bytes_max: usize::MAX,
            queue_forget_after_ms: u64::MAX,
        };
        Book::new(1, limits, QueueRules::default())
    }

    /// Whether the last one's text is in memory.
    fn admit(book: &mut Book, queue: &QueueName, lane: Lane, count: usize) -> bool {
        let mut group = book.begin();
        for _ in 0..count {
            let admission = Admission { lane, ..Admission::new(queue.clone(), Bytes::from_static(b"text")) };
            book.admit(admission, NOW, &mut group);
        }
        book.apply(group);
        book.bodies.get(book.seq_last()).is_some()
    }

    #[test]
    fn behind_a_backlog_only_urgent_texts_are_kept_in_memory() {
        let (mut book, queue) = (book(), QueueName::new("q").unwrap());
        assert!(admit(&mut book, &queue, Lane::Normal, 2 * UPCOMING_MAX));
        assert_eq!(book.claim(&queue, 10, 1_000, NOW).len(), 10);
        let upcoming = book.upcoming(&queue, 10, NOW);
        assert_eq!(upcoming, (11..11 + UPCOMING_MIN as u64).collect::<Vec<_>>());
        assert!(!admit(&mut book, &queue, Lane::Normal, 1));
        assert!(admit(&mut book, &queue, Lane::High, 1));
        assert_eq!(book.claim(&queue, UPCOMING_MAX, 1_000, NOW).len(), UPCOMING_MAX);
        book.upcoming(&queue, 10, NOW);
        assert!(admit(&mut book, &queue, Lane::Normal, 1), "the end is in sight");
    }
}
