//! The ledger in a directory: SQLite for the rows, memory for the indexes, one thread that writes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use async_trait::async_trait;
use tidegate_domain::limits::slot::SlotRule;
use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{
    Acked, Admission, Admitted, Advanced, BATCH_BYTES_MAX, Cancelled, Claim, ClaimRequest, Clock, Counts,
    Durability, EventId, Extension, Filter, Forecast, Health, Ledger, LedgerError, Listing, MessageId,
    MessageRecord, Page, PickUp, QueueCounts, QueueName, QueueRule, Queues, Released, Requeue, Requeued,
    Reservation, Reserved, Settled, Settlement, Slot, SlotConfig, SlotConfigName, SlotConfigPut, Slots,
    Timestamp, UserId,
};
use tokio::sync::{oneshot, watch};

mod acceptance;
mod ahead;
mod bodies;
mod book;
mod claims;
mod directory;
mod engine;
mod events;
mod keys;
mod line;
mod queues;
mod quotas;
mod readers;
mod room;
mod rows;
mod seqs;
#[cfg(test)]
mod simulation;
mod slots;
mod stirs;
mod store;
mod texts;
mod transfer;
mod transit;
mod writer;

pub use acceptance::accept_loss;
pub use directory::OpenError;
pub use store::{Loss, PartyUpkeep, UpkeepRows};
pub use transfer::{export, import};

use book::BookLimits;
use directory::Directory;
use engine::{Change, Changed, Engine, EngineOptions, Way};
use queues::QueueRules;
use readers::Readers;
use room::Room;
use stirs::Stirs;
use writer::{Answer, Command, Reply, Writer};

/// Room for settlements, claims and reads beyond the bound on admissions: what empties the ledger must get in
/// when what fills it does not.
const COMMANDS_EXTRA: usize = 4_096;

#[derive(Debug, Clone)]
pub struct Options {
    pub dir: PathBuf,
    pub sync: Durability,
    /// Messages that may be pending at a time; each takes some 150 bytes of memory.
    pub pending_max: u64,
    /// How many when the last ones are urgent.
    pub pending_hard_max: u64,
    /// Admissions that may wait for the next commit.
    pub intake_max: usize,
    /// Commands that one commit takes at the most.
    pub group_max: usize,
    pub body_cache_bytes: usize,
    /// Bytes of bodies that one claim or pop answers; one message always fits.
    pub batch_bytes_max: usize,
    pub idempotency_window_ms: u64,
    pub idempotency_keys_max: usize,
    /// How long delivered and expired messages can be looked up.
    pub retention_ms: u64,
    /// Connections for look-ups.
    pub readers: usize,
    /// Slots that may be held at a time; each takes some 150 bytes of memory.
    pub slots_max: usize,
    /// How long a slot is remembered after its window, or its reservation if that came later.
    pub slot_retention_ms: u64,
    /// How queues are kept, by name; those not named follow `queue_rule`.
    pub queue_rules: Vec<(QueueName, QueueRule)>,
    pub queue_rule: QueueRule,
    /// How long a queue that is not named has to be empty and unused before it is forgotten.
    pub queue_forget_after_ms: u64,
}

impl Options {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            sync: Durability::Fsync,
            pending_max: 5_000_000,
            pending_hard_max: 5_500_000,
            intake_max: 8_192,
            group_max: 2_048,
            body_cache_bytes: 64 << 20,
            batch_bytes_max: BATCH_BYTES_MAX,
            idempotency_window_ms: 86_400_000,
            idempotency_keys_max: 4_000_000,
            retention_ms: 3 * 86_400_000,
            readers: 2,
            slots_max: 5_000_000,
            slot_retention_ms: 86_400_000,
            queue_rules: Vec::new(),
            queue_rule: QueueRule::default(),
            queue_forget_after_ms: QueueRule::FORGET_AFTER_MS,
        }
    }

    fn limits(&self) -> BookLimits {
        BookLimits {
            pending_max: self.pending_max,
            pending_hard_max: self.pending_hard_max,
            body_cache_bytes: self.body_cache_bytes,
            idempotency_window_ms: self.idempotency_window_ms,
            idempotency_keys_max: self.idempotency_keys_max,
            slots_max: self.slots_max,
            slot_retention_ms: self.slot_retention_ms,
            batch_bytes_max: self.batch_bytes_max,
            queue_forget_after_ms: self.queue_forget_after_ms,
        }
    }
}

#[derive(Debug)]
pub struct Embedded {
    commands: SyncSender<Command>,
    writer: std::sync::Mutex<Option<JoinHandle<()>>>,
    readers: Arc<Readers>,
    health: watch::Receiver<Health>,
    admissions_waiting: Arc<AtomicUsize>,
    intake_max: usize,
    sync: Durability,
    stirs: Arc<Stirs>,
}

impl Embedded {
    /// Locks the directory, recovers the state and starts the writer. Blocking.
    pub fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        options.check()?;
        let directory = Arc::new(Directory::lock(&options.dir)?);
        directory.clear_staging();
        let limits = options.limits();
        let queues =
            QueueRules { by_name: options.queue_rules.into_iter().collect(), otherwise: options.queue_rule };
        let engine_options =
            EngineOptions { sync: options.sync, limits, queues, retention_ms: options.retention_ms };
        let engine = Engine::open(directory.database(), engine_options, clock)?;
        directory.sync()?;
        let (salt, parties) = (engine.book().salt, engine.parties().clone());
        let readers = Readers::open(directory.clone(), options.readers, salt, parties)?;
        let readers = Arc::new(readers);
        let (commands, receiver) = sync_channel(options.intake_max + COMMANDS_EXTRA);
        let (health_sender, health) = watch::channel(Health::Ready);
        let stirs = Arc::new(Stirs::default());
        let writer = Writer::new(engine, receiver, options.group_max, health_sender.clone(), stirs.clone());
        let thread = std::thread::Builder::new().name("ledger-writer".into()).spawn(move || {
            // Without a writer nothing is served any more, so whoever watches has to know.
            if catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                let reason = "the ledger's writer panicked";
                tracing::error!(reason, "the ledger has failed");
                health_sender.send_replace(Health::Failed(reason.to_owned()));
            }
            directory.release();
        });
        Ok(Self {
            commands,
            writer: std::sync::Mutex::new(Some(thread.map_err(OpenError::Thread)?)),
            readers,
            health,
            admissions_waiting: Arc::default(),
            intake_max: options.intake_max,
            sync: options.sync,
            stirs,
        })
    }

    /// Finishes what is queued, closes the files and gives up the directory. Blocking; the second call does
    /// nothing.
    pub fn close(&self) {
        let thread = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        self.readers.close();
        // The writer ends by itself when it has failed; then nobody takes the command.
        let _ = self.commands.send(Command::Close);
        // It caught its own panic, and told of it.
        let _ = thread.join();
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, LedgerError> {
        self.send(command)?.await.unwrap_or_else(|_| Err(stopped()))
    }

    fn send<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<Answer<T>, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.commands.try_send(command(reply)).map_err(|error| match error {
            TrySendError::Full(_) => LedgerError::Overloaded,
            TrySendError::Disconnected(_) => self.gone(),
        })?;
        Ok(answer)
    }

    async fn ask_for_room(&self, size: usize, change: Change) -> Result<Changed, LedgerError> {
        let room = Room::take(&self.admissions_waiting, size, self.intake_max)?;
        self.ask(|reply| Command::Admission(change, reply, room)).await
    }

    fn gone(&self) -> LedgerError {
        match &*self.health.borrow() {
            Health::Failed(reason) => LedgerError::Unavailable(reason.clone()),
            Health::Ready | Health::ReadOnly(_) | Health::Away(_) => {
                LedgerError::Unavailable("the ledger is closed".into())
            }
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Ledger for Embedded {
    async fn admit(&self, batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError> {
        match self.ask_for_room(batch.len(), Change::Admit(batch)).await? {
            Changed::Admitted(admitted) => Ok(admitted),
            other => Err(mismatched(&other)),
        }
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claim>, LedgerError> {
        self.claim_texts(request, Way::Attempt).await
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError> {
        match self.ask(|reply| Command::Change(Change::Settle(batch), reply)).await? {
            Changed::Settled(settled) => Ok(settled),
            other => Err(mismatched(&other)),
        }
    }

    async fn advance(&self, batch: Vec<Settlement>, lease_ms: u64) -> Result<Vec<Advanced>, LedgerError> {
        match self.ask(|reply| Command::Change(Change::Advance { batch, lease_ms }, reply)).await? {
            Changed::Advanced { steps, .. } => Ok(self.advanced(steps).await),
            other => Err(mismatched(&other)),
        }
    }

    async fn set_quota(&self, user: UserId, rule: QuotaRule) -> Result<Quota, LedgerError> {
        let change = Change::PutQuota { user, rule };
        match self.ask(|reply| Command::Change(change, reply)).await? {
            Changed::Quota(quota) => Ok(quota),
            other => Err(mismatched(&other)),
        }
    }

    async fn quota(&self, user: UserId) -> Result<Option<Quota>, LedgerError> {
        let found = self.ask(|reply| Command::Quotas(vec![user], reply)).await?;
        Ok(found.into_iter().next().map(|(_, quota)| quota))
    }

    async fn delete_quota(&self, user: UserId) -> Result<bool, LedgerError> {
        match self.ask(|reply| Command::Change(Change::DeleteQuota(user), reply)).await? {
            Changed::Deleted(deleted) => Ok(deleted),
            other => Err(mismatched(&other)),
        }
    }

    async fn quotas(&self, after: Option<UserId>, max: usize) -> Result<Vec<(UserId, Quota)>, LedgerError> {
        // The rows know who there is, the writer how they stand.
        let users = self.readers.users(after, max).await?;
        self.ask(|reply| Command::Quotas(users, reply)).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRecord>, LedgerError> {
        self.readers.record(id).await
    }

    async fn counts(&self) -> Result<Counts, LedgerError> {
        self.ask(Command::Counts).await
    }

    async fn sweep(&self) -> Result<(), LedgerError> {
        self.ask(Command::Sweep).await
    }

    fn durability(&self) -> Durability {
        self.sync
    }

    fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    async fn failed(&self) -> String {
        let mut health = self.health.clone();
        loop {
            if let Health::Failed(reason) = &*health.borrow_and_update() {
                return reason.clone();
            }
            if health.changed().await.is_err() {
                // Closed, not failed.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[async_trait]
impl Queues for Embedded {
    async fn pop(&self, queue: QueueName, max: usize, wait_ms: u64) -> Result<Vec<Claim>, LedgerError> {
        let started = Instant::now();
        loop {
            let change = Change::Pop { queue: queue.clone(), max };
            let rows = match self.ask(|reply| Command::Change(change, reply)).await? {
                Changed::Popped(rows) => rows,
                other => return Err(mismatched(&other)),
            };
            let waited_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            let left_ms = wait_ms.saturating_sub(waited_ms);
            if !rows.is_empty() || left_ms == 0 || max == 0 {
                // They come with their texts: nothing is left that could fail.
                return self.with_texts(queue, rows).await.map(|(claims, _)| claims);
            }
            self.ask(|reply| Command::Ready(queue.clone(), left_ms, reply)).await?;
        }
    }

    async fn pick_up(&self, request: PickUp) -> Result<Vec<Claim>, LedgerError> {
        let queue = request.queue.clone();
        self.leased_texts(queue, |reply| Command::PickUp(request, reply)).await
    }

    async fn stirred(&self, queue: QueueName, seen: u64, wait_ms: u64) -> Result<u64, LedgerError> {
        let count = self.ask(|reply| Command::Stirs(queue.clone(), reply)).await?;
        if count != seen || wait_ms == 0 {
            return Ok(count);
        }
        Ok(self.stirs.changed(&queue, seen, wait_ms).await)
    }

    async fn extend(&self, batch: Vec<Extension>) -> Result<Vec<Settled>, LedgerError> {
        self.ask(|reply| Command::Extend(batch, reply)).await
    }

    async fn ack(&self, ids: Vec<MessageId>) -> Result<Vec<Acked>, LedgerError> {
        match self.ask(|reply| Command::Change(Change::Ack(ids), reply)).await? {
            Changed::Acked(acked) => Ok(acked),
            other => Err(mismatched(&other)),
        }
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Cancelled>, LedgerError> {
        match self.ask(|reply| Command::Change(Change::Cancel(ids), reply)).await? {
            Changed::Cancelled(cancelled) => {
                self.readers.ahead().forget();
                Ok(cancelled)
            }
            other => Err(mismatched(&other)),
        }
    }

    async fn list(&self, filter: Filter, page: Page) -> Result<Listing, LedgerError> {
        self.readers.list(filter, page).await
    }

    async fn requeue(&self, batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError> {
        match self.ask(|reply| Command::Change(Change::Requeue(batch), reply)).await? {
            Changed::Requeued(requeued) => Ok(requeued),
            other => Err(mismatched(&other)),
        }
    }

    async fn delete_dead(&self, ids: Vec<MessageId>) -> Result<Vec<bool>, LedgerError> {
        match self.ask(|reply| Command::Change(Change::DeleteDead(ids), reply)).await? {
            Changed::DeadDeleted(deleted) => Ok(deleted),
            other => Err(mismatched(&other)),
        }
    }

    async fn purge(&self, queue: QueueName) -> Result<u64, LedgerError> {
        let (mut from, mut purged) = (0, 0);
        loop {
            let change = Change::Purge { queue: queue.clone(), from };
            match self.ask(|reply| Command::Change(change, reply)).await? {
                Changed::Purged { count, next } => {
                    purged += count;
                    match next {
                        Some(next) => from = next,
                        None => {
                            self.readers.ahead().forget();
                            return Ok(purged);
                        }
                    }
                }
                other => return Err(mismatched(&other)),
            }
        }
    }

    async fn pause(&self, queue: QueueName, paused: bool) -> Result<bool, LedgerError> {
        match self.ask(|reply| Command::Change(Change::Pause { queue, paused }, reply)).await? {
            Changed::Paused(known) => Ok(known),
            other => Err(mismatched(&other)),
        }
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError> {
        self.ask(Command::QueueCounts).await
    }
}

#[async_trait]
impl Slots for Embedded {
    async fn put_slot_config(
        &self,
        name: SlotConfigName,
        rule: SlotRule,
    ) -> Result<SlotConfigPut, LedgerError> {
        match self.ask(|reply| Command::Change(Change::PutSlotConfig(name, rule), reply)).await? {
            Changed::SlotConfig(put) => Ok(put),
            other => Err(mismatched(&other)),
        }
    }

    async fn slot_config(&self, name: SlotConfigName) -> Result<Vec<SlotConfig>, LedgerError> {
        self.ask(|reply| Command::SlotConfig(name, reply)).await
    }

    async fn reserve(&self, batch: Vec<Reservation>) -> Result<Vec<Reserved>, LedgerError> {
        match self.ask_for_room(batch.len(), Change::Reserve(batch)).await? {
            Changed::Reserved(reserved) => Ok(reserved),
            other => Err(mismatched(&other)),
        }
    }

    async fn slot(&self, event: EventId) -> Result<Option<Slot>, LedgerError> {
        self.ask(|reply| Command::Slot(event, reply)).await
    }

    async fn release(&self, event: EventId) -> Result<Released, LedgerError> {
        match self.ask(|reply| Command::Change(Change::Release(event), reply)).await? {
            Changed::Released(released) => Ok(released),
            other => Err(mismatched(&other)),
        }
    }

    async fn forecast(
        &self,
        config: SlotConfigName,
        requested: Timestamp,
        jitter: u64,
    ) -> Result<Forecast, LedgerError> {
        self.ask(|reply| Command::Forecast(config, requested, jitter, reply)).await
    }
}

/// The writer drops a reply only when it ends.
fn stopped() -> LedgerError {
    LedgerError::OutcomeUnknown("the ledger stopped".into())
}

fn mismatched(changed: &Changed) -> LedgerError {
    LedgerError::OutcomeUnknown(format!("the writer answered something else: {changed:?}"))
}
