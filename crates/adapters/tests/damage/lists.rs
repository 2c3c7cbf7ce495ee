//! One damaged message costs a list that one row. It is named, and neither served nor left out, whatever is asked for.

use std::sync::Arc;

use bytes::Bytes;
use tempfile::tempdir;
use tidegate_adapters::embedded::{Embedded, Options};
use tidegate_domain::{
    Admission, Admitted, ClaimRequest, Durability, Filter, Ledger, Listing, MessageId, Outcome, Page,
    QueueName, Queues, Recipient, Settlement, Status,
};
use tidegate_testkit::TestClock;

fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}

/// Dead letters, all alike.
async fn dead_letters(ledger: &Embedded, count: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for n in 0..count {
        let body = Bytes::from(format!("text {n}"));
        let recipient = Some(Recipient::new("ann").unwrap());
        let admitted = ledger.admit(vec![Admission { recipient, ..Admission::new(queue(), body) }]).await;
        let [Admitted::Admitted { id, .. }] = admitted.unwrap()[..] else { panic!("not admitted") };
        for outcome in
            [Outcome::Retry { delay_ms: 0, reason: "busy".into() }, Outcome::Dead { reason: "no".into() }]
        {
            let request = ClaimRequest { queue: queue(), max: 1, lease_ms: 60_000, wait_ms: 0 };
            let claim = ledger.claim(request).await.unwrap().remove(0);
            let settlement = Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 1 };
            ledger.settle(vec![settlement]).await.unwrap();
        }
        ids.push(id);
    }
    ids
}

async fn list(ledger: &Embedded, filter: &Filter) -> Listing {
    let page = Page { max: 100, body_bytes_max: Some(1 << 20), after: None };
    ledger.list(filter.clone(), page).await.unwrap()
}

#[tokio::test]
async fn a_list_names_what_is_damaged_and_shows_the_rest() {
    let changes = [
        "UPDATE message SET body = x'6c696573'",
        "UPDATE message SET recipient = 'bob'",
        "UPDATE message SET recipient = ''",
        "UPDATE message SET lane = 7",
        "UPDATE message SET at = at + 1",
        "UPDATE message SET queue = 9",
        "UPDATE message SET headers = 'lies'",
        "UPDATE outcome SET reason = 'lies'",
        "UPDATE outcome SET latency_ms = 5",
        "UPDATE attempt SET reason = 'lies'",
        "UPDATE attempt SET result = 9",
    ];
    for change in changes {
        let dir = tempdir().unwrap();
        let options = Options { sync: Durability::OsBuffer, body_cache_bytes: 0, ..Options::new(dir.path()) };
        let ledger = Embedded::open(options, Arc::new(TestClock::default())).unwrap();
        let ids = dead_letters(&ledger, 5).await;
        let db = rusqlite::Connection::open(dir.path().join("ledger.db")).unwrap();
        db.execute_batch(&format!("{change} WHERE seq = {}", ids[2].seq())).unwrap();
        let all = Filter::default();
        let filters = [
            all.clone(),
            Filter { status: Some(Status::Dead), ..all.clone() },
            Filter { queue: Some(queue()), ..all.clone() },
            Filter { recipient: Some(Recipient::new("ann").unwrap()), ..all.clone() },
            Filter { ended: true, ..all.clone() },
        ];
        for filter in filters {
            let Listing { messages, damaged, next } = list(&ledger, &filter).await;
            let shown: Vec<_> = messages.iter().map(|record| record.id).collect();
            assert_eq!(shown, [ids[0], ids[1], ids[3], ids[4]], "{change}: {filter:?}");
            let named: Vec<_> = damaged.iter().map(|damaged| damaged.id.seq()).collect();
            assert_eq!((named, next), (vec![ids[2].seq()], None), "{change}: {filter:?}");
        }
        // Pages of one go on behind it.
        let (mut after, mut met) = (None, 0);
        loop {
            let page = Page { max: 1, body_bytes_max: Some(1 << 20), after };
            let listing = ledger.list(all.clone(), page).await.unwrap();
            met += listing.messages.len() + listing.damaged.len();
            after = listing.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(met, 5, "{change}");
    }
}

/// An index that disagrees with its table is no reason to show what is not dead.
#[tokio::test]
async fn a_dead_letter_without_a_message_is_named() {
    let dir = tempdir().unwrap();
    let options = Options { sync: Durability::OsBuffer, body_cache_bytes: 0, ..Options::new(dir.path()) };
    let ledger = Embedded::open(options, Arc::new(TestClock::default())).unwrap();
    let ids = dead_letters(&ledger, 3).await;
    let db = rusqlite::Connection::open(dir.path().join("ledger.db")).unwrap();
    db.execute_batch(&format!("DELETE FROM message WHERE seq = {}", ids[1].seq())).unwrap();
    let listing = list(&ledger, &Filter { status: Some(Status::Dead), ..Filter::default() }).await;
    assert_eq!(listing.messages.len(), 2);
    assert_eq!(listing.damaged.iter().map(|one| one.id.seq()).collect::<Vec<_>>(), [ids[1].seq()]);
}
