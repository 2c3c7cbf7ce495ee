//! A claim may wait; it returns as soon as there is something to lease.

use std::time::Duration;

use tidegate_domain::{Claim, ClaimRequest, Clock, Due};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::steps::{LEASE_MS, QUEUE, queue, sms, text, texts};
use crate::Harness;

/// Far longer than any case takes: a claim that returns only then was not woken.
const WAIT_MS: u64 = 50_000;
const WAKES_WITHIN: Duration = Duration::from_secs(20);

pub async fn an_empty_wait_ends_by_itself(h: &Harness) {
    let begun = Instant::now();
    let request = ClaimRequest { queue: queue(QUEUE), max: 1, lease_ms: LEASE_MS, wait_ms: 50 };
    assert_eq!(h.ledger().claim(request).await.expect("claim"), []);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(45) && took < WAKES_WITHIN, "{took:?}");
}

pub async fn a_waiting_claim_wakes_when_a_message_comes(h: &Harness) {
    let waiting = h.claim_waiting(9).await;
    h.put(sms("a")).await;
    assert_eq!(texts(&woken(waiting).await), ["a"]);
}

pub async fn a_waiting_claim_wakes_when_a_message_falls_due(h: &Harness) {
    h.put(sms("a").due(Due::At(h.clock.now().plus_ms(20)))).await;
    let waiting = h.claim_waiting(9).await;
    h.clock.advance_ms(20);
    assert_eq!(texts(&woken(waiting).await), ["a"]);
}

pub async fn a_waiting_claim_wakes_when_its_recipient_is_free(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    let head = h.claim_one().await;
    let waiting = h.claim_waiting(9).await;
    h.deliver(&head).await;
    assert_eq!(texts(&woken(waiting).await), ["a2"]);
}

pub async fn a_waiting_claim_wakes_when_a_lease_ends(h: &Harness) {
    h.put(sms("a")).await;
    let request = ClaimRequest { queue: queue(QUEUE), max: 1, lease_ms: 20, wait_ms: 0 };
    let first = h.ledger().claim(request).await.expect("claim");
    let waiting = h.claim_waiting(9).await;
    h.clock.advance_ms(20);
    let second = woken(waiting).await;
    assert_eq!((first[0].attempt, second[0].attempt), (1, 2));
}

pub async fn every_waiting_claim_is_served(h: &Harness) {
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(h.claim_waiting(1).await);
    }
    h.put_all(["a", "b"].map(sms)).await;
    h.put_all(["c", "d"].map(sms)).await;
    let mut bodies = Vec::new();
    for claim in waiting {
        bodies.extend(woken(claim).await.iter().map(text));
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "b", "c", "d"]);
}

impl Harness {
    /// Starts a claim that waits. Whether it already sleeps when the caller goes on is left to chance, and must
    /// not matter.
    async fn claim_waiting(&self, max: usize) -> JoinHandle<Vec<Claim>> {
        let ledger = self.ledger();
        let request = ClaimRequest { queue: queue(QUEUE), max, lease_ms: LEASE_MS, wait_ms: WAIT_MS };
        let task = tokio::spawn(async move { ledger.claim(request).await.expect("claim") });
        // Some calls of another kind give the claim time to arrive without counting on it.
        for _ in 0..10 {
            self.counts().await;
            tokio::task::yield_now().await;
        }
        task
    }
}

async fn woken(waiting: JoinHandle<Vec<Claim>>) -> Vec<Claim> {
    timeout(WAKES_WITHIN, waiting).await.expect("the claim wakes").expect("the claim does not panic")
}
