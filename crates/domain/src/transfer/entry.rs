use bytes::Bytes;

use crate::limits::{Deferrals, Quota};
use crate::{
    AttemptRecord, EventId, Fingerprint, Headers, IdempotencyKey, Lane, QueueName, Recipient, SlotConfig,
    SlotConfigName, Status, Timestamp, UserId,
};

/// One thing that a ledger knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Queue(QueueEntry),
    Quota(QuotaEntry),
    /// One version; those of a configuration follow one another, the active one last.
    SlotConfig(SlotConfig),
    Slot(SlotEntry),
    Message(Box<MessageEntry>),
    Key(KeyEntry),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEntry {
    pub name: QueueName,
    pub paused: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaEntry {
    pub user: UserId,
    pub quota: Quota,
    pub deferrals: Deferrals,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotEntry {
    pub event: EventId,
    pub config: SlotConfigName,
    /// Counts the window sizes that its configuration has had, from 1: slots of earlier ones hold no place.
    pub generation: u32,
    pub window: i64,
    pub requested: Timestamp,
    pub scheduled: Timestamp,
    pub created_at: Timestamp,
    /// The number of its message, admitted when the slot was created.
    pub message: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageEntry {
    pub seq: u64,
    pub admitted_at: Timestamp,
    pub queue: QueueName,
    pub recipient: Option<Recipient>,
    pub lane: Lane,
    pub user: Option<UserId>,
    /// When it is due, or was when it ended.
    pub due_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub headers: Headers,
    pub ack_required: bool,
    /// Empty for a deleted message.
    pub body: Bytes,
    /// Those that left it pending: failed, accepted, requeued.
    pub attempts: Vec<AttemptRecord>,
    pub fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Pending {
        /// Its place in its recipient's chain: its number, or a later one if it was requeued.
        place: u64,
        /// The number of the last attempt spent on it. Leases that ended unsettled count, and stand among no
        /// attempts; ledgers whose restart forgets them forget them here too.
        spent: u32,
        failures: u32,
        acks: u32,
    },
    Ended(Ended),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Anything but pending.
    pub status: Status,
    pub at: Timestamp,
    /// Number and duration of the attempt that ended it, if one did.
    pub attempt: Option<(u32, u64)>,
    pub reason: Option<String>,
}

/// An idempotency key whose window is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyEntry {
    pub key: IdempotencyKey,
    pub fingerprint: Fingerprint,
    /// Its message, which it may outlive.
    pub seq: u64,
    pub admitted_at: Timestamp,
}

impl Entry {
    /// About as much memory as it takes.
    pub fn weight_bytes(&self) -> usize {
        const PLAIN: usize = 256;
        match self {
            Self::Message(message) => {
                let headers = message.headers.0.iter().map(|(name, value)| name.len() + value.len());
                let reasons = message.attempts.iter().map(|attempt| {
                    std::mem::size_of::<AttemptRecord>() + attempt.reason.as_ref().map_or(0, String::len)
                });
                2 * PLAIN + message.body.len() + headers.sum::<usize>() + reasons.sum::<usize>()
            }
            Self::Quota(quota) => PLAIN + 16 * quota.deferrals.dues().count(),
            Self::SlotConfig(config) => PLAIN + 16 * config.rule.calendar.blackouts.len(),
            Self::Queue(_) | Self::Slot(_) | Self::Key(_) => PLAIN,
        }
    }
}
