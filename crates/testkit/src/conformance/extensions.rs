//! Whoever holds a lease may keep it for longer.

use tidegate_domain::{Clock, Extension, Outcome, Settled};

use super::steps::sms;
use crate::Harness;

pub async fn an_extended_lease_holds_past_its_old_end(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.claim_for(1_000).await;
    h.clock.advance_ms(600);
    assert_eq!(h.extend(&claim, 1_000).await, Settled::Done);
    h.clock.advance_ms(999);
    assert_eq!(h.claim(9).await, []);
    assert_eq!(h.counts().await.leased, 1);
    h.deliver(&claim).await;
}

pub async fn an_extended_lease_ends_at_its_new_end(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.claim_for(1_000).await;
    assert_eq!(h.extend(&claim, 5_000).await, Settled::Done);
    h.clock.advance_ms(5_000);
    assert_eq!(h.settle(&claim, Outcome::Delivered).await, Settled::LostLease);
    let next = h.claim_one().await;
    assert_eq!((next.attempt, next.failures), (2, 1));
}

pub async fn a_lease_may_be_cut_short(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.claim_for(60_000).await;
    assert_eq!(h.extend(&claim, 10).await, Settled::Done);
    h.clock.advance_ms(10);
    assert_eq!(h.claim_one().await.attempt, 2);
}

pub async fn a_wrong_token_extends_nothing(h: &Harness) {
    let id = h.put(sms("a")).await;
    let claim = h.claim_for(1_000).await;
    let wrong = Extension { id, token: claim.token + 1, lease_ms: 60_000 };
    let never = Extension { id: h.unknown_ids().await[0], token: claim.token, lease_ms: 60_000 };
    let extended = h.queues().extend(vec![wrong, never]).await.expect("extend");
    assert_eq!(extended, [Settled::LostLease, Settled::LostLease]);
    h.clock.advance_ms(1_000);
    assert_eq!(h.claim_one().await.attempt, 2);
}

pub async fn an_ended_lease_cannot_be_extended(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.claim_for(1_000).await;
    h.clock.advance_ms(1_000);
    assert_eq!(h.extend(&claim, 1_000).await, Settled::LostLease);
    let newer = h.claim_for(1_000).await;
    assert_eq!(h.extend(&claim, 1_000).await, Settled::LostLease);
    h.deliver(&newer).await;
    assert_eq!(h.extend(&newer, 1_000).await, Settled::LostLease);
}

pub async fn a_lease_from_an_earlier_life_cannot_be_extended(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.claim_for(1_000).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.extend(&claim, 60_000).await, Settled::LostLease);
    assert_eq!(h.claim_one().await.lease_until, h.clock.now().plus_ms(super::steps::LEASE_MS));
}
