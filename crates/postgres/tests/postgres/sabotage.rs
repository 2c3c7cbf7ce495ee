//! The faults that `torture cluster --prove-red` plants can be planted in the schema as it is.

use tidegate_domain::{Admitted, Ledger as _};
use tidegate_testkit::cluster::Sabotage;
use tidegate_testkit::conformance::{sms, user};
use tidegate_testkit::services;
use tokio::task::JoinSet;

use crate::backend::PostgresBackend;

#[test]
fn every_sabotage_finds_what_it_changes() {
    let backend = PostgresBackend::new();
    for sabotage in Sabotage::ALL {
        sabotage.plant(services::Postgres::shared(), &backend.database).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sabotaged_quota_lets_too_many_pass() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(3, |options| options.batch_max = 1).await;
    Sabotage::Quota.plant(services::Postgres::shared(), &backend.database).unwrap();
    gateways[0].put_quota(user("ann"), 50, 3_600_000).await.unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..240 {
        let gateway = gateways[n % 3].clone();
        tasks.spawn(async move { gateway.admit(vec![sms("x").charged_to("ann").0]).await.unwrap() });
    }
    let answers: Vec<Admitted> = tasks.join_all().await.into_iter().flatten().collect();
    let passed = answers.iter().filter(|answer| matches!(answer, Admitted::Admitted { .. })).count();
    assert!(passed > 50, "{passed}");
}
