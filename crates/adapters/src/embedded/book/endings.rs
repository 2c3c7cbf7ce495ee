//! How messages end, or begin anew, without a lease.

use bytes::Bytes;
use tidegate_domain::{Acked, AttemptResult, Cancelled, MessageId, QueueName, Requeued, Status, Timestamp};

use super::super::line::{Arrival, Slot, Tries};
use super::super::rows::{AttemptRow, MessageRow, OutcomeRow, RequeueRow};
use super::{Book, Group, Leased, Undo};

/// Expired messages that one group settles at the most.
const EXPIRE_MAX: usize = 1_000;
const PURGE_MAX: usize = 1_000;
/// Popped messages are gone with the commit; until then nobody else may have them.
const POP_LEASE_MS: u64 = 3_600_000;

/// A dead letter that is to be pending again.
#[derive(Debug, Clone)]
pub(in crate::embedded) struct Revival {
    pub(in crate::embedded) message: MessageRow,
    pub(in crate::embedded) tries: Tries,
    pub(in crate::embedded) body: Option<Bytes>,
    pub(in crate::embedded) delay_ms: u64,
}

impl Book {
    /// Takes messages for good.
    pub(in crate::embedded) fn pop(
        &mut self,
        queue: &QueueName,
        max: usize,
        now: Timestamp,
        group: &mut Group,
    ) -> Vec<Leased> {
        let mut popped = self.claim(queue, max, POP_LEASE_MS, now);
        popped.retain(|leased| {
            group.undo.push(Undo::Claimed(leased.seq));
            let ours = group.end(leased.seq);
            if ours {
                if let Some(lease) = self.leases.get_mut(&leased.seq) {
                    lease.settling = true;
                }
                let (seq, attempt) = (leased.seq, leased.attempt);
                let row = OutcomeRow {
                    seq,
                    status: Status::Delivered,
                    at: now,
                    attempt,
                    latency_ms: 0,
                    reason: None,
                };
                self.end_with(row, group);
            }
            ours
        });
        popped
    }

    pub(in crate::embedded) fn ack(&mut self, id: MessageId, now: Timestamp, group: &mut Group) -> Acked {
        let seq = id.seq();
        let Some(slot) = self.line.find(seq).filter(|_| id.salt() == self.salt) else {
            return Acked::Unknown;
        };
        let tries = self.line.entry(slot).tries;
        if tries.acks == 0 {
            return Acked::NotAwaited;
        }
        let settling = self.leases.get(&seq).is_some_and(|lease| lease.settling);
        if settling || !group.end(seq) {
            return Acked::Already;
        }
        if let Some(lease) = self.leases.get_mut(&seq) {
            lease.settling = true;
            group.undo.push(Undo::Settling(seq));
        }
        // The attempt that it acknowledges is recorded already.
        self.write_end(seq, Status::Delivered, now, group);
        Acked::Acked
    }

    pub(in crate::embedded) fn cancel(
        &mut self,
        id: MessageId,
        now: Timestamp,
        group: &mut Group,
    ) -> Cancelled {
        let seq = id.seq();
        if id.salt() != self.salt || self.line.find(seq).is_none() {
            return Cancelled::Unknown;
        }
        if !self.is_waiting(seq) {
            return Cancelled::UnderWay;
        }
        if !group.end(seq) {
            return Cancelled::Ended;
        }
        self.write_end(seq, Status::Deleted, now, group);
        Cancelled::Cancelled
    }

    /// Settles messages whose time is over and that nobody holds, a bounded number at a call.
    pub(in crate::embedded) fn expire_messages(&mut self, now: Timestamp, group: &mut Group) {
        let over: Vec<u64> =
            self.line.expired(now).filter(|seq| self.is_waiting(*seq)).take(EXPIRE_MAX).collect();
        for seq in over {
            if group.end(seq) {
                self.write_end(seq, Status::Expired, now, group);
            }
        }
    }

    pub(in crate::embedded) fn has_expired(&self, now: Timestamp) -> bool {
        self.line.expired(now).any(|seq| self.is_waiting(seq))
    }

    /// Takes back some of a queue's messages. Returns how many, and where to go on.
    pub(in crate::embedded) fn purge(
        &mut self,
        queue: &QueueName,
        from: Slot,
        now: Timestamp,
        group: &mut Group,
    ) -> (u64, Option<Slot>) {
        let Some(queue) = self.queues.id(queue) else { return (0, None) };
        let (seqs, next) = self.line.some_of(queue, from, PURGE_MAX);
        let mut purged = 0;
        for seq in seqs {
            if self.is_waiting(seq) && group.end(seq) {
                self.write_end(seq, Status::Deleted, now, group);
                purged += 1;
            }
        }
        (purged, next)
    }

    /// Makes a dead letter pending again; the caller has seen that it is one.
    pub(in crate::embedded) fn requeue(
        &mut self,
        revival: Revival,
        now: Timestamp,
        group: &mut Group,
    ) -> Requeued {
        let seq = revival.message.seq;
        if self.line.find(seq).is_some() || !group.end(seq) {
            return Requeued::NotDead;
        }
        if !self.has_room(group) {
            return Requeued::Full;
        }
        group.totals.dead = group.totals.dead.saturating_sub(1);
        group.change_pending(revival.message.queue, 1);
        let order = self.take_seq();
        let Revival { mut message, tries, body, delay_ms } = revival;
        let tries = tries.requeued();
        let attempt = AttemptRow {
            seq,
            number: tries.last,
            at: now,
            latency_ms: 0,
            reason: None,
            due: now.plus_ms(delay_ms),
            result: AttemptResult::Requeued,
            order,
        };
        let edited = body.is_some();
        message.body = body.unwrap_or_default();
        group.requeued.push(RequeueRow { message, attempt, tries, edited });
        Requeued::Requeued
    }

    /// Removes a dead letter; the caller has seen that it is one.
    pub(in crate::embedded) fn delete_dead(&mut self, seq: u64, group: &mut Group) -> bool {
        if self.line.find(seq).is_some() || !group.end(seq) {
            return false;
        }
        group.totals.dead = group.totals.dead.saturating_sub(1);
        group.totals.deleted += 1;
        group.dead_deleted.push(seq);
        true
    }

    /// Pending, and nobody holds a lease on it.
    pub(super) fn is_waiting(&self, seq: u64) -> bool {
        self.line.find(seq).is_some() && !self.leases.contains_key(&seq)
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
            recipient: recipient.as_ref().map(|recipient| recipient.as_str()),
            expires: row.message.expires,
            tries: row.tries,
        });
    }
}
