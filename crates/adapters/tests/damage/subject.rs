use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_adapters::embedded::{Embedded, OpenError, Options, accept_loss};
use tidegate_domain::{
    Admission, Admitted, ClaimRequest, Clock, Durability, Health, Ledger, MessageId, Outcome, QueueName,
    Settlement, Status,
};
use tidegate_testkit::TestClock;
use tokio::runtime::Runtime;

use crate::image::{Image, WAL};

const LEASE_MS: u64 = 60_000;

/// A ledger's life so far, and everything that it answered.
pub struct Subject {
    pub dir: tempfile::TempDir,
    pub answered: Answered,
    clock: Arc<dyn Clock>,
    runtime: Runtime,
    ledger: Option<Embedded>,
    sync: Durability,
}

#[derive(Debug, Clone, Default)]
pub struct Answered {
    pub messages: Vec<(MessageId, Status)>,
    pub token_last: u64,
}

/// How a start on some files went.
#[derive(Debug, PartialEq, Eq)]
pub enum Start {
    Whole,
    /// Refused, and the loss can be accepted.
    Lost(String),
    /// Refused for good.
    Damaged(String),
}

impl Subject {
    pub fn new(sync: Durability) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::new()));
        let mut subject = Self { dir, answered: Answered::default(), clock, runtime, ledger: None, sync };
        subject.open();
        subject
    }

    /// Commits of their own: admissions, and a settlement for every second message.
    pub fn grow(&mut self, commits: usize) {
        for n in 0..commits {
            let id = self.admit(&format!("text {n}"));
            self.answered.messages.push((id, Status::Pending));
            if n % 2 == 1 {
                self.settle();
            }
        }
    }

    fn ledger(&self) -> &Embedded {
        self.ledger.as_ref().unwrap()
    }

    fn admit(&self, text: &str) -> MessageId {
        let admission = Admission::new(queue(), Bytes::from(text.to_owned()));
        match &self.runtime.block_on(self.ledger().admit(vec![admission])).unwrap()[..] {
            [Admitted::Admitted { id, .. }] => *id,
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self) {
        let request = ClaimRequest { queue: queue(), max: 1, lease_ms: LEASE_MS, wait_ms: 0 };
        let claim = self.runtime.block_on(self.ledger().claim(request)).unwrap().remove(0);
        self.answered.token_last = self.answered.token_last.max(claim.token);
        let (id, token) = (claim.id, claim.token);
        let settlement = Settlement { id, token, outcome: Outcome::Delivered, latency_ms: 0 };
        self.runtime.block_on(self.ledger().settle(vec![settlement])).unwrap();
        let settled = self.answered.messages.iter_mut().find(|(known, _)| *known == id).unwrap();
        settled.1 = Status::Delivered;
    }

    /// What a kill would leave now.
    pub fn image(&self) -> Image {
        Image::of(self.dir.path())
    }

    /// A clean stop.
    pub fn stop(&mut self) -> Image {
        self.ledger = None;
        self.image()
    }

    pub fn open(&mut self) {
        self.ledger = Some(Embedded::open(self.options(self.dir.path()), self.clock.clone()).unwrap());
    }

    fn options(&self, dir: &Path) -> Options {
        Options { sync: self.sync, body_cache_bytes: 0, readers: 1, ..Options::new(dir) }
    }

    /// Starts on the image. Panics when the ledger starts and something that was answered is not there.
    pub fn start_on(&self, image: &Image, case: &str) -> Start {
        let dir = image.restored();
        match Embedded::open(self.options(dir.path()), self.clock.clone()) {
            Ok(ledger) => {
                self.judge(&ledger, case);
                Start::Whole
            }
            Err(OpenError::Lost { message, .. }) => {
                self.accept(dir.path(), case);
                Start::Lost(message)
            }
            Err(OpenError::Store { message, damaged: true }) => Start::Damaged(message),
            Err(other) => panic!("{case}: {other}"),
        }
    }

    /// Starts on an image that lacks something which may be missing.
    pub fn starts_without(&self, image: &Image, pending: u64) {
        assert_eq!(self.starts_without_some(image), pending);
    }

    /// Returns how many messages are pending.
    pub fn starts_without_some(&self, image: &Image) -> u64 {
        let dir = image.restored();
        let ledger = Embedded::open(self.options(dir.path()), self.clock.clone()).unwrap();
        let counts = self.runtime.block_on(ledger.counts()).unwrap();
        assert!(counts.balanced(), "{counts:?}");
        self.judge_next(&ledger, "what is left");
        counts.pending
    }

    fn judge(&self, ledger: &Embedded, case: &str) {
        for (id, status) in &self.answered.messages {
            let record = self.runtime.block_on(ledger.message(*id)).unwrap();
            assert_eq!(record.map(|record| record.status), Some(*status), "{case}: message {}", id.seq());
        }
        let counts = self.runtime.block_on(ledger.counts()).unwrap();
        assert_eq!(counts.admitted, self.answered.messages.len() as u64, "{case}");
        self.judge_next(ledger, case);
    }

    /// Without what is missing the ledger serves again, and gives out nothing twice.
    fn accept(&self, dir: &Path, case: &str) {
        let loss =
            accept_loss(&self.options(dir), &self.clock).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(loss.is_some(), "{case}");
        let lines = std::fs::read_to_string(dir.join("ledger.db-losses")).unwrap();
        assert_eq!(lines.lines().count(), 1, "{case}: {lines}");
        let ledger = Embedded::open(self.options(dir), self.clock.clone());
        let ledger = ledger.unwrap_or_else(|error| panic!("{case}: after the acceptance: {error}"));
        self.judge_next(&ledger, case);
        let counts = self.runtime.block_on(ledger.counts()).unwrap();
        assert!(counts.balanced(), "{case}");
        drop(ledger);
        assert_eq!(accept_loss(&self.options(dir), &self.clock).unwrap(), None, "{case}: nothing is missing");
        // The WAL of before, put back, must not pass for a newer one.
        if let Some(kept) = kept_wal(dir) {
            std::fs::rename(kept, dir.join(WAL)).unwrap();
            if let Ok(ledger) = Embedded::open(self.options(dir), self.clock.clone()) {
                let again = self.runtime.block_on(ledger.counts()).unwrap();
                assert_eq!((again.admitted, again.pending), (counts.admitted, counts.pending), "{case}");
            }
        }
    }

    fn judge_next(&self, ledger: &Embedded, case: &str) {
        assert_eq!(ledger.health(), Health::Ready);
        let admission = Admission::new(queue(), Bytes::from_static(b"next"));
        let admitted = self.runtime.block_on(ledger.admit(vec![admission])).unwrap();
        let [Admitted::Admitted { id, .. }] = admitted[..] else { panic!("{case}: {admitted:?}") };
        let seq_last = self.answered.messages.iter().map(|(id, _)| id.seq()).max().unwrap();
        assert!(id.seq() > seq_last, "{case}: {} was given out before", id.seq());
        let request = ClaimRequest { queue: queue(), max: 1, lease_ms: LEASE_MS, wait_ms: 0 };
        let claims = self.runtime.block_on(ledger.claim(request)).unwrap();
        assert!(claims[0].token > self.answered.token_last, "{case}: a token was given out before");
    }
}

fn kept_wal(dir: &Path) -> Option<std::path::PathBuf> {
    let mut files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    files.find(|path| path.to_string_lossy().contains("-wal.lost-"))
}

fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}
