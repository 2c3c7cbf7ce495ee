//! A gateway that stands still keeps nobody else waiting for long.

use std::time::Duration;

use tidegate_domain::{Ledger as _, Queues as _};
use tidegate_postgres::Postgres;
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::services::{self, FaultyProxy};
use tokio::time::timeout;

use crate::backend::PostgresBackend;
use crate::session::Session;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_that_gets_stuck_on_its_way_gives_its_messages_back() {
    let backend = PostgresBackend::empty();
    let healthy = backend.gateways(1, |_| ()).await.remove(0);
    let proxy = FaultyProxy::start(services::Postgres::shared().address).await.unwrap();
    // A short time for what gets stuck, but one that a busy machine keeps for what does not.
    let stuck = backend.gateways(1, |options| {
        (options.statement_timeout, options.lock_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
        options.url = format!("postgres://postgres@{}/{}", proxy.address, backend.database);
        options.sweep_every = Duration::from_secs(600);
    });
    let stuck: std::sync::Arc<Postgres> = stuck.await.remove(0);
    healthy.admit(vec![sms("a").to("ann").0]).await.unwrap();
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    // The pop waits for its last step; its answer never arrives.
    session.run("BEGIN; LOCK TABLE tally IN SHARE ROW EXCLUSIVE MODE").await;
    let popping = tokio::spawn(async move { stuck.pop(queue("sms"), 1, 0).await });
    observer.until_blocked(1).await;
    proxy.stall();
    session.run("COMMIT").await;
    let popped = timeout(HANG, healthy.pop(queue("sms"), 1, 60_000)).await.expect("given back").unwrap();
    assert_eq!(popped.len(), 1);
    assert!(popping.await.unwrap().is_err(), "nobody told it");
    assert_eq!(healthy.counts().await.unwrap().delivered, 1);
}
