//! What a ledger asks of its server before it works with it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_domain::{Durability, Health, Ledger as _};
use tidegate_postgres::{OpenError, Options, Postgres, SessionHook};
use tidegate_testkit::Setup;
use tidegate_testkit::conformance::sms;
use tidegate_testkit::services::{self, PostgresOptions};
use tokio::time::timeout;

use crate::backend::PostgresBackend;

#[tokio::test]
async fn a_server_that_does_not_sync_is_refused() {
    let backend = PostgresBackend::new();
    let options = Options { allow_unsafe_server: false, ..backend.options(&Setup::default()) };
    let refused = Postgres::open(options).await.unwrap_err();
    assert!(matches!(refused, OpenError::Unsafe("fsync")), "{refused}");
    assert!(refused.to_string().contains("postgres.unsafe_server"), "the way out: {refused}");
}

#[tokio::test]
async fn what_a_weak_server_promises_is_named() {
    let backend = PostgresBackend::new();
    let ledger = Postgres::open(backend.options(&Setup::default())).await.unwrap();
    assert_eq!((ledger.durability(), ledger.health()), (Durability::OsBuffer, Health::Ready));
}

#[tokio::test]
async fn a_database_of_a_newer_gateway_is_refused_when_that_asks_for_it() {
    let backend = PostgresBackend::new();
    let server = services::Postgres::shared();
    let open = || Postgres::open(backend.options(&Setup::default()));
    server.sql(&backend.database, "INSERT INTO tidegate.migration VALUES (1000, 1)").unwrap();
    assert!(open().await.is_ok(), "one step ahead, and made to be worked beside");
    server
        .sql(&backend.database, "UPDATE tidegate.migration SET oldest = 1000 WHERE version = 1000")
        .unwrap();
    assert!(matches!(open().await.unwrap_err(), OpenError::Newer));
}

#[tokio::test]
async fn a_server_that_is_away_is_an_error_within_the_deadline() {
    let options = Options::new("postgres://postgres@127.0.0.1:1/none");
    let away = anyhow::Error::from(Postgres::open(options).await.unwrap_err());
    assert!(matches!(away.downcast_ref(), Some(OpenError::Server(_))), "{away}");
    let said = format!("{away:#}");
    assert_eq!(said.matches("error connecting to server").count(), 1, "{said}");
    assert_eq!(said.matches("refused").count(), 1, "{said}");
    let options = Options::new("this is no url");
    assert!(matches!(Postgres::open(options).await.unwrap_err(), OpenError::Settings(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_is_on_disk_whatever_the_server_s_default() {
    let settings = vec![("synchronous_commit".to_owned(), "off".to_owned())];
    let server = services::Postgres::start(PostgresOptions { durable: true, settings }).unwrap();
    for (default, allow_unsafe_server, expected, durability) in [
        ("off", false, "on", Durability::Fsync),
        ("off", true, "off", Durability::OsBuffer),
        ("local", false, "on", Durability::Fsync),
        ("remote_apply", false, "remote_apply", Durability::Fsync),
    ] {
        server.sql("postgres", &format!("ALTER ROLE postgres SET synchronous_commit TO {default}")).unwrap();
        let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let witness = seen.clone();
        let session_hook = SessionHook(Arc::new(move |client| {
            let witness = witness.clone();
            Box::pin(async move {
                let row = client.query_one("SELECT current_setting('synchronous_commit')", &[]).await?;
                witness.lock().unwrap().insert(row.get(0));
                Ok(())
            })
        }));
        let options = Options {
            allow_unsafe_server,
            session_hook: Some(session_hook),
            ..Options::new(server.url("postgres"))
        };
        let ledger = Postgres::open(options).await.unwrap();
        ledger.admit(vec![sms("a").0]).await.unwrap();
        assert_eq!(ledger.durability(), durability, "{default}");
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen, [expected.to_owned()].into(), "{default}");
    }
}

#[tokio::test]
async fn a_migration_that_does_not_end_is_an_error() {
    let backend = PostgresBackend::new();
    let client = backend.client().await.unwrap();
    client.batch_execute("SELECT pg_advisory_lock(x'7469646567617465'::bigint)").await.unwrap();
    let lock_timeout = Duration::from_millis(20);
    let opening = Postgres::open(Options { lock_timeout, ..backend.options(&Setup::default()) });
    let error = timeout(tidegate_testkit::HANG, opening).await.expect("it gives up").unwrap_err();
    assert!(error.to_string().contains("schema"), "{error}");
}

/// On a slow disk the first partitions take longer than a statement or a lock of a running gateway may.
#[tokio::test]
async fn gateways_that_start_together_wait_for_the_one_that_makes_the_first_partitions() {
    let backend = PostgresBackend::empty();
    let short = Duration::from_secs(2);
    let options =
        Options { statement_timeout: short, lock_timeout: short, ..backend.options(&Setup::default()) };
    let options = Options { session_hook: None, ..options };
    tidegate_postgres::migrate(&options).await.unwrap();
    let slow = backend.client().await.unwrap();
    let lock = "hashtextextended('tidegate partitions', 0)";
    slow.batch_execute(&format!("SELECT pg_advisory_lock({lock})")).await.unwrap();
    let opening = tokio::spawn(Postgres::open(options));
    let waits_longer = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                        AND datname = current_database() AND clock_timestamp() - query_start > interval '2.5 s'";
    let waited = async {
        while slow.query_one(waits_longer, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(!opening.is_finished(), "it has given up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(tidegate_testkit::HANG, waited).await.expect("a start that waits");
    slow.batch_execute(&format!("SELECT pg_advisory_unlock({lock})")).await.unwrap();
    opening.await.unwrap().expect("a ledger");
}

/// The server notices late that a process has gone.
#[tokio::test]
async fn connections_that_are_about_to_end_are_waited_for() {
    let backend = PostgresBackend::new();
    let options = backend.options(&Setup::default());
    let other = Postgres::open(options.clone()).await.unwrap();
    let leaving = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(other);
    });
    tidegate_postgres::export(&options, false).await.unwrap();
    leaving.await.unwrap();
    let other = Postgres::open(options.clone()).await.unwrap();
    let refused = tidegate_postgres::export(&options, false).await.unwrap_err();
    assert!(refused.to_string().contains("gateways are connected"), "{refused}");
    drop(other);
}
