use std::path::Path;
use std::sync::Arc;

use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{
    Acked, Admission, Admitted, Begun, Cancelled, ClaimRequest, Clock, Counts, Durability, EventId,
    Extension, Forecast, LedgerError, MessageId, QueueCounts, QueueName, Released, Requeue, Requeued,
    Reservation, Reserved, Settled, Settlement, Slot, SlotConfig, SlotConfigName, SlotConfigPut, Timestamp,
    UserId,
};

use super::book::{Book, BookLimits, Group, Leased};
use super::queues::QueueRules;
use super::rows::MessageRow;
use super::store::{Parties, Retention, Store, StoreError};

mod damage;
mod pickups;
mod recall;
mod sweep;

use recall::Recall;

/// Charges reach their quota's own row at least this often, so that a start has few messages to replay.
const QUOTA_FLUSH_MS: u64 = 5_000;

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
    /// Settles, and leases the recipients' next messages once the group is applied.
    Advance {
        batch: Vec<Settlement>,
        lease_ms: u64,
    },
    PutQuota {
        user: UserId,
        rule: QuotaRule,
    },
    DeleteQuota(UserId),
    Pop {
        queue: QueueName,
        max: usize,
    },
    Ack(Vec<MessageId>),
    Cancel(Vec<MessageId>),
    Purge {
        queue: QueueName,
        from: u32,
    },
    Requeue(Vec<Requeue>),
    DeleteDead(Vec<MessageId>),
    Pause {
        queue: QueueName,
        paused: bool,
    },
    Reserve(Vec<Reservation>),
    Release(EventId),
    PutSlotConfig(SlotConfigName, SlotRule),
}

#[derive(Debug)]
pub(super) enum Changed {
    Admitted(Vec<Admitted>),
    Settled(Vec<Settled>),
    Advanced {
        steps: Vec<Step>,
        lease_ms: u64,
    },
    Quota(Quota),
    Deleted(bool),
    Popped(Vec<ClaimedRow>),
    Acked(Vec<Acked>),
    Cancelled(Vec<Cancelled>),
    Purged {
        count: u64,
        next: Option<u32>,
    },
    Requeued(Vec<Requeued>),
    DeadDeleted(Vec<bool>),
    Paused(bool),
    Reserved(Vec<Reserved>),
    Released(Released),
    SlotConfig(SlotConfigPut),
    /// Nothing of it has happened: what it is about can't be read.
    Failed(LedgerError),
}

/// A settlement whose caller goes on with the same recipient.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) settled: Settled,
    /// The number of the recipient's next message.
    pub(super) next_seq: Option<u64>,
    /// That message with its queue, when it is leased.
    pub(super) next: Option<(QueueName, ClaimedRow)>,
}

/// A group that is on disk and not yet in the book. Those who wait for it need not wait for that.
#[must_use]
#[derive(Debug)]
pub(super) struct Written(Group);

/// What a lease is for: an attempt that begins with it, or the way to whoever will begin it, where there may be so many at
/// a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Attempt,
    Transit { in_transit_max: usize },
}

/// What a claim got. When texts had to be left to the disk, those that the next claims will want are named too.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub(super) rows: Vec<ClaimedRow>,
    pub(super) upcoming: Vec<u64>,
}

/// A leased message with its text, if that is in memory.
#[derive(Debug)]
pub(super) struct ClaimedRow {
    pub(super) leased: Leased,
    pub(super) message: Option<MessageRow>,
}

#[derive(Debug, Clone)]
pub(super) struct EngineOptions {
    pub(super) sync: Durability,
    pub(super) limits: BookLimits,
    pub(super) queues: QueueRules,
    pub(super) retention_ms: u64,
}

impl Engine {
    pub(super) fn open(
        database: &Path,
        options: EngineOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let mut store = Store::open(database, options.sync)?;
        let now = clock.now();
        let mut recovered = store.recover(options.limits, options.queues, now)?;
        recovered.book.begin_life(store.begin_life(now)?);
        store.load_parties(now)?;
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

    pub(super) fn parties(&self) -> &Parties {
        self.store.parties()
    }

    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// Decides the changes in order and commits them together. On an error none of them has happened, unless the
    /// error is fatal: then nobody knows. What is written is to be answered and then applied, before anything else.
    pub(super) fn change(&mut self, changes: Vec<Change>) -> Result<(Vec<Changed>, Written), StoreError> {
        let now = self.clock.now();
        self.end_leases(now)?;
        self.expire_messages(now)?;
        self.write_or_set_aside(changes, now)
    }

    pub(super) fn apply(&mut self, Written(group): Written) {
        self.book.apply(group);
    }

    pub(super) fn decide(&mut self, changes: Vec<Change>, now: Timestamp) -> (Group, Vec<Changed>) {
        let mut group = self.book.begin();
        let mut changed = Vec::with_capacity(changes.len());
        for change in changes {
            if let Err(error) = self.recall_queues(&change) {
                changed.push(Changed::Failed(error.on_reading()));
                continue;
            }
            let book = &mut self.book;
            changed.push(match change {
                Change::Pop { queue, max } => {
                    told(self.recall(&mut group, now).pop(&queue, max), Changed::Popped)
                }
                Change::Ack(ids) => told(self.recall(&mut group, now).ack(&ids), Changed::Acked),
                Change::Cancel(ids) => told(self.recall(&mut group, now).cancel(&ids), Changed::Cancelled),
                Change::Requeue(batch) => {
                    told(self.recall(&mut group, now).requeue(batch), Changed::Requeued)
                }
                Change::DeleteDead(ids) => {
                    told(self.recall(&mut group, now).delete_dead(&ids), Changed::DeadDeleted)
                }
                Change::Purge { queue, from } => {
                    let (count, next) = book.purge(&queue, from, now, &mut group);
                    Changed::Purged { count, next }
                }
                Change::Pause { queue, paused } => Changed::Paused(book.pause(&queue, paused, &mut group)),
                Change::Admit(batch) => Changed::Admitted(
                    batch.into_iter().map(|admission| book.admit(admission, now, &mut group)).collect(),
                ),
                Change::Settle(batch) => Changed::Settled(
                    batch.into_iter().map(|settlement| book.settle(settlement, now, &mut group)).collect(),
                ),
                Change::Advance { batch, lease_ms } => {
                    let advance = |settlement| {
                        let (settled, next_seq) = book.advance(settlement, now, &mut group);
                        Step { settled, next_seq, next: None }
                    };
                    Changed::Advanced { steps: batch.into_iter().map(advance).collect(), lease_ms }
                }
                Change::PutQuota { user, rule } => {
                    Changed::Quota(book.put_quota(user, rule, now, &mut group))
                }
                Change::Reserve(batch) => Changed::Reserved(
                    batch.into_iter().map(|reservation| book.reserve(reservation, now, &mut group)).collect(),
                ),
                Change::Release(event) if book.is_slot_unchangeable(&event) => {
                    let said = "the slot's message can't be erased: a page of the ledger is damaged";
                    Changed::Failed(LedgerError::Corrupt(said.to_owned()))
                }
                Change::Release(event) => Changed::Released(book.release_slot(event, now, &mut group)),
                Change::PutSlotConfig(name, rule) => {
                    Changed::SlotConfig(book.put_slot_config(&name, rule, now, &mut group))
                }
                Change::DeleteQuota(user) => Changed::Deleted(book.delete_quota(user, now, &mut group)),
            });
        }
        // A message that goes must not take a charge along that stands in its row alone.
        let flush = now.since_ms(self.quotas_flushed.0) >= QUOTA_FLUSH_MS || !group.dead_deleted.is_empty();
        self.book.finish(&mut group, flush);
        (group, changed)
    }

    fn recall<'a>(&'a mut self, group: &'a mut Group, now: Timestamp) -> Recall<'a> {
        Recall { book: &mut self.book, store: &self.store, group, now }
    }

    fn commit(&mut self, group: Group, now: Timestamp) -> Result<(), StoreError> {
        let written = self.write(group, now)?;
        self.apply(written);
        Ok(())
    }

    fn write(&mut self, group: Group, now: Timestamp) -> Result<Written, StoreError> {
        if !group.is_empty()
            && let Err(error) = self.store.write(&group, self.book.seq_last(), now)
        {
            self.book.revert(group);
            return Err(error);
        }
        if let Some(seq) = group.quotas_flushed {
            self.quotas_flushed = (now, seq);
        }
        Ok(Written(group))
    }

    pub(super) fn claim(&mut self, request: &ClaimRequest, way: Way) -> Result<Claimed, StoreError> {
        let ClaimRequest { queue, max, lease_ms, .. } = request;
        let (max, lease_ms) = (*max, *lease_ms);
        let now = self.clock.now();
        self.end_leases(now)?;
        // What is over must not be handed out.
        self.expire_messages(now)?;
        let leased = match way {
            Way::Attempt => self.book.claim(queue, max, lease_ms, now),
            Way::Transit { in_transit_max } => self.book.dispatch(queue, max, lease_ms, in_transit_max, now),
        };
        let rows: Vec<_> = leased.into_iter().map(|leased| with_text(&self.book, leased)).collect();
        let upcoming = if rows.iter().any(|row| row.message.is_none()) {
            self.book.upcoming(queue, max, now)
        } else {
            self.book.has_no_backlog(queue);
            Vec::new()
        };
        Ok(Claimed { rows, upcoming })
    }

    /// Leases what comes next, now that the settlements are applied.
    pub(super) fn follow(&mut self, steps: &mut [Step], lease_ms: u64) {
        let now = self.clock.now();
        for step in steps {
            let followed = step.next_seq.and_then(|seq| self.book.follow(seq, lease_ms, now));
            step.next = followed.map(|(queue, leased)| (queue, with_text(&self.book, leased)));
        }
    }

    pub(super) fn extend(&mut self, extension: &Extension) -> Settled {
        self.book.extend(extension, self.clock.now())
    }

    pub(super) fn begin_attempt(&mut self, extension: &Extension) -> Begun {
        self.book.begin_attempt(extension, self.clock.now())
    }

    /// Whether a claim or pop would find something now.
    pub(super) fn is_ready(&self, queue: &QueueName) -> bool {
        self.book.next_due(queue).is_some_and(|due| due <= self.clock.now())
    }

    /// Messages whose lease has ended are claimable again, or dead letters after their last attempt. Returns how many
    /// leases have ended.
    fn end_leases(&mut self, now: Timestamp) -> Result<u64, StoreError> {
        let ended = self.book.expire_leases(now);
        while self.book.has_exhausted() {
            let mut group = self.book.begin();
            self.book.give_up(now, &mut group);
            self.book.finish(&mut group, false);
            self.commit(group, now)?;
        }
        Ok(ended)
    }

    fn expire_messages(&mut self, now: Timestamp) -> Result<(), StoreError> {
        while self.book.has_expired(now) {
            let mut group = self.book.begin();
            self.book.expire_messages(now, &mut group);
            self.book.finish(&mut group, false);
            self.commit(group, now)?;
        }
        Ok(())
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
        let held = self.book.slots.get(self.book.slots.key(&event))?;
        self.book.slots.slot(event, &held, self.book.salt)
    }

    pub(super) fn slot_config(&self, name: &SlotConfigName) -> Vec<SlotConfig> {
        self.book.slots.versions(name)
    }

    pub(super) fn forecast(&self, name: &SlotConfigName, requested: Timestamp, jitter: u64) -> Forecast {
        self.book.slots.forecast(name, requested, jitter)
    }

    pub(super) fn queue_counts(&self) -> Vec<QueueCounts> {
        self.book.queue_counts()
    }

    pub(super) fn counts(&self) -> Counts {
        self.book.counts()
    }

    /// When the sweep has something to do next, at the latest.
    pub(super) fn next_lease_end(&self) -> Option<Timestamp> {
        self.book.next_lease_end()
    }

    pub(super) fn next_due(&self, queue: &QueueName) -> Option<Timestamp> {
        self.book.next_due(queue)
    }

    /// Whether a claim of that kind may take anything at all.
    pub(super) fn has_room(&self, queue: &QueueName, way: Way) -> bool {
        match way {
            Way::Attempt => true,
            Way::Transit { in_transit_max } => self.book.room_in_transit(queue, in_transit_max) > 0,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn is_tidy(&self) -> bool {
        self.retention.is_resting(self.clock.now())
    }

    pub(super) fn probe(&mut self) -> Result<(), StoreError> {
        self.store.probe(self.clock.now())
    }

    pub(super) fn abandon(self) {
        self.store.abandon();
    }

    pub(super) fn close(self) -> Result<(), StoreError> {
        self.store.close(self.clock.now())
    }
}

/// A message with its text, if that is in memory.
fn with_text(book: &Book, leased: Leased) -> ClaimedRow {
    let message = book.bodies.get(leased.seq).cloned();
    ClaimedRow { leased, message }
}

/// What the disk could not tell is the answer.
fn told<T>(decided: Result<T, LedgerError>, changed: impl FnOnce(T) -> Changed) -> Changed {
    decided.map_or_else(Changed::Failed, changed)
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
