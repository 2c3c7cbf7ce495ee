//! May this go, and if not now, when?

mod bucket;
mod buckets;
mod engine;
mod pattern;
mod policy;
mod quota;
mod quota_cache;
pub mod slot;
mod tally;

pub use bucket::{BadRule, BucketRule, Debt, IDLE_SECONDS, Lack, Standing};
pub use buckets::{BucketCounts, Buckets, BucketsError, Fallen, PolicyId, PolicyRule, Take, Taken};
pub use engine::{Asked, InForce, Policies, Snapshot, Tightest, Verdict};
pub use pattern::{BadPattern, PathPattern};
pub use policy::{FailStrategy, KeyStrategy, MissingKey, Policy, PolicyName};
pub use quota::{Charge, Deferrals, Quota, QuotaRule};
pub use quota_cache::{Count, Counted, QuotaCache, QuotaWindow, Ticket};
pub use tally::{DeniedKey, Outcomes, Tally};
