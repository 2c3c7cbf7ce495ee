//! Old messages go with their partition; what is still of use stays.

use tidegate_domain::{
    Admitted, Filter, Ledger as _, MessageId, Outcome, Page, Queues as _, Requeued, Status,
};
use tidegate_postgres::{Options, Postgres};
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::{Setup, services};

use crate::backend::PostgresBackend;

const HOUR_MS: u64 = 3_600_000;

async fn put(ledger: &Postgres, body: &str) -> MessageId {
    match ledger.admit(vec![sms(body).0]).await.unwrap().remove(0) {
        Admitted::Admitted { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

async fn end(ledger: &Postgres, outcome: Outcome) {
    let request = tidegate_domain::ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 1_000, wait_ms: 0 };
    let claim = ledger.claim(request).await.unwrap().remove(0);
    let settlement = tidegate_domain::Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 1 };
    ledger.settle(vec![settlement]).await.unwrap();
}

fn dead() -> Outcome {
    Outcome::Dead { reason: "refused".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_partition_leaves_what_is_pending_dead_or_young() {
    let backend = PostgresBackend::empty();
    let setup = Setup::default();
    // In the test's own time, with small partitions.
    let make = || Options { partition_messages: 10, retention_ms: HOUR_MS, ..backend.options(&setup) };
    drop(Postgres::open(Options { session_hook: None, ..make() }).await.unwrap());
    services::Postgres::shared().sql(&backend.database, crate::backend::TEST_CLOCK).unwrap();
    let ledger = Postgres::open(make()).await.unwrap();

    let old = put(&ledger, "old").await;
    end(&ledger, Outcome::Delivered).await;
    let refused = put(&ledger, "refused").await;
    end(&ledger, dead()).await;
    let late = put(&ledger, "late").await;
    let waiting = put(&ledger, "waiting").await;
    for _ in 0..6 {
        ledger.admit(vec![sms("elsewhere").on("elsewhere").0]).await.unwrap();
    }
    ledger.purge(queue("elsewhere")).await.unwrap();
    setup.clock.advance_ms(HOUR_MS / 2);
    end(&ledger, Outcome::Delivered).await;
    for n in 0..40 {
        put(&ledger, &n.to_string()).await;
    }
    assert!(waiting.seq() < 11, "in the first partition");
    setup.clock.advance_ms(HOUR_MS / 2);
    let partitions = || {
        let sql = "SELECT string_agg(first::text, ' ' ORDER BY first) FROM tidegate.partition";
        services::Postgres::shared().sql(&backend.database, sql).unwrap()
    };
    assert!(partitions().starts_with("1 11 "), "{}", partitions());
    ledger.sweep().await.unwrap();
    assert!(partitions().starts_with("11 "), "{}", partitions());

    assert_eq!(ledger.message(old).await.unwrap(), None);
    let status = async |id| ledger.message(id).await.unwrap().unwrap().status;
    assert_eq!(status(refused).await, Status::Dead);
    assert_eq!(status(late).await, Status::Delivered);
    assert_eq!(status(waiting).await, Status::Pending);
    let counts = ledger.counts().await.unwrap();
    assert_eq!((counts.admitted, counts.delivered, counts.dead, counts.pending), (50, 2, 1, 41));
    let list = ledger.list(Filter::default(), Page { max: 2, after: None }).await.unwrap();
    assert_eq!(list.messages.iter().map(|record| record.id).collect::<Vec<_>>(), [refused, late]);

    // What was kept goes its way, and then goes as well.
    assert_eq!(
        ledger
            .requeue(vec![tidegate_domain::Requeue { id: refused, body: None, delay_ms: 0 }])
            .await
            .unwrap(),
        [Requeued::Requeued]
    );
    assert_eq!(ledger.pop(queue("sms"), 100, 0).await.unwrap().len(), 42);
    setup.clock.advance_ms(HOUR_MS);
    for _ in 0..4 {
        ledger.sweep().await.unwrap();
    }
    for id in [refused, late, waiting] {
        assert_eq!(ledger.message(id).await.unwrap(), None);
    }
    let counts = ledger.counts().await.unwrap();
    assert_eq!((counts.admitted, counts.delivered), (50, 44));
    put(&ledger, "the next").await;
}

/// Nobody has swept for long, or many came at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_without_a_partition_makes_one() {
    let backend = PostgresBackend::new();
    let ledger = Postgres::open(backend.options(&Setup::default())).await.unwrap();
    let far = "SELECT setval('tidegate.message_seq', 1000000000)";
    services::Postgres::shared().sql(&backend.database, far).unwrap();
    let id = put(&ledger, "far").await;
    assert!(id.seq() > 1_000_000_000 && ledger.message(id).await.unwrap().is_some());
}
