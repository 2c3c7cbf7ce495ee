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

    /// Reads and checks everything first. All new policies are in force, or all old ones are. The number of them.
    pub async fn reload(&self) -> Result<usize, ReloadError> {
        let _turn = self.turn.lock().await;
        let read = self.read.clone();
        let reading = tokio::task::spawn_blocking(move || read());
        let policies = reading.await.map_err(|error| ReloadError::Unreadable(error.to_string()))??;
        let count = policies.len();
        self.engine.replace(policies).await?;
        tracing::info!(policies = count, "policies reloaded");
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

    use tidegate_adapters::buckets::memory::{MemoryBuckets, Options};
    use tidegate_testkit::TestClock;

    use super::*;

    #[tokio::test]
    async fn what_can_not_be_read_leaves_the_old_policies_in_force() {
        let buckets = MemoryBuckets::new(Options::new(1_000), Arc::<TestClock>::default());
        let broken = Arc::new(AtomicBool::new(true));
        let seen = broken.clone();
        let read: ReadPolicies = Box::new(move || match seen.load(Ordering::Relaxed) {
            true => Err(ReloadError::Unreadable("no such file".to_owned())),
            false => Ok(Vec::new()),
        });
        let policies = crate::config::policies_in(
            "[[policies]]\nname = \"a\"\npathPattern = \"/**\"\nkeyStrategy = \"IP\"\ncapacity = 5\n\
             refillTokensPerSecond = 1\n",
        );
        let engine = Arc::new(Policies::new(Arc::new(buckets)));
        let live = LivePolicies::start(engine, policies, read).await.unwrap();
        assert!(matches!(live.reload().await, Err(ReloadError::Unreadable(_))));
        assert_eq!(live.engine.in_force().len(), 1);
        broken.store(false, Ordering::Relaxed);
        assert_eq!(live.reload().await.unwrap(), 0);
        assert_eq!(live.engine.in_force().len(), 0);
    }
}
