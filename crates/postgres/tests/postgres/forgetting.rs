//! Queues that are forgotten by one gateway while others use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_domain::{Ledger as _, Queues as _};
use tidegate_postgres::Postgres;
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::{queue, sms};

use crate::backend::PostgresBackend;
use crate::session::Session;

const QUEUES: usize = 4;
const ROUNDS: usize = 150;

/// Everything idle is forgotten all the time, and still a message that was answered has its queue, from every gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admission_beside_a_sweep_has_its_queue() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(3, |options| options.queue_forget_after_ms = 0).await;
    let done = Arc::new(AtomicBool::new(false));
    let (sweeper, over) = (gateways[2].clone(), done.clone());
    let sweeps = tokio::spawn(async move {
        while !over.load(Ordering::SeqCst) {
            sweeper.sweep().await.unwrap();
        }
    });
    let users =
        (0..QUEUES).map(|n| tokio::spawn(use_queue(gateways[n % 2].clone(), gateways[1 - n % 2].clone(), n)));
    for user in users.collect::<Vec<_>>() {
        user.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    sweeps.await.unwrap();
    let counts = gateways[0].counts().await.unwrap();
    assert_eq!((counts.delivered, counts.pending), ((QUEUES * ROUNDS) as u64, 0));
    assert!(counts.balanced());
    let all_gone = async {
        while !gateways[0].queue_counts().await.unwrap().is_empty() {
            gateways[2].sweep().await.unwrap();
        }
    };
    tokio::time::timeout(HANG, all_gone).await.expect("all are forgotten");
}

async fn use_queue(pushes: Arc<Postgres>, pops: Arc<Postgres>, n: usize) {
    let name = format!("queue{n}");
    for round in 0..ROUNDS {
        pushes.admit(vec![sms("a").on(&name).0]).await.unwrap();
        let counts = pops.queue_counts().await.unwrap();
        let known = counts.iter().find(|counts| counts.queue == queue(&name));
        assert_eq!(known.map(|known| known.depth), Some([0, 1, 0]), "round {round}: {counts:?}");
        assert_eq!(pops.pop(queue(&name), 9, 0).await.unwrap().len(), 1);
    }
}

/// An admission that is half-way keeps its queue, whether it changes a book or makes one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admission_under_way_keeps_its_queue() {
    let backend = PostgresBackend::empty();
    let gateway = backend.gateways(1, |options| options.queue_forget_after_ms = 0).await.remove(0);
    let session = Session::open(&backend).await;
    for change in [
        "UPDATE tally SET admitted = admitted + 1, deleted = deleted + 1 WHERE queue = 'jobs'",
        "INSERT INTO tally VALUES ('jobs', 99, 1, 0, 0, 0, 1, 0, 0, 0)",
    ] {
        // The gateway sweeps by itself, too, and may forget the queue before the change is under way.
        loop {
            gateway.admit(vec![sms("a").on("jobs").0]).await.unwrap();
            gateway.pop(queue("jobs"), 9, 0).await.unwrap();
            session.run("BEGIN").await;
            if session.0.execute(change, &[]).await.unwrap() > 0 {
                break;
            }
            session.run("ROLLBACK").await;
        }
        for _ in 0..3 {
            gateway.sweep().await.unwrap();
        }
        session.run("COMMIT").await;
        assert_eq!(session.number("SELECT count(*) FROM queue WHERE name = 'jobs'").await, 1, "{change}");
        for _ in 0..3 {
            gateway.sweep().await.unwrap();
        }
        assert_eq!(session.number("SELECT count(*) FROM queue WHERE name = 'jobs'").await, 0, "{change}");
        assert_eq!(session.number("SELECT count(*) FROM tally WHERE queue = 'jobs'").await, 0, "{change}");
    }
}
