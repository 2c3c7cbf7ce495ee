use std::path::Path;
use std::sync::Arc;

use tidegate_domain::limits::Quota;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::{
    Admission, Admitted, Clock, Counts, Durability, EventId, Forecast, QueueName, Released, Reservation,
    Reserved, Settled, Settlement, Slot, SlotConfig, SlotConfigName, SlotConfigPut, Timestamp, UserId,
};

use super::book::{Book, BookLimits, Group, Leased};
use super::rows::MessageRow;
use super::slots::event_key;
use super::store::{Marks, Removable, Retention, Store, StoreError};

/// Charges reach their quota's own row at least this often, so that a start has few messages to replay.
const QUOTA_FLUSH_MS: u64 = 5_000;
const MARKS_MS: u64 = 30_000;

/// Book and store together, without threads: a group in, its replies out. What a simulator drives.
#[derive(Debug)]
pub(super) struct Engine {
    book: Book,
    store: Store,
    clock: Arc<dyn Clock>,
    retention: Retention,
    retention_ms: u64,
    idempotency_window_ms: u64,
    quotas_flushed: (Timestamp, u64),
    marked: Timestamp,
}

/// A change, and what it answers with.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Admit(Vec<Admission>),
    Settle(Vec<Settlement>),
    PutQuota { user: UserId, limit: u32, window_ms: u64 },
    DeleteQuota(UserId),
    Reserve(Vec<Reservation>),
    Release(EventId),
    PutSlotConfig(SlotConfigName, SlotRule),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Changed {
    Admitted(Vec<Admitted>),
    Settled(Vec<Settled>),
    Quota(Quota),
    Deleted(bool),
    Reserved(Vec<Reserved>),
    Released(Released),
    SlotConfig(SlotConfigPut),
}

/// A leased message with its text, if that is in memory.
#[derive(Debug)]
pub(super) struct ClaimedRow {
    pub(super) leased: Leased,
    pub(super) message: Option<MessageRow>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct EngineOptions {
    pub(super) sync: Durability,
    pub(super) limits: BookLimits,
    pub(super) retention_ms: u64,
}

impl Engine {
    pub(super) fn open(
        dir: &Path,
        options: EngineOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let store = Store::open(dir, options.sync)?;
        let now = clock.now();
        let recovered = store.recover(options.limits, now)?;
        let quotas_flushed = (now, store.quota_seq()?);
        tracing::debug!(pending = recovered.pending, "ledger recovered");
        let mut engine = Self {
            book: recovered.book,
            store,
            clock,
            retention: Retention::default(),
            retention_ms: options.retention_ms,
            idempotency_window_ms: options.limits.idempotency_window_ms,
            quotas_flushed,
            marked: now,
        };
        // A life that ends before it marks anything must not cost the next start a longer scan.
        engine.mark(now)?;
        Ok(engine)
    }

    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// Decides the changes in order and commits them together. On an error none of them has happened, unless the
    /// error is fatal: then nobody knows.
    pub(super) fn change(&mut self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError> {
        let now = self.clock.now();
        self.book.expire_leases(now);
        let (group, changed) = self.decide(changes, now);
        self.commit(group, now)?;
        Ok(changed)
    }

    pub(super) fn decide(&mut self, changes: Vec<Change>, now: Timestamp) -> (Group, Vec<Changed>) {
        let mut group = self.book.begin();
        let mut changed = Vec::with_capacity(changes.len());
        for change in changes {
            let book = &mut self.book;
            changed.push(match change {
                Change::Admit(batch) => Changed::Admitted(
                    batch.into_iter().map(|admission| book.admit(admission, now, &mut group)).collect(),
                ),
                Change::Settle(batch) => Changed::Settled(
                    batch.into_iter().map(|settlement| book.settle(settlement, now, &mut group)).collect(),
                ),
                Change::PutQuota { user, limit, window_ms } => {
                    Changed::Quota(book.put_quota(user, limit, window_ms, now, &mut group))
                }
                Change::Reserve(batch) => Changed::Reserved(
                    batch.into_iter().map(|reservation| book.reserve(reservation, now, &mut group)).collect(),
                ),
                Change::Release(event) => Changed::Released(book.release_slot(event, now, &mut group)),
                Change::PutSlotConfig(name, rule) => {
                    Changed::SlotConfig(book.put_slot_config(&name, rule, now, &mut group))
                }
                Change::DeleteQuota(user) => Changed::Deleted(book.delete_quota(user, &mut group)),
            });
        }
        let flush = now.since_ms(self.quotas_flushed.0) >= QUOTA_FLUSH_MS;
        self.book.finish(&mut group, flush);
        (group, changed)
    }

    fn commit(&mut self, group: Group, now: Timestamp) -> Result<(), StoreError> {
        if !group.is_empty()
            && let Err(error) = self.store.write(&group)
        {
            self.book.revert(group);
            return Err(error);
        }
        if let Some(seq) = group.quotas_flushed {
            self.quotas_flushed = (now, seq);
        }
        self.book.apply(group);
        Ok(())
    }

    pub(super) fn claim(&mut self, queue: &QueueName, max: usize, lease_ms: u64) -> Vec<ClaimedRow> {
        let now = self.clock.now();
        self.book.expire_leases(now);
        let leased = self.book.claim(queue, max, lease_ms, now);
        let with_text = |leased: Leased| {
            let message = self.book.bodies.get(leased.seq).cloned();
            ClaimedRow { leased, message }
        };
        leased.into_iter().map(with_text).collect()
    }

    /// Hands messages back that nobody waited for.
    pub(super) fn release(&mut self, seqs: impl Iterator<Item = u64>) {
        for seq in seqs {
            self.book.release(seq);
        }
    }

    pub(super) fn quota(&self, user: &UserId) -> Option<Quota> {
        self.book.quotas.get(user, self.clock.now())
    }

    pub(super) fn slot(&self, event: EventId) -> Option<Slot> {
        let held = self.book.slots.get(&event_key(&event))?;
        self.book.slots.slot(event, &held, self.book.salt)
    }

    pub(super) fn slot_config(&self, name: &SlotConfigName) -> Vec<SlotConfig> {
        self.book.slots.versions(name)
    }

    pub(super) fn forecast(&self, name: &SlotConfigName, requested: Timestamp, jitter: u64) -> Forecast {
        self.book.slots.forecast(name, requested, jitter)
    }

    pub(super) fn counts(&self) -> Counts {
        self.book.counts()
    }

    /// The work that nobody asked for: ended leases, charges to be written, old rows to be removed. Each part is
    /// bounded; called often.
    pub(super) fn sweep(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let ended = self.book.expire_leases(now);
        if ended > 0 {
            tracing::warn!(ended, "leases ended unsettled; their messages are claimable again");
        }
        self.book.keys.expire(now);
        self.store.checkpoint_if_due().or_else(pass_if_full)?;
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

    fn mark(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.marked = now;
        let seq_last = self.book.seq_last();
        let live_from = self.book.line.seq_min().unwrap_or(seq_last + 1);
        self.store.write_marks(&Marks { live_from, quota_seq: self.quota_seq(), seq_last })
    }

    /// Up to which message the quotas' own rows contain all charges.
    fn quota_seq(&self) -> u64 {
        if self.book.quotas.has_dirty() { self.quotas_flushed.1 } else { self.book.seq_last() }
    }

    /// When the sweep has something to do next, at the latest.
    pub(super) fn next_lease_end(&self) -> Option<Timestamp> {
        self.book.next_lease_end()
    }

    pub(super) fn next_due(&self, queue: &QueueName) -> Option<Timestamp> {
        self.book.next_due(queue)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn is_tidy(&self) -> bool {
        self.retention.is_resting(self.clock.now())
    }

    pub(super) fn probe(&self) -> Result<(), StoreError> {
        self.store.probe()
    }

    pub(super) fn abandon(self) {
        self.store.abandon();
    }

    pub(super) fn close(self) -> Result<(), StoreError> {
        self.store.close()
    }
}

/// What the simulation reaches into.
#[cfg(test)]
impl Engine {
    pub(super) fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }
}

/// A checkpoint that finds no room leaves everything in the WAL, where it is safe; the next write will say so.
fn pass_if_full(error: StoreError) -> Result<(), StoreError> {
    if error.kind == super::store::StoreErrorKind::NoSpace { Ok(()) } else { Err(error) }
}
