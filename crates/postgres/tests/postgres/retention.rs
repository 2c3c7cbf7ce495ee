//! Old messages go with their partition; what is still of use stays.

use tidegate_domain::{
    Admitted, Clock as _, Filter, Ledger as _, MessageId, Outcome, Page, Queues as _, Requeued, Status,
};
use tidegate_postgres::{Options, Postgres};
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::{Setup, services};

use crate::backend::PostgresBackend;
use crate::session::Session;

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
        let sql =
            "SELECT string_agg(first::text, ' ' ORDER BY first) FROM tidegate.partition WHERE kept IS NULL";
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
    let list = ledger
        .list(Filter::default(), Page { max: 2, body_bytes_max: Some(usize::MAX), after: None })
        .await
        .unwrap();
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

fn changed_meanwhile(body: &str) -> tidegate_domain::Requeue {
    let id = MessageId::new(tidegate_domain::Timestamp::from_millis(0), 0, 0);
    tidegate_domain::Requeue { id, body: Some(body.to_owned().into()), delay_ms: 0 }
}

/// Step by step, as sweeps do it, with others at work on the very messages in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_while_old_messages_go_is_kept_as_it_became() {
    let backend = PostgresBackend::new();
    let setup = Setup { pending_max: 1_000, ..Setup::default() };
    let ledger =
        Postgres::open(Options { partition_messages: 100, ..backend.options(&setup) }).await.unwrap();
    let session = Session::open(&backend).await;
    session.run("DROP TABLE message_1, outcome_1, attempt_1; DELETE FROM partition").await;
    session.run("SELECT ensure_partitions(100)").await;
    let mut ids = Vec::new();
    for n in 0..100 {
        ids.push(put(&ledger, &n.to_string()).await);
        match n % 4 {
            0 => end(&ledger, Outcome::Delivered).await,
            1 => end(&ledger, dead()).await,
            2 => end(&ledger, Outcome::Retry { delay_ms: 0, reason: "busy".into() }).await,
            _ => {}
        }
        if n % 4 > 1 {
            // Out of the way of the next.
            session.run("UPDATE pending SET claimable_at = claimable_at + 7200000 WHERE claimable_at < 1900000000000").await;
        }
    }
    put(&ledger, "the next").await;
    setup.clock.advance_ms(2 * HOUR_MS);
    session.set_time(setup.clock.now()).await;
    let is_so = async |sql: &str| session.0.query_one(sql, &[]).await.unwrap().get::<_, bool>(0);
    assert!(is_so("SELECT begin_retirement(3600000, 10)").await);
    assert!(!is_so("SELECT retire_slice(3600000, 50)").await);
    for at in [1, 61] {
        let requeue = tidegate_domain::Requeue { id: ids[at], ..changed_meanwhile("edited") };
        assert_eq!(ledger.requeue(vec![requeue]).await.unwrap(), [Requeued::Requeued]);
        assert_eq!(ledger.delete_dead(vec![ids[at + 4]]).await.unwrap(), [true]);
        assert_eq!(ledger.cancel(vec![ids[at + 1]]).await.unwrap(), [tidegate_domain::Cancelled::Cancelled]);
    }
    while !is_so("SELECT retire_slice(3600000, 50)").await {}
    for at in [9, 69] {
        let requeue = tidegate_domain::Requeue { id: ids[at], ..changed_meanwhile("edited late") };
        assert_eq!(ledger.requeue(vec![requeue]).await.unwrap(), [Requeued::Requeued]);
    }
    let mut before = Vec::new();
    for id in &ids {
        before.push(ledger.message(*id).await.unwrap());
    }
    let counts = ledger.counts().await.unwrap();
    // A session of its own: the server counts what a session does.
    let session = Session::open(&backend).await;
    session.set_time(setup.clock.now()).await;
    session.run("SET enable_seqscan TO off; BEGIN; SELECT end_retirement()").await;
    // Others wait for this step: apart from what was changed last, it moves no message and looks at none.
    let moved = "SELECT coalesce(sum(n_tup_ins), 0)::bigint FROM pg_stat_xact_user_tables \
                 WHERE schemaname = 'tidegate' AND relname LIKE 'message%'";
    let read = "SELECT coalesce(sum(seq_tup_read), 0)::bigint FROM pg_stat_xact_user_tables \
                WHERE schemaname = 'tidegate' AND relname ~ '^(message|outcome|attempt)'";
    assert_eq!((session.number(moved).await, session.number(read).await), (6, 0));
    session.run("COMMIT").await;

    let kept = session.number("SELECT count(*) FROM message WHERE seq <= 100").await;
    assert_eq!(kept, 75 - 2, "all but what was delivered long ago, and what was deleted");
    for ((n, id), before) in ids.iter().enumerate().zip(before) {
        let after = ledger.message(*id).await.unwrap();
        let expected = if n % 4 == 0 { None } else { before };
        assert_eq!(after, expected, "message {n}");
    }
    assert_eq!(ledger.counts().await.unwrap(), counts);
    assert_eq!(session.number("SELECT count(*) FROM touched").await, 0);
    setup.clock.advance_ms(200 * HOUR_MS);
    let popped = ledger.pop(queue("sms"), 1_000, 0).await.unwrap();
    assert_eq!(popped.len() as u64, counts.pending, "in line as before");
}

/// Retired ranges that hold little are put together, and those that hold much are left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_for_long_stands_in_few_places() {
    let backend = PostgresBackend::new();
    let setup = Setup { pending_max: 1_000, ..Setup::default() };
    let make = || Options { partition_messages: 20, retention_ms: HOUR_MS, ..backend.options(&setup) };
    let session = Session::open(&backend).await;
    session.run("DROP TABLE message_1, outcome_1, attempt_1; DELETE FROM partition").await;
    session.run("SELECT ensure_partitions(20)").await;
    let ledger = Postgres::open(make()).await.unwrap();
    let mut kept = Vec::new();
    for n in 0..200 {
        let id = put(&ledger, &n.to_string()).await;
        if n % 20 == 0 || (100..120).contains(&n) {
            kept.push(id);
            end(&ledger, dead()).await;
        } else {
            end(&ledger, Outcome::Delivered).await;
        }
    }
    setup.clock.advance_ms(2 * HOUR_MS);
    for _ in 0..30 {
        ledger.sweep().await.unwrap();
    }
    let places = "SELECT count(*) FROM partition WHERE kept IS NOT NULL";
    let counts = "SELECT count(*) FROM message WHERE seq < 181";
    assert_eq!(session.number(counts).await, 28, "of the ranges that are full and old");
    assert!(session.number(places).await <= 5, "in {} places", session.number(places).await);
    for id in &kept {
        assert_eq!(ledger.message(*id).await.unwrap().unwrap().status, Status::Dead);
    }
    assert_eq!(ledger.delete_dead(kept).await.unwrap(), [true; 29]);
    put(&ledger, "the next").await;
}
