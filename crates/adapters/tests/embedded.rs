//! The embedded ledger against the contracts of its ports and against the model.

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use tidegate_adapters::embedded::{self, Embedded, Options};
use tidegate_domain::transfer::{Export, Import, Manifest};
use tidegate_domain::{Clock, Durability};
use tidegate_testkit::{Backend, Opened, Setup};

/// A directory of its own per test.
struct EmbeddedBackend {
    dir: TempDir,
    sync: Durability,
    body_cache_bytes: usize,
}

impl EmbeddedBackend {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            sync: Durability::Fsync,
            body_cache_bytes: 1 << 20,
        }
    }

    /// For many short runs: syncing is not what they are about, and texts come from disk.
    fn fast() -> Self {
        Self { sync: Durability::OsBuffer, body_cache_bytes: 300, ..Self::new() }
    }

    fn options(&self, setup: &Setup) -> Options {
        Options {
            sync: self.sync,
            pending_max: setup.pending_max as u64,
            pending_hard_max: setup.pending_hard_max as u64,
            idempotency_window_ms: setup.idempotency_window_ms,
            body_cache_bytes: self.body_cache_bytes,
            slots_max: setup.slots_max,
            slot_retention_ms: setup.slot_retention_ms,
            batch_bytes_max: setup.batch_bytes_max,
            queue_rules: setup.queue_rules.clone(),
            queue_forget_after_ms: setup.queue_forget_after_ms,
            // The longest that a test lets pass between admission and look-up.
            retention_ms: 400 * 86_400_000,
            ..Options::new(self.dir.path())
        }
    }
}

#[async_trait]
impl Backend for EmbeddedBackend {
    async fn open(&self, setup: &Setup) -> anyhow::Result<Opened> {
        let options = self.options(setup);
        let clock = setup.clock.clone();
        let ledger = tokio::task::spawn_blocking(move || Embedded::open(options, clock)).await??;
        Ok(Opened::new(Arc::new(ledger)))
    }

    async fn close(&self, ledger: Opened) -> anyhow::Result<()> {
        // Dropping the last handle closes the files and gives the directory up.
        Ok(tokio::task::spawn_blocking(move || drop(ledger)).await?)
    }

    async fn export(&self, setup: &Setup) -> anyhow::Result<Box<dyn Export>> {
        let (options, clock): (_, Arc<dyn Clock>) = (self.options(setup), setup.clock.clone());
        Ok(tokio::task::spawn_blocking(move || embedded::export(&options, &clock)).await??)
    }

    async fn import(&self, setup: &Setup, manifest: Manifest) -> anyhow::Result<Box<dyn Import>> {
        let (options, clock) = (self.options(setup), setup.clock.clone());
        Ok(tokio::task::spawn_blocking(move || embedded::import(options, clock, manifest)).await??)
    }
}

tidegate_testkit::conformance_cases!(EmbeddedBackend::new());

tidegate_testkit::slot_cases!(EmbeddedBackend::new());

tidegate_testkit::queue_cases!(EmbeddedBackend::new());

tidegate_testkit::transit_cases!(EmbeddedBackend::new());

#[test]
fn the_embedded_ledger_agrees_with_the_model() {
    tidegate_testkit::drive::compare_with_model(300, EmbeddedBackend::fast);
}

#[test]
fn the_embedded_slots_agree_with_the_model() {
    tidegate_testkit::drive::compare_slots_with_model(300, EmbeddedBackend::fast);
}

#[test]
fn the_embedded_queues_agree_with_the_model() {
    tidegate_testkit::drive::compare_queues_with_model(300, EmbeddedBackend::fast);
}

#[test]
fn spent_attempts_on_the_embedded_ledger_agree_with_the_model() {
    tidegate_testkit::drive::compare_spent_attempts_with_model(300, EmbeddedBackend::fast);
}

#[test]
fn a_moved_embedded_ledger_agrees_with_the_model() {
    tidegate_testkit::drive::compare_moves_with_model(100, 2, |_| EmbeddedBackend::fast());
}
