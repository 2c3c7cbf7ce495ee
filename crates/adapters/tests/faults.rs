//! The embedded ledger when its writer, its rows or its callers fail it.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_adapters::embedded::{Embedded, Options};
use tidegate_domain::{
    Admission, Admitted, Clock, Durability, Health, Ledger, LedgerError, MessageId, QueueName, Recipient,
    Timestamp,
};
use tidegate_testkit::TestClock;

const PATIENCE: Duration = Duration::from_secs(20);

/// The one thing that the writer asks before everything it does.
#[derive(Debug, Default)]
struct FaultyClock {
    time: TestClock,
    /// Whoever holds it keeps the writer waiting.
    gate: Mutex<()>,
    panics: AtomicBool,
}

impl Clock for FaultyClock {
    fn now(&self) -> Timestamp {
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        assert!(!self.panics.swap(false, Ordering::SeqCst), "as the test wants it");
        self.time.now()
    }

    fn monotonic_ns(&self) -> u64 {
        self.time.monotonic_ns()
    }
}

/// A ledger that keeps no text in memory.
struct Faulty {
    ledger: Embedded,
    clock: Arc<FaultyClock>,
    dir: TempDir,
}

impl Faulty {
    fn open() -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(FaultyClock::default()));
        let ledger = Embedded::open(options(&dir), clock.clone()).unwrap();
        Self { ledger, clock, dir }
    }

    async fn admit(&self, recipient: &str) -> MessageId {
        match &self.ledger.admit(batch(&[recipient])).await.unwrap()[..] {
            [Admitted::Admitted { id, .. }] => *id,
            other => panic!("{other:?}"),
        }
    }
}

fn options(dir: &TempDir) -> Options {
    Options {
        sync: Durability::OsBuffer,
        body_cache_bytes: 0,
        intake_max: 4,
        readers: 1,
        ..Options::new(dir.path())
    }
}

fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}

fn batch(recipients: &[&str]) -> Vec<Admission> {
    let admission = |recipient: &&str| Admission {
        recipient: Some(Recipient::new(recipient).unwrap()),
        ..Admission::new(queue(), Bytes::from_static(b"text"))
    };
    recipients.iter().map(admission).collect()
}

#[tokio::test]
async fn a_writer_that_panics_is_a_ledger_that_failed() {
    let faulty = Faulty::open();
    faulty.admit("ann").await;
    faulty.clock.panics.store(true, Ordering::SeqCst);
    let reason = tokio::time::timeout(PATIENCE, faulty.ledger.failed()).await.expect("nobody tells");
    assert!(reason.contains("panicked"), "{reason}");
    assert_eq!(faulty.ledger.health(), Health::Failed(reason.clone()));
    assert_eq!(faulty.ledger.admit(batch(&["bob"])).await, Err(LedgerError::Unavailable(reason)));
    let Faulty { ledger, clock, dir } = faulty;
    drop(ledger);
    let ledger = Embedded::open(options(&dir), clock).unwrap();
    assert_eq!(ledger.counts().await.unwrap().pending, 1);
}

#[tokio::test]
async fn an_admission_given_up_counts_until_it_is_decided() {
    let faulty = Faulty::open();
    let closed = faulty.clock.gate.lock().unwrap();
    let poll = |call: std::pin::Pin<&mut dyn Future<Output = Result<Vec<Admitted>, LedgerError>>>| {
        call.poll(&mut Context::from_waker(Waker::noop()))
    };
    assert!(poll(pin!(faulty.ledger.admit(batch(&["ann", "bob", "cyd"])))).is_pending());
    let refused = poll(pin!(faulty.ledger.admit(batch(&["dan", "eve"]))));
    assert_eq!(refused, Poll::Ready(Err(LedgerError::Overloaded)));
    drop(closed);
    assert_eq!(faulty.ledger.counts().await.unwrap().pending, 3, "it was decided all the same");
    for _ in 0..20 {
        faulty
            .ledger
            .admit(batch(&["dan", "eve", "fay", "gus"]))
            .await
            .expect("whoever is answered has left");
    }
}
