//! Connections that break, and a server that dies: nothing acknowledged is lost, nothing is counted twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_domain::{
    Admitted, ClaimRequest, Durability, Health, Ledger as _, LedgerError, MessageId, Outcome, Queues as _,
    Settlement,
};
use tidegate_postgres::{Options, Postgres};
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::{queue, sms, user};
use tidegate_testkit::services::{self, PostgresOptions};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::backend::PostgresBackend;

const MESSAGES: usize = 60;
const SENDERS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_in_mid_flight_lose_nothing_and_charge_nothing_twice() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(2, |options| options.batch_max = 8).await;
    let total = (SENDERS * MESSAGES) as u64;
    gateways[0].put_quota(user("ann"), 1_000_000, 3_600_000).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let cutting = tokio::spawn(cut(backend.database.clone(), over.clone()));
    let mut senders = JoinSet::new();
    for n in 0..SENDERS {
        senders.spawn(send(gateways[n % 2].clone(), n));
    }
    let mut servers = JoinSet::new();
    for n in 0..4 {
        servers.spawn(serve(gateways[n % 2].clone(), over.clone()));
    }
    let acknowledged: BTreeSet<MessageId> =
        timeout(HANG, senders.join_all()).await.expect("they end").into_iter().flatten().collect();
    assert_eq!(acknowledged.len() as u64, total, "every key has its message");
    let everything_delivered = async {
        while gateways[1].counts().await.map_or(0, |counts| counts.delivered) < total {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANG, everything_delivered).await.expect("everything is delivered");
    over.store(true, Ordering::SeqCst);
    let cuts = cutting.await.unwrap();
    servers.join_all().await;
    assert!(cuts > 0, "nothing was cut");
    let counts = steadily(|| gateways[0].counts()).await;
    assert!(counts.balanced(), "{counts:?}");
    assert_eq!((counts.admitted, counts.delivered, counts.pending), (total, total, 0));
    let quota = steadily(|| gateways[0].quota(user("ann"))).await.unwrap();
    assert_eq!(u64::from(quota.count), total, "charged once for each");
    for id in acknowledged {
        assert!(steadily(|| gateways[0].message(id)).await.is_some());
    }
}

/// Again and again until there is an answer: the key makes that safe.
async fn send(gateway: Arc<Postgres>, sender: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for n in 0..MESSAGES {
        let name = format!("{sender}-{n}");
        let draft = sms(&name).key(&name).charged_to("ann").to(&format!("r{sender}"));
        let answer = steadily(|| gateway.admit(vec![draft.clone().0])).await.remove(0);
        match answer {
            Admitted::Admitted { id, .. } | Admitted::Duplicate { id, .. } => ids.push(id),
            other => panic!("{other:?}"),
        }
    }
    ids
}

async fn serve(gateway: Arc<Postgres>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::SeqCst) {
        // A claim whose answer is lost comes back when its lease has ended.
        let request = ClaimRequest { queue: queue("sms"), max: 5, lease_ms: 3_000, wait_ms: 50 };
        let Ok(claims) = gateway.claim(request).await else { continue };
        let settlement = |claim: &tidegate_domain::Claim| {
            let outcome = Outcome::Delivered;
            Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 1 }
        };
        let _ = gateway.settle(claims.iter().map(settlement).collect()).await;
    }
}

async fn cut(database: String, over: Arc<AtomicBool>) -> u64 {
    let mut cuts = 0;
    while !over.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(40)).await;
        let kill = format!(
            "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = '{database}' AND random() < 0.5) t"
        );
        let said = tokio::task::spawn_blocking(move || services::Postgres::shared().sql("postgres", &kill));
        cuts += said.await.unwrap().unwrap().trim().parse::<u64>().unwrap();
    }
    cuts
}

async fn steadily<T, F: Future<Output = Result<T, LedgerError>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(LedgerError::Unavailable(_) | LedgerError::OutcomeUnknown(_)) => {
                sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_and_is_found_again() {
    let options = PostgresOptions { durable: true, ..PostgresOptions::default() };
    let mut server = services::Postgres::start(options).unwrap();
    let sweep_every = Duration::from_millis(50);
    let ledger =
        Postgres::open(Options { sweep_every, ..Options::new(server.url("postgres")) }).await.unwrap();
    assert_eq!(ledger.durability(), Durability::Fsync);
    let kept = ledger.admit(vec![sms("kept").to("ann").0]).await.unwrap();
    let Admitted::Admitted { id, .. } = kept[0] else { panic!("{kept:?}") };
    let request = ClaimRequest { queue: queue("sms"), max: 1, lease_ms: 600_000, wait_ms: 0 };
    let claims = ledger.claim(request.clone()).await.unwrap();
    server.kill().unwrap();
    // What the server's orphans still commit counts; what nobody answered may.
    let (mut acknowledged, mut unknown) = (1, 0);
    let error = loop {
        match ledger.admit(vec![sms("more").0]).await {
            Ok(_) => acknowledged += 1,
            Err(LedgerError::OutcomeUnknown(_)) => unknown += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LedgerError::Unavailable(_)), "nothing was sent: {error}");
    timeout(HANG, until(|| matches!(ledger.health(), Health::Away(_)))).await.expect("noticed");

    server.restart().unwrap();
    let counts = timeout(HANG, steadily(|| ledger.counts())).await.expect("back again");
    assert!((acknowledged..=acknowledged + unknown).contains(&counts.admitted), "{counts:?}");
    assert!(counts.balanced() && counts.leased == 1, "{counts:?}");
    timeout(HANG, until(|| ledger.health() == Health::Ready)).await.expect("noticed");
    let settlement = Settlement { id, token: claims[0].token, outcome: Outcome::Released, latency_ms: 0 };
    steadily(|| ledger.settle(vec![settlement.clone()])).await;
    let again = steadily(|| ledger.claim(request.clone())).await;
    assert!(again[0].id == id && again[0].token > claims[0].token);
    let rest = steadily(|| ledger.pop(queue("sms"), 1_000, 0)).await;
    assert_eq!(rest.len() as u64, counts.admitted - 1);
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        sleep(Duration::from_millis(5)).await;
    }
}
