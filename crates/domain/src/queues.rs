use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    Claim, Lane, LedgerError, MessageId, MessageRecord, QueueName, Recipient, Settled, Status, Timestamp,
    UserId,
};

/// What people and consumers do with a ledger's queues beside admitting, claiming and settling.
///
/// `Ok` promises the same durability as on the Ledger port, and the same errors mean the same.
#[async_trait]
pub trait Queues: Debug + Send + Sync + 'static {
    /// Takes up to `max` messages for good, in the order of [`claim`](crate::Ledger::claim), waiting up to
    /// `wait_ms` for the first: they are delivered when this answers, in one commit. No message is answered twice.
    /// What can't be read is not taken. What is damaged is not answered; it is dead. The bodies of one answer are
    /// bounded in bytes as those of a claim; what does not fit is not taken.
    async fn pop(&self, queue: QueueName, max: usize, wait_ms: u64) -> Result<Vec<Claim>, LedgerError>;

    /// Leases the first message of each of these recipients, if a claim could take it now, without waiting: what a
    /// recipient that is here just now is handed. Messages of other recipients are not touched, however many wait. Higher
    /// lanes come first (a chain counts as the highest lane waiting in it), then due time, then admission; no more than
    /// `max`, and no more bytes of bodies than a claim answers. Nothing is found in a queue without order, where a
    /// recipient has no first message.
    async fn pick_up(&self, request: PickUp) -> Result<Vec<Claim>, LedgerError>;

    /// Waits up to `wait_ms` until the queue's count of changes is another than `seen`, and answers that count. It changes
    /// when a message of the queue may have become claimable: admitted, stepped forward, handed back, the queue resumed.
    /// A message that falls due changes nothing, and a count may change for no reason: a hint for those who pick up.
    async fn stirred(&self, queue: QueueName, seen: u64, wait_ms: u64) -> Result<u64, LedgerError>;

    /// Lets leases end that much later than now. A token that is not the current lease's changes nothing.
    async fn extend(&self, batch: Vec<Extension>) -> Result<Vec<Settled>, LedgerError>;

    /// The recipient has it: messages that were accepted by their channel are delivered now, whoever holds a lease.
    /// So are those that require an ack once they have been out: an ack may come before the sender's settlement,
    /// which then finds its lease gone, and after an attempt that seemed to fail. An attempt under way on a message
    /// that no channel had accepted yet is recorded as delivered.
    ///
    /// An ack is the recipient's word, so it also wins over an end that was a guess: a dead letter that requires an ack, and
    /// what has expired after it was out, is delivered now. So is either when a channel had accepted it since it was
    /// admitted or requeued.
    async fn ack(&self, ids: Vec<MessageId>) -> Result<Vec<Acked>, LedgerError>;

    /// Takes messages back that are under no lease and that no channel has. Their texts go at once: from the answer on, a
    /// record and every list have no body ([`Body::Erased`](crate::Body::Erased)), and of the headers only what
    /// [`Headers::erased`](crate::Headers::erased) leaves. The ledger's files lose them soon.
    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Cancelled>, LedgerError>;

    /// Messages that match, oldest first. A page may hold fewer than asked for, even none, and still name a next
    /// one: a look-up is bounded in what it reads, and in the bytes of the bodies that it answers. With a recipient or a
    /// user, only that one's messages count: however many others lie between, they take no page. What is damaged costs
    /// the page that one row, and is named; it counts as one of the page.
    async fn list(&self, filter: Filter, page: Page) -> Result<Listing, LedgerError>;

    /// Makes dead letters pending again, at the end of their recipient's chain, with all their attempts before
    /// them, the failed ones forgotten. They keep their ids.
    async fn requeue(&self, batch: Vec<Requeue>) -> Result<Vec<Requeued>, LedgerError>;

    /// Removes dead letters for good, with everything known of them; false for what is none. The ledger's files lose their
    /// texts soon.
    async fn delete_dead(&self, ids: Vec<MessageId>) -> Result<Vec<bool>, LedgerError>;

    /// Takes back every message of a queue that no lease holds and no channel has, with its text as
    /// [`cancel`](Queues::cancel) does, and says how many.
    async fn purge(&self, queue: QueueName) -> Result<u64, LedgerError>;

    /// A paused queue admits messages and hands out none, through restarts. False when there is no such queue: a queue
    /// comes into being with its first message. Those that the settings name can be paused before.
    async fn pause(&self, queue: QueueName, paused: bool) -> Result<bool, LedgerError>;

    /// Every queue there is, by name. One that the settings don't name is forgotten, in a sweep, when no message has come to
    /// it or gone from it for a time of the settings' choosing, and it is neither paused nor holds anything pending. Its
    /// messages that have ended, dead letters too, are still found under its name. The next message makes it again, and so
    /// does a dead letter that is requeued.
    async fn queue_counts(&self) -> Result<Vec<QueueCounts>, LedgerError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickUp {
    pub queue: QueueName,
    pub recipients: Vec<Recipient>,
    pub max: usize,
    pub lease_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    pub id: MessageId,
    pub token: u64,
    pub lease_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acked {
    Acked,
    /// No attempt was begun, or it requires no ack and no channel has accepted it, or it was deleted.
    NotAwaited,
    /// It had been delivered already.
    Already,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    Cancelled,
    /// Somebody holds a lease on it.
    UnderWay,
    /// A channel has accepted it since it was admitted or requeued, and its ack is awaited.
    Sent,
    /// It has ended.
    Ended,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub queue: Option<QueueName>,
    pub status: Option<Status>,
    /// Anything but pending.
    pub ended: bool,
    pub recipient: Option<Recipient>,
    /// Whose quota was charged.
    pub user: Option<UserId>,
    pub lane: Option<Lane>,
    /// Admitted at or after.
    pub from: Option<Timestamp>,
    /// Admitted before.
    pub to: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub max: usize,
    /// How many bytes the messages of the page may take with their bodies, headers and reasons
    /// ([`MessageRecord::text_bytes`]); one message always fits. None: bodies are not read at all, and nothing is counted.
    pub body_bytes_max: Option<usize>,
    /// The `next` of the page before.
    pub after: Option<MessageId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    pub messages: Vec<MessageRecord>,
    pub damaged: Vec<Damaged>,
    pub next: Option<MessageId>,
}

/// A message that a list came across and that is not what was written. Whether it matches can't be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Made of what can be read: the number is right, the time may be what is damaged.
    pub id: MessageId,
    pub problem: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeue {
    pub id: MessageId,
    /// Another text than the one that died.
    pub body: Option<Bytes>,
    /// Due that much later: how a crowd of them is let out at a pace.
    pub delay_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeued {
    Requeued,
    /// There is no such dead letter.
    NotDead,
    /// As many messages as the ledger may hold.
    Full,
    /// As many messages as its queue may hold, for its lane.
    QueueFull,
    /// Its time is over before it would be due again.
    Expired,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueCounts {
    pub queue: QueueName,
    pub paused: bool,
    /// Pending, by lane.
    pub depth: [u64; 3],
    pub leased: u64,
}

/// How a queue is kept. Settings, not state: they may change between two starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRule {
    pub order: Order,
    /// Pending messages beyond which only those of the high lane are let in.
    pub pending_max: u64,
    /// And beyond which none is.
    pub pending_hard_max: u64,
    /// While both wait: how many messages of higher lanes go before one of a lower lane does.
    pub higher_per_lower: u32,
    /// Failed attempts after which a lease that ends unsettled leaves a dead letter.
    pub attempts_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Per recipient, in admission order.
    #[default]
    Strict,
    /// No message waits for another.
    BestEffort,
}

impl Default for QueueRule {
    fn default() -> Self {
        Self {
            order: Order::Strict,
            pending_max: u64::MAX,
            pending_hard_max: u64::MAX,
            higher_per_lower: Self::HIGHER_PER_LOWER,
            attempts_max: u32::MAX,
        }
    }
}

impl QueueRule {
    pub const HIGHER_PER_LOWER: u32 = 10;
    /// How long a queue that no setting names is remembered when it is empty and unused.
    pub const FORGET_AFTER_MS: u64 = 3_600_000;
    /// How often a ledger in one process looks which queues are idle, at the most: sweeps come more often than that.
    pub const LOOK_MS: u64 = 1_000;

    /// Whether the attempt that just failed, after so many failures, was the last.
    pub fn is_exhausted(&self, failures_before: u32) -> bool {
        failures_before.saturating_add(1) >= self.attempts_max
    }

    pub fn lets_in(&self, pending: u64, lane: Lane) -> bool {
        has_room(pending, lane, self.pending_max, self.pending_hard_max)
    }
}

/// Whether one more message may be pending, of a queue or of all: urgent ones pass up to a bound of their own.
pub fn has_room(pending: u64, lane: Lane, max: u64, hard_max: u64) -> bool {
    pending < max || lane == Lane::High && pending < hard_max
}
