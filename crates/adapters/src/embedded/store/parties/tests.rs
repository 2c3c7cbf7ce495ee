use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::Connection;
use tempfile::TempDir;
use tidegate_domain::{
    Admission, Admitted, ClaimRequest, Durability, Filter, Ledger as _, MessageId, Outcome, Page, QueueName,
    Queues as _, Recipient, Settlement, Timestamp, UserId,
};
use tidegate_testkit::TestClock;

use super::super::super::{Embedded, Options};
use super::BLOCK;

const HOUR_MS: u64 = 3_600_000;

/// A ledger whose blocks are small, so that a hundred messages fill some.
struct Subject {
    dir: TempDir,
    clock: Arc<TestClock>,
    ledger: Embedded,
}

impl Subject {
    fn new() -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
        let ledger = open(dir.path(), &clock);
        Self { dir, clock, ledger }
    }

    /// Messages one millisecond apart, each to the recipient that it is given.
    async fn admit(&self, recipients: impl Iterator<Item = String>) -> Vec<MessageId> {
        let mut ids = Vec::new();
        for recipient in recipients {
            let recipient = Some(Recipient::new(&recipient).unwrap());
            let admission = Admission { recipient, ..Admission::new(queue(), Bytes::from_static(b"text")) };
            match self.ledger.admit(vec![admission]).await.unwrap()[..] {
                [Admitted::Admitted { id, .. }] => ids.push(id),
                ref other => panic!("{other:?}"),
            }
            self.clock.advance_ms(1);
        }
        ids
    }

    async fn settle_all(&self, dead: &[MessageId]) {
        loop {
            let request = ClaimRequest { queue: queue(), max: 50, lease_ms: HOUR_MS, wait_ms: 0 };
            let claims = self.ledger.claim(request).await.unwrap();
            if claims.is_empty() {
                return;
            }
            let settlement = |claim: &tidegate_domain::Claim| {
                let is_dead = dead.contains(&claim.id);
                let outcome = if is_dead { Outcome::Dead { reason: "x".into() } } else { Outcome::Delivered };
                Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 0 }
            };
            self.ledger.settle(claims.iter().map(settlement).collect()).await.unwrap();
        }
    }

    async fn found(&self, filter: &Filter, max: usize) -> Vec<MessageId> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = Page { max, body_bytes_max: None, after };
            let listing = self.ledger.list(filter.clone(), page).await.unwrap();
            found.extend(listing.messages.iter().map(|record| record.id));
            after = listing.next;
            if after.is_none() {
                return found;
            }
        }
    }

    async fn require(&self, recipient: &str, expected: &[MessageId]) {
        for max in [1, 4, 1_000] {
            assert_eq!(self.found(&to(recipient), max).await, expected, "{recipient} by {max}");
        }
    }

    fn reopen(self) -> Self {
        let Self { dir, clock, ledger } = self;
        drop(ledger);
        let ledger = open(dir.path(), &clock);
        Self { dir, clock, ledger }
    }

    /// Behind the ledger's back.
    fn sql(&self, sql: &str) {
        self.db().execute_batch(sql).unwrap();
    }

    fn runs(&self) -> Vec<u64> {
        let db = self.db();
        let mut select = db.prepare("SELECT DISTINCT id >> 16 FROM party_block ORDER BY 1").unwrap();
        select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    fn db(&self) -> Connection {
        Connection::open(self.dir.path().join("ledger.db")).unwrap()
    }
}

fn open(dir: &Path, clock: &Arc<TestClock>) -> Embedded {
    let options = Options {
        sync: Durability::OsBuffer,
        retention_ms: HOUR_MS,
        idempotency_window_ms: HOUR_MS,
        ..Options::new(dir)
    };
    Embedded::open(options, clock.clone()).unwrap()
}

fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}

fn to(recipient: &str) -> Filter {
    Filter { recipient: Some(Recipient::new(recipient).unwrap()), ..Filter::default() }
}

/// Every fifth message is ann's.
fn names(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(|n| if n % 5 == 2 { "ann".to_owned() } else { format!("other{n}") })
}

fn of_ann(ids: &[MessageId]) -> Vec<MessageId> {
    ids.iter().skip(2).step_by(5).copied().collect()
}

#[tokio::test]
async fn runs_and_the_open_block_hold_every_message_once() {
    let subject = Subject::new();
    let mut ids = subject.admit(names(100)).await;
    subject.require("ann", &of_ann(&ids)).await;
    subject.require("other99", &ids[99..]).await;
    subject.require("zoe", &[]).await;
    // One page looks at fewer messages than there are others between these.
    let page = Page { max: 1_000, body_bytes_max: None, after: None };
    let listing = subject.ledger.list(to("ann"), page).await.unwrap();
    assert_eq!((listing.messages.len(), listing.next), (of_ann(&ids).len(), None));
    let subject = subject.reopen();
    subject.require("ann", &of_ann(&ids)).await;
    ids.extend(subject.admit(names(30)).await);
    subject.require("ann", &of_ann(&ids)).await;
    assert_eq!(subject.runs(), (0..ids.len() as u64 / BLOCK).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_party_with_all_messages_fills_piece_after_piece() {
    let subject = Subject::new();
    let ids = subject.admit((0..70).map(|_| "ann".to_owned())).await;
    subject.require("ann", &ids).await;
}

/// A page looks at thirty messages in these tests.
#[tokio::test]
async fn messages_that_are_gone_end_no_list() {
    let subject = Subject::new();
    let ids = subject.admit((0..150).map(|_| "ann".to_owned())).await;
    subject.sql("DELETE FROM message WHERE seq BETWEEN 5 AND 140");
    let left = |id: &&MessageId| !(5..=140).contains(&id.seq());
    subject.require("ann", &ids.iter().filter(left).copied().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_block_of_another_time_is_not_searched_and_nothing_is_missed() {
    let subject = Subject::new();
    let ids = subject.admit(names(100)).await;
    let start = TestClock::START;
    for (from, to_ms) in [(0, 100), (0, 1), (2, 3), (15, 17), (47, 90), (99, 100), (200, 300)] {
        let (from, until) = (start.plus_ms(from), start.plus_ms(to_ms));
        let filter = Filter { from: Some(from), to: Some(until), ..to("ann") };
        let within = |id: &MessageId| (from..until).contains(&admitted_at(*id));
        let expected: Vec<_> = of_ann(&ids).into_iter().filter(within).collect();
        assert_eq!(subject.found(&filter, 3).await, expected, "{filter:?}");
    }
}

fn admitted_at(id: MessageId) -> Timestamp {
    Timestamp::from_millis(i64::try_from(id.millis()).unwrap())
}

/// Heads and pieces: flipped, cut, exchanged, gone.
#[tokio::test]
async fn a_damaged_run_costs_a_look_up_nothing_but_time() {
    let damages = [
        "UPDATE party_block SET entries = zeroblob(length(entries))",
        "UPDATE party_block SET entries = substr(entries, 1, length(entries) - 6)",
        "UPDATE party_block SET entries = x''",
        "UPDATE party_block SET entries = (SELECT entries FROM party_block WHERE id = 65537) WHERE id & 65535 > 0",
        "DELETE FROM party_block WHERE id & 65535 > 0",
        "DELETE FROM party_block WHERE id & 65535 = 0",
        "DELETE FROM party_block",
    ];
    for damage in damages {
        let subject = Subject::new();
        let ids = subject.admit(names(100)).await;
        subject.sql(damage);
        subject.require("ann", &of_ann(&ids)).await;
        let subject = subject.reopen();
        subject.require("ann", &of_ann(&ids)).await;
    }
}

#[tokio::test]
async fn a_missing_run_is_made_at_the_start() {
    let subject = Subject::new();
    let ids = subject.admit(names(100)).await;
    let runs = subject.runs();
    subject.sql("DELETE FROM party_block WHERE id >> 16 IN (0, 3, 4)");
    let subject = subject.reopen();
    assert_eq!(subject.runs(), runs);
    subject.require("ann", &of_ann(&ids)).await;
}

#[tokio::test]
async fn a_message_whose_recipient_is_damaged_is_reported() {
    let subject = Subject::new();
    let ids = subject.admit(names(40)).await;
    subject.settle_all(&[]).await;
    // So that the next start does not look at it.
    subject.clock.advance_ms(60_000);
    subject.ledger.sweep().await.unwrap();
    let seq = of_ann(&ids)[1].seq();
    subject.sql(&format!("UPDATE message SET recipient = 'eve' WHERE seq = {seq}"));
    let page = Page { max: 9, body_bytes_max: None, after: None };
    let require = async |subject: &Subject| {
        let listing = subject.ledger.list(to("ann"), page.clone()).await.unwrap();
        assert_eq!(listing.damaged.iter().map(|damaged| damaged.id.seq()).collect::<Vec<_>>(), [seq]);
        assert_eq!(listing.messages.len(), of_ann(&ids).len() - 1);
    };
    require(&subject).await;
    // Neither a run that is damaged, too, nor one that is made when the name is lost already leaves it out.
    subject.sql("DELETE FROM party_block WHERE id & 65535 > 0");
    require(&subject).await;
    subject.sql("DELETE FROM party_block");
    let subject = subject.reopen();
    require(&subject).await;
}

#[tokio::test]
async fn runs_go_with_their_messages() {
    let subject = Subject::new();
    let ids = subject.admit(names(100)).await;
    let dead = [ids[2], ids[47]];
    subject.settle_all(&dead).await;
    subject.clock.advance_ms(2 * HOUR_MS);
    let young = subject.admit(names(3)).await;
    for _ in 0..40 {
        subject.ledger.sweep().await.unwrap();
    }
    subject.require("ann", &[dead[0], dead[1], young[2]]).await;
    // Of what was kept, small runs, and of the rest none; the last block is open.
    assert_eq!(subject.runs(), [dead[0].seq() / BLOCK, dead[1].seq() / BLOCK]);
    let subject = subject.reopen();
    subject.require("ann", &[dead[0], dead[1], young[2]]).await;
    // When the first one goes too, so does its run.
    assert_eq!(subject.ledger.delete_dead(vec![dead[0]]).await.unwrap(), [true]);
    subject.clock.advance_ms(2 * HOUR_MS);
    for _ in 0..40 {
        subject.ledger.sweep().await.unwrap();
    }
    assert_eq!(subject.runs(), [dead[1].seq() / BLOCK]);
    subject.require("ann", &[dead[1], young[2]]).await;
}

#[tokio::test]
async fn a_user_is_found_beside_the_recipient() {
    let subject = Subject::new();
    let payer = UserId::new("payer").unwrap();
    subject.ledger.put_quota(payer.clone(), 1_000, HOUR_MS).await.unwrap();
    let mut paid = Vec::new();
    for n in 0..60 {
        let charge = (n % 3 == 0).then(|| payer.clone());
        let recipient = Some(Recipient::new(if n % 2 == 0 { "payer" } else { "ann" }).unwrap());
        let admission =
            Admission { recipient, charge, ..Admission::new(queue(), Bytes::from_static(b"text")) };
        if let [Admitted::Admitted { id, quota: Some(_), .. }] =
            subject.ledger.admit(vec![admission]).await.unwrap()[..]
        {
            paid.push(id);
        }
    }
    let subject = subject.reopen();
    let filter = Filter { user: Some(payer), ..Filter::default() };
    assert_eq!(subject.found(&filter, 7).await, paid);
    let both = Filter { recipient: to("ann").recipient, ..filter };
    let expected: Vec<_> = paid.iter().skip(1).step_by(2).copied().collect();
    assert_eq!(subject.found(&both, 7).await, expected);
}
