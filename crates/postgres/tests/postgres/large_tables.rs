//! With many rows, every operation still looks at a few: what it reads is counted by the server itself.

use std::time::Duration;

use tidegate_domain::{
    Admitted, ClaimRequest, Filter, Lane, Ledger as _, Outcome, Page, Queues as _, Requeue, Settlement,
    Status,
};
use tidegate_postgres::Postgres;
use tidegate_testkit::Setup;
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::services;
use tokio::time::sleep;

use crate::backend::PostgresBackend;

/// 60,000 waiting (half of them in chains of ten, a third not due yet), 60,000 settled, 2,000 of these dead.
const FILL: &str = include_str!("fill.sql");
/// Rows that one call may read of one table; each call below concerns a handful of messages.
const READ_MAX: i64 = 600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_operation_reads_more_than_it_needs() {
    let backend = PostgresBackend::new();
    let setup = Setup { pending_max: 1_000_000, ..Setup::default() };
    let ledger = Postgres::open(backend.options(&setup)).await.unwrap();
    services::Postgres::shared().sql(&backend.database, FILL).unwrap();
    let client = backend.client().await.unwrap();
    let read = async || -> Vec<(String, i64)> {
        // Counters of a session reach the others when it has been idle for a moment.
        sleep(Duration::from_millis(1_200)).await;
        let rows = client
            .query(
                "SELECT relname::text, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) \
                 FROM pg_stat_user_tables WHERE schemaname = 'tidegate' ORDER BY 1",
                &[],
            )
            .await
            .unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let mut before = read().await;
    let mut check = async |what: &str| {
        let after = read().await;
        for ((table, before), (_, after)) in before.iter().zip(&after) {
            assert!(after - before <= READ_MAX, "{what} read {} rows of {table}", after - before);
        }
        before = after;
    };

    let drafts =
        [sms("a").to("r5"), sms("b").lane(Lane::High).to("r6"), sms("c").key("k"), sms("d").key("k")];
    let admitted = ledger.admit(drafts.map(|draft| draft.on("big").0).to_vec()).await.unwrap();
    let Admitted::Admitted { id, .. } = admitted[2] else { panic!("{admitted:?}") };
    check("admit").await;
    let request = ClaimRequest { queue: queue("big"), max: 5, lease_ms: 1_000, wait_ms: 0 };
    let claims = ledger.claim(request).await.unwrap();
    assert_eq!(claims.len(), 5);
    check("claim").await;
    let kinds = [
        Outcome::Delivered,
        Outcome::Dead { reason: "x".into() },
        Outcome::Retry { delay_ms: 9, reason: "x".into() },
        Outcome::Released,
        Outcome::Held { for_ms: 9 },
    ];
    let settlements = claims.iter().zip(kinds).map(|(claim, outcome)| Settlement {
        id: claim.id,
        token: claim.token,
        outcome,
        latency_ms: 1,
    });
    ledger.settle(settlements.collect()).await.unwrap();
    check("settle").await;
    assert_eq!(ledger.pop(queue("big"), 5, 0).await.unwrap().len(), 5);
    check("pop").await;
    ledger.message(id).await.unwrap().unwrap();
    ledger.cancel(vec![id]).await.unwrap();
    ledger.ack(vec![id]).await.unwrap();
    check("message, cancel and ack").await;
    let requeue = |id| Requeue { id, body: None, delay_ms: 0 };
    ledger.requeue(vec![requeue(claims[1].id)]).await.unwrap();
    check("requeue").await;
    for status in [Status::Dead, Status::Pending] {
        let filter = Filter { status: Some(status), ..Filter::default() };
        let list = ledger.list(filter, Page { max: 3, after: None }).await.unwrap();
        assert_eq!(list.messages.len(), 3);
    }
    ledger.counts().await.unwrap();
    ledger.queue_counts().await.unwrap();
    ledger.sweep().await.unwrap();
    check("lists of a few, counts and sweep").await;
}
