use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tidegate_domain::limits::Quota;
use tidegate_domain::{
    Begun, ClaimRequest, Counts, EventId, Extension, Forecast, Health, LedgerError, PickUp, QueueCounts,
    QueueName, Settled, Slot, SlotConfig, SlotConfigName, Timestamp, UserId,
};
use tokio::sync::{oneshot, watch};

use super::book::PURGE_MAX;
use super::engine::{Change, Changed, Claimed, Engine, Step, Way};
use super::room::Room;
use super::stirs::Stirs;
use super::store::{StoreError, StoreErrorKind};

#[cfg(test)]
mod tests;

const WAITERS_MAX: usize = 4_096;
/// Longer waits are cut; whoever waits asks again.
const WAIT_MS_MAX: u64 = 60_000;
const TICK: Duration = Duration::from_millis(200);
const PROBE_EVERY: Duration = Duration::from_millis(500);

pub(super) type Answer<T> = oneshot::Receiver<Result<T, LedgerError>>;
pub(super) type Reply<T> = oneshot::Sender<Result<T, LedgerError>>;

#[derive(Debug)]
pub(super) enum Command {
    Change(Change, Reply<Changed>),
    /// A change that fills the ledger, with its share of the bound on those.
    Admission(Change, Reply<Changed>, Room),
    Claim(ClaimRequest, Way, Reply<Claimed>),
    PickUp(PickUp, Reply<Claimed>),
    /// The count of a queue's changes, which is told from then on.
    Stirs(QueueName, Reply<u64>),
    Quotas(Vec<UserId>, Reply<Vec<(UserId, Quota)>>),
    Slot(EventId, Reply<Option<Slot>>),
    SlotConfig(SlotConfigName, Reply<Vec<SlotConfig>>),
    Forecast(SlotConfigName, Timestamp, u64, Reply<Forecast>),
    Extend(Vec<Extension>, Reply<Vec<Settled>>),
    Begin(Vec<Extension>, Reply<Vec<Begun>>),
    /// Answers when the queue has something to claim, or after that many milliseconds.
    Ready(QueueName, u64, Reply<()>),
    QueueCounts(Reply<Vec<QueueCounts>>),
    Counts(Reply<Counts>),
    Sweep(Reply<()>),
    Close,
}

/// The one thread that changes the ledger.
///
/// It takes whatever has gathered while the last group was being synced, decides all of it, commits once, and
/// answers everyone. Reads and claims of the same group come after the commit and see what it left.
#[derive(Debug)]
pub(super) struct Writer {
    engine: Engine,
    commands: Receiver<Command>,
    group_max: usize,
    health: watch::Sender<Health>,
    stirs: Arc<Stirs>,
    waiters: Vec<Waiter>,
    probed: Instant,
}

/// A claim that found nothing and waits.
#[derive(Debug)]
struct Waiter {
    queue: QueueName,
    until: Instant,
    wants: Wants,
}

#[derive(Debug)]
enum Wants {
    Claims(ClaimRequest, Way, Reply<Claimed>),
    /// To be told when it is worth trying.
    Word(Reply<()>),
}

/// The commands of one group, by what they need.
#[derive(Debug, Default)]
struct Gathered {
    changes: Vec<Change>,
    change_replies: Vec<Reply<Changed>>,
    rooms: Vec<Room>,
    after: Vec<Command>,
    size: usize,
    close: bool,
}

impl Writer {
    pub(super) fn new(
        engine: Engine,
        commands: Receiver<Command>,
        group_max: usize,
        health: watch::Sender<Health>,
        stirs: Arc<Stirs>,
    ) -> Self {
        Self { engine, commands, group_max, health, stirs, waiters: Vec::new(), probed: Instant::now() }
    }

    pub(super) fn run(mut self) {
        loop {
            let mut gathered = Gathered::default();
            match self.commands.recv_timeout(self.pause()) {
                Ok(command) => gathered.add(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => gathered.close = true,
            }
            while gathered.size < self.group_max && !gathered.close {
                let Ok(command) = self.commands.try_recv() else { break };
                gathered.add(command);
            }
            let close = gathered.close;
            if let Err(error) = self.step(gathered) {
                return self.fail(&error);
            }
            if close {
                return self.close();
            }
        }
    }

    fn step(&mut self, mut gathered: Gathered) -> Result<(), StoreError> {
        if let Health::ReadOnly(reason) = &*self.health.borrow() {
            gathered.refuse_pops(reason);
        }
        self.change(gathered.changes, gathered.change_replies, gathered.rooms)?;
        for command in gathered.after {
            self.answer(command).or_else(|error| self.pass_if_full(error))?;
        }
        self.serve_waiters().or_else(|error| self.pass_if_full(error))?;
        self.tend()?;
        self.stirs.tell(|queue| self.engine.stirs(queue));
        Ok(())
    }

    fn change(
        &mut self,
        changes: Vec<Change>,
        replies: Vec<Reply<Changed>>,
        rooms: Vec<Room>,
    ) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let decided = self.engine.change(changes);
        // Before the answers: whoever is answered may come again at once.
        drop(rooms);
        match decided {
            Ok((changed, written)) => {
                let mut advanced = Vec::new();
                for (reply, changed) in replies.into_iter().zip(changed) {
                    let answer = match changed {
                        Changed::Advanced { steps, lease_ms } => {
                            advanced.push((reply, steps, lease_ms));
                            continue;
                        }
                        Changed::Failed(error) => Err(error),
                        changed => Ok(changed),
                    };
                    // Nobody may be waiting any more: the change stands all the same.
                    let _ = reply.send(answer);
                }
                self.engine.apply(written);
                for (reply, steps, lease_ms) in advanced {
                    self.follow(reply, steps, lease_ms);
                }
                Ok(())
            }
            Err(error) => {
                let (answer, result) = match error.kind {
                    StoreErrorKind::NoSpace => {
                        self.set_health(Health::ReadOnly(error.to_string()));
                        (LedgerError::NoSpace(error.to_string()), Ok(()))
                    }
                    StoreErrorKind::Damaged | StoreErrorKind::Lost => {
                        (LedgerError::Corrupt(error.to_string()), Err(error))
                    }
                    StoreErrorKind::Failed => (LedgerError::OutcomeUnknown(error.to_string()), Err(error)),
                };
                for reply in replies {
                    let _ = reply.send(Err(answer.clone()));
                }
                result
            }
        }
    }

    /// Answers with the messages that come next. They step forward when their group is applied, so this answer is later
    /// than the others of its group.
    fn follow(&mut self, reply: Reply<Changed>, mut steps: Vec<Step>, lease_ms: u64) {
        if !reply.is_closed() {
            self.engine.follow(&mut steps, lease_ms);
        }
        if let Err(Ok(Changed::Advanced { steps, .. })) =
            reply.send(Ok(Changed::Advanced { steps, lease_ms }))
        {
            let leased = steps.into_iter().filter_map(|step| step.next);
            self.engine.release(leased.map(|(_, row)| row.leased.seq));
        }
    }

    fn answer(&mut self, command: Command) -> Result<(), StoreError> {
        match command {
            Command::Claim(request, way, reply) => {
                let queue = request.queue.clone();
                let wait_ms = request.wait_ms;
                self.wait(queue, wait_ms, Wants::Claims(request, way, reply))?;
            }
            Command::PickUp(request, reply) => self.pick_up(&request, reply)?,
            Command::Stirs(queue, reply) => {
                let count = self.engine.stirs(&queue);
                self.stirs.begin(queue, count);
                let _ = reply.send(Ok(count));
            }
            Command::Ready(queue, wait_ms, reply) => self.wait(queue, wait_ms, Wants::Word(reply))?,
            Command::Extend(batch, reply) => {
                let extended = batch.iter().map(|extension| self.engine.extend(extension)).collect();
                let _ = reply.send(Ok(extended));
            }
            Command::Begin(batch, reply) => {
                let _ = reply.send(self.begin(&batch));
            }
            Command::QueueCounts(reply) => {
                let _ = reply.send(Ok(self.engine.queue_counts()));
            }
            Command::Quotas(users, reply) => {
                let with_quota = |user: UserId| self.engine.quota(&user).map(|quota| (user, quota));
                let _ = reply.send(Ok(users.into_iter().filter_map(with_quota).collect()));
            }
            Command::Slot(event, reply) => {
                let _ = reply.send(Ok(self.engine.slot(event)));
            }
            Command::SlotConfig(name, reply) => {
                let _ = reply.send(Ok(self.engine.slot_config(&name)));
            }
            Command::Forecast(name, requested, jitter, reply) => {
                let _ = reply.send(Ok(self.engine.forecast(&name, requested, jitter)));
            }
            Command::Counts(reply) => {
                let _ = reply.send(Ok(self.engine.counts()));
            }
            Command::Sweep(reply) => {
                self.engine.sweep().or_else(|error| self.pass_if_full(error))?;
                let _ = reply.send(Ok(()));
            }
            Command::Change(..) | Command::Admission(..) | Command::Close => {}
        }
        Ok(())
    }

    fn wait(&mut self, queue: QueueName, wait_ms: u64, wants: Wants) -> Result<(), StoreError> {
        // One waiter too many gets its answer at once, empty or not. Who only waits for word would ask again at once,
        // and again, so it is told that there are too many.
        let full = self.waiters.len() >= WAITERS_MAX;
        let wants = match wants {
            Wants::Word(reply) if full => {
                let _ = reply.send(Err(LedgerError::Overloaded));
                return Ok(());
            }
            wants => wants,
        };
        let wait_ms = if full { 0 } else { wait_ms.min(WAIT_MS_MAX) };
        let until = Instant::now() + Duration::from_millis(wait_ms);
        let waits_on = self.try_serve(Waiter { queue, until, wants })?;
        self.waiters.extend(waits_on);
        Ok(())
    }

    /// Serves a waiter, or gives it back when it has to wait on.
    fn try_serve(&mut self, waiter: Waiter) -> Result<Option<Waiter>, StoreError> {
        // While a settlement can't be written, an attempt would only have to be repeated.
        let healthy = *self.health.borrow() == Health::Ready;
        let over = Instant::now() >= waiter.until;
        match waiter.wants {
            Wants::Word(reply) => {
                let ready = healthy && self.engine.is_ready(&waiter.queue);
                if !(over || ready || reply.is_closed()) {
                    return Ok(Some(Waiter { wants: Wants::Word(reply), ..waiter }));
                }
                let _ = reply.send(Ok(()));
            }
            Wants::Claims(request, way, reply) => {
                let claimed = if healthy { self.claim(&request, way)? } else { Claimed::default() };
                if claimed.rows.is_empty() && !over && !reply.is_closed() {
                    return Ok(Some(Waiter { wants: Wants::Claims(request, way, reply), ..waiter }));
                }
                if let Err(Ok(unwanted)) = reply.send(Ok(claimed)) {
                    self.engine.release(unwanted.rows.iter().map(|row| row.leased.seq));
                }
            }
        }
        Ok(None)
    }

    /// What has expired is written down first. When there is no room for that, nothing is handed out, and whoever
    /// waits waits on.
    fn claim(&mut self, request: &ClaimRequest, way: Way) -> Result<Claimed, StoreError> {
        let claimed = self.engine.claim(request, way);
        claimed.or_else(|error| self.pass_if_full(error).map(|()| Claimed::default()))
    }

    /// An attempt that could not be settled would only have to be repeated: it had better not begin.
    fn begin(&mut self, batch: &[Extension]) -> Result<Vec<Begun>, LedgerError> {
        self.check_writable()?;
        Ok(batch.iter().map(|extension| self.engine.begin_attempt(extension)).collect())
    }

    fn pick_up(&mut self, request: &PickUp, reply: Reply<Claimed>) -> Result<(), StoreError> {
        if reply.is_closed() {
            return Ok(());
        }
        let claimed = match self.check_writable() {
            Ok(()) => Ok(self.engine.pick_up(request)?),
            Err(error) => Err(error),
        };
        if let Err(Ok(unwanted)) = reply.send(claimed) {
            self.engine.release(unwanted.rows.iter().map(|row| row.leased.seq));
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<(), LedgerError> {
        match &*self.health.borrow() {
            Health::Ready => Ok(()),
            Health::ReadOnly(reason) => Err(LedgerError::NoSpace(reason.clone())),
            Health::Away(reason) | Health::Failed(reason) => Err(LedgerError::Unavailable(reason.clone())),
        }
    }

    fn serve_waiters(&mut self) -> Result<(), StoreError> {
        for waiter in std::mem::take(&mut self.waiters) {
            if let Some(waiter) = self.try_serve(waiter)? {
                self.waiters.push(waiter);
            }
        }
        Ok(())
    }

    /// What has to be done without being asked.
    fn tend(&mut self) -> Result<(), StoreError> {
        if let Health::ReadOnly(_) = *self.health.borrow() {
            if self.probed.elapsed() < PROBE_EVERY {
                return Ok(());
            }
            self.probed = Instant::now();
        } else {
            return self.engine.sweep().or_else(|error| self.pass_if_full(error));
        }
        match self.engine.probe() {
            Ok(()) => {
                self.set_health(Health::Ready);
                Ok(())
            }
            Err(error) => self.pass_if_full(error),
        }
    }

    fn pass_if_full(&self, error: StoreError) -> Result<(), StoreError> {
        if error.kind != StoreErrorKind::NoSpace {
            return Err(error);
        }
        self.set_health(Health::ReadOnly(error.to_string()));
        Ok(())
    }

    fn set_health(&self, health: Health) {
        self.health.send_if_modified(|current| {
            let changed = std::mem::discriminant(current) != std::mem::discriminant(&health);
            if changed {
                match &health {
                    Health::Ready => tracing::info!("the ledger takes writes again"),
                    Health::ReadOnly(reason) | Health::Away(reason) => {
                        tracing::error!(reason, "the ledger takes no writes for now");
                    }
                    Health::Failed(reason) => tracing::error!(reason, "the ledger has failed"),
                }
                *current = health;
            }
            changed
        });
    }

    /// How long the thread may sleep.
    fn pause(&self) -> Duration {
        if !self.engine.is_tidy() {
            return Duration::from_millis(5);
        }
        let now = self.engine.now();
        let due = self.waiters.iter().filter_map(|waiter| waiter.next_due(&self.engine)).min();
        let in_ms = due.into_iter().chain(self.engine.next_lease_end()).map(|at| at.since_ms(now)).min();
        let waiting =
            self.waiters.iter().map(|waiter| waiter.until.saturating_duration_since(Instant::now())).min();
        let pause = in_ms.map_or(TICK, Duration::from_millis).min(waiting.unwrap_or(TICK)).min(TICK);
        pause.max(Duration::from_millis(1))
    }

    /// A failed write or sync is the end of this process's knowledge about the disk.
    fn fail(self, error: &StoreError) {
        self.set_health(Health::Failed(error.to_string()));
        self.engine.abandon();
    }

    fn close(self) {
        if let Err(error) = self.engine.close() {
            tracing::error!(%error, "the ledger did not close cleanly; nothing is lost, the next start recovers");
        }
    }
}

impl Waiter {
    /// When there will be something for it, as far as the line tells. Whoever waits for room in transit is told by whoever
    /// makes some.
    fn next_due(&self, engine: &Engine) -> Option<Timestamp> {
        match &self.wants {
            Wants::Claims(_, way, _) if !engine.has_room(&self.queue, *way) => None,
            Wants::Claims(..) | Wants::Word(_) => engine.next_due(&self.queue),
        }
    }
}

impl Gathered {
    /// A full disk may still have room for a pop, which is small: the last write that failed leaves the WAL longer
    /// than it was. A pop that passes there hands a message out while new pops are refused and claims wait.
    fn refuse_pops(&mut self, reason: &str) {
        let replies = std::mem::take(&mut self.change_replies);
        for (change, reply) in std::mem::take(&mut self.changes).into_iter().zip(replies) {
            if let Change::Pop { .. } = change {
                let _ = reply.send(Err(LedgerError::NoSpace(reason.to_owned())));
            } else {
                self.changes.push(change);
                self.change_replies.push(reply);
            }
        }
    }

    fn add(&mut self, command: Command) {
        match command {
            // Whoever has gone meanwhile would never see what is taken here for good.
            Command::Change(Change::Pop { .. }, reply) if reply.is_closed() => {}
            Command::Admission(change, reply, room) => {
                self.rooms.push(room);
                self.add(Command::Change(change, reply));
            }
            Command::Change(change, reply) => {
                self.size += match &change {
                    Change::Admit(batch) => batch.len().max(1),
                    Change::Settle(batch) | Change::Advance { batch, .. } => batch.len().max(1),
                    Change::Reserve(batch) => batch.len().max(1),
                    Change::Pop { max, .. } => (*max).max(1),
                    Change::Ack(ids) | Change::Cancel(ids) | Change::DeleteDead(ids) => ids.len().max(1),
                    Change::Requeue(batch) => batch.len().max(1),
                    Change::Purge { .. } => PURGE_MAX,
                    Change::PutQuota { .. }
                    | Change::DeleteQuota(_)
                    | Change::Pause { .. }
                    | Change::Release(_)
                    | Change::PutSlotConfig(..) => 1,
                };
                self.changes.push(change);
                self.change_replies.push(reply);
            }
            Command::Close => self.close = true,
            other => {
                self.size += 1;
                self.after.push(other);
            }
        }
    }
}
