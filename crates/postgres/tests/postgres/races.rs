//! What one gateway does while another is half-way through, step by step.

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{
    Admitted, Cancelled, Claim, ClaimRequest, Clock as _, Extension, Lane, Ledger as _, MessageId, Outcome,
    Queues as _, Released, Reserved, Settled, Settlement, Slots as _,
};
use tidegate_postgres::Postgres;
use tidegate_testkit::HANG;
use tidegate_testkit::Setup;
use tidegate_testkit::conformance::{ask, event, per_window, queue, slot_config, sms, user};
use tokio::time::timeout;

use crate::backend::PostgresBackend;
use crate::session::Session;

fn claims_of(lease_ms: u64) -> ClaimRequest {
    ClaimRequest { queue: queue("sms"), max: 10, lease_ms, wait_ms: 0 }
}

fn delivered(claim: &Claim) -> Settlement {
    Settlement { id: claim.id, token: claim.token, outcome: Outcome::Delivered, latency_ms: 1 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_one_quota_pulls_no_other_window_back() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(2, |_| ()).await;
    for name in ["ann", "bob"] {
        gateways[0].put_quota(user(name), 3, 3_600_000).await.unwrap();
    }
    let session = Session::open(&backend).await;
    session.run("UPDATE quota SET since = since - 7200000").await;
    session.run("BEGIN; SELECT FROM quota WHERE user_id = 'ann' FOR UPDATE").await;
    let batch = vec![sms("a").charged_to("ann").0, sms("b").charged_to("bob").0];
    let (late, observer) = (gateways[0].clone(), Session::open(&backend).await);
    let late = tokio::spawn(async move { late.admit(batch).await });
    observer.until_blocked(1).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let told = gateways[1].admit(vec![sms("b").charged_to("bob").0]).await.unwrap().remove(0);
    let Admitted::Admitted { quota: Some(told), .. } = told else { panic!("{told:?}") };
    session.run("COMMIT").await;
    late.await.unwrap().unwrap();
    let now = gateways[1].quota(user("bob")).await.unwrap().unwrap();
    assert_eq!((now.since, now.count), (told.since, 2), "the window that was announced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_quota_begins_when_it_is_there() {
    let backend = PostgresBackend::empty();
    let gateway = backend.gateways(1, |_| ()).await.remove(0);
    gateway.put_quota(user("ann"), 3, 3_600_000).await.unwrap();
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    session.run("BEGIN; SELECT FROM quota FOR UPDATE").await;
    let put = tokio::spawn(async move { gateway.put_quota(user("ann"), 5, 3_600_000).await });
    observer.until_blocked(1).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let charged_at = session.number("SELECT now_ms()").await;
    session.run("COMMIT").await;
    let quota = put.await.unwrap().unwrap();
    assert!(quota.since.millis() >= charged_at, "{quota:?} begins before {charged_at}");
}

/// A lease is extended at its last moment, and committed after it: what comes in between finds the message held.
async fn beside_an_extension<T>(after_ms: u64, act: impl AsyncFnOnce(Arc<Postgres>, MessageId) -> T) -> T {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ledger = Arc::new(Postgres::open(backend.options(&setup)).await.unwrap());
    ledger.admit(vec![sms("a").expires(setup.clock.now().plus_ms(1_500)).0]).await.unwrap();
    let claim = ledger.claim(claims_of(1_000)).await.unwrap().remove(0);
    let session = Session::open(&backend).await;
    session.set_time(setup.clock.now().plus_ms(900)).await;
    let extend = format!(
        "SELECT count(*) FROM extend(ARRAY[{}], ARRAY[{}], ARRAY[{}], ARRAY[60000])",
        claim.id.seq(),
        claim.admitted_at.millis(),
        claim.token
    );
    session.run("BEGIN").await;
    assert_eq!(session.number(&extend).await, 1);
    setup.clock.advance_ms(after_ms);
    let committed = async {
        // As long as others need to come to a decision, or to wait for ours.
        tokio::time::sleep(Duration::from_millis(300)).await;
        session.run("COMMIT").await;
    };
    let acting = act(ledger.clone(), claim.id);
    let (answer, ()) = tokio::join!(acting, committed);
    setup.clock.advance_ms(1_000);
    assert_eq!(ledger.settle(vec![delivered(&claim)]).await.unwrap(), [Settled::Done], "it was extended");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_lease_is_being_extended_is_not_claimed() {
    let claims = beside_an_extension(1_000, async |ledger, _| {
        let again = ledger.claim(claims_of(1_000)).await.unwrap();
        let popped = ledger.pop(queue("sms"), 10, 0).await.unwrap();
        [again, popped].concat()
    });
    assert!(claims.await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_lease_is_being_extended_is_not_taken_back() {
    let cancelled = beside_an_extension(1_000, async |ledger, id| ledger.cancel(vec![id]).await.unwrap());
    assert_eq!(cancelled.await, [Cancelled::UnderWay]);
    let purged = beside_an_extension(1_000, async |ledger, _| ledger.purge(queue("sms")).await.unwrap());
    assert_eq!(purged.await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_lease_is_being_extended_does_not_expire() {
    let claims = beside_an_extension(2_000, async |ledger, _| {
        let claims = ledger.claim(claims_of(1_000)).await.unwrap();
        ledger.sweep().await.unwrap();
        claims
    });
    assert!(claims.await.is_empty());
}

/// Both hold what the other needs, if each takes the leases in an order of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extensions_and_settlements_take_turns() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(2, |options| options.sweep_every = Duration::from_secs(600)).await;
    gateways[0].admit(vec![sms("a").0, sms("b").0]).await.unwrap();
    let claims = gateways[0].claim(claims_of(600_000)).await.unwrap();
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    let first = claims[0].id.seq();
    session.run(&format!("BEGIN; SELECT FROM pending WHERE seq = {first} FOR UPDATE")).await;
    let settlements = claims.iter().map(delivered).collect();
    let settling = gateways[0].clone();
    let settling = tokio::spawn(async move { settling.settle(settlements).await });
    observer.until_blocked(1).await;
    let backwards = claims.iter().rev();
    let extensions = backwards.map(|claim| Extension { id: claim.id, token: claim.token, lease_ms: 1 });
    let (extending, extensions) = (gateways[1].clone(), extensions.collect());
    let extending = tokio::spawn(async move { extending.extend(extensions).await });
    observer.until_blocked(2).await;
    session.run("COMMIT").await;
    let settled = timeout(HANG, settling).await.expect("settled").unwrap();
    let extended = timeout(HANG, extending).await.expect("extended").unwrap();
    assert_eq!(settled.unwrap(), [Settled::Done; 2]);
    assert_eq!(extended.unwrap(), [Settled::LostLease; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_given_back_while_it_is_asked_for_gets_a_new_slot() {
    let backend = PostgresBackend::empty();
    let gateways = backend.gateways(2, |_| ()).await;
    for name in ["before", "default"] {
        gateways[0].put_slot_config(slot_config(name), per_window(9)).await.unwrap();
    }
    gateways[0].reserve(vec![ask("e").of("before").0]).await.unwrap();
    gateways[0].admit(vec![sms("a").to("ann").0]).await.unwrap();
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    session.run("BEGIN; SELECT FROM chain FOR UPDATE").await;
    // It knows the event, and then waits for a chain.
    let batch = vec![ask("e").0, ask("f").with(sms("b").to("ann")).0];
    let reserving = gateways[0].clone();
    let reserving = tokio::spawn(async move { reserving.reserve(batch).await });
    observer.until_blocked(1).await;
    let released = gateways[1].release(event("e")).await.unwrap();
    assert!(matches!(released, Released::Released(_)), "{released:?}");
    session.run("COMMIT").await;
    let reserved = timeout(HANG, reserving).await.expect("an answer").unwrap().unwrap();
    for reserved in &reserved {
        let Reserved::Assigned(slot) = reserved else { panic!("{reserved:?}") };
        assert_eq!(slot.config, slot_config("default"));
    }
    gateways[0].reserve(vec![ask("g").0]).await.expect("it goes on");
}

/// What has expired lent its lane to the head before it: whoever ends it waits for that one, and must not hold others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_waits_for_the_head_of_a_chain_with_no_other_in_hand() {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ledger = Arc::new(Postgres::open(backend.options(&setup)).await.unwrap());
    ledger.admit(vec![sms("a1").lane(Lane::Low).to("ann").0]).await.unwrap();
    let lapsed = ledger.claim(claims_of(1_000)).await.unwrap().remove(0).id.seq();
    let expires = setup.clock.now().plus_ms(1_500);
    let urgent = sms("b2").lane(Lane::High).to("bob").expires(expires);
    ledger.admit(vec![sms("b1").lane(Lane::Low).to("bob").0, urgent.0]).await.unwrap();
    setup.clock.advance_ms(2_000);
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    session.run("BEGIN; SELECT FROM pending WHERE recipient = 'bob' AND is_head FOR UPDATE").await;
    let claiming = ledger.clone();
    let claiming = tokio::spawn(async move { claiming.claim(claims_of(1_000)).await });
    observer.until_blocked(1).await;
    session.run(&format!("SELECT FROM pending WHERE seq = {lapsed} FOR UPDATE NOWAIT; COMMIT")).await;
    let claims = timeout(HANG, claiming).await.expect("claimed").unwrap().unwrap();
    assert_eq!(claims.iter().map(|claim| claim.attempt).collect::<Vec<_>>(), [2, 1]);
}

/// Whoever holds the chain may ask for the message next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_waits_for_a_chain_without_its_messages_in_hand() {
    let backend = PostgresBackend::new();
    let setup = Setup::default();
    let ledger = Arc::new(Postgres::open(backend.options(&setup)).await.unwrap());
    ledger.admit(vec![sms("a").to("ann").0]).await.unwrap();
    ledger.claim(claims_of(1_000)).await.unwrap();
    setup.clock.advance_ms(2_000);
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    session.run("BEGIN; SELECT FROM chain FOR UPDATE").await;
    let purging = ledger.clone();
    let purging = tokio::spawn(async move { purging.purge(queue("sms")).await });
    observer.until_blocked(1).await;
    session.run("SELECT FROM pending FOR UPDATE NOWAIT; COMMIT").await;
    let purged = timeout(HANG, purging).await.expect("purged").unwrap();
    assert_eq!(purged.unwrap(), 1, "its lease has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_takes_back_what_was_there_when_it_began() {
    let backend = PostgresBackend::empty();
    let gateway = backend.gateways(1, |_| ()).await.remove(0);
    let first = |n| if n == 0 { sms("x").to("ann").0 } else { sms("x").0 };
    gateway.admit((0..1_001).map(first).collect()).await.unwrap();
    let (session, observer) = (Session::open(&backend).await, Session::open(&backend).await);
    session.run("BEGIN; SELECT FROM chain FOR UPDATE").await;
    let purging = gateway.clone();
    let purging = tokio::spawn(async move { purging.purge(queue("sms")).await });
    observer.until_blocked(1).await;
    gateway.admit((0..5).map(|_| sms("later").0).collect()).await.unwrap();
    session.run("COMMIT").await;
    assert_eq!(timeout(HANG, purging).await.expect("it ends").unwrap().unwrap(), 1_001);
    assert_eq!(gateway.counts().await.unwrap().pending, 5);
}
