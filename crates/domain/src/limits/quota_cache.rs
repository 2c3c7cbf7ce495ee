use std::fmt::Debug;

use async_trait::async_trait;

use super::quota::Quota;
use crate::{Timestamp, UserId};

/// How far users are into the running windows of their quotas, kept in front of the ledger, so that those who have used
/// theirs up are told so without it.
///
/// The ledger charges every message again, in the transaction that keeps it, and has the last word. So a cache may lag
/// behind, or lose all it holds: no window ever holds more than its limit. It may also count too much, by messages
/// that the ledger then did not take; they are never taken back, and gone when the window ends.
///
/// A cache keeps a window no longer than the ledger does.
#[async_trait]
pub trait QuotaCache: Debug + Send + Sync + 'static {
    /// Counts one message of the user if there is room, or only looks whether there is. Answered within the cache's own
    /// deadline, which is short: a request waits for this.
    async fn count(&self, user: &UserId, how: Count) -> Counted;

    /// What the ledger said about a message of the user. A window that is known is brought up to it, never down; one
    /// that is another than the ledger's is forgotten; and whoever has a ticket makes a new one known.
    async fn learn(&self, user: &UserId, window: QuotaWindow, ticket: Option<Ticket>);

    /// After a change of the quota in the ledger. What was read before it is not put down after it. While the cache is
    /// away it is remembered, and done before the cache is asked again.
    async fn forget(&self, user: &UserId);

    /// It can't be asked at the moment; the ledger alone decides.
    fn is_away(&self) -> bool;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    One,
    Look,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// There was room. The window as it is now.
    Passed(QuotaWindow),
    Denied(QuotaWindow),
    /// Nothing is known of the user. One caller at a time gets a ticket, to tell what the ledger says.
    Unknown(Option<Ticket>),
    Away,
}

/// A quota as it stood at `at`, both in the ledger's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaWindow {
    pub quota: Quota,
    pub at: Timestamp,
}

/// Good for one [`learn`](QuotaCache::learn), for a moment, unless the quota is changed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket(pub String);

impl QuotaWindow {
    pub fn rest_ms(&self) -> u64 {
        self.quota.resets_in_ms(self.at)
    }

    pub fn ends_at(&self) -> Timestamp {
        self.quota.since.plus_ms(self.quota.window_ms)
    }

    /// Whether both are about one window under one configuration, whatever they count.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let (one, other) = (&self.quota, &other.quota);
        (one.limit, one.window_ms, one.since) == (other.limit, other.window_ms, other.since)
    }
}
