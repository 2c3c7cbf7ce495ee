use std::fmt::Debug;

use async_trait::async_trait;

use super::bucket::{BucketRule, Lack, Standing};
use super::policy::PolicyName;

/// Where the buckets of all policies are kept.
///
/// A bucket is named by its policy and a key. A bucket that was never taken from is full, and so is one that the
/// store has forgotten; therefore a store forgets a bucket only when it is full anyway, or makes sure in another
/// way that whoever drew from it gains nothing.
///
/// Time is the store's own: monotonic within a process, the server's where several processes share it.
#[async_trait]
pub trait Buckets: Debug + Send + Sync + 'static {
    /// Takes each bucket's cost from all of them or from none, in one step that no other take comes between.
    ///
    /// `Ok` answers each take in order. A shadow bucket never denies: when it lacks tokens nothing is taken from
    /// it, and it is charged only when the others pass. A policy that the store has no rule for (a reload came
    /// between) lacks nothing. Each policy stands in `takes` once at most.
    ///
    /// `Err`: nothing is known about any bucket; at worst the costs were taken. Answered within the store's own
    /// deadline, which is short: a request waits for this.
    async fn take(&self, takes: &[Take<'_>]) -> Result<Taken, BucketsError>;

    /// What a bucket holds now; `lacked` says whether a take would pass. None when the store has no rule for the
    /// policy.
    async fn peek(&self, bucket: Take<'_>) -> Result<Option<Standing>, BucketsError>;

    /// Fills a bucket.
    async fn reset(&self, bucket: Take<'_>) -> Result<(), BucketsError>;

    /// These rules and no others from now on. Buckets of a policy that stays keep their tokens, as far as they
    /// fit its new capacity. Those of the others are forgotten by a store of one process; a store that several processes
    /// share keeps them, because the other processes may still have the policy. An id stands for the same name for ever.
    async fn reconfigure(&self, rules: &[PolicyRule]) -> Result<(), BucketsError>;

    fn counts(&self) -> BucketCounts;

    /// The rule that takes go by, as far as it is known without asking. None: that of the last `reconfigure`; a store that
    /// several processes share may have a newer one.
    fn in_force(&self, _policy: PolicyId) -> Option<BucketRule> {
        None
    }

    /// Each of these fell back on a bucket of its caller's own while this store could not be asked. As soon as it can,
    /// and before anything else is taken where possible, the tokens are charged, and a store that was emptied meanwhile
    /// learns what was known of the bucket. Nothing to do for a store that is never away.
    fn owe(&self, _fallen: &[Fallen<'_>]) {}

    /// For a store that others fall back on: a bucket holds no more of what it can hold than `standing` says of the
    /// bucket that it stands in for.
    fn follow(&self, _bucket: Take<'_>, _standing: &Standing) {}
}

/// A take that a bucket of the caller's own has decided about.
#[derive(Debug, Clone, Copy)]
pub struct Fallen<'a> {
    pub take: Take<'a>,
    /// Zero when it was denied.
    pub tokens: u32,
    /// What was known of the bucket before.
    pub before: Lack,
}

/// One bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take<'a> {
    pub policy: PolicyId,
    pub key: &'a str,
}

/// A short name for a policy's name, given once per name and process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u32);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    pub id: PolicyId,
    pub name: PolicyName,
    pub rule: BucketRule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub passed: bool,
    /// One per take, in order: as it stands afterwards.
    pub standings: Vec<Standing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketCounts {
    /// None when the store can't say without looking at all of them.
    pub buckets: Option<u64>,
    /// Buckets given up before they were full, for want of room.
    pub forced_evictions: u64,
    /// The store can't be asked at the moment; takes fail at once.
    pub away: bool,
    /// Takes that failed.
    pub failures: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketsError {
    /// Worth another try later; until then each policy's fail strategy applies.
    #[error("the buckets' store is unavailable: {0}")]
    Unavailable(String),
}

impl Standing {
    /// For a policy without a rule: nothing to say.
    pub const UNLIMITED: Self =
        Self { rule: None, lacked: false, remaining: u32::MAX, full_in_ns: 0, retry_after_ns: 0 };
}
