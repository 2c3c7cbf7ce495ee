//! The embedded ledger when its writer, its rows or its callers fail it.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_adapters::embedded::{Embedded, Options};
use tidegate_domain::{
    Acked, Admission, Admitted, Cancelled, Claim, ClaimRequest, Clock, Durability, Health, Ledger,
    LedgerError, MessageId, Outcome, QueueName, Queues, Recipient, Requeue, Settlement, Timestamp,
};
use tidegate_testkit::HANG;
use tidegate_testkit::TestClock;

const MINUTE_MS: u64 = 60_000;

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

    /// Behind the ledger's back.
    fn sql(&self, sql: &str) {
        let db = rusqlite::Connection::open(self.dir.path().join("ledger.db")).unwrap();
        db.execute_batch(sql).unwrap();
    }

    async fn admit(&self, recipient: &str) -> MessageId {
        match &self.ledger.admit(batch(&[recipient])).await.unwrap()[..] {
            [Admitted::Admitted { id, .. }] => *id,
            other => panic!("{other:?}"),
        }
    }

    async fn pop(&self) -> Result<Vec<String>, LedgerError> {
        Ok(recipients(&self.ledger.pop(queue(), 10, 0).await?))
    }

    async fn claim(&self) -> Result<Vec<Claim>, LedgerError> {
        self.ledger.claim(request()).await
    }

    async fn settle(&self, claim: &Claim, outcome: Outcome) {
        let settlement = Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 0 };
        self.ledger.settle(vec![settlement]).await.unwrap();
    }

    async fn leased(&self) -> u64 {
        self.ledger.counts().await.unwrap().leased
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

fn request() -> ClaimRequest {
    ClaimRequest { queue: queue(), max: 10, lease_ms: 10 * MINUTE_MS, wait_ms: 0 }
}

fn batch(recipients: &[&str]) -> Vec<Admission> {
    let admission = |recipient: &&str| Admission {
        recipient: Some(Recipient::new(recipient).unwrap()),
        ..Admission::new(queue(), Bytes::from_static(b"text"))
    };
    recipients.iter().map(admission).collect()
}

fn recipients(claims: &[Claim]) -> Vec<String> {
    claims.iter().map(|claim| claim.recipient.as_ref().unwrap().as_str().to_owned()).collect()
}

/// Polls a call so many times, each time when the writer is done with what it was asked, and gives it up.
async fn give_up_after<T>(polls: usize, faulty: &Faulty, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    for _ in 0..polls {
        if let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        faulty.ledger.counts().await.unwrap();
    }
    None
}

#[tokio::test]
async fn a_writer_that_panics_is_a_ledger_that_failed() {
    let faulty = Faulty::open();
    faulty.admit("ann").await;
    faulty.clock.panics.store(true, Ordering::SeqCst);
    let reason = tokio::time::timeout(HANG, faulty.ledger.failed()).await.expect("the failure is reported");
    assert!(reason.contains("panicked"), "{reason}");
    assert_eq!(faulty.ledger.health(), Health::Failed(reason.clone()));
    assert_eq!(faulty.ledger.admit(batch(&["bob"])).await, Err(LedgerError::Unavailable(reason)));
    let Faulty { ledger, clock, dir } = faulty;
    drop(ledger);
    let ledger = Embedded::open(options(&dir), clock).unwrap();
    assert_eq!(ledger.counts().await.unwrap().pending, 1);
}

#[tokio::test]
async fn a_claim_given_up_at_any_moment_leaves_no_lease() {
    let faulty = Faulty::open();
    faulty.admit("ann").await;
    for polls in 1..=4 {
        for _ in 0..20 {
            let claimed = give_up_after(polls, &faulty, faulty.ledger.claim(request())).await;
            for claim in claimed.into_iter().flat_map(Result::unwrap) {
                faulty.settle(&claim, Outcome::Released).await;
            }
            assert_eq!(faulty.leased().await, 0, "given up after {polls} polls");
        }
    }
    let claims = faulty.claim().await.unwrap();
    assert_eq!((claims.len(), claims[0].attempt, claims[0].failures), (1, 1, 0));
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

/// What makes a row unreadable, and what heals it.
const DAMAGES: [(&str, &str); 3] = [
    ("UPDATE message SET due = 7 WHERE seq = 1", "UPDATE message SET due = NULL WHERE seq = 1"),
    ("UPDATE message SET lane = 9 WHERE seq = 1", "UPDATE message SET lane = 1 WHERE seq = 1"),
    (
        "CREATE TABLE kept AS SELECT * FROM message WHERE seq = 1; DELETE FROM message WHERE seq = 1",
        "INSERT INTO message SELECT * FROM kept; DROP TABLE kept",
    ),
];

#[tokio::test]
async fn a_row_that_cannot_be_read_is_reported_and_holds_up_its_recipient_alone() {
    for (damage, heal) in DAMAGES {
        let faulty = Faulty::open();
        for recipient in ["ann", "ann", "bob", "cyd"] {
            faulty.admit(recipient).await;
        }
        faulty.sql(damage);
        assert_eq!(faulty.pop().await.unwrap(), ["bob", "cyd"], "{damage}");
        assert_eq!(faulty.pop().await, Ok(vec![]), "it is set aside: {damage}");
        faulty.clock.time.advance_ms(MINUTE_MS);
        assert!(matches!(faulty.pop().await, Err(LedgerError::Corrupt(_))), "{damage}");
        faulty.admit("dan").await;
        assert_eq!(faulty.pop().await.unwrap(), ["dan"], "{damage}");
        faulty.sql(heal);
        faulty.clock.time.advance_ms(MINUTE_MS);
        assert_eq!(faulty.pop().await.unwrap(), ["ann", "ann"], "{damage}");
        assert!(faulty.ledger.counts().await.unwrap().balanced());
    }
}

#[tokio::test]
async fn a_claim_sets_aside_only_what_it_cannot_read() {
    for (damage, heal) in DAMAGES {
        let faulty = Faulty::open();
        for recipient in ["ann", "ann", "bob", "cyd"] {
            faulty.admit(recipient).await;
        }
        faulty.sql(damage);
        let claims = faulty.claim().await.unwrap();
        assert_eq!((recipients(&claims), faulty.leased().await), (vec!["bob".into(), "cyd".into()], 2));
        assert_eq!(faulty.claim().await, Ok(vec![]), "it is set aside: {damage}");
        faulty.clock.time.advance_ms(MINUTE_MS);
        assert!(matches!(faulty.claim().await, Err(LedgerError::Corrupt(_))), "{damage}");
        assert_eq!(faulty.leased().await, 2, "{damage}");
        faulty.sql(heal);
        faulty.clock.time.advance_ms(MINUTE_MS);
        let claims = faulty.claim().await.unwrap();
        assert_eq!((recipients(&claims), claims[0].attempt), (vec!["ann".into()], 1), "{damage}");
    }
}

#[tokio::test]
async fn what_is_damaged_is_not_answered_as_unknown() {
    let faulty = Faulty::open();
    let (sound, damaged) = (faulty.admit("ann").await, faulty.admit("bob").await);
    let foreign = MessageId::new(faulty.clock.now().plus_ms(1), damaged.seq(), damaged.salt());
    assert_eq!(faulty.ledger.message(foreign).await, Ok(None));
    assert_eq!(faulty.ledger.ack(vec![foreign]).await, Ok(vec![Acked::Unknown]));
    faulty.sql("UPDATE message SET at = at + 1 WHERE seq = 2");
    assert!(matches!(faulty.ledger.message(damaged).await, Err(LedgerError::Corrupt(_))));
    assert!(matches!(faulty.ledger.message(foreign).await, Err(LedgerError::Corrupt(_))));
    assert!(matches!(faulty.ledger.ack(vec![sound, damaged]).await, Err(LedgerError::Corrupt(_))));
    assert!(matches!(faulty.ledger.cancel(vec![sound, damaged]).await, Err(LedgerError::Corrupt(_))));
    assert!(matches!(faulty.ledger.delete_dead(vec![damaged]).await, Err(LedgerError::Corrupt(_))));
    assert_eq!(faulty.ledger.counts().await.unwrap().pending, 2, "nothing has happened");
    assert_eq!(faulty.ledger.cancel(vec![sound]).await, Ok(vec![Cancelled::Cancelled]));
}

#[tokio::test]
async fn a_damaged_dead_letter_is_not_answered_as_none() {
    for damage in [
        "UPDATE outcome SET reason = 'another'",
        "UPDATE outcome SET status = 7",
        "UPDATE message SET due = 7",
        "DELETE FROM message",
    ] {
        let faulty = Faulty::open();
        let id = faulty.admit("ann").await;
        let claims = faulty.claim().await.unwrap();
        faulty.settle(&claims[0], Outcome::Dead { reason: "refused".into() }).await;
        faulty.sql(damage);
        let requeue = Requeue { id, body: None, delay_ms: 0 };
        let requeued = faulty.ledger.requeue(vec![requeue]).await;
        assert!(matches!(requeued, Err(LedgerError::Corrupt(_))), "{damage}: {requeued:?}");
        if damage.contains("outcome") {
            let deleted = faulty.ledger.delete_dead(vec![id]).await;
            assert!(matches!(deleted, Err(LedgerError::Corrupt(_))), "{damage}: {deleted:?}");
            let acked = faulty.ledger.ack(vec![id]).await;
            assert!(matches!(acked, Err(LedgerError::Corrupt(_))), "{damage}: {acked:?}");
        }
        assert_eq!(faulty.ledger.counts().await.unwrap().dead, 1);
    }
}
