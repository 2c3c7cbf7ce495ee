//! What can't be read as it was written is reported, and never served.

use tidegate_domain::{
    Admitted, ClaimRequest, Filter, Ledger as _, LedgerError, MessageId, Page, Queues as _, Recipient,
    Status, Transit as _,
};
use tidegate_postgres::Postgres;
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::{Setup, services};

use crate::backend::PostgresBackend;

async fn three(backend: &PostgresBackend, ledger: &Postgres, damage: &str) -> Vec<MessageId> {
    let batch = ["a", "b", "c"].map(|text| sms(text).to("ann").header("trace", text).0);
    let admitted = ledger.admit(batch.to_vec()).await.unwrap();
    let ids = admitted.iter().map(|answer| match answer {
        Admitted::Admitted { id, .. } => *id,
        other => panic!("{other:?}"),
    });
    let ids: Vec<_> = ids.collect();
    let sql = format!("UPDATE tidegate.message SET {damage} WHERE seq = {}", ids[1].seq());
    services::Postgres::shared().sql(&backend.database, &sql).unwrap();
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_message_is_claimed_without_its_text() {
    for damage in ["body = 'lies'", "headers = 'lies'"] {
        let backend = PostgresBackend::new();
        let ledger = Postgres::open(backend.options(&Setup::default())).await.unwrap();
        let ids = three(&backend, &ledger, damage).await;
        ledger.pop(queue("sms"), 1, 0).await.unwrap();
        let request = ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 60_000, wait_ms: 0 };
        let claims = ledger.claim(request).await.unwrap();
        assert_eq!((claims[0].id, &claims[0].body), (ids[1], &None), "{damage}");
        let error = ledger.message(ids[1]).await.unwrap_err();
        assert!(matches!(error, LedgerError::Corrupt(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_message_is_not_popped_but_dead_and_costs_no_other() {
    for damage in ["body = 'lies'", "headers = 'lies'"] {
        let backend = PostgresBackend::new();
        let ledger = Postgres::open(backend.options(&Setup::default())).await.unwrap();
        let ids = three(&backend, &ledger, damage).await;
        let popped = ledger.pop(queue("sms"), 9, 0).await.unwrap();
        let texts: Vec<_> = popped.iter().map(|claim| claim.body.as_deref()).collect();
        assert_eq!(texts, [Some(&b"a"[..]), Some(b"c")], "{damage}");
        let counts = ledger.counts().await.unwrap();
        assert_eq!((counts.delivered, counts.dead, counts.pending), (2, 1, 0));
        let heal =
            "UPDATE tidegate.message SET body = 'b', headers = NULL WHERE body = 'lies' OR headers = 'lies'";
        services::Postgres::shared().sql(&backend.database, heal).unwrap();
        let record = ledger.message(ids[1]).await.unwrap().unwrap();
        assert_eq!((record.status, record.reason.as_deref()), (Status::Dead, Some("damaged on disk")));
        assert_eq!(record.attempts, [], "what is damaged was not tried");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_message_that_got_lost_on_its_way_dies_without_an_attempt() {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ledger = Postgres::open(backend.options(&setup)).await.unwrap();
    let ids = three(&backend, &ledger, "body = 'lies'").await;
    ledger.pop(queue("sms"), 1, 0).await.unwrap();
    let request = ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 1_000, wait_ms: 0 };
    let sent_off = ledger.dispatch(request, 1).await.unwrap();
    assert_eq!((sent_off[0].id, &sent_off[0].body), (ids[1], &None));
    setup.clock.advance_ms(1_000);
    assert_eq!(ledger.pop(queue("sms"), 9, 0).await.unwrap().len(), 1);
    let heal = "UPDATE tidegate.message SET body = 'b' WHERE body = 'lies'";
    services::Postgres::shared().sql(&backend.database, heal).unwrap();
    let record = ledger.message(ids[1]).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts), (Status::Dead, vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_names_what_is_damaged_and_shows_the_rest() {
    for damage in ["body = 'lies'", "headers = 'lies'"] {
        let backend = PostgresBackend::new();
        let ledger = Postgres::open(backend.options(&Setup::default())).await.unwrap();
        let ids = three(&backend, &ledger, damage).await;
        let all = Filter::default();
        let filters = [
            all.clone(),
            Filter { status: Some(Status::Pending), ..all.clone() },
            Filter { queue: Some(queue("sms")), ..all.clone() },
            Filter { recipient: Some(Recipient::new("ann").unwrap()), ..all.clone() },
        ];
        for filter in filters {
            let page = Page { max: 9, body_bytes_max: Some(usize::MAX), after: None };
            let listing = ledger.list(filter.clone(), page).await.unwrap();
            let shown: Vec<_> = listing.messages.iter().map(|record| record.id).collect();
            let named: Vec<_> = listing.damaged.iter().map(|damaged| damaged.id).collect();
            assert_eq!((shown, named), (vec![ids[0], ids[2]], vec![ids[1]]), "{damage}: {filter:?}");
        }
        // A page of nothing but the damaged one goes on behind it.
        let page = |after| Page { max: 1, body_bytes_max: Some(usize::MAX), after };
        let (mut met, mut after) = (Vec::new(), None);
        loop {
            let listing = ledger.list(all.clone(), page(after)).await.unwrap();
            met.extend(listing.messages.iter().map(|record| record.id));
            met.extend(listing.damaged.iter().map(|damaged| damaged.id));
            after = listing.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(met, ids, "{damage}");
    }
}
