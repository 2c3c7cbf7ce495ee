use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;
use tidegate_domain::{Counts, QueueName, Recipient, Status, Timestamp, UserId};

use super::bodies::Bodies;
use super::events::EventKey;
use super::keys::Keys;
use super::line::{Arrival, Line, Plucked, Slot, Tries, Turn};
use super::queues::{Queue, QueueBook, QueueRules};
use super::quotas::{Before, Quotas};
use super::rows::{
    AttemptRow, LateAckRow, MessageRow, OutcomeRow, QueueRow, QuotaRow, RequeueRow, SlotConfigRow, SlotRow,
    Totals,
};
use super::slots::{ConfigBefore, Held, SlotBook};

mod admission;
mod endings;
mod leases;
mod pickups;
mod queues;
mod reservations;
mod transit;

pub(super) use endings::{PURGE_MAX, Popped, Text, UNREADABLE_MS};

/// Leases of one life of the ledger; beyond them come the tokens of the next.
pub(super) const TOKEN_BITS: u32 = 40;

/// Room for so many leases is kept when there are none.
const LEASES_KEPT: usize = 16_384;

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
    pub(super) queues: QueueBook,
    leases: HashMap<u64, Lease>,
    leases_by_end: BTreeSet<(Timestamp, u64)>,
    /// Messages whose last lease has ended unsettled, until that is on disk.
    exhausted: VecDeque<u64>,
    totals: Totals,
    seq_next: u64,
    token_next: u64,
    pub(super) salt: u32,
    pending_max: u64,
    pending_hard_max: u64,
    batch_bytes_max: usize,
    queue_forget_after_ms: u64,
    /// Messages whose texts can't be overwritten or removed, because a page is damaged. Until the next start.
    pub(super) unchangeable: BTreeSet<u64>,
}

#[derive(Debug)]
struct Lease {
    slot: Slot,
    token: u64,
    until: Timestamp,
    settling: bool,
    /// On its way to a sender: the attempt has not begun.
    in_transit: bool,
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
    pub(super) requeued: Vec<RequeueRow>,
    /// Dead letters that go for good.
    pub(super) dead_deleted: Vec<u64>,
    /// Deleted messages, whose texts go with this group.
    pub(super) erased: Vec<u64>,
    /// Messages that had ended, and whose acks have come.
    pub(super) acked_late: Vec<LateAckRow>,
    /// Queues whose state changed, with it.
    pub(super) queues_changed: Vec<QueueRow>,
    released: Vec<u64>,
    /// Handed back until then.
    held: Vec<(u64, Timestamp)>,
    /// Messages that end in this group, and how; pending are those that begin anew. Each only once.
    ending: HashMap<u64, Status>,
    /// By how much the queues' depths change.
    pending: Vec<(u32, i64)>,
    undo: Vec<Undo>,
}

#[derive(Debug)]
enum Undo {
    Quota(Before),
    Key(tidegate_domain::IdempotencyKey),
    QueueMade(u32),
    QueueForgotten(u32, Box<Queue>),
    Turn(u32, Turn),
    Popped(Plucked),
    Paused(u32, bool),
    SlotTaken(EventKey),
    SlotGivenBack(EventKey, Held),
    SlotConfig(ConfigBefore),
    Settling(u64),
    GivenUp(u64),
}

/// Messages whose texts a group changes.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) overwritten: Vec<u64>,
    pub(super) removed: Vec<u64>,
}

/// A message that has been leased; its text is still to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leased {
    pub(super) seq: u64,
    pub(super) attempt: u32,
    pub(super) failures: u32,
    pub(super) ack_attempts: u32,
    pub(super) token: u64,
    pub(super) until: Timestamp,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BookLimits {
    pub(super) pending_max: u64,
    pub(super) pending_hard_max: u64,
    pub(super) body_cache_bytes: usize,
    pub(super) idempotency_window_ms: u64,
    pub(super) idempotency_keys_max: usize,
    pub(super) slots_max: usize,
    pub(super) slot_retention_ms: u64,
    pub(super) batch_bytes_max: usize,
    pub(super) queue_forget_after_ms: u64,
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
            && self.requeued.is_empty()
            && self.dead_deleted.is_empty()
            && self.acked_late.is_empty()
            && self.queues_changed.is_empty()
            && self.quotas_flushed.is_none()
    }

    /// How a message ends here, if it does.
    pub(super) fn ended(&self, seq: u64) -> Option<Status> {
        self.ending.get(&seq).copied()
    }

    fn end(&mut self, outcome: OutcomeRow) {
        self.ending.insert(outcome.seq, outcome.status);
        self.totals.settle(outcome.status);
        if outcome.status == Status::Deleted {
            self.erased.push(outcome.seq);
        }
        self.outcomes.push(outcome);
    }

    /// Whether a text goes that may be in the files several times.
    pub(super) fn erases(&self) -> bool {
        let edited = self.requeued.iter().any(|row| row.edited);
        edited || !(self.erased.is_empty() && self.dead_deleted.is_empty())
    }

    pub(super) fn touched(&self) -> Touched {
        let edited = self.requeued.iter().filter(|row| row.edited).map(|row| row.message.seq);
        let overwritten = self.erased.iter().copied().chain(edited).collect();
        Touched { overwritten, removed: self.dead_deleted.clone() }
    }

    fn change_pending(&mut self, queue: u32, by: i64) {
        match self.pending.iter_mut().find(|(id, _)| *id == queue) {
            Some((_, change)) => *change += by,
            None => self.pending.push((queue, by)),
        }
    }
}

impl Book {
    pub(super) fn new(salt: u32, limits: BookLimits, rules: QueueRules) -> Self {
        Self {
            line: Line::new(),
            bodies: Bodies::new(limits.body_cache_bytes),
            keys: Keys::new(limits.idempotency_window_ms, limits.idempotency_keys_max),
            quotas: Quotas::default(),
            slots: SlotBook::new(limits.slots_max, limits.slot_retention_ms),
            queues: QueueBook::new(rules),
            leases: HashMap::new(),
            leases_by_end: BTreeSet::new(),
            exhausted: VecDeque::new(),
            totals: Totals::default(),
            seq_next: 1,
            token_next: 1,
            salt,
            pending_max: limits.pending_max,
            pending_hard_max: limits.pending_hard_max,
            batch_bytes_max: limits.batch_bytes_max,
            queue_forget_after_ms: limits.queue_forget_after_ms,
            unchangeable: BTreeSet::new(),
        }
    }

    pub(super) fn begin(&self) -> Group {
        Group { totals: self.totals, ..Group::default() }
    }

    /// Adds what is to be written beside the commands' own rows.
    pub(super) fn finish(&mut self, group: &mut Group, flush_quotas: bool) {
        self.queues.decided();
        group.queues.extend(self.queues.unsaved());
        if self.quotas.is_dirty_full() || flush_quotas && self.quotas.has_dirty() {
            let seq = self.seq_last();
            group.quotas.extend(self.quotas.dirty_rows(seq));
            group.quotas_flushed = Some(seq);
        }
    }

    /// The group is on disk: make it so here.
    pub(super) fn apply(&mut self, group: Group) {
        self.totals = group.totals;
        self.queues.saved();
        for (queue, _) in &group.pending {
            self.queues.used(*queue);
        }
        if group.quotas_flushed.is_some() {
            self.quotas.flushed();
        }
        // One order of admission, in memory as on disk.
        let mut requeued = group.requeued.iter().peekable();
        for message in group.messages {
            while let Some(row) = requeued.next_if(|row| row.attempt.order < message.seq) {
                self.revive(row);
            }
            let recipient = self.ordering_key(message.queue, message.recipient.as_ref());
            self.line.push(&Arrival {
                seq: message.seq,
                queue: message.queue,
                lane: message.lane,
                due: message.due,
                recipient,
                expires: message.expires,
                tries: Tries::default(),
                body_bytes: message.body_bytes(),
            });
            if self.queues.is_soon(message.queue, message.lane) {
                self.bodies.insert(message);
            }
        }
        for row in requeued {
            self.revive(row);
        }
        for outcome in group.outcomes {
            if let Some(lease) = self.end_lease(outcome.seq) {
                self.line.remove(lease.slot);
            } else if let Some(slot) = self.line.find(outcome.seq) {
                self.line.withdraw(slot);
            }
            self.bodies.remove(outcome.seq);
        }
        for attempt in group.attempts {
            if let Some(lease) = self.end_lease(attempt.seq) {
                let tries = self.line.entry(lease.slot).tries.after(attempt.result);
                self.line.give_back(lease.slot, attempt.due, tries);
            }
        }
        for seq in group.released {
            self.release(seq);
        }
        for (seq, due) in group.held {
            if let Some(lease) = self.end_lease(seq) {
                let tries = self.line.entry(lease.slot).tries;
                self.line.give_back(lease.slot, due, tries);
            }
        }
    }

    /// The group could not be written: it never happened.
    pub(super) fn revert(&mut self, group: Group) {
        for step in group.undo.into_iter().rev() {
            match step {
                Undo::Quota(before) => self.quotas.undo(before),
                Undo::Key(key) => self.keys.undo(&key),
                Undo::SlotTaken(event) => {
                    self.slots.give_back(event);
                }
                Undo::SlotGivenBack(event, held) => self.slots.undo_give_back(event, held),
                Undo::SlotConfig(before) => self.slots.undo_put_config(before),
                Undo::QueueMade(id) => self.queues.undo_add(id),
                Undo::QueueForgotten(id, queue) => self.queues.undo_forget(id, *queue),
                Undo::Turn(queue, turn) => self.line.set_turn(queue, turn),
                Undo::Popped(plucked) => self.line.put_back(&plucked),
                Undo::Paused(queue, paused) => {
                    if let Some(queue) = self.queues.get_mut(queue) {
                        queue.paused = paused;
                    }
                }
                Undo::GivenUp(seq) => {
                    if let Some(lease) = self.leases.get_mut(&seq) {
                        lease.settling = false;
                        self.exhausted.push_front(seq);
                    }
                }
                Undo::Settling(seq) => {
                    if let Some(lease) = self.leases.get_mut(&seq) {
                        lease.settling = false;
                    }
                }
            }
        }
    }

    /// Gives back memory that a backlog has left behind. Between groups, when nothing is being decided.
    pub(super) fn trim(&mut self) {
        self.line.trim();
        self.bodies.trim();
        if self.leases.is_empty() && self.leases.capacity() > LEASES_KEPT {
            self.leases = HashMap::new();
        }
    }

    /// The last sequence number that was given out.
    pub(super) fn seq_last(&self) -> u64 {
        self.seq_next - 1
    }

    /// When the next message of a queue falls due.
    pub(super) fn next_due(&self, queue: &QueueName) -> Option<Timestamp> {
        let queue = self.queues.id(queue).filter(|queue| self.queues.hands_out(*queue))?;
        self.line.next_due(queue)
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

    fn take_seq(&mut self) -> u64 {
        let seq = self.seq_next;
        self.seq_next += 1;
        seq
    }

    /// How many messages a queue will hold when the group is applied.
    fn pending_in(&self, queue: u32, group: &Group) -> u64 {
        let change = group.pending.iter().find(|(id, _)| *id == queue).map_or(0, |(_, change)| *change);
        self.line.depth_of(queue).iter().sum::<u64>().saturating_add_signed(change)
    }

    /// In a queue without order, no message waits for another.
    fn ordering_key<'a>(&self, queue: u32, recipient: Option<&'a Recipient>) -> Option<&'a str> {
        recipient.filter(|_| self.queues.is_strict(queue)).map(|recipient| recipient.as_str())
    }
}

/// How a book is rebuilt from the rows on disk, oldest message first.
impl Book {
    pub(super) fn restore_message(&mut self, arrival: &Arrival<'_>) {
        let strict = self.queues.is_strict(arrival.queue);
        let recipient = arrival.recipient.filter(|_| strict);
        self.line.push(&Arrival { recipient, ..*arrival });
    }

    pub(super) fn restore_totals(&mut self, totals: Totals, seq_last: u64) {
        self.totals = totals;
        self.seq_next = seq_last + 1;
    }

    /// `life` counts how often the ledger was opened: tokens of later lives are larger than all earlier ones, so
    /// that a worker from before a crash settles nothing.
    pub(super) fn begin_life(&mut self, life: u64) {
        self.token_next = (life << TOKEN_BITS) + 1;
    }
}
