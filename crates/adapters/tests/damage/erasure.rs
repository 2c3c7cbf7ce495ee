//! No file keeps a text that was deleted, however its row was moved about before.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::tempdir;
use tidegate_adapters::embedded::{Embedded, Options};
use tidegate_domain::{
    Admission, Admitted, ClaimRequest, Durability, Ledger, MessageId, Outcome, QueueName, Queues, Requeue,
    Settlement,
};
use tidegate_testkit::TestClock;

const DAY_MS: u64 = 86_400_000;
const MESSAGES: usize = 600;

fn text(n: usize) -> Bytes {
    // From a part of a page to several pages, none like its neighbours.
    let bytes = [10, 300, 1_500, 60, 9_000, 700, 3_000][n * 31 % 7] + n % 13;
    Bytes::from(format!("text-{n:05}-{}", "x".repeat(bytes)))
}

fn marker(n: usize) -> String {
    format!("text-{n:05}-")
}

fn queue(n: usize) -> QueueName {
    QueueName::new(["retried", "settled", "purged"][n % 3]).unwrap()
}

async fn claim(ledger: &Embedded, queue: QueueName) -> Vec<(MessageId, u64)> {
    let request = ClaimRequest { queue, max: MESSAGES, lease_ms: 60_000, wait_ms: 0 };
    ledger.claim(request).await.unwrap().iter().map(|claim| (claim.id, claim.token)).collect()
}

async fn settle(ledger: &Embedded, claimed: &[(MessageId, u64)], outcome: impl Fn(usize) -> Outcome) {
    let settlement = |(n, (id, token)): (usize, &(MessageId, u64))| Settlement {
        id: *id,
        token: *token,
        outcome: outcome(n),
        latency_ms: 1,
    };
    ledger.settle(claimed.iter().enumerate().map(settlement).collect()).await.unwrap();
}

fn found(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let texts = bytes.windows(11).filter(|w| w.starts_with(b"text-") && w[10] == b'-');
        found.extend(texts.map(|text| String::from_utf8_lossy(text).into_owned()));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A third dies, and each second of those comes back with another text; a third is delivered, and retention takes every
/// second of them from between the others; a third is purged. In the end nothing is left of any.
#[tokio::test]
async fn deleted_texts_leave_no_copy_behind() {
    let dir = tempdir().unwrap();
    let clock = Arc::new(TestClock::default());
    let options = || Options { sync: Durability::OsBuffer, retention_ms: DAY_MS, ..Options::new(dir.path()) };
    let ledger = Embedded::open(options(), clock.clone()).unwrap();
    let mut ids = Vec::new();
    for n in 0..MESSAGES {
        let admitted = ledger.admit(vec![Admission::new(queue(n), text(n))]).await.unwrap();
        let [Admitted::Admitted { id, .. }] = admitted[..] else { panic!("{admitted:?}") };
        ids.push(id);
    }
    let (retried, settled) = (claim(&ledger, queue(0)).await, claim(&ledger, queue(1)).await);
    let dead = || Outcome::Dead { reason: "no ink".into() };
    settle(&ledger, &retried, |_| dead()).await;
    let later = |n| {
        if n % 2 == 0 {
            Outcome::Delivered
        } else {
            Outcome::Retry { delay_ms: 2 * DAY_MS, reason: "later".into() }
        }
    };
    settle(&ledger, &settled, later).await;
    let edited = |(n, (id, _)): (usize, &(MessageId, u64))| {
        (n % 2 == 0).then(|| Requeue { id: *id, body: Some(Bytes::from_static(b"edited")), delay_ms: 0 })
    };
    ledger.requeue(retried.iter().enumerate().filter_map(edited).collect()).await.unwrap();
    // Each way to delete a text leaves the files by itself.
    let of = |(id, _): &(MessageId, u64)| marker(ids.iter().position(|known| known == id).unwrap());
    let former: Vec<_> = retried.iter().step_by(2).map(of).collect();
    let gone = async |texts: &[String], how: &str| {
        clock.advance_ms(2_000);
        ledger.sweep().await.unwrap();
        let left: Vec<_> = found(dir.path()).into_iter().filter(|text| texts.contains(text)).collect();
        assert_eq!(left, Vec::<String>::new(), "{how}");
    };
    gone(&former, "edited").await;
    clock.advance_ms(DAY_MS + 1);
    for _ in 0..5 {
        ledger.sweep().await.unwrap();
    }
    for queue in [queue(0), queue(1), queue(2)] {
        ledger.purge(queue).await.unwrap();
    }
    let purged: Vec<_> = (2..MESSAGES).step_by(3).map(marker).collect();
    gone(&purged, "purged").await;
    ledger.delete_dead(ids.clone()).await.unwrap();
    assert_eq!(ledger.counts().await.unwrap().pending, 0);
    gone(&(0..MESSAGES).map(marker).collect::<Vec<_>>(), "dead and deleted").await;
    // By the checksum of a body, a short text could be guessed.
    let db = rusqlite::Connection::open(dir.path().join("ledger.db")).unwrap();
    let told = "SELECT count(*) FROM message WHERE checksum & 4294967295 <> 0";
    assert_eq!(db.query_row(told, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    drop(db);
    assert_eq!(found(dir.path()), Vec::<String>::new(), "while the ledger runs");
    ledger.close();
    assert_eq!(found(dir.path()), Vec::<String>::new(), "when it is closed");
}
