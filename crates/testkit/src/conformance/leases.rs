//! A lease ends by settlement or by time; its token keeps late workers out.

use tidegate_domain::{Outcome, Settled, Status};

use super::steps::{LEASE_MS, dead, retry, sms};
use crate::Harness;

pub async fn an_ended_lease_is_claimable_with_a_new_token_and_number(h: &Harness) {
    h.put(sms("a").to("ann")).await;
    let first = h.claim_one().await;
    h.clock.advance_ms(LEASE_MS);
    let second = h.claim_one().await;
    assert_eq!((first.attempt, second.attempt, second.id), (1, 2, first.id));
    assert!(second.token > first.token);
    assert_eq!(h.counts().await.leased, 1);
    h.clock.advance_ms(LEASE_MS);
    let third = h.claim_one().await;
    assert_eq!(h.settle(&third, retry(0)).await, Settled::Done);
    assert_eq!(h.claim_one().await.attempt, 4);
}

pub async fn a_lease_holds_until_its_last_millisecond(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.claim_one().await;
    h.clock.advance_ms(LEASE_MS - 1);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(h.claim(9).await, []);
    h.deliver(&claim).await;
}

pub async fn a_late_settlement_is_lost_even_before_a_sweep(h: &Harness) {
    let id = h.put(sms("a")).await;
    let claim = h.claim_one().await;
    h.clock.advance_ms(LEASE_MS);
    assert_eq!(h.settle(&claim, Outcome::Delivered).await, Settled::LostLease);
    let record = h.record(id).await;
    assert_eq!((record.status, record.attempts), (Status::Pending, vec![]));
    assert_eq!(h.claim_one().await.attempt, 2);
}

pub async fn an_old_token_cannot_settle_a_newer_lease(h: &Harness) {
    h.put(sms("a")).await;
    let old = h.claim_one().await;
    h.clock.advance_ms(LEASE_MS);
    let new = h.claim_one().await;
    for outcome in [Outcome::Delivered, retry(0), dead(), Outcome::Expired, Outcome::Released] {
        assert_eq!(h.settle(&old, outcome).await, Settled::LostLease);
    }
    assert_eq!(h.counts().await.leased, 1);
    h.deliver(&new).await;
}

pub async fn a_late_worker_cannot_overwrite_a_delivery(h: &Harness) {
    let id = h.put(sms("a")).await;
    let late = h.claim_one().await;
    h.clock.advance_ms(LEASE_MS);
    h.deliver(&h.claim_one().await).await;
    let delivered = h.record(id).await;
    assert_eq!(h.settle(&late, dead()).await, Settled::LostLease);
    assert_eq!(h.record(id).await, delivered);
}

pub async fn tokens_grow_with_every_lease(h: &Harness) {
    h.put_all([sms("a"), sms("b")]).await;
    let mut tokens: Vec<u64> = h.claim(9).await.iter().map(|claim| claim.token).collect();
    for _ in 0..3 {
        h.clock.advance_ms(LEASE_MS);
        tokens.extend(h.claim(9).await.iter().map(|claim| claim.token));
    }
    assert_eq!(tokens.len(), 8);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

pub async fn a_sweep_returns_ended_leases(h: &Harness) {
    h.put_all([sms("a"), sms("b")]).await;
    h.claim(9).await;
    h.clock.advance_ms(LEASE_MS);
    h.ledger().sweep().await.expect("sweep");
    let counts = h.counts().await;
    assert_eq!((counts.pending, counts.leased), (2, 0));
    assert_eq!(h.claim(9).await.len(), 2);
}
