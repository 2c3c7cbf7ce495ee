//! What is let in, and at whose charge.

use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{Admission, Admitted, Due, Lane, MessageId, Timestamp, UserId, has_room};

use super::super::rows::{MessageRow, QuotaRow};
use super::{Book, Group, Undo};

impl Book {
    pub(in crate::embedded) fn admit(
        &mut self,
        admission: Admission,
        now: Timestamp,
        group: &mut Group,
    ) -> Admitted {
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
        if !self.has_room(admission.lane, group) || !self.queues.has_place_for(&admission.queue) {
            return Admitted::Full;
        }
        let known = self.queues.id(&admission.queue);
        let pending = known.map_or(0, |queue| self.pending_in(queue, group));
        if !self.queues.lets_in(&admission.queue, pending, admission.lane) {
            return Admitted::QueueFull;
        }
        let (lane, on_limit) = (admission.lane, admission.on_limit);
        let charged = match admission.charge.map(|user| self.quotas.charge(user, lane, on_limit, now)) {
            None => None,
            Some(Ok((charged, before))) => {
                group.undo.push(Undo::Quota(before));
                Some(charged)
            }
            Some(Err(refusal)) => return refusal,
        };

        // Past every refusal: only an admitted message makes a queue.
        let queue = known.unwrap_or_else(|| self.make_queue(admission.queue, group));
        let seq = self.take_seq();
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
        group.change_pending(queue, 1);
        group.messages.push(MessageRow {
            seq,
            at: now,
            queue,
            lane: admission.lane,
            due,
            recipient: admission.recipient,
            charge: charged.map(|charged| charged.row),
            idempotency: admission.idempotency,
            expires: admission.expires,
            headers: admission.headers,
            ack_required: admission.ack_required,
            body: admission.body,
        });
        match (deferred_to, quota) {
            (Some(_), Some(quota)) => Admitted::Deferred { id, at: now, due, quota },
            (_, quota) => Admitted::Admitted { id, at: now, quota },
        }
    }

    /// Whether one more message fits into the ledger.
    pub(super) fn has_room(&self, lane: Lane, group: &Group) -> bool {
        let pending = group.totals.pending().unwrap_or(u64::MAX);
        has_room(pending, lane, self.pending_max, self.pending_hard_max) && self.seq_next < MessageId::SEQ_MAX
    }

    pub(in crate::embedded) fn put_quota(
        &mut self,
        user: UserId,
        rule: QuotaRule,
        now: Timestamp,
        group: &mut Group,
    ) -> Quota {
        let seq = self.seq_last();
        let (account, before) = self.quotas.put(user.clone(), rule, now);
        let quota = account.quota;
        group.undo.push(Undo::Quota(before));
        // Messages up to here were charged to the old window.
        group.quotas.push(QuotaRow { user, account, seq });
        quota
    }

    pub(in crate::embedded) fn delete_quota(
        &mut self,
        user: UserId,
        now: Timestamp,
        group: &mut Group,
    ) -> bool {
        let Some((kept, before)) = self.quotas.delete(&user, now) else { return false };
        group.undo.push(Undo::Quota(before));
        group.quotas.retain(|row| row.user != user);
        match kept {
            Some(account) => group.quotas.push(QuotaRow { user, account, seq: self.seq_last() }),
            None => group.quotas_deleted.push(user),
        }
        true
    }

    pub(in crate::embedded) fn forget_quotas(&mut self, now: Timestamp, group: &mut Group) {
        for (user, before) in self.quotas.forget(now) {
            group.undo.push(Undo::Quota(before));
            group.quotas_deleted.push(user);
        }
    }
}
