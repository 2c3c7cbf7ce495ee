use tidegate_domain::Timestamp;

use super::super::store::{Marks, Removable, StoreError, StoreErrorKind};
use super::{Engine, QUOTA_FLUSH_MS};

const MARKS_MS: u64 = 30_000;

impl Engine {
    /// The work that no call asks for: ended leases, charges to be written, old rows to be removed. Each part is
    /// bounded; called often.
    pub(in crate::embedded) fn sweep(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let ended = self.end_leases(now)?;
        if ended > 0 {
            tracing::warn!(
                ended,
                "leases ended unsettled; their messages are claimable again, or dead letters"
            );
        }
        self.expire_messages(now)?;
        self.book.keys.expire(now);
        self.book.trim();
        self.store.checkpoint_if_due(now).or_else(pass_if_full)?;
        self.store.clear_remnants(now).or_else(pass_if_full)?;
        self.store.sync_progress(now)?;
        if self.book.quotas.has_dirty() && now.since_ms(self.quotas_flushed.0) >= QUOTA_FLUSH_MS {
            let (group, _) = self.decide(Vec::new(), now);
            self.commit(group, now)?;
        }
        if self.book.slots.has_old(now) {
            let mut group = self.book.begin();
            self.book.forget_slots(now, &mut group);
            self.book.finish(&mut group, false);
            self.commit(group, now)?;
        }
        if self.book.quotas.has_old(now) {
            let mut group = self.book.begin();
            self.book.forget_quotas(now, &mut group);
            self.book.finish(&mut group, false);
            self.commit(group, now)?;
        }
        if self.book.queues.is_look_due(now) {
            let mut group = self.book.begin();
            self.book.forget_queues(now, &mut group);
            self.commit(group, now)?;
        }
        if now.since_ms(self.marked) >= MARKS_MS {
            self.mark(now)?;
        }
        if !self.retention.is_resting(now) {
            let removable = Removable {
                messages_before: now.minus_ms(self.retention_ms),
                keys_before: now.minus_ms(self.idempotency_window_ms),
                seq_max: if self.book.quotas.has_dirty() {
                    self.quotas_flushed.1
                } else {
                    self.book.seq_last()
                },
            };
            self.store.retain(&mut self.retention, removable, now)?;
        }
        Ok(())
    }

    pub(super) fn mark(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.marked = now;
        let seq_last = self.book.seq_last();
        let live_from = self.book.line.seq_min().unwrap_or(seq_last + 1);
        let marks = Marks { live_from, quota_seq: self.quota_seq(), seq_last };
        self.store.write_marks(&marks, now)
    }

    /// Up to which message the quotas' own rows contain all charges.
    fn quota_seq(&self) -> u64 {
        if self.book.quotas.has_dirty() { self.quotas_flushed.1 } else { self.book.seq_last() }
    }
}

/// A checkpoint that finds no room leaves everything in the WAL, where it is safe; the next write will say so.
fn pass_if_full(error: StoreError) -> Result<(), StoreError> {
    if error.kind == StoreErrorKind::NoSpace { Ok(()) } else { Err(error) }
}
