use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_domain::Ledger;

use crate::TestClock;

/// How to make a ledger for a test, in a namespace of its own (a temporary directory, a schema).
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Called again after [`close`](Backend::close), it opens the same ledger.
    async fn open(&self, setup: &Setup) -> anyhow::Result<Arc<dyn Ledger>>;

    /// Ends the ledger's life in this process as a crash would: leases are void, what was answered stays. When
    /// it returns, the ledger can be opened again.
    async fn close(&self, ledger: Arc<dyn Ledger>) -> anyhow::Result<()> {
        drop(ledger);
        Ok(())
    }
}

/// The settings that the cases count on.
#[derive(Debug, Clone)]
pub struct Setup {
    pub clock: Arc<TestClock>,
    /// Small, so that a test can fill the ledger.
    pub pending_max: usize,
    pub idempotency_window_ms: u64,
}

/// A ledger under test with the clock that rules it.
pub struct Harness {
    pub clock: Arc<TestClock>,
    setup: Setup,
    backend: Box<dyn Backend>,
    ledger: Mutex<Option<Arc<dyn Ledger>>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { clock: Arc::default(), pending_max: 64, idempotency_window_ms: 24 * 60 * 60 * 1_000 }
    }
}

impl Harness {
    pub async fn open(backend: impl Backend, setup: Setup) -> anyhow::Result<Self> {
        let ledger = backend.open(&setup).await?;
        let clock = setup.clock.clone();
        Ok(Self { clock, setup, backend: Box::new(backend), ledger: Mutex::new(Some(ledger)) })
    }

    /// The ledger in its current life. Don't keep the handle over a [`reopen`](Harness::reopen).
    pub fn ledger(&self) -> Arc<dyn Ledger> {
        let held = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone().expect("the ledger is open")
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    pub async fn reopen(&self) -> anyhow::Result<()> {
        self.reopen_after(|_| ()).await
    }

    /// Closes the ledger, moves the clock as a machine's may move while nothing runs, and opens it again.
    pub async fn reopen_after(&self, while_closed: impl FnOnce(&TestClock)) -> anyhow::Result<()> {
        let old = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.backend.close(old.expect("the ledger is open")).await?;
        while_closed(&self.clock);
        let new = self.backend.open(&self.setup).await?;
        *self.ledger.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        Ok(())
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("setup", &self.setup).finish_non_exhaustive()
    }
}
