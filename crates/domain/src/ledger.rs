use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

use crate::limits::{Quota, QuotaRule};
use crate::{Idempotency, Lane, MessageId, QueueName, Recipient, Timestamp, UserId, cut_reason};

/// The system of record: queues, quotas and what became of every message.
///
/// Every operation takes a batch and answers one result per item, in order. `Ok` on [`admit`](Ledger::admit),
/// [`settle`](Ledger::settle) and [`set_quota`](Ledger::set_quota) means that the change is as durable as
/// [`durability`](Ledger::durability) says. Denied, duplicate and lost lease are values; an `Err` concerns the
/// whole call, and its kind says whether anything may have happened. All times are the ledger's own clock's.
#[async_trait]
pub trait Ledger: Debug + Send + Sync + 'static {
    /// Admits each message with its quota charge and its idempotency key, all three or none of them. The items
    /// of a batch are decided in order and committed together.
    async fn admit(&self, batch: Vec<Admission>) -> Result<Vec<Admitted>, LedgerError>;

    /// Leases up to `max` messages of a queue, waiting up to `wait_ms` for the first. Chosen are due heads of
    /// recipient chains: higher lanes first, but one of a lower lane for so many of higher ones while both wait as
    /// the queue's rule says; within a lane by due time, then by admission. A chain counts as the highest lane waiting
    /// in it.
    /// At most one message of a recipient is leased at a time. A lease that ends unsettled makes its message
    /// claimable again, with the next attempt number; after as many failed attempts as the queue's rule grants, it makes
    /// a dead letter of it ([`lapsed_reason`](crate::lapsed_reason)), at the next sweep at the latest.
    ///
    /// The bodies of one answer take no more than the ledger's bound in bytes ([`BATCH_BYTES_MAX`] unless it was set
    /// otherwise), save that one message always fits. What does not fit is not leased, and its turn is not over.
    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claim>, LedgerError>;

    /// Ends leases. A settlement whose token is not the message's current lease changes nothing. Of a reason no more is kept
    /// than [`REASON_BYTES_MAX`](crate::REASON_BYTES_MAX).
    async fn settle(&self, batch: Vec<Settlement>) -> Result<Vec<Settled>, LedgerError>;

    /// Settles like [`settle`](Ledger::settle), and goes on with each recipient: where a settlement ends its message
    /// (delivered, dead, expired), the recipient's next message is leased to the caller for `lease_ms`, if a claim could
    /// take it now: it is due, it has not expired, and its queue is not paused. So a chain costs one call per message
    /// instead of two. Lanes and due times of other recipients have no say here: a caller asks for the next messages
    /// only while no other message waits for it. A lost lease brings nothing along. An expired message that no sweep has
    /// noticed yet may stand in the way of the one behind it.
    async fn advance(&self, batch: Vec<Settlement>, lease_ms: u64) -> Result<Vec<Advanced>, LedgerError>;

    /// Stores a user's quota with a count of zero and a window that begins now. Messages of a lane that it exempts are
    /// charged while there is room, and otherwise admitted at once all the same, uncounted.
    async fn set_quota(&self, user: UserId, rule: QuotaRule) -> Result<Quota, LedgerError>;

    /// The same for a quota that exempts none.
    async fn put_quota(&self, user: UserId, limit: u32, window_ms: u64) -> Result<Quota, LedgerError> {
        self.set_quota(user, QuotaRule { limit, window_ms, exempts_high: false }).await
    }

    async fn quota(&self, user: UserId) -> Result<Option<Quota>, LedgerError>;

    /// Removes a user's quota; false when there is none. Messages already admitted stay. Those deferred to later windows
    /// count there, should the user have a quota again by then.
    async fn delete_quota(&self, user: UserId) -> Result<bool, LedgerError>;

    /// Up to `max` quotas by user id, after the given one.
    async fn quotas(&self, after: Option<UserId>, max: usize) -> Result<Vec<(UserId, Quota)>, LedgerError>;

    /// A message with its attempts, as last committed.
    async fn message(&self, id: MessageId) -> Result<Option<MessageRecord>, LedgerError>;

    /// The books: `admitted = delivered + dead + expired + deleted + pending` in every answer.
    async fn counts(&self) -> Result<Counts, LedgerError>;

    /// Returns leases that have ended, opens what has become due, and removes a slice of what retention lets
    /// go. The ledger does this by itself; the call makes it happen now.
    async fn sweep(&self) -> Result<(), LedgerError>;

    fn durability(&self) -> Durability;

    /// How the ledger is doing, answered from memory.
    fn health(&self) -> Health;

    /// Resolves when the ledger has failed for good (a failed fsync, damage) and the process must exit, with
    /// the reason.
    async fn failed(&self) -> String;
}

/// How many bytes the bodies of one answer may take, unless the ledger was set otherwise: memory follows from it, and
/// not from how many messages were asked for.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// What an attempt counts on a page, beside its reason.
pub const ATTEMPT_BYTES: usize = 100;

/// A message that asks to be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    pub queue: QueueName,
    /// The ordering key. Without one, the message is ordered against no other.
    pub recipient: Option<Recipient>,
    pub lane: Lane,
    pub due: Due,
    pub body: Bytes,
    /// Whose quota is charged, if anyone's.
    pub charge: Option<UserId>,
    pub on_limit: OnLimit,
    pub idempotency: Option<Idempotency>,
    /// When it is no longer worth sending: then it expires instead.
    pub expires: Option<Timestamp>,
    /// What travels with the body.
    pub headers: Headers,
    /// Delivered only when its recipient says so.
    pub ack_required: bool,
}

/// Names and values that travel with a message, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(pub Vec<(String, String)>);

impl Admission {
    /// Due at once, in the normal lane, charged to nobody.
    pub fn new(queue: QueueName, body: Bytes) -> Self {
        Self {
            queue,
            recipient: None,
            lane: Lane::Normal,
            due: Due::Now,
            body,
            charge: None,
            on_limit: OnLimit::Deny,
            idempotency: None,
            expires: None,
            headers: Headers::default(),
            ack_required: false,
        }
    }
}

/// What becomes of a message whose user has no quota left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLimit {
    #[default]
    Deny,
    /// It is charged to the first later window with room, and due when that begins, if it begins within the
    /// horizon.
    Defer { horizon_ms: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Now,
    At(Timestamp),
}

/// What became of an [`Admission`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// In the ledger. `quota` is the charged quota after the charge, `at` the ledger's time.
    Admitted {
        id: MessageId,
        at: Timestamp,
        quota: Option<Quota>,
    },
    /// In the ledger, charged to a later window: due when that begins. `quota` is the current window's.
    Deferred {
        id: MessageId,
        at: Timestamp,
        due: Timestamp,
        quota: Quota,
    },
    /// The key was used before, by the same request: this is its message. Nothing was charged.
    Duplicate {
        id: MessageId,
        at: Timestamp,
    },
    /// The key was used before, by another request.
    KeyConflict {
        id: MessageId,
    },
    /// The user to be charged has no quota.
    UnknownUser,
    OverQuota {
        retry_after_ms: u64,
        at: Timestamp,
        quota: Quota,
    },
    /// As many messages (or keys) as the ledger may hold.
    Full,
    /// As many messages as the queue may hold, for this lane.
    QueueFull,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    pub queue: QueueName,
    pub max: usize,
    pub lease_ms: u64,
    pub wait_ms: u64,
}

/// A leased message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub id: MessageId,
    pub queue: QueueName,
    pub recipient: Option<Recipient>,
    pub lane: Lane,
    pub user: Option<UserId>,
    pub admitted_at: Timestamp,
    /// Counts from 1 over the message's whole life.
    pub attempt: u32,
    /// Attempts that failed, or whose lease ended unsettled, since it was admitted or requeued.
    pub failures: u32,
    /// How often its channel accepted it and no ack came in time.
    pub ack_attempts: u32,
    pub ack_required: bool,
    pub headers: Headers,
    /// The fencing token: larger for every later lease of the same message.
    pub token: u64,
    pub lease_until: Timestamp,
    /// `None` when the bytes on disk don't match their checksum: never served, settle it as dead.
    pub body: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub id: MessageId,
    pub token: u64,
    pub outcome: Outcome,
    /// How long the attempt took.
    pub latency_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    /// The attempt failed; the message is due again after the delay and keeps its place in its chain.
    Retry {
        delay_ms: u64,
        reason: String,
    },
    Dead {
        reason: String,
    },
    /// Dead without another attempt.
    GivenUp {
        reason: String,
    },
    /// The channel has it, and the recipient's ack is awaited that long; then it is due again. The message keeps
    /// its place in its chain.
    Accepted {
        ack_within_ms: u64,
    },
    /// Over without another attempt.
    Expired,
    /// Handed back untried: claimable at once, no attempt spent.
    Released,
    /// Handed back untried, because now is no time for it: claimable that much later, no attempt spent. A restart
    /// forgets the wait.
    Held {
        for_ms: u64,
    },
}

impl Outcome {
    /// The same, with its reason cut to what a ledger keeps of one.
    pub fn within_bounds(self) -> Self {
        match self {
            Self::Retry { delay_ms, reason } => Self::Retry { delay_ms, reason: cut_reason(reason) },
            Self::Dead { reason } => Self::Dead { reason: cut_reason(reason) },
            Self::GivenUp { reason } => Self::GivenUp { reason: cut_reason(reason) },
            other => other,
        }
    }

    /// Whether the message leaves its recipient's chain.
    pub fn ends_message(&self) -> bool {
        match self {
            Self::Delivered | Self::Dead { .. } | Self::GivenUp { .. } | Self::Expired => true,
            Self::Retry { .. } | Self::Accepted { .. } | Self::Released | Self::Held { .. } => false,
        }
    }
}

/// What became of a settlement, and the recipient's next message, leased to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    pub settled: Settled,
    pub next: Option<Claim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// Somebody else holds the message now, or it is settled, or it never was.
    LostLease,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Pending,
    Delivered,
    Dead,
    Expired,
    /// Taken back before it was sent.
    Deleted,
}

/// Everything the ledger knows about a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRecord {
    pub id: MessageId,
    pub queue: QueueName,
    pub recipient: Option<Recipient>,
    pub lane: Lane,
    pub user: Option<UserId>,
    pub admitted_at: Timestamp,
    pub due_at: Timestamp,
    pub status: Status,
    pub settled_at: Option<Timestamp>,
    pub reason: Option<String>,
    pub attempts: Vec<AttemptRecord>,
    pub expires_at: Option<Timestamp>,
    pub headers: Headers,
    pub ack_required: bool,
    pub body: Body,
}

impl MessageRecord {
    /// What a page counts of this message: the bytes of its body and headers, and of all reasons.
    pub fn text_bytes(&self) -> usize {
        let header_bytes = |(name, value): &(String, String)| name.len() + value.len();
        let reason_bytes = |reason: &Option<String>| reason.as_ref().map_or(0, String::len);
        self.body.len()
            + self.headers.0.iter().map(header_bytes).sum::<usize>()
            + self.attempts.iter().map(|attempt| ATTEMPT_BYTES + reason_bytes(&attempt.reason)).sum::<usize>()
            + reason_bytes(&self.reason)
    }
}

/// What a record has of its message's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Whole(Bytes),
    /// It was not asked for.
    Unread,
    /// Its message was deleted, and its text with it.
    Erased,
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl Body {
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Unread | Self::Erased => None,
        }
    }

    /// Bytes of memory that it takes.
    pub fn len(&self) -> usize {
        self.bytes().map_or(0, Bytes::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    pub number: u32,
    pub at: Timestamp,
    pub latency_ms: u64,
    pub result: AttemptResult,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    Delivered,
    Failed,
    /// Taken by the channel, to be acked by the recipient.
    Accepted,
    /// Not an attempt to deliver: a dead letter was made pending again.
    Requeued,
}

/// Totals since the ledger was made, and what it holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub admitted: u64,
    pub delivered: u64,
    pub dead: u64,
    pub expired: u64,
    pub deleted: u64,
    pub pending: u64,
    /// Of the pending ones: under a lease.
    pub leased: u64,
    /// Of the pending ones, by lane.
    pub depth: [u64; 3],
}

impl Counts {
    pub fn balanced(&self) -> bool {
        self.admitted == self.delivered + self.dead + self.expired + self.deleted + self.pending
    }
}

/// What `Ok` on an admission promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk: survives a power cut.
    Fsync,
    /// Handed to the operating system: survives the process, not the machine. Only by explicit setting.
    OsBuffer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// Reads work; writes are refused for now, for want of room.
    ReadOnly(String),
    /// Nothing works for now: the ledger's server can't be reached, or can't do its work.
    Away(String),
    Failed(String),
}

/// Why a whole call failed, by what the caller may do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Too much is under way. Nothing happened; try again soon.
    #[error("the ledger's intake is full")]
    Overloaded,
    /// The ledger can't write now. Nothing happened; try again later.
    #[error("the ledger is unavailable: {0}")]
    Unavailable(String),
    /// No room on the disk. Nothing happened; try again when there is room.
    #[error("no room for the ledger: {0}")]
    NoSpace(String),
    /// The change may or may not have been committed. A retry needs an idempotency key.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// The ledger asked its server for something that makes no sense there, such as a row that violates a constraint: a
    /// defect of this program. Nothing happened, and nothing will be different next time.
    #[error("the ledger has a defect: {0}")]
    Defect(String),
    /// What is stored does not match its checksum or makes no sense. Never retried, never served.
    #[error("the ledger is damaged: {0}")]
    Corrupt(String),
}
