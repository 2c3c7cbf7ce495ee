//! Sweeps go as far as they can, and stand in nobody's way.

use std::time::Duration;

use tidegate_domain::{Health, Ledger as _, Queues as _, Slots as _, Timestamp};
use tidegate_postgres::Postgres;
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::{ask, event, per_window, queue, slot_config, sms};
use tidegate_testkit::services;
use tokio::time::{sleep, timeout};

use crate::backend::PostgresBackend;
use crate::session::Session;

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANG, waiting).await.expect("it comes to that");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_fails_keeps_no_other_from_its_work_and_the_ledger_ready() {
    let backend = PostgresBackend::empty();
    let ledger = backend.gateways(1, |_| ()).await.remove(0);
    ledger.put_slot_config(slot_config("default"), per_window(9)).await.unwrap();
    ledger.reserve(vec![ask("e").0]).await.unwrap();
    let session = Session::open(&backend).await;
    session
        .run(
            "CREATE OR REPLACE FUNCTION forget_keys(p_window_ms bigint, p_max integer) RETURNS integer \
             LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'too many'; END $$",
        )
        .await;
    session.run("UPDATE slot SET over_at = 0").await;
    until(async || ledger.slot(event("e")).await.unwrap().is_none()).await;
    // The sweep that did it has come to its end when the next one fails.
    assert!(ledger.sweep().await.is_err(), "it is told");
    assert_eq!(ledger.health(), Health::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_is_away() {
    let backend = PostgresBackend::empty();
    let ledger = backend.gateways(1, |_| ()).await.remove(0);
    let server = services::Postgres::shared();
    let set = |value: &str| {
        let database = &backend.database;
        let alter = format!("ALTER DATABASE {database} SET default_transaction_read_only TO {value}");
        server.sql("postgres", &alter).unwrap();
        // It counts for new sessions.
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";
        server.sql("postgres", &format!("{cut} '{database}'")).unwrap();
    };
    set("on");
    until(async || matches!(ledger.health(), Health::Away(why) if why.contains("read-only"))).await;
    set("off");
    until(async || ledger.health() == Health::Ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_ends_though_others_hold_all_that_has_expired() {
    let backend = PostgresBackend::empty();
    let ledger =
        backend.gateways(1, |options| options.sweep_every = Duration::from_secs(600)).await.remove(0);
    let over = |n: usize| sms("x").to(&n.to_string()).expires(Timestamp::from_millis(1)).0;
    ledger.admit((0..1_000).map(over).collect()).await.unwrap();
    let session = Session::open(&backend).await;
    session.run("BEGIN; SELECT FROM pending FOR UPDATE").await;
    timeout(HANG, ledger.sweep()).await.expect("it ends").unwrap();
    assert_eq!(ledger.counts().await.unwrap().expired, 0);
    session.run("COMMIT").await;
    ledger.sweep().await.unwrap();
    assert_eq!(ledger.counts().await.unwrap().expired, 1_000);
}

/// Settles so many messages, where the server takes nothing away by itself.
async fn settled(ledger: &Postgres, backend: &PostgresBackend, count: usize) -> Session {
    let session = Session::open(backend).await;
    for table in ["pending", "chain"] {
        session.run(&format!("ALTER TABLE {table} SET (autovacuum_enabled = off)")).await;
    }
    ledger.admit((0..count).map(|n| sms("x").to(&n.to_string()).0).collect()).await.unwrap();
    assert_eq!(ledger.pop(queue("sms"), count, 0).await.unwrap().len(), count);
    session
}

/// How many dead rows lie about in a table, and how often they were taken away.
async fn tidiness(session: &Session, table: &str) -> (i64, i64) {
    let of = |what: &str| format!("SELECT {what} FROM pg_stat_user_tables WHERE relname = '{table}'");
    (session.number(&of("n_dead_tup")).await, session.number(&of("vacuum_count")).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_settled_messages_leave_behind_is_taken_away_when_it_is_too_much() {
    let backend = PostgresBackend::empty();
    let ledger = backend.gateways(1, |options| options.dead_rows_max = 50).await.remove(0);
    let session = settled(&ledger, &backend, 200).await;
    for table in ["pending", "chain"] {
        until(async || matches!(tidiness(&session, table).await, (0, 1..))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_dead_rows_are_left_to_the_server() {
    let backend = PostgresBackend::empty();
    let ledger = backend.gateways(1, |_| ()).await.remove(0);
    let session = settled(&ledger, &backend, 200).await;
    until(async || tidiness(&session, "pending").await.0 > 50).await;
    // Many looks later.
    sleep(Duration::from_millis(1_000)).await;
    assert_eq!(tidiness(&session, "pending").await.1, 0);
}
