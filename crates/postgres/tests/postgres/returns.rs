//! A dead letter that is requeued has new rows. Whoever waited for the old ones holds nothing, and must leave the new ones
//! alone: another gateway may hold them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{
    Admitted, Cancelled, Claim, ClaimRequest, Ledger as _, MessageId, Outcome, Queues as _, Requeue,
    Requeued, Settled, Settlement,
};
use tidegate_postgres::Postgres;
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::{Draft, queue, sms};
use tokio::time::{sleep, timeout};

use crate::backend::PostgresBackend;
use crate::session::Session;

/// What the lock of the old outcome protects, when the message has come back and died once more.
const DIES_AGAIN: &str = "CREATE TEMPORARY TABLE again AS SELECT * FROM outcome; DELETE FROM outcome; \
                          INSERT INTO outcome SELECT * FROM again; COMMIT";

async fn gateway(backend: &PostgresBackend) -> Arc<Postgres> {
    // Nothing beside the test takes locks.
    backend.gateways(1, |options| options.sweep_every = Duration::from_secs(600)).await.remove(0)
}

async fn claim(gateway: &Postgres) -> Claim {
    let request = ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 600_000, wait_ms: 0 };
    gateway.claim(request).await.unwrap().remove(0)
}

async fn settle(gateway: &Postgres, claim: &Claim, outcome: Outcome) -> Settled {
    let settlement = Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 1 };
    gateway.settle(vec![settlement]).await.unwrap().remove(0)
}

async fn put(gateway: &Postgres, draft: Draft) -> MessageId {
    match gateway.admit(vec![draft.0]).await.unwrap().remove(0) {
        Admitted::Admitted { id, .. } => id,
        refused => panic!("{refused:?}"),
    }
}

/// Of the only message that is due.
async fn die(gateway: &Postgres) {
    let claim = claim(gateway).await;
    assert_eq!(settle(gateway, &claim, Outcome::Dead { reason: "refused".to_owned() }).await, Settled::Done);
}

async fn requeue(gateway: &Postgres, id: MessageId) -> Requeued {
    let requeue = Requeue { id, body: None, delay_ms: 0 };
    gateway.requeue(vec![requeue]).await.expect("requeue").remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requeues_that_waited_for_a_message_that_died_again_leave_it_alone() {
    let backend = PostgresBackend::empty();
    let gateway = gateway(&backend).await;
    let id = put(&gateway, sms("a")).await;
    die(&gateway).await;
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    session.run("BEGIN; SELECT FROM outcome FOR UPDATE").await;
    let waiting = [0; 2].map(|_| {
        let gateway = gateway.clone();
        tokio::spawn(async move { requeue(&gateway, id).await })
    });
    observer.until_blocked(2).await;
    session.run(DIES_AGAIN).await;
    for waiting in waiting {
        assert_eq!(timeout(HANG, waiting).await.expect("an answer").unwrap(), Requeued::NotDead);
    }
    assert_eq!(requeue(&gateway, id).await, Requeued::Requeued);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_that_waited_for_a_message_that_died_again_leave_it_alone() {
    let backend = PostgresBackend::empty();
    let gateway = gateway(&backend).await;
    let id = put(&gateway, sms("a")).await;
    die(&gateway).await;
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    session.run("BEGIN; SELECT FROM outcome FOR UPDATE").await;
    let waiting = [0; 2].map(|_| {
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.delete_dead(vec![id]).await.unwrap() })
    });
    observer.until_blocked(2).await;
    session.run(DIES_AGAIN).await;
    for waiting in waiting {
        assert_eq!(timeout(HANG, waiting).await.expect("an answer").unwrap(), [false]);
    }
    assert_eq!(gateway.delete_dead(vec![id]).await.unwrap(), [true]);
    let books = gateway.counts().await.unwrap();
    assert_eq!((books.admitted, books.dead, books.deleted), (1, 0, 1));
}

/// The cancellation waits for another message of its batch. Meanwhile the dead one is requeued, and a claim of it is half
/// done: it is not committed, so the cancellation can't see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_came_back_meanwhile_is_not_cancelled_under_its_claim() {
    for recipient in [None, Some("ann")] {
        let backend = PostgresBackend::empty();
        let gateway = gateway(&backend).await;
        let dead = put(&gateway, recipient.map_or(sms("dead"), |name| sms("dead").to(name))).await;
        die(&gateway).await;
        let waiting = put(&gateway, sms("waiting")).await;
        let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
        session.run("BEGIN; SELECT FROM pending FOR UPDATE").await;
        let cancelling = gateway.clone();
        let cancelling = tokio::spawn(async move { cancelling.cancel(vec![waiting, dead]).await.unwrap() });
        observer.until_blocked(1).await;
        assert_eq!(requeue(&gateway, dead).await, Requeued::Requeued);
        let claiming = Session::open(&backend).await;
        claiming.run("BEGIN").await;
        let token = claiming
            .number("SELECT token FROM claim('sms', 1, 600000, 0, false, NULL, 1000000, 10, 5)")
            .await;
        session.run("COMMIT").await;
        // It has its answer, or waits for the claim.
        let past = async {
            while !cancelling.is_finished() && observer.blocked().await == 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(HANG, past).await.expect("the cancellation goes on");
        claiming.run("COMMIT").await;
        let answers = timeout(HANG, cancelling).await.expect("an answer").unwrap();
        assert_eq!(answers, [Cancelled::Cancelled, Cancelled::Ended], "to {recipient:?}");
        let token = u64::try_from(token).unwrap();
        let settlement = Settlement { id: dead, token, outcome: Outcome::Delivered, latency_ms: 1 };
        assert_eq!(gateway.settle(vec![settlement]).await.unwrap(), [Settled::Done], "to {recipient:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_spares_a_message_that_came_back_after_it_began() {
    let backend = PostgresBackend::empty();
    let gateway = gateway(&backend).await;
    let back = put(&gateway, sms("comes back")).await;
    put(&gateway, sms("stays").to("ann")).await;
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    session.run("BEGIN; SELECT FROM chain FOR UPDATE").await;
    let purging = gateway.clone();
    let purging = tokio::spawn(async move { purging.purge(queue("sms")).await.unwrap() });
    observer.until_blocked(1).await;
    die(&gateway).await;
    assert_eq!(requeue(&gateway, back).await, Requeued::Requeued);
    session.run("COMMIT").await;
    assert_eq!(timeout(HANG, purging).await.expect("an answer").unwrap(), 1);
    assert_eq!(claim(&gateway).await.id, back);
}
