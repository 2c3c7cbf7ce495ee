use std::sync::Arc;

use tidegate_adapters::buckets::memory::{MemoryBuckets, Options};
use tidegate_domain::Clock;
use tidegate_domain::limits::{BucketRule, Buckets, PolicyId, PolicyName, PolicyRule, Take, Taken};
use tidegate_testkit::buckets::at_once;

/// A store with rules numbered from zero.
pub fn store<C: Clock>(options: Options, clock: Arc<C>, rules: &[BucketRule]) -> MemoryBuckets {
    let store = MemoryBuckets::new(options, clock);
    let name = |id: u32| PolicyName::new(&format!("policy-{id}")).unwrap();
    let numbered =
        rules.iter().zip(0..).map(|(rule, id)| PolicyRule { id: PolicyId(id), name: name(id), rule: *rule });
    at_once(store.reconfigure(&numbered.collect::<Vec<_>>())).unwrap();
    store
}

pub fn rule(capacity: u32, refill: f64) -> BucketRule {
    BucketRule::new(capacity, refill, 1, false).unwrap()
}

pub fn take(store: &MemoryBuckets, takes: &[(u32, &str)]) -> Taken {
    let takes: Vec<_> = takes.iter().map(|(id, key)| Take { policy: PolicyId(*id), key }).collect();
    at_once(store.take(&takes)).unwrap()
}
