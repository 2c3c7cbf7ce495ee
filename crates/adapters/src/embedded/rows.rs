//! What one group writes: decided by the book, stored by the store, then applied to the book.

use bytes::Bytes;
use tidegate_domain::{
    AttemptResult, EventId, Headers, Idempotency, Lane, QueueName, Recipient, SlotConfig, Status, Timestamp,
    UserId,
};

use super::line::Tries;
use super::quotas::Account;
use super::slots::Held;

#[derive(Debug, Clone)]
pub(super) struct MessageRow {
    pub(super) seq: u64,
    pub(super) at: Timestamp,
    pub(super) queue: u32,
    pub(super) lane: Lane,
    pub(super) due: Timestamp,
    pub(super) recipient: Option<Recipient>,
    pub(super) charge: Option<ChargeRow>,
    pub(super) idempotency: Option<Idempotency>,
    pub(super) expires: Option<Timestamp>,
    pub(super) headers: Headers,
    pub(super) ack_required: bool,
    pub(super) body: Bytes,
}

impl MessageRow {
    /// Of the largest that fits into a number of 32 bits, should one be larger.
    pub(super) fn body_bytes(&self) -> u32 {
        u32::try_from(self.body.len()).unwrap_or(u32::MAX)
    }

    /// What it holds beside itself.
    pub(super) fn text_bytes(&self) -> usize {
        let pair =
            |(name, value): &(String, String)| size_of::<(String, String)>() + name.len() + value.len();
        let headers: usize = self.headers.0.iter().map(pair).sum();
        let recipient = self.recipient.as_ref().map_or(0, |recipient| recipient.as_str().len());
        let user = self.charge.as_ref().map_or(0, |charge| charge.user.as_str().len());
        self.body.len() + headers + recipient + user
    }
}

/// The window as this message left it; one that begins after the message's admission is a later one that it was
/// deferred to. It travels in the message's own row, so that a charge costs no page of
/// its own; the quota's row follows later, with many charges at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChargeRow {
    pub(super) user: UserId,
    pub(super) count: u32,
    pub(super) since: Timestamp,
}

/// A message's end, with the number of the attempt that ended it; zero when there was none.
#[derive(Debug, Clone)]
pub(super) struct OutcomeRow {
    pub(super) seq: u64,
    pub(super) status: Status,
    pub(super) at: Timestamp,
    pub(super) attempt: u32,
    pub(super) latency_ms: u64,
    pub(super) reason: Option<String>,
}

impl OutcomeRow {
    /// The attempt that ended it, as one of those before the end.
    pub(super) fn failed_attempt(&self, due: Timestamp) -> Option<AttemptRow> {
        let Self { seq, at, attempt: number, latency_ms, .. } = *self;
        let (reason, result) = (self.reason.clone(), AttemptResult::Failed);
        (number > 0).then_some(AttemptRow { seq, number, at, latency_ms, reason, due, result, order: 0 })
    }
}

/// What a message went through before it ended.
#[derive(Debug)]
pub(super) struct Past {
    /// As of the last commit.
    pub(super) outcome: Option<OutcomeRow>,
    /// Since it was admitted or requeued.
    pub(super) accepted: bool,
    pub(super) tried: bool,
    pub(super) due: Timestamp,
}

/// A message that had ended otherwise, and is delivered by its recipient's word.
#[derive(Debug)]
pub(super) struct LateAckRow {
    /// The attempt that it had died of.
    pub(super) last: Option<AttemptRow>,
    pub(super) outcome: OutcomeRow,
}

/// An attempt that left its message pending.
#[derive(Debug)]
pub(super) struct AttemptRow {
    pub(super) seq: u64,
    pub(super) number: u32,
    pub(super) at: Timestamp,
    pub(super) latency_ms: u64,
    pub(super) reason: Option<String>,
    pub(super) due: Timestamp,
    /// Failed, accepted or requeued.
    pub(super) result: AttemptResult,
    /// For a requeued message: its new place in the order of admission, else zero.
    pub(super) order: u64,
}

/// A quota with the last message whose charge it contains.
#[derive(Debug, Clone)]
pub(super) struct QuotaRow {
    pub(super) user: UserId,
    pub(super) account: Account,
    pub(super) seq: u64,
}

/// A dead letter as it stands on disk.
#[derive(Debug)]
pub(super) struct DeadLetter {
    /// Without its body.
    pub(super) message: MessageRow,
    /// The attempt that it died of, if it was one.
    pub(super) last: Option<AttemptRow>,
    pub(super) tries: Tries,
    pub(super) body_bytes: u32,
}

/// A dead letter that is pending again.
#[derive(Debug)]
pub(super) struct RequeueRow {
    /// The body only if it was edited.
    pub(super) message: MessageRow,
    /// The attempt that it died of: it leaves the outcome, which goes, for the attempts, which stay.
    pub(super) last: Option<AttemptRow>,
    pub(super) attempt: AttemptRow,
    pub(super) tries: Tries,
    pub(super) edited: bool,
    pub(super) body_bytes: u32,
}

#[derive(Debug)]
pub(super) struct SlotRow {
    pub(super) event: EventId,
    pub(super) held: Held,
}

/// One version of a configuration; `config` is the same for all of them.
#[derive(Debug)]
pub(super) struct SlotConfigRow {
    pub(super) config: u16,
    pub(super) stored: SlotConfig,
}

#[derive(Debug, Clone)]
pub(super) struct QueueRow {
    pub(super) id: u32,
    pub(super) name: QueueName,
    pub(super) paused: bool,
    /// False: forgotten. Messages that ended there still know it by its number.
    pub(super) live: bool,
}

/// Totals since the ledger was made. What is pending follows from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) admitted: u64,
    pub(super) delivered: u64,
    pub(super) dead: u64,
    pub(super) expired: u64,
    pub(super) deleted: u64,
}

impl Totals {
    pub(super) fn pending(&self) -> Option<u64> {
        self.admitted.checked_sub(self.delivered + self.dead + self.expired + self.deleted)
    }

    /// A message that had ended otherwise is delivered.
    pub(super) fn deliver_late(&mut self, was: Status) {
        match was {
            Status::Dead => self.dead = self.dead.saturating_sub(1),
            Status::Expired => self.expired = self.expired.saturating_sub(1),
            Status::Pending | Status::Delivered | Status::Deleted => return,
        }
        self.delivered += 1;
    }

    pub(super) fn settle(&mut self, status: Status) {
        match status {
            Status::Pending => {}
            Status::Delivered => self.delivered += 1,
            Status::Dead => self.dead += 1,
            Status::Expired => self.expired += 1,
            Status::Deleted => self.deleted += 1,
        }
    }
}
