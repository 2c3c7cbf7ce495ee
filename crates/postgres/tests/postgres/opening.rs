//! What a ledger asks of its server before it works with it.

use tidegate_domain::{Durability, Health, Ledger as _};
use tidegate_postgres::{OpenError, Options, Postgres};
use tidegate_testkit::Setup;
use tidegate_testkit::services;

use crate::backend::PostgresBackend;

#[tokio::test]
async fn a_server_that_does_not_sync_is_refused() {
    let backend = PostgresBackend::new();
    let options = Options { allow_unsafe_server: false, ..backend.options(&Setup::default()) };
    let refused = Postgres::open(options).await.unwrap_err();
    assert!(matches!(refused, OpenError::Unsafe("fsync")), "{refused}");
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
    assert!(matches!(Postgres::open(options).await.unwrap_err(), OpenError::Server(_)));
    let options = Options::new("this is no url");
    assert!(matches!(Postgres::open(options).await.unwrap_err(), OpenError::Settings(_)));
}
