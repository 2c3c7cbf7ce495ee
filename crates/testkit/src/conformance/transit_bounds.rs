//! No more of a queue is in transit at a time than it may be, and whoever waits for room there is woken.

use std::time::Duration;

use tidegate_domain::{Claim, Clock, Due, Outcome, Settled};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::steps::{QUEUE, retry, sms, text, texts};
use super::transit_steps::{IN_TRANSIT_MAX, TRANSIT_MS};
use crate::Harness;

/// Far longer than any case takes: a dispatch that returns only then was not woken.
const WAIT_MS: u64 = 50_000;
const WAKES_WITHIN: Duration = Duration::from_secs(20);

pub async fn no_more_are_in_transit_than_may_be(h: &Harness) {
    h.put_all((0..10).map(|n| sms(&n.to_string()))).await;
    let claims = h.dispatch_from(QUEUE, 10, 3).await;
    assert_eq!(texts(&claims), ["0", "1", "2"]);
    assert_eq!(h.dispatch_from(QUEUE, 10, 3).await, []);
    assert_eq!(h.dispatch_from(QUEUE, 10, 0).await, []);
    assert_eq!(h.dispatch_from(QUEUE, 10, 2).await, [], "another bound, already passed");
    h.begun(&claims[0]).await;
    assert_eq!(texts(&h.dispatch_from(QUEUE, 10, 3).await), ["3"], "one has begun");
    assert_eq!(h.settle(&claims[1], Outcome::Delivered).await, Settled::Done);
    assert_eq!(texts(&h.dispatch_from(QUEUE, 10, 3).await), ["4"], "one is settled");
    assert_eq!(h.settle(&claims[2], Outcome::Released).await, Settled::Done);
    assert_eq!(texts(&h.dispatch_from(QUEUE, 10, 3).await), ["2"], "one was handed back");
    assert_eq!(texts(&h.dispatch_from(QUEUE, 1, 5).await), ["5"]);
    assert_eq!(texts(&h.dispatch_from(QUEUE, 10, 5).await), ["6"]);
    assert_eq!(h.dispatch_from(QUEUE, 10, 5).await, []);
}

pub async fn ways_that_are_over_do_not_count(h: &Harness) {
    h.put_all((0..5).map(|n| sms(&n.to_string()))).await;
    let claims = h.dispatch_from(QUEUE, 10, 3).await;
    h.begun(&claims[1]).await;
    h.let_transit_end();
    // Not before somebody has swept, either.
    assert_eq!(texts(&h.dispatch_from(QUEUE, 10, 3).await), ["0", "2", "3"]);
    h.let_transit_end();
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(texts(&h.dispatch_from(QUEUE, 10, 2).await), ["0", "2"]);
    h.reopen().await.expect("reopen");
    assert_eq!(texts(&h.dispatch_from(QUEUE, 10, 3).await), ["0", "1", "2"]);
}

pub async fn an_extended_way_counts_until_its_new_end(h: &Harness) {
    h.put_all(["a", "b"].map(sms)).await;
    let claim = h.dispatch_from(QUEUE, 1, 1).await.remove(0);
    assert_eq!(h.extend(&claim, 2 * TRANSIT_MS).await, Settled::Done);
    h.clock.advance_ms(2 * TRANSIT_MS - 1);
    assert_eq!(h.dispatch_from(QUEUE, 1, 1).await, []);
    h.clock.advance_ms(1);
    assert_eq!(texts(&h.dispatch_from(QUEUE, 1, 1).await), ["a"]);
}

pub async fn every_queue_has_a_bound_of_its_own(h: &Harness) {
    h.put_all((0..4).flat_map(|n| [sms(&n.to_string()), sms(&n.to_string()).on("mail")])).await;
    assert_eq!(h.dispatch_from(QUEUE, 9, 2).await.len(), 2);
    assert_eq!(h.dispatch_from("mail", 9, 3).await.len(), 3);
    assert_eq!((h.dispatch_from(QUEUE, 9, 2).await, h.dispatch_from("mail", 9, 3).await), (vec![], vec![]));
}

pub async fn attempts_do_not_count_as_in_transit(h: &Harness) {
    h.put_all((0..6).map(|n| sms(&n.to_string()))).await;
    assert_eq!(h.claim(3).await.len(), 3);
    assert_eq!(h.dispatch_from(QUEUE, 9, 2).await.len(), 2);
    assert_eq!(h.claim(9).await.len(), 1, "and are not bound by it");
}

pub async fn a_claim_that_takes_a_lost_one_is_not_in_transit(h: &Harness) {
    h.put_all(["a", "b"].map(sms)).await;
    h.dispatch_from(QUEUE, 1, 1).await;
    h.let_transit_end();
    let claim = h.claim_one().await;
    assert_eq!(text(&claim), "a");
    assert_eq!(texts(&h.dispatch_from(QUEUE, 9, 1).await), ["b"]);
    assert_eq!(h.settle(&claim, retry(0)).await, Settled::Done);
    assert_eq!(h.dispatch_from(QUEUE, 9, 1).await, []);
}

pub async fn parallel_dispatches_share_no_message_and_one_bound(h: &Harness) {
    h.put_all((0..40).map(|n| sms(&n.to_string()))).await;
    let dispatch = || h.dispatch_from(QUEUE, 7, 12);
    let all = tokio::join!(dispatch(), dispatch(), dispatch(), dispatch());
    let claims = [all.0, all.1, all.2, all.3].concat();
    let mut bodies = texts(&claims);
    bodies.sort();
    bodies.dedup();
    assert_eq!((claims.len(), bodies.len()), (12, 12));
}

pub async fn an_empty_wait_of_a_dispatch_ends_by_itself(h: &Harness) {
    let begun = Instant::now();
    assert_eq!(woken(h.dispatch_waiting(50, IN_TRANSIT_MAX).await).await, []);
    h.put_all(["a", "b"].map(sms)).await;
    h.dispatch_from(QUEUE, 1, 1).await;
    assert_eq!(woken(h.dispatch_waiting(50, 1).await).await, [], "without room");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(90) && took < WAKES_WITHIN, "{took:?}");
}

pub async fn a_waiting_dispatch_wakes_when_a_message_comes(h: &Harness) {
    let waiting = h.dispatch_waiting(WAIT_MS, IN_TRANSIT_MAX).await;
    h.put(sms("a")).await;
    assert_eq!(texts(&woken(waiting).await), ["a"]);
}

pub async fn a_waiting_dispatch_wakes_when_a_message_falls_due(h: &Harness) {
    h.put(sms("a").due(Due::At(h.clock.now().plus_ms(20)))).await;
    let waiting = h.dispatch_waiting(WAIT_MS, IN_TRANSIT_MAX).await;
    h.clock.advance_ms(20);
    assert_eq!(texts(&woken(waiting).await), ["a"]);
}

pub async fn a_waiting_dispatch_wakes_when_an_attempt_begins(h: &Harness) {
    h.put_all(["a", "b"].map(sms)).await;
    let claim = h.dispatch_from(QUEUE, 9, 1).await.remove(0);
    let waiting = h.dispatch_waiting(WAIT_MS, 1).await;
    h.begun(&claim).await;
    assert_eq!(texts(&woken(waiting).await), ["b"]);
}

pub async fn a_waiting_dispatch_wakes_when_one_in_transit_is_settled(h: &Harness) {
    h.put_all(["a", "b"].map(sms)).await;
    let claim = h.dispatch_from(QUEUE, 9, 1).await.remove(0);
    let waiting = h.dispatch_waiting(WAIT_MS, 1).await;
    h.deliver(&claim).await;
    assert_eq!(texts(&woken(waiting).await), ["b"]);
}

pub async fn a_waiting_dispatch_wakes_when_a_way_is_over(h: &Harness) {
    h.put_all(["a", "b"].map(sms)).await;
    h.dispatch_from(QUEUE, 9, 1).await;
    let waiting = h.dispatch_waiting(WAIT_MS, 1).await;
    h.let_transit_end();
    let again = woken(waiting).await;
    assert_eq!((texts(&again), again[0].attempt), (vec!["a".to_owned()], 1));
}

pub async fn a_dispatch_that_was_given_up_holds_nothing(h: &Harness) {
    for round in 0..5 {
        let waiting = h.dispatch_waiting(WAIT_MS, IN_TRANSIT_MAX).await;
        waiting.abort();
        assert!(waiting.await.is_err());
        h.put(sms(&round.to_string())).await;
        let claim = timeout(WAKES_WITHIN, async {
            loop {
                // Handed back by then, if it was ever taken.
                if let Some(claim) = h.dispatch_from(QUEUE, 1, 1).await.pop() {
                    return claim;
                }
                tokio::task::yield_now().await;
            }
        });
        h.deliver(&claim.await.expect("the message is there")).await;
    }
}

async fn woken(waiting: JoinHandle<Vec<Claim>>) -> Vec<Claim> {
    timeout(WAKES_WITHIN, waiting).await.expect("the dispatch wakes").expect("the dispatch does not panic")
}
