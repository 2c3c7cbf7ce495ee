//! What does not match its checksum is reported, and never served.

use tidegate_domain::{Admitted, ClaimRequest, Ledger as _, LedgerError, Queues as _};
use tidegate_postgres::Postgres;
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::{Setup, services};

use crate::backend::PostgresBackend;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_text_is_not_served() {
    let backend = PostgresBackend::new();
    let ledger = Postgres::open(backend.options(&Setup::default())).await.unwrap();
    let admitted = ledger.admit(vec![sms("true").0, sms("popped").0]).await.unwrap();
    let Admitted::Admitted { id, .. } = admitted[0] else { panic!("{admitted:?}") };
    let damage = "UPDATE tidegate.message SET body = 'lies'";
    services::Postgres::shared().sql(&backend.database, damage).unwrap();
    let request = ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 60_000, wait_ms: 0 };
    let claims = ledger.claim(request).await.unwrap();
    assert_eq!((claims[0].id, &claims[0].body), (id, &None));
    assert_eq!(ledger.pop(queue("sms"), 1, 0).await.unwrap()[0].body, None);
    let error = ledger.message(id).await.unwrap_err();
    assert!(matches!(error, LedgerError::Corrupt(_)), "{error}");
}
