//! What each outcome means for its message.

use tidegate_domain::{Claim, MessageId, Outcome, Settled, Settlement, Status};

use super::steps::{dead, retry, sms};
use crate::Harness;

pub async fn a_delivered_message_never_returns(h: &Harness) {
    let id = h.put(sms("a")).await;
    h.deliver(&h.claim_one().await).await;
    h.clock.advance_ms(1_000_000);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(h.claim(9).await, []);
    assert_eq!(h.record(id).await.status, Status::Delivered);
    let counts = h.counts().await;
    assert_eq!((counts.admitted, counts.delivered, counts.pending), (1, 1, 0));
}

pub async fn a_second_settlement_is_lost(h: &Harness) {
    for outcome in [Outcome::Delivered, retry(60_000), dead(), Outcome::Expired] {
        let id = h.put(sms("a")).await;
        let claim = h.claim_one().await;
        assert_eq!(h.settle(&claim, outcome).await, Settled::Done);
        let record = h.record(id).await;
        assert_eq!(h.settle(&claim, Outcome::Delivered).await, Settled::LostLease);
        assert_eq!(h.record(id).await, record);
    }
}

pub async fn a_retry_is_due_after_its_delay_with_the_next_number(h: &Harness) {
    let id = h.put(sms("a")).await;
    let first = h.claim_one().await;
    h.clock.advance_ms(10);
    assert_eq!(h.settle(&first, retry(2_000)).await, Settled::Done);
    let counts = h.counts().await;
    assert_eq!((counts.pending, counts.leased), (1, 0));
    assert_eq!(h.record(id).await.due_at, first.admitted_at.plus_ms(2_010));
    h.clock.advance_ms(1_999);
    assert_eq!(h.claim(9).await, []);
    h.clock.advance_ms(1);
    let second = h.claim_one().await;
    assert_eq!((second.id, second.attempt), (id, 2));
    assert!(second.token > first.token);
}

pub async fn a_released_message_is_claimable_at_once_and_spent_no_attempt(h: &Harness) {
    let id = h.put(sms("a").to("ann")).await;
    let first = h.claim_one().await;
    assert_eq!(h.settle(&first, Outcome::Released).await, Settled::Done);
    assert_eq!(h.counts().await.leased, 0);
    let second = h.claim_one().await;
    assert_eq!((second.id, second.attempt), (id, 1));
    assert_eq!(h.settle(&first, Outcome::Delivered).await, Settled::LostLease);
    assert_eq!(h.record(id).await.attempts, []);
}

pub async fn a_held_message_waits_and_spends_no_attempt(h: &Harness) {
    let id = h.put(sms("a")).await;
    let first = h.claim_one().await;
    assert_eq!(h.settle(&first, Outcome::Held { for_ms: 500 }).await, Settled::Done);
    h.clock.advance_ms(499);
    assert_eq!(h.claim(1).await, []);
    h.clock.advance_ms(1);
    let second = h.claim_one().await;
    assert_eq!((second.id, second.attempt, second.failures), (id, 1, 0));
    assert_eq!(h.record(id).await.attempts, []);
}

pub async fn a_message_that_never_was_cannot_be_settled(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.claim_one().await;
    let other = MessageId::new(claim.admitted_at, claim.id.seq() + 1_000, 7);
    let forged = Claim { id: other, ..claim.clone() };
    assert_eq!(h.settle(&forged, Outcome::Delivered).await, Settled::LostLease);
    let forged = Claim { token: claim.token + 1_000, ..claim.clone() };
    assert_eq!(h.settle(&forged, Outcome::Delivered).await, Settled::LostLease);
    // The sequence number alone is not the message's name.
    let forged =
        Claim { id: MessageId::new(claim.admitted_at.plus_ms(1), claim.id.seq(), 7), ..claim.clone() };
    assert_eq!(h.settle(&forged, Outcome::Delivered).await, Settled::LostLease);
    h.deliver(&claim).await;
}

pub async fn an_unclaimed_message_cannot_be_settled(h: &Harness) {
    let id = h.put(sms("a")).await;
    for token in [0, 1] {
        let settlement = Settlement { id, token, outcome: Outcome::Delivered, latency_ms: 1 };
        let settled = h.ledger().settle(vec![settlement]).await.expect("settle");
        assert_eq!(settled, [Settled::LostLease]);
    }
    assert_eq!(h.deliver_all().await, ["a"]);
}

pub async fn a_batch_of_settlements_is_decided_item_by_item(h: &Harness) {
    let ids = h.put_all(["a", "b", "c"].map(sms)).await;
    let claims = h.claim(3).await;
    let settle =
        |claim: &Claim, outcome| Settlement { id: claim.id, token: claim.token, outcome, latency_ms: 3 };
    let batch = vec![
        settle(&claims[2], dead()),
        settle(&claims[0], Outcome::Delivered),
        settle(&claims[0], dead()),
        settle(&claims[1], retry(0)),
    ];
    let settled = h.ledger().settle(batch).await.expect("settle");
    assert_eq!(settled, [Settled::Done, Settled::Done, Settled::LostLease, Settled::Done]);
    let mut statuses = Vec::new();
    for id in ids {
        statuses.push(h.record(id).await.status);
    }
    assert_eq!(statuses, [Status::Delivered, Status::Pending, Status::Dead]);
    let counts = h.counts().await;
    assert_eq!((counts.delivered, counts.dead, counts.pending, counts.leased), (1, 1, 1, 0));
}
