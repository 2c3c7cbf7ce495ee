use std::fmt;
use std::sync::Arc;

use tidegate_domain::limits::{BucketsError, Policies, Policy};
use tokio::sync::Mutex;

use crate::config::Problems;

/// Reads the policies from where they were read at the start.
pub type ReadPolicies = Box<dyn Fn() -> Result<Vec<Policy>, ReloadError> + Send + Sync>;

/// The policies in force, and the way to replace them while requests are answered.
pub struct LivePolicies {
    pub engine: Arc<Policies>,
    read: Arc<ReadPolicies>,
    /// One reload at a time: the last one to begin is the last one in force.
    turn: Mutex<()>,
}

/// Why the policies of before stay in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error(transparent)]
    Problems(#[from] Problems),
    #[error("{0}")]
    Unreadable(String),
    #[error(transparent)]
    Store(#[from] BucketsError),
}

impl LivePolicies {
    pub async fn start(
        engine: Arc<Policies>,
        policies: Vec<Policy>,
        read: ReadPolicies,
    ) -> Result<Self, BucketsError> {
        engine.replace(policies).await?;
        Ok(Self { engine, read: Arc::new(read), turn: Mutex::default() })
    }

    /// Reads and checks everything first. All new policies are in force, or all old ones are, even if the caller stops
    /// waiting. The number of them.
    pub async fn reload(self: &Arc<Self>) -> Result<usize, ReloadError> {
        let live = self.clone();
        let reloading = tokio::spawn(async move { live.reload_now().await });
        reloading.await.map_err(|error| ReloadError::Unreadable(error.to_string()))?
    }

    async fn reload_now(&self) -> Result<usize, ReloadError> {
        let _turn = self.turn.lock().await;
        let read = self.read.clone();
        let reading = tokio::task::spawn_blocking(move || read());
        let policies = reading.await.map_err(|error| ReloadError::Unreadable(error.to_string()))??;
        let count = policies.len();
        self.engine.replace(policies).await?;
        Ok(count)
    }
}

impl fmt::Debug for LivePolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePolicies").field("engine", &self.engine).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use tidegate_adapters::buckets::memory::{MemoryBuckets, Options};
    use tidegate_domain::limits::{BucketCounts, Buckets, PolicyRule, Standing, Take, Taken};
    use tidegate_testkit::TestClock;
    use tokio::sync::{Notify, Semaphore};

    use super::*;
    use crate::config::policies_in;

    const ONE: &str = "[[policies]]\nname = \"a\"\npathPattern = \"/**\"\nkeyStrategy = \"IP\"\ncapacity = 5\n\
        refillTokensPerSecond = 1\n";

    #[tokio::test]
    async fn what_can_not_be_read_leaves_the_old_policies_in_force() {
        let buckets = MemoryBuckets::new(Options::new(1_000), Arc::<TestClock>::default());
        let broken = Arc::new(AtomicBool::new(true));
        let seen = broken.clone();
        let read: ReadPolicies = Box::new(move || match seen.load(Ordering::Relaxed) {
            true => Err(ReloadError::Unreadable("no such file".to_owned())),
            false => Ok(Vec::new()),
        });
        let engine = Arc::new(Policies::new(Arc::new(buckets)));
        let live = Arc::new(LivePolicies::start(engine, policies_in(ONE), read).await.unwrap());
        assert!(matches!(live.reload().await, Err(ReloadError::Unreadable(_))));
        assert_eq!(live.engine.in_force().len(), 1);
        broken.store(false, Ordering::Relaxed);
        assert_eq!(live.reload().await.unwrap(), 0);
        assert_eq!(live.engine.in_force().len(), 0);
    }

    /// Takes rules only when it is told to.
    #[derive(Debug)]
    struct Slow {
        asked: Notify,
        go_on: Semaphore,
        store: MemoryBuckets,
    }

    #[async_trait]
    impl Buckets for Slow {
        async fn take(&self, takes: &[Take<'_>]) -> Result<Taken, BucketsError> {
            self.store.take(takes).await
        }
        async fn peek(&self, bucket: Take<'_>) -> Result<Option<Standing>, BucketsError> {
            self.store.peek(bucket).await
        }
        async fn reset(&self, bucket: Take<'_>) -> Result<(), BucketsError> {
            self.store.reset(bucket).await
        }
        async fn reconfigure(&self, rules: &[PolicyRule]) -> Result<(), BucketsError> {
            self.asked.notify_one();
            self.go_on.acquire().await.unwrap().forget();
            self.store.reconfigure(rules).await
        }
        fn counts(&self) -> BucketCounts {
            self.store.counts()
        }
    }

    #[tokio::test]
    async fn a_reload_that_nobody_waits_for_any_more_is_finished() {
        let store = MemoryBuckets::new(Options::new(1_000), Arc::<TestClock>::default());
        let slow = Arc::new(Slow { asked: Notify::new(), go_on: Semaphore::new(1), store });
        let read: ReadPolicies = Box::new(|| Ok(policies_in(ONE)));
        let live =
            LivePolicies::start(Arc::new(Policies::new(slow.clone())), Vec::new(), read).await.unwrap();
        let live = Arc::new(live);
        slow.asked.notified().await;
        tokio::select! {
            _ = live.reload() => panic!("it was not told to"),
            () = slow.asked.notified() => {}
        }
        slow.go_on.add_permits(1);
        let finished = async {
            while live.engine.in_force().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), finished).await.unwrap();
    }
}
