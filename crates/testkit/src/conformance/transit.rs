//! A message on its way to a sender is leased, and nothing is spent on it until its attempt begins.

use tidegate_domain::{Begun, Clock, Due, Lane, Outcome, Settled, Status};

use super::steps::{LEASE_MS, QUEUE, dead, retry, sms, texts};
use super::transit_steps::{IN_TRANSIT_MAX, TRANSIT_MS, beginning};
use crate::Harness;

pub async fn a_dispatched_message_is_leased(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("b").to("bob")]).await;
    let claims = h.dispatch(9).await;
    assert_eq!(texts(&claims), ["a1", "b"]);
    assert!(claims.iter().all(|claim| (claim.attempt, claim.failures) == (1, 0)), "{claims:?}");
    assert_eq!(h.counts().await.leased, 2);
    assert_eq!(h.queue_counts().await[0].leased, 2);
    assert_eq!((h.claim(9).await, h.dispatch(9).await), (vec![], vec![]));
    assert_eq!(h.pop(9).await, Vec::<String>::new());
    h.clock.advance_ms(TRANSIT_MS - 1);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!((h.claim(9).await, h.counts().await.leased), (vec![], 2));
}

pub async fn a_dispatch_follows_lanes_due_times_and_admission(h: &Harness) {
    let now = h.clock.now();
    let at = |ms| Due::At(now.plus_ms(ms));
    h.put_all([
        sms("low").lane(Lane::Low),
        sms("later").due(at(500)),
        sms("second").due(at(2)),
        sms("first").due(at(1)),
        sms("urgent").lane(Lane::High),
        sms("a low head").lane(Lane::Low).to("ann"),
        sms("that lends a lane").lane(Lane::High).to("ann"),
    ])
    .await;
    h.clock.advance_ms(10);
    assert_eq!(texts(&h.dispatch(2).await), ["urgent", "a low head"]);
    assert_eq!(texts(&h.dispatch(9).await), ["first", "second", "low"]);
    h.clock.advance_ms(490);
    assert_eq!(texts(&h.dispatch(9).await), ["later"]);
}

/// Whoever takes them, one of a lower lane goes for every ten of higher ones.
pub async fn dispatches_and_claims_share_the_turns_of_the_lanes(h: &Harness) {
    h.put_all((0..14).map(|n| sms(&format!("high{n}")).lane(Lane::High))).await;
    h.put_all([sms("low").lane(Lane::Low), sms("last").lane(Lane::Low)]).await;
    assert_eq!(texts(&h.dispatch(4).await), ["high0", "high1", "high2", "high3"]);
    assert_eq!(h.claim(5).await.len(), 5);
    assert_eq!(texts(&h.dispatch(3).await), ["high9", "low", "high10"]);
}

pub async fn a_begun_attempt_has_a_new_token_and_a_lease_of_its_own(h: &Harness) {
    let id = h.put(sms("a").to("ann")).await;
    let dispatched = h.dispatch_one().await;
    h.clock.advance_ms(TRANSIT_MS - 1);
    let begun = h.begun(&dispatched).await;
    assert!(begun.token > dispatched.token, "{} then {}", dispatched.token, begun.token);
    assert_eq!(begun.lease_until, h.clock.now().plus_ms(LEASE_MS));
    h.clock.advance_ms(LEASE_MS - 1);
    assert_eq!((h.claim(9).await, h.counts().await.leased), (vec![], 1));
    h.deliver(&begun).await;
    let record = h.record(id).await;
    let attempts: Vec<_> = record.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!((record.status, attempts), (Status::Delivered, vec![1]));
}

pub async fn the_token_of_the_way_is_worth_nothing_once_begun(h: &Harness) {
    h.put(sms("a")).await;
    let dispatched = h.dispatch_one().await;
    let begun = h.begun(&dispatched).await;
    for outcome in [Outcome::Delivered, retry(0), dead(), Outcome::Expired, Outcome::Released] {
        assert_eq!(h.settle(&dispatched, outcome).await, Settled::LostLease);
    }
    assert_eq!(h.extend(&dispatched, 60_000).await, Settled::LostLease);
    assert_eq!(h.begin(&dispatched).await, Begun::LostLease);
    assert_eq!(h.begin(&begun).await, Begun::LostLease, "it has begun");
    assert_eq!(h.counts().await.leased, 1);
    h.deliver(&begun).await;
    assert_eq!(h.begin(&dispatched).await, Begun::LostLease);
}

pub async fn of_parallel_beginnings_one_counts(h: &Harness) {
    h.put_all((0..20).map(|n| sms(&n.to_string()))).await;
    for claim in h.dispatch(20).await {
        let batch = || h.begin_all(vec![beginning(&claim)]);
        let (first, second, third) = tokio::join!(batch(), batch(), batch());
        let all = [first, second, third].concat();
        let begun: Vec<_> = all.iter().filter(|begun| **begun != Begun::LostLease).collect();
        let [Begun::Begun { token, .. }] = begun[..] else { panic!("{all:?}") };
        h.deliver(&tidegate_domain::Claim { token: *token, ..claim }).await;
    }
    assert_eq!(h.counts().await.delivered, 20);
}

pub async fn a_batch_of_beginnings_is_decided_item_by_item(h: &Harness) {
    h.put_all(["a", "b", "c"].map(sms)).await;
    let claims = h.dispatch(2).await;
    let tried = h.claim_one().await;
    let (a, b) = (beginning(&claims[0]), beginning(&claims[1]));
    let wrong = tidegate_domain::Extension { token: b.token + 1_000_000, ..b.clone() };
    let batch = vec![wrong, b.clone(), a.clone(), b, beginning(&tried), a];
    let begun = h.begin_all(batch).await;
    let is_begun: Vec<_> = begun.iter().map(|begun| *begun != Begun::LostLease).collect();
    assert_eq!(is_begun, [false, true, true, false, false, false]);
    assert_eq!(h.begin_all(Vec::new()).await, []);
    let Begun::Begun { token, .. } = begun[1] else { panic!("{begun:?}") };
    h.deliver(&tidegate_domain::Claim { token, ..claims[1].clone() }).await;
    h.deliver(&tried).await;
}

/// Of everybody else's leases, and of what there never was, no attempt begins, and nothing changes.
pub async fn only_a_current_lease_in_transit_begins(h: &Harness) {
    let unknown = h.unknown_ids().await;
    h.put_all(["a", "b", "c"].map(sms)).await;
    let tried = h.claim_one().await;
    assert_eq!(h.begin(&tried).await, Begun::LostLease, "the token of a claim");
    let dispatched = h.dispatch_one().await;
    let mut wrong = beginning(&dispatched);
    wrong.token += 1;
    assert_eq!(h.begin_all(vec![wrong]).await, [Begun::LostLease]);
    let mut other = beginning(&dispatched);
    other.id = tried.id;
    assert_eq!(h.begin_all(vec![other]).await, [Begun::LostLease], "the token of another message");
    for id in unknown {
        let mut never = beginning(&dispatched);
        never.id = id;
        assert_eq!(h.begin_all(vec![never]).await, [Begun::LostLease]);
    }
    let mut waiting = beginning(&dispatched);
    waiting.id = h.put(sms("waits")).await;
    assert_eq!(h.begin_all(vec![waiting]).await, [Begun::LostLease]);
    assert_eq!(h.counts().await.leased, 2);
    h.deliver(&tried).await;
    h.deliver(&h.begun(&dispatched).await).await;
    assert_eq!(texts(&h.claim(9).await), ["c", "waits"]);
}

pub async fn a_way_that_took_too_long_begins_nothing(h: &Harness) {
    h.put(sms("a")).await;
    let late = h.dispatch_one().await;
    h.let_transit_end();
    assert_eq!(h.begin(&late).await, Begun::LostLease, "before anybody has swept");
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(h.begin(&late).await, Begun::LostLease);
    let again = h.dispatch_one().await;
    assert!(again.token > late.token);
    assert_eq!(h.begin(&late).await, Begun::LostLease, "another is on its way");
    h.deliver(&h.begun(&again).await).await;
}

pub async fn what_is_lost_on_the_way_spends_nothing(h: &Harness) {
    let id = h.put(sms("a").to("ann")).await;
    assert_eq!(h.settle(&h.claim_one().await, retry(0)).await, Settled::Done);
    let mut tokens = Vec::new();
    for round in 0..20 {
        // Found by whoever takes it next, by a sweep, or by a restart.
        let claim = h.dispatch_one().await;
        assert_eq!((claim.attempt, claim.failures), (2, 1), "round {round}");
        tokens.push(claim.token);
        h.let_transit_end();
        match round % 3 {
            0 => h.ledger().sweep().await.expect("sweep"),
            1 => h.reopen().await.expect("reopen"),
            _ => (),
        }
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let record = h.record(id).await;
    assert_eq!((record.status, record.attempts.len()), (Status::Pending, 1));
    let claim = h.claim_one().await;
    assert_eq!((claim.attempt, claim.failures), (2, 1));
    h.deliver(&claim).await;
    assert_eq!(h.record(id).await.attempts.len(), 2);
}

pub async fn what_is_lost_on_the_way_is_popped_unspent(h: &Harness) {
    h.put(sms("a")).await;
    h.dispatch_one().await;
    h.let_transit_end();
    let popped = h.pop_from(QUEUE, 9).await;
    assert_eq!((popped.len(), popped[0].attempt, popped[0].failures), (1, 1, 0));
    assert_eq!(h.record(popped[0].id).await.attempts[0].number, 1);
}

pub async fn a_begun_attempt_whose_lease_ends_is_spent(h: &Harness) {
    h.put(sms("a")).await;
    for round in 0..4 {
        let begun = h.begun(&h.dispatch_one().await).await;
        assert_eq!((begun.attempt, begun.failures), (round + 1, round));
        h.clock.advance_ms(LEASE_MS);
        assert_eq!(h.settle(&begun, Outcome::Delivered).await, Settled::LostLease);
        if round % 2 == 0 {
            h.ledger().sweep().await.expect("sweep");
        }
    }
    // Through both: four were tried, one more got lost.
    h.dispatch_one().await;
    h.let_transit_end();
    let claim = h.claim_one().await;
    assert_eq!((claim.attempt, claim.failures), (5, 4));
    h.clock.advance_ms(LEASE_MS);
    assert_eq!(h.dispatch_one().await.attempt, 6);
}

pub async fn a_restart_forgets_ways_and_attempts_alike(h: &Harness) {
    h.put_all(["a", "b"].map(sms)).await;
    let claims = h.dispatch(9).await;
    let begun = h.begun(&claims[0]).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.counts().await.leased, 0);
    assert_eq!(h.begin(&claims[1]).await, Begun::LostLease);
    assert_eq!(h.settle(&begun, Outcome::Delivered).await, Settled::LostLease);
    let after = h.dispatch(9).await;
    assert_eq!(texts(&after), ["a", "b"]);
    assert!(after.iter().all(|claim| (claim.attempt, claim.failures) == (1, 0)), "{after:?}");
    assert!(after.iter().all(|claim| claim.token > begun.token.max(claims[1].token)), "{after:?}");
    assert_eq!(h.begin(&claims[1]).await, Begun::LostLease);
    h.begun(&after[1]).await;
}

pub async fn queues_are_dispatched_apart_and_paused_ones_not_at_all(h: &Harness) {
    h.put_all([sms("a"), sms("b").on("mail")]).await;
    assert!(h.pause(QUEUE, true).await);
    assert_eq!(h.dispatch(9).await, []);
    assert_eq!(texts(&h.dispatch_from("mail", 9, IN_TRANSIT_MAX).await), ["b"]);
    assert_eq!(h.dispatch_from("never-seen", 9, IN_TRANSIT_MAX).await, []);
    assert!(h.pause(QUEUE, false).await);
    let claim = h.dispatch_one().await;
    assert!(h.pause(QUEUE, true).await);
    h.deliver(&h.begun(&claim).await).await;
}
