//! What several gateways do with messages on their way, step by step.

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{
    Acked, Begun, Cancelled, Claim, ClaimRequest, Clock as _, Extension, Ledger as _, MessageId, Outcome,
    Queues as _, Settled, Settlement, Transit as _,
};
use tidegate_postgres::Postgres;
use tidegate_testkit::HANG;
use tidegate_testkit::conformance::{Draft, queue, sms};
use tidegate_testkit::{Setup, services, transfer};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend::PostgresBackend;
use crate::session::Session;

/// Longer than any test takes.
const LONG_MS: u64 = 600_000;

fn request(max: usize, lease_ms: u64) -> ClaimRequest {
    ClaimRequest { queue: queue("sms"), max, lease_ms, wait_ms: 0 }
}

fn beginning(claim: &Claim) -> Extension {
    Extension { id: claim.id, token: claim.token, lease_ms: LONG_MS }
}

fn settlement(claim: &Claim, outcome: Outcome) -> Settlement {
    Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 1 }
}

/// The claim as whoever has begun goes on with it.
fn with(begun: &Begun, claim: &Claim) -> Option<Claim> {
    match *begun {
        Begun::Begun { token, lease_until } => Some(Claim { token, lease_until, ..claim.clone() }),
        Begun::LostLease => None,
    }
}

/// Every record reaches all three, in orders of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_gateways_one_begins() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(3, |options| options.batch_max = 7).await;
    let drafts = (0..60).map(|n| sms(&n.to_string()).to(&format!("r{n}")).0);
    gateways[0].admit(drafts.collect()).await.unwrap();
    let claims = gateways[0].dispatch(request(60, LONG_MS), 100).await.unwrap();
    assert_eq!(claims.len(), 60);
    let mut tasks = JoinSet::new();
    for (n, gateway) in gateways.iter().enumerate() {
        for part in 0..6 {
            let mut mine: Vec<Claim> =
                claims.iter().filter(|claim| claim.id.seq() % 6 == part).cloned().collect();
            if n == 1 {
                mine.reverse();
            }
            let gateway = gateway.clone();
            tasks.spawn(async move {
                let begun = gateway.begin(mine.iter().map(beginning).collect()).await.unwrap();
                begun.iter().zip(&mine).filter_map(|(begun, claim)| with(begun, claim)).collect::<Vec<_>>()
            });
        }
    }
    let begun = tasks.join_all().await.concat();
    assert_eq!(begun.len(), 60, "each once");
    let delivered = |claim| settlement(claim, Outcome::Delivered);
    let lost = gateways[1].settle(claims.iter().map(delivered).collect()).await.unwrap();
    assert_eq!(lost, [Settled::LostLease; 60]);
    let settled = gateways[2].settle(begun.iter().map(delivered).collect()).await.unwrap();
    assert_eq!(settled, [Settled::Done; 60]);
    let log = services::Postgres::shared().log().unwrap();
    assert!(!log.contains("deadlock detected"), "{log}");
}

/// An attempt begins at the last moment of the way, and is committed after it: what comes in between finds the message
/// held. Hands out the claim before it began.
async fn beside_a_beginning<T>(
    draft: Draft,
    after_ms: u64,
    act: impl AsyncFnOnce(Arc<Postgres>, Claim) -> T,
) -> (T, Settled) {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ledger = Arc::new(Postgres::open(backend.options(&setup)).await.unwrap());
    ledger.admit(vec![draft.expires(setup.clock.now().plus_ms(1_500)).0]).await.unwrap();
    let claim = ledger.dispatch(request(10, 1_000), 10).await.unwrap().remove(0);
    let session = Session::open(&backend).await;
    session.set_time(setup.clock.now().plus_ms(900)).await;
    session.run("BEGIN").await;
    let begin = format!(
        "SELECT token FROM begin_attempts(ARRAY[{}], ARRAY[{}], ARRAY[{}], ARRAY[60000])",
        claim.id.seq(),
        claim.admitted_at.millis(),
        claim.token
    );
    let token = session.number(&begin).await.unsigned_abs();
    setup.clock.advance_ms(after_ms);
    let committed = async {
        // As long as others need to come to a decision, or to wait for ours.
        tokio::time::sleep(Duration::from_millis(300)).await;
        session.run("COMMIT").await;
    };
    let (answer, ()) = tokio::join!(act(ledger.clone(), claim.clone()), committed);
    setup.clock.advance_ms(1_000);
    let begun = Claim { token, ..claim };
    let settled = ledger.settle(vec![settlement(&begun, Outcome::Delivered)]).await.unwrap();
    (answer, settled[0])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_attempt_is_beginning_is_not_taken() {
    for after_ms in [1_000, 2_000] {
        let taken = beside_a_beginning(sms("a"), after_ms, async |ledger, _| {
            let claims = ledger.claim(request(10, 1_000)).await.unwrap();
            let dispatched = ledger.dispatch(request(10, 1_000), 10).await.unwrap();
            let popped = ledger.pop(queue("sms"), 10, 0).await.unwrap();
            ledger.sweep().await.unwrap();
            [claims, dispatched, popped].concat()
        });
        assert_eq!(taken.await, (vec![], Settled::Done), "after {after_ms} ms");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_attempt_is_beginning_is_not_taken_back() {
    let cancel = async |ledger: Arc<Postgres>, claim: Claim| ledger.cancel(vec![claim.id]).await.unwrap();
    let cancelled = beside_a_beginning(sms("a").to("ann"), 1_000, cancel).await;
    assert_eq!(cancelled, (vec![Cancelled::UnderWay], Settled::Done));
    let purge = async |ledger: Arc<Postgres>, _| ledger.purge(queue("sms")).await.unwrap();
    assert_eq!(beside_a_beginning(sms("a"), 1_000, purge).await, (0, Settled::Done));
}

/// Whoever sent it off takes it back while its attempt is beginning: one of them is told that it was too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_the_way_does_not_end_an_attempt_that_is_beginning() {
    for outcome in [Outcome::Released, Outcome::Dead { reason: "x".into() }, Outcome::Delivered] {
        for draft in [sms("a"), sms("a").to("ann")] {
            let outcome = outcome.clone();
            let settle = async |ledger: Arc<Postgres>, claim: Claim| {
                ledger.settle(vec![settlement(&claim, outcome)]).await.unwrap()
            };
            let settled = beside_a_beginning(draft, 0, settle).await;
            assert_eq!(settled, (vec![Settled::LostLease], Settled::Done));
        }
    }
    let twice = async |ledger: Arc<Postgres>, claim: Claim| {
        let extended = ledger.extend(vec![beginning(&claim)]).await.unwrap();
        (ledger.begin(vec![beginning(&claim)]).await.unwrap(), extended)
    };
    let begun = beside_a_beginning(sms("a"), 0, twice).await;
    assert_eq!(begun, ((vec![Begun::LostLease], vec![Settled::LostLease]), Settled::Done));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_counts_for_an_attempt_that_was_beginning() {
    let ack = async |ledger: Arc<Postgres>, claim: Claim| ledger.ack(vec![claim.id]).await.unwrap();
    let acked = beside_a_beginning(sms("a").needs_ack(), 0, ack).await;
    assert_eq!(acked, (vec![Acked::Acked], Settled::LostLease));
}

/// Both hold what the other needs, if each takes the messages in an order of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beginnings_and_settlements_take_turns() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(2, |options| options.sweep_every = Duration::from_secs(600)).await;
    gateways[0].admit(vec![sms("a").to("ann").0, sms("b").to("bob").0]).await.unwrap();
    let claims = gateways[0].dispatch(request(10, LONG_MS), 10).await.unwrap();
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    let first = claims[0].id.seq();
    session.run(&format!("BEGIN; SELECT FROM pending WHERE seq = {first} FOR UPDATE")).await;
    let released = claims.iter().map(|claim| settlement(claim, Outcome::Released)).collect();
    let settling = gateways[0].clone();
    let settling = tokio::spawn(async move { settling.settle(released).await });
    observer.until_blocked(1).await;
    let (beginning_, batch) = (gateways[1].clone(), claims.iter().rev().map(beginning).collect());
    let beginning_ = tokio::spawn(async move { beginning_.begin(batch).await });
    observer.until_blocked(2).await;
    session.run("COMMIT").await;
    let settled = timeout(HANG, settling).await.expect("settled").unwrap();
    let begun = timeout(HANG, beginning_).await.expect("begun").unwrap();
    assert_eq!(settled.unwrap(), [Settled::Done; 2]);
    assert_eq!(begun.unwrap(), [Begun::LostLease; 2]);
}

/// Polling is turned off: only a wake-up can do it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatch_wakes_when_an_attempt_begins_wherever_that_is() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(2, |options| options.poll = Duration::from_secs(600)).await;
    gateways[0].admit((0..7).map(|n| sms(&n.to_string()).0).collect()).await.unwrap();
    let mut claim = gateways[1].dispatch(request(9, LONG_MS), 1).await.unwrap().remove(0);
    for round in 0..6 {
        let gateway = gateways[1].clone();
        let waiting = tokio::spawn(async move {
            let request = ClaimRequest { wait_ms: 50_000, ..request(9, LONG_MS) };
            gateway.dispatch(request, 1).await.unwrap()
        });
        if round % 2 == 0 {
            // Asleep by now, as a rule; whether it is must not matter.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let begun = gateways[round % 2].begin(vec![beginning(&claim)]).await.unwrap();
        assert!(with(&begun[0], &claim).is_some(), "{begun:?}");
        let mut claims = timeout(HANG, waiting).await.expect("the dispatch wakes").unwrap();
        assert_eq!(claims.len(), 1, "round {round}");
        claim = claims.remove(0);
    }
}

/// A gateway that goes takes nothing along: what it sent off begins elsewhere, or is sent off again when its time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_gateway_sent_off_outlives_it() {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ids = |claims: &[Claim]| claims.iter().map(|claim| claim.id).collect::<Vec<MessageId>>();
    let before = Postgres::open(backend.options(&setup)).await.unwrap();
    before.admit(vec![sms("a").0, sms("b").0]).await.unwrap();
    let claims = before.dispatch(request(10, 1_000), 2).await.unwrap();
    drop(before);
    let after = Postgres::open(backend.options(&setup)).await.unwrap();
    assert_eq!(after.dispatch(request(10, 1_000), 2).await.unwrap(), []);
    let begun = after.begin(vec![beginning(&claims[0])]).await.unwrap();
    assert!(with(&begun[0], &claims[0]).is_some(), "{begun:?}");
    setup.clock.advance_ms(1_000);
    let again = after.dispatch(request(10, 1_000), 2).await.unwrap();
    assert_eq!((ids(&again), again[0].attempt, again[0].failures), (ids(&claims[1..]), 1, 0));
}

/// Ended, and nobody has swept: an attempt was spent on one of them, and moves along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_got_lost_on_the_way_moves_unspent() {
    let (source, target) = (PostgresBackend::new(), PostgresBackend::new());
    let setup = Setup::default();
    let before = Postgres::open(source.options(&setup)).await.unwrap();
    before.admit(["lost", "tried", "waits"].map(|body| sms(body).0).to_vec()).await.unwrap();
    before.dispatch(request(1, 1_000), 10).await.unwrap();
    before.claim(request(1, 1_000)).await.unwrap();
    setup.clock.advance_ms(1_000);
    drop(before);
    transfer(&source, &target, &setup).await.unwrap();
    let after = Postgres::open(target.options(&setup)).await.unwrap();
    let claims = after.dispatch(request(9, 1_000), 10).await.unwrap();
    let tries: Vec<_> = claims.iter().map(|claim| (claim.attempt, claim.failures)).collect();
    assert_eq!(tries, [(1, 0), (2, 1), (1, 0)]);
}
