use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_domain::limits::{BucketRule, Buckets, PolicyId, PolicyName, PolicyRule, Standing, Take, Taken};

use crate::HANG;
use crate::TestClock;

/// How to make a store of buckets for a test, in a namespace of its own.
#[async_trait]
pub trait BucketsBackend: Send + Sync + 'static {
    /// A fresh store whose time is the clock's monotonic one.
    async fn open(&self, clock: Arc<TestClock>) -> anyhow::Result<OpenBuckets>;

    /// Whether several processes share the store: then a policy that one of them drops keeps its levels.
    fn is_shared(&self) -> bool {
        false
    }
}

pub struct OpenBuckets {
    pub buckets: Arc<dyn Buckets>,
    /// Lets the store forget what it may.
    pub sweep: Box<dyn Fn() + Send + Sync>,
}

/// A store under test, with the clock that rules it.
#[derive(Debug)]
pub struct BucketsHarness {
    pub clock: Arc<TestClock>,
    pub buckets: Arc<dyn Buckets>,
    pub is_shared: bool,
}

/// Runs one case on a fresh store.
pub async fn run(backend: impl BucketsBackend, case: impl AsyncFnOnce(&BucketsHarness)) {
    let clock = Arc::new(TestClock::new());
    let opened = backend.open(clock.clone()).await.expect("the store opens");
    let harness = BucketsHarness { clock, buckets: opened.buckets, is_shared: backend.is_shared() };
    tokio::time::timeout(HANG, case(&harness)).await.expect("the case ends in time");
}

impl BucketsHarness {
    /// Rules numbered from zero; none for a number that no policy has.
    pub async fn configure(&self, rules: &[Option<BucketRule>]) {
        let numbered = rules.iter().zip(0..).filter_map(|(rule, number)| {
            let name = PolicyName::new(&format!("policy-{number}")).expect("a name");
            Some(PolicyRule { id: PolicyId(number), name, rule: (*rule)? })
        });
        self.buckets.reconfigure(&numbered.collect::<Vec<_>>()).await.expect("a store that is there");
    }

    pub async fn take(&self, takes: &[(u32, &str)]) -> Taken {
        let takes: Vec<_> = takes.iter().map(|(id, key)| Take { policy: PolicyId(*id), key }).collect();
        self.buckets.take(&takes).await.expect("a store that is there")
    }

    pub async fn passes(&self, policy: u32, key: &str) -> bool {
        self.take(&[(policy, key)]).await.passed
    }

    pub async fn peek(&self, policy: u32, key: &str) -> Option<Standing> {
        self.buckets.peek(Take { policy: PolicyId(policy), key }).await.expect("a store that is there")
    }

    pub async fn remaining(&self, policy: u32, key: &str) -> u32 {
        self.peek(policy, key).await.expect("a policy with a rule").remaining
    }

    pub async fn reset(&self, policy: u32, key: &str) {
        let bucket = Take { policy: PolicyId(policy), key };
        self.buckets.reset(bucket).await.expect("a store that is there");
    }
}

impl OpenBuckets {
    /// A store that forgets by itself.
    pub fn new(buckets: Arc<dyn Buckets>) -> Self {
        Self { buckets, sweep: Box::new(|| ()) }
    }
}

impl fmt::Debug for OpenBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenBuckets").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}
