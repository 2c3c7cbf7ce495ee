use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::ensure;
use async_trait::async_trait;
use tidegate_domain::transfer::{Export, Import, Inventory, Manifest};
use tidegate_domain::{BATCH_BYTES_MAX, Ledger, Order, QueueName, QueueRule, Queues, Slots, Transit};

use crate::TestClock;

/// How to make a ledger for a test, in a namespace of its own (a temporary directory, a schema).
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Called again after [`close`](Backend::close), it opens the same ledger.
    async fn open(&self, setup: &Setup) -> anyhow::Result<Opened>;

    /// Ends the ledger's life in this process as a crash would: leases are void, what was answered stays. When
    /// it returns, the ledger can be opened again.
    async fn close(&self, opened: Opened) -> anyhow::Result<()> {
        drop(opened);
        Ok(())
    }

    /// Begins to export the ledger, which is closed.
    async fn export(&self, _setup: &Setup) -> anyhow::Result<Box<dyn Export>> {
        anyhow::bail!("this ledger can't be exported")
    }

    /// Begins an import into the ledger, which was never opened or is empty and closed.
    async fn import(&self, _setup: &Setup, _manifest: Manifest) -> anyhow::Result<Box<dyn Import>> {
        anyhow::bail!("this ledger can't import")
    }
}

/// One ledger, through each of its ports.
#[derive(Debug, Clone)]
pub struct Opened {
    pub ledger: Arc<dyn Ledger>,
    pub slots: Arc<dyn Slots>,
    pub queues: Arc<dyn Queues>,
    pub transit: Arc<dyn Transit>,
}

/// The settings that the cases count on.
#[derive(Debug, Clone)]
pub struct Setup {
    pub clock: Arc<TestClock>,
    /// Small, so that a test can fill the ledger.
    pub pending_max: usize,
    /// For urgent ones.
    pub pending_hard_max: usize,
    pub idempotency_window_ms: u64,
    pub slots_max: usize,
    pub slot_retention_ms: u64,
    /// Bytes of bodies that one claim or pop answers.
    pub batch_bytes_max: usize,
    /// How queues are kept; those not named follow the default rule.
    pub queue_rules: Vec<(QueueName, QueueRule)>,
    /// How long other queues are remembered when they are empty and unused.
    pub queue_forget_after_ms: u64,
}

/// A queue without order.
pub const LOOSE: &str = "loose";
/// A queue that holds four messages, and six if they are urgent.
pub const NARROW: &str = "narrow";
/// A queue that hands out one of a lower lane for two of higher ones.
pub const FAIR: &str = "fair";

/// A queue whose messages have two attempts.
pub const BRIEF: &str = "brief";

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A ledger under test with the clock that rules it.
pub struct Harness {
    pub clock: Arc<TestClock>,
    setup: Setup,
    backend: Mutex<Arc<dyn Backend>>,
    opened: Mutex<Option<Opened>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            clock: Arc::default(),
            pending_max: 64,
            pending_hard_max: 66,
            idempotency_window_ms: DAY_MS,
            slots_max: 400,
            slot_retention_ms: DAY_MS,
            batch_bytes_max: BATCH_BYTES_MAX,
            queue_rules: vec![
                named(LOOSE, loose()),
                named(NARROW, narrow(4, 6)),
                named(FAIR, fair(2)),
                named(BRIEF, QueueRule { attempts_max: 2, ..QueueRule::default() }),
            ],
            // Longer than any case that is not about it.
            queue_forget_after_ms: 100 * DAY_MS,
        }
    }
}

impl Setup {
    pub fn rule_of(&self, queue: &QueueName) -> QueueRule {
        let named = self.queue_rules.iter().find(|(name, _)| name == queue);
        named.map_or_else(QueueRule::default, |(_, rule)| *rule)
    }
}

pub(crate) fn named(name: &str, rule: QueueRule) -> (QueueName, QueueRule) {
    (QueueName::new(name).expect("a valid queue name"), rule)
}

pub(crate) fn loose() -> QueueRule {
    QueueRule { order: Order::BestEffort, ..QueueRule::default() }
}

pub(crate) fn narrow(pending_max: u64, pending_hard_max: u64) -> QueueRule {
    QueueRule { pending_max, pending_hard_max, ..QueueRule::default() }
}

pub(crate) fn fair(higher_per_lower: u32) -> QueueRule {
    QueueRule { higher_per_lower, ..QueueRule::default() }
}

impl Opened {
    pub fn new(ledger: Arc<impl Ledger + Slots + Queues + Transit>) -> Self {
        Self { ledger: ledger.clone(), slots: ledger.clone(), queues: ledger.clone(), transit: ledger }
    }
}

impl Harness {
    pub async fn open(backend: impl Backend, setup: Setup) -> anyhow::Result<Self> {
        let opened = backend.open(&setup).await?;
        let clock = setup.clock.clone();
        let backend: Arc<dyn Backend> = Arc::new(backend);
        Ok(Self { clock, setup, backend: Mutex::new(backend), opened: Mutex::new(Some(opened)) })
    }

    /// The ledger in its current life. Don't keep the handle over a [`reopen`](Harness::reopen).
    pub fn ledger(&self) -> Arc<dyn Ledger> {
        self.opened().ledger
    }

    /// The same ledger's slots.
    pub fn slots(&self) -> Arc<dyn Slots> {
        self.opened().slots
    }

    /// The same ledger's queues.
    pub fn queues(&self) -> Arc<dyn Queues> {
        self.opened().queues
    }

    /// What the same ledger does for messages on their way to a sender.
    pub fn transit(&self) -> Arc<dyn Transit> {
        self.opened().transit
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    pub async fn reopen(&self) -> anyhow::Result<()> {
        self.reopen_after(|_| ()).await
    }

    /// Closes the ledger and opens it with other settings, until it is opened again.
    pub async fn reopen_with(&self, setup: &Setup) -> anyhow::Result<()> {
        self.close().await?;
        self.open_by(setup).await
    }

    /// Closes the ledger, moves the clock as a machine's may move while nothing runs, and opens it again.
    pub async fn reopen_after(&self, while_closed: impl FnOnce(&TestClock)) -> anyhow::Result<()> {
        self.close().await?;
        while_closed(&self.clock);
        self.open_again().await
    }

    /// Closes the ledger, moves all that it knows into another one, and goes on with that.
    pub async fn move_to(&self, target: impl Backend) -> anyhow::Result<()> {
        self.close().await?;
        let source = self.backend();
        transfer(&*source, &target, &self.setup).await?;
        *self.backend.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(target);
        drop(source);
        self.open_again().await
    }

    pub(crate) async fn close(&self) -> anyhow::Result<()> {
        let old = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.backend().close(old.expect("the ledger is open")).await
    }

    pub(crate) async fn open_again(&self) -> anyhow::Result<()> {
        self.open_by(&self.setup).await
    }

    async fn open_by(&self, setup: &Setup) -> anyhow::Result<()> {
        let new = self.backend().open(setup).await?;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        Ok(())
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn opened(&self) -> Opened {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.clone().expect("the ledger is open")
    }
}

/// Moves all that one ledger knows into another, empty one; both are closed.
pub async fn transfer(source: &dyn Backend, target: &dyn Backend, setup: &Setup) -> anyhow::Result<()> {
    let mut export = source.export(setup).await?;
    let manifest = export.manifest().clone();
    let mut import = target.import(setup, manifest.clone()).await?;
    let mut read = Inventory::default();
    loop {
        let entries = export.next().await?;
        if entries.is_empty() {
            break;
        }
        entries.iter().for_each(|entry| read.count(entry));
        import.put(entries).await?;
    }
    let arrived = import.seal().await?;
    ensure!(read == manifest.stock.inventory, "{read:?} read instead of {:?}", manifest.stock.inventory);
    ensure!(arrived == manifest.stock, "{arrived:?} arrived instead of {:?}", manifest.stock);
    ensure!(arrived.is_balanced(), "unbalanced: {arrived:?}");
    Ok(import.commit().await?)
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("setup", &self.setup).finish_non_exhaustive()
    }
}
