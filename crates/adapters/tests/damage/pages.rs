//! A damaged page costs the messages that it holds. They are reported and stay, and everything else goes on.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_adapters::embedded::{Embedded, Options};
use tidegate_domain::{
    Admission, Admitted, Cancelled, ClaimRequest, Durability, Filter, Health, Ledger, LedgerError, Listing,
    MessageId, Outcome, Page, QueueName, Queues, Recipient, Requeue, Settlement, Status,
};
use tidegate_testkit::TestClock;

use crate::image::{DATABASE, Image};

const PAGE_BYTES: usize = 4_096;
const HOUR_MS: u64 = 3_600_000;
const LARGE: usize = 12;

struct Subject {
    dir: TempDir,
    clock: Arc<TestClock>,
    ledger: Option<Embedded>,
    ids: Vec<MessageId>,
}

impl Subject {
    /// Messages whose texts take a good part of a page each, and one that takes many.
    async fn new(count: usize) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
        let ledger = Some(open(dir.path(), &clock));
        let mut subject = Self { dir, clock, ledger, ids: Vec::new() };
        for n in 0..count {
            let text =
                if n == LARGE { "B".repeat(100_000) } else { format!("text {n:05} {}", "x".repeat(900)) };
            subject.admit(text).await;
        }
        subject
    }

    async fn admit(&mut self, text: String) {
        let recipient = Some(Recipient::new("ann").unwrap());
        let admission = Admission { recipient, ..Admission::new(queue(), Bytes::from(text)) };
        let admitted = self.ledger().admit(vec![admission]).await.unwrap();
        let [Admitted::Admitted { id, .. }] = admitted[..] else { panic!("{admitted:?}") };
        self.ids.push(id);
    }

    fn ledger(&self) -> &Embedded {
        self.ledger.as_ref().unwrap()
    }

    async fn settle_all(&self, outcome: Outcome) {
        loop {
            let request = ClaimRequest { queue: queue(), max: 100, lease_ms: HOUR_MS, wait_ms: 0 };
            let claims = self.ledger().claim(request).await.unwrap();
            if claims.is_empty() {
                break;
            }
            let settlement = |claim: &tidegate_domain::Claim| Settlement {
                id: claim.id,
                token: claim.token,
                outcome: outcome.clone(),
                latency_ms: 0,
            };
            self.ledger().settle(claims.iter().map(settlement).collect()).await.unwrap();
        }
        // The next start has no need to look at what has ended.
        self.clock.advance_ms(60_000);
        self.ledger().sweep().await.unwrap();
    }

    /// Clears a page that such bytes fill or stand in, while nothing runs.
    fn damage(&mut self, bytes: &[u8]) {
        self.ledger = None;
        let mut file = Image::of(self.dir.path()).bytes(DATABASE).to_vec();
        let mut pages = file.chunks_mut(PAGE_BYTES).skip(1);
        let has = |page: &&mut [u8]| page.windows(bytes.len()).any(|window| window == bytes);
        pages.find(has).expect("a page with these bytes").fill(0);
        std::fs::write(self.dir.path().join(DATABASE), file).unwrap();
        self.ledger = Some(open(self.dir.path(), &self.clock));
    }

    fn damage_large(&mut self) {
        self.damage(&[b'B'; PAGE_BYTES - 4]);
    }

    async fn sweep(&self) {
        for _ in 0..5 {
            self.ledger().sweep().await.unwrap();
        }
    }

    async fn list(&self, filter: Filter) -> Listing {
        let (mut all, mut after) = (Listing::default(), None);
        loop {
            let page = Page { max: 7, body_bytes_max: Some(1 << 20), after };
            let listing = self.ledger().list(filter.clone(), page).await.unwrap();
            all.messages.extend(listing.messages);
            all.damaged.extend(listing.damaged);
            after = listing.next;
            if after.is_none() {
                return all;
            }
        }
    }

    /// The ledger serves on, and its totals balance.
    async fn require_alive(&mut self) {
        assert_eq!(self.ledger().health(), Health::Ready);
        self.admit("another".to_owned()).await;
        let counts = self.ledger().counts().await.unwrap();
        assert!(counts.balanced(), "{counts:?}");
    }
}

fn open(dir: &Path, clock: &Arc<TestClock>) -> Embedded {
    let options = Options {
        sync: Durability::OsBuffer,
        body_cache_bytes: 0,
        retention_ms: HOUR_MS,
        idempotency_window_ms: HOUR_MS,
        readers: 1,
        ..Options::new(dir)
    };
    Embedded::open(options, clock.clone()).unwrap()
}

fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}

fn dead() -> Outcome {
    Outcome::Dead { reason: "no".into() }
}

/// The filters under which all messages are listed.
fn filters(status: Status) -> [Filter; 4] {
    let all = Filter::default();
    [
        Filter { status: Some(status), ..all.clone() },
        Filter { queue: Some(queue()), ..all.clone() },
        Filter { recipient: Some(Recipient::new("ann").unwrap()), ..all.clone() },
        all,
    ]
}

#[tokio::test]
async fn retention_passes_over_a_message_whose_page_is_damaged() {
    let mut subject = Subject::new(30).await;
    subject.settle_all(Outcome::Delivered).await;
    subject.damage_large();
    subject.clock.advance_ms(2 * HOUR_MS);
    subject.sweep().await;
    for (n, id) in subject.ids.iter().enumerate() {
        let found = subject.ledger().message(*id).await;
        if n == LARGE {
            assert!(matches!(found, Err(LedgerError::Corrupt(_))), "{found:?}");
        } else {
            assert_eq!(found, Ok(None), "message {n}");
        }
    }
    subject.require_alive().await;
    // The next round, and the next start.
    subject.clock.advance_ms(HOUR_MS);
    subject.sweep().await;
    subject.ledger = None;
    subject.ledger = Some(open(subject.dir.path(), &subject.clock));
    subject.sweep().await;
    subject.require_alive().await;
}

#[tokio::test]
async fn retention_goes_on_behind_messages_whose_page_cannot_be_read() {
    let mut subject = Subject::new(60).await;
    subject.settle_all(Outcome::Delivered).await;
    subject.damage(b"text 00030");
    subject.clock.advance_ms(2 * HOUR_MS);
    subject.sweep().await;
    subject.require_alive().await;
    let mut unreadable = 0;
    for id in &subject.ids[..60] {
        unreadable += usize::from(subject.ledger().message(*id).await != Ok(None));
    }
    assert!((1..12).contains(&unreadable), "{unreadable} messages stay");
}

#[tokio::test]
async fn a_message_that_cannot_be_erased_stays_and_no_other_does() {
    let mut subject = Subject::new(30).await;
    subject.damage_large();
    let damaged = subject.ids[LARGE];
    for _ in 0..2 {
        let cancelled = subject.ledger().cancel(vec![damaged]).await;
        assert!(matches!(cancelled, Err(LedgerError::Corrupt(_))), "{cancelled:?}");
        subject.require_alive().await;
    }
    let sound = subject.ids[3];
    assert_eq!(subject.ledger().cancel(vec![sound]).await, Ok(vec![Cancelled::Cancelled]));
    assert_eq!(subject.ledger().purge(queue()).await, Ok(30));
    assert_eq!(subject.ledger().counts().await.unwrap().pending, 1);
    subject.require_alive().await;
    subject.ledger = None;
    subject.ledger = Some(open(subject.dir.path(), &subject.clock));
    assert_eq!(subject.ledger().counts().await.unwrap().pending, 2);
    assert_eq!(subject.ledger().purge(queue()).await, Ok(1), "without being told before");
    subject.require_alive().await;
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_removed_stays_and_no_other_does() {
    let mut subject = Subject::new(30).await;
    subject.settle_all(dead()).await;
    subject.damage_large();
    let damaged = subject.ids[LARGE];
    let deleted = subject.ledger().delete_dead(vec![damaged]).await;
    assert!(matches!(deleted, Err(LedgerError::Corrupt(_))), "{deleted:?}");
    let edited = Requeue { id: damaged, body: Some(Bytes::from_static(b"edited")), delay_ms: 0 };
    let requeued = subject.ledger().requeue(vec![edited]).await;
    assert!(matches!(requeued, Err(LedgerError::Corrupt(_))), "{requeued:?}");
    let sound = subject.ids[3];
    assert_eq!(subject.ledger().delete_dead(vec![sound]).await, Ok(vec![true]));
    assert_eq!(subject.ledger().counts().await.unwrap().dead, 29);
    subject.require_alive().await;
}

#[tokio::test]
async fn a_list_names_a_message_whose_page_is_damaged() {
    let mut subject = Subject::new(30).await;
    subject.damage_large();
    let damaged = subject.ids[LARGE];
    for filter in filters(Status::Pending) {
        let listing = subject.list(filter.clone()).await;
        assert_eq!(listing.messages.len(), 29, "{filter:?}");
        let named: Vec<_> = listing.damaged.iter().map(|damaged| damaged.id).collect();
        assert_eq!(named, [damaged], "{filter:?}");
    }
}

#[tokio::test]
async fn a_list_goes_on_behind_messages_whose_page_cannot_be_read() {
    let mut subject = Subject::new(60).await;
    subject.settle_all(Outcome::Delivered).await;
    subject.damage(b"text 00030");
    for filter in filters(Status::Delivered) {
        let listing = subject.list(filter.clone()).await;
        let shown: Vec<_> = listing.messages.iter().map(|record| record.id).collect();
        assert!((48..60).contains(&shown.len()), "{filter:?}: {} are shown", shown.len());
        assert!(shown.contains(&subject.ids[0]) && shown.contains(&subject.ids[59]), "{filter:?}");
        assert!(!shown.contains(&subject.ids[30]), "{filter:?}");
        assert!(!listing.damaged.is_empty(), "{filter:?}");
    }
}
