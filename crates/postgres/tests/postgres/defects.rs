//! What the server refuses because it makes no sense is a defect of ours. It must not look like a server that is away:
//! an operator would not look for it, and callers would ask again for ever.

use tidegate_domain::{
    Admitted, Claim, ClaimRequest, Health, Ledger as _, LedgerError, MessageId, Outcome, Queues as _,
    Settled, Settlement,
};
use tidegate_postgres::Postgres;
use tidegate_testkit::conformance::{queue, sms};
use tidegate_testkit::{Setup, services};

use crate::backend::PostgresBackend;

async fn opened() -> (PostgresBackend, Postgres) {
    let backend = PostgresBackend::new();
    let ledger = Postgres::open(backend.options(&Setup::default())).await.unwrap();
    (backend, ledger)
}

async fn admit(ledger: &Postgres, text: &str) -> MessageId {
    match ledger.admit(vec![sms(text).0]).await.unwrap()[..] {
        [Admitted::Admitted { id, .. }] => id,
        ref other => panic!("{other:?}"),
    }
}

async fn claim(ledger: &Postgres) -> Claim {
    let request = ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 60_000, wait_ms: 0 };
    ledger.claim(request).await.unwrap().remove(0)
}

fn failed(claim: &Claim) -> Vec<Settlement> {
    let outcome = Outcome::Retry { delay_ms: 0, reason: "busy".to_owned() };
    vec![Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 1 }]
}

fn check(error: &LedgerError, parts: &[&str]) {
    let LedgerError::Defect(said) = error else { panic!("{error:?}") };
    for part in parts {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_violated_constraint_is_a_defect_and_named() {
    let (backend, ledger) = opened().await;
    let id = admit(&ledger, "twice").await;
    let bad = claim(&ledger).await;
    let planted = format!("INSERT INTO tidegate.attempt VALUES ({}, 1, 0, 0, 1, NULL)", id.seq());
    services::Postgres::shared().sql(&backend.database, &planted).unwrap();
    for _ in 0..2 {
        let error = ledger.settle(failed(&bad)).await.unwrap_err();
        check(&error, &["settle fails", "SQLSTATE 23505", "constraint attempt", "table attempt"]);
    }
    assert_eq!(ledger.health(), Health::Ready);
    admit(&ledger, "once").await;
    let good = claim(&ledger).await;
    assert_eq!(ledger.settle(failed(&good)).await.unwrap(), [Settled::Done]);
}

/// A pop is committed by the gateway, apart from the statement that decides it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_that_violates_a_constraint_is_a_defect_too() {
    let (backend, ledger) = opened().await;
    let id = admit(&ledger, "ended already").await;
    let planted =
        format!("INSERT INTO tidegate.outcome (seq, status, at, due_at) VALUES ({}, 1, 0, 0)", id.seq());
    services::Postgres::shared().sql(&backend.database, &planted).unwrap();
    let error = ledger.pop(queue("sms"), 1, 0).await.unwrap_err();
    check(&error, &["pop fails", "SQLSTATE 23505", "table outcome"]);
    let healed = format!("DELETE FROM tidegate.outcome WHERE seq = {}", id.seq());
    services::Postgres::shared().sql(&backend.database, &healed).unwrap();
    assert_eq!(ledger.pop(queue("sms"), 1, 0).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_is_missing_is_a_defect() {
    let (backend, ledger) = opened().await;
    let sql = |text: &str| services::Postgres::shared().sql(&backend.database, text).unwrap();
    sql("ALTER FUNCTION tidegate.pause(text, boolean, boolean) RENAME TO pause_no_more");
    let error = ledger.pause(queue("sms"), true).await.unwrap_err();
    check(&error, &["pause fails", "SQLSTATE 42883"]);
    assert_eq!(ledger.health(), Health::Ready);
}
