//! A recipient's next message comes with the settlement of the one before it.

use tidegate_domain::{Advanced, Claim, Clock, Due, Lane, Outcome, Settled, Settlement};

use super::steps::{QUEUE, dead, queue, retry, sms, text};
use crate::Harness;

const LEASE_MS: u64 = 5_000;

impl Harness {
    async fn advance(&self, claims: &[&Claim], outcome: Outcome) -> Vec<Advanced> {
        let settlement = |claim: &&Claim| Settlement {
            id: claim.id,
            token: claim.token,
            outcome: outcome.clone(),
            latency_ms: 7,
        };
        let batch: Vec<_> = claims.iter().map(settlement).collect();
        let advanced = self.ledger().advance(batch, LEASE_MS).await.expect("advance");
        assert_eq!(advanced.len(), claims.len(), "one answer per item");
        self.counts().await;
        advanced
    }

    async fn advance_one(&self, claim: &Claim, outcome: Outcome) -> Advanced {
        self.advance(&[claim], outcome).await.remove(0)
    }
}

pub async fn a_chain_is_walked_one_settlement_at_a_time(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann").lane(Lane::Low), sms("a3").to("ann")]).await;
    let mut head = h.claim_one().await;
    for body in ["a2", "a3"] {
        let advanced = h.advance_one(&head, Outcome::Delivered).await;
        assert_eq!(advanced.settled, Settled::Done);
        let next = advanced.next.expect("the next one");
        assert_eq!((text(&next).as_str(), next.attempt), (body, 1));
        assert_eq!(next.lease_until, h.clock.now().plus_ms(LEASE_MS));
        assert_eq!(h.claim(9).await, [], "it is leased");
        head = next;
    }
    let last = h.advance_one(&head, Outcome::Delivered).await;
    assert_eq!(last, Advanced { settled: Settled::Done, next: None });
    assert_eq!(h.counts().await.delivered, 3);
}

pub async fn a_death_and_an_expiry_bring_the_next_one_too(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("a3").to("ann")]).await;
    let first = h.claim_one().await;
    let second = h.advance_one(&first, dead()).await.next.expect("after a death");
    let third = h.advance_one(&second, Outcome::Expired).await.next.expect("after an expiry");
    assert_eq!(text(&third), "a3");
}

pub async fn what_stays_pending_keeps_its_recipient_waiting(h: &Harness) {
    for outcome in [
        retry(1_000),
        Outcome::Accepted { ack_within_ms: 1_000 },
        Outcome::Released,
        Outcome::Held { for_ms: 1_000 },
    ] {
        h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
        let head = h.claim_one().await;
        let advanced = h.advance_one(&head, outcome).await;
        assert_eq!(advanced, Advanced { settled: Settled::Done, next: None });
        h.clock.advance_ms(1_000);
        assert_eq!(h.deliver_all().await, ["a1", "a2"]);
    }
}

pub async fn a_lost_lease_brings_nothing_along(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("a3").to("ann")]).await;
    let head = h.claim_one().await;
    let [first, second] = &h.advance(&[&head, &head], Outcome::Delivered).await[..] else { panic!() };
    assert_eq!(first.next.as_ref().map(text).as_deref(), Some("a2"));
    assert_eq!(*second, Advanced { settled: Settled::LostLease, next: None });
    let late = h.advance_one(&head, Outcome::Delivered).await;
    assert_eq!(late, Advanced { settled: Settled::LostLease, next: None });
    // Nor does one before the lease that counts take anything from that.
    h.put_all([sms("b1").to("bob"), sms("b2").to("bob")]).await;
    let lost = h.claim_one().await;
    h.let_lease_end();
    let claims = h.claim(9).await;
    let current = claims.iter().find(|claim| claim.id == lost.id).expect("claimed again");
    let [first, second] = &h.advance(&[&lost, current], Outcome::Delivered).await[..] else { panic!() };
    assert_eq!(*first, Advanced { settled: Settled::LostLease, next: None });
    assert_eq!(second.next.as_ref().map(text).as_deref(), Some("b2"));
}

pub async fn a_next_message_that_no_claim_could_take_is_left_alone(h: &Harness) {
    let later = Due::At(h.clock.now().plus_ms(100));
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann").due(later)]).await;
    h.put_all([
        sms("b1").to("bob"),
        sms("b2").to("bob").expires(h.clock.now().plus_ms(50)),
        sms("b3").to("bob"),
    ])
    .await;
    h.put(sms("free")).await;
    h.put(sms("other")).await;
    let claims = h.claim(9).await;
    h.clock.advance_ms(60);
    h.ledger().sweep().await.expect("sweep");
    let advanced = h.advance(&claims.iter().collect::<Vec<_>>(), Outcome::Delivered).await;
    let next: Vec<_> = advanced.iter().map(|one| one.next.as_ref().map(text)).collect();
    assert_eq!(next, [None, Some("b3".to_owned()), None, None], "not due; expired; no recipient");
    h.clock.advance_ms(40);
    assert_eq!(h.deliver_all().await, ["a2"]);
}

pub async fn an_expired_message_is_no_next_one(h: &Harness) {
    let until = h.clock.now().plus_ms(50);
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann").expires(until), sms("a3").to("ann")]).await;
    let head = h.claim_one().await;
    h.clock.advance_ms(50);
    // No sweep has noticed: it may stand in the way of the one behind it.
    let next = h.advance_one(&head, Outcome::Delivered).await.next;
    assert!(next.as_ref().is_none_or(|next| text(next) == "a3"), "{next:?}");
    if next.is_none() {
        assert_eq!(h.deliver_all().await, ["a3"]);
    }
    assert_eq!(h.counts().await.expired, 1);
}

pub async fn a_paused_queue_gives_no_next_message(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    let head = h.claim_one().await;
    h.queues().pause(queue(QUEUE), true).await.expect("pause");
    assert_eq!(h.advance_one(&head, Outcome::Delivered).await.next, None);
    h.queues().pause(queue(QUEUE), false).await.expect("resume");
    assert_eq!(h.deliver_all().await, ["a2"]);
}

pub async fn a_next_message_that_is_not_settled_comes_back_with_an_attempt_spent(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    let head = h.claim_one().await;
    let next = h.advance_one(&head, Outcome::Delivered).await.next.expect("the next one");
    h.clock.advance_ms(LEASE_MS);
    let again = h.claim_one().await;
    assert_eq!((again.id, again.attempt, again.failures), (next.id, 2, 1));
    assert!(again.token > next.token, "fenced");
    assert_eq!(h.advance_one(&next, Outcome::Delivered).await.settled, Settled::LostLease);
}

pub async fn many_recipients_advance_in_one_call(h: &Harness) {
    let names: Vec<String> = (0..20).map(|number| format!("r{number}")).collect();
    for round in ["first", "second"] {
        h.put_all(names.iter().map(|name| sms(&format!("{round} of {name}")).to(name))).await;
    }
    let heads = h.claim(99).await;
    assert_eq!(heads.len(), names.len());
    let advanced = h.advance(&heads.iter().collect::<Vec<_>>(), Outcome::Delivered).await;
    for (head, advanced) in heads.iter().zip(&advanced) {
        let next = advanced.next.as_ref().expect("the next one");
        assert_eq!(next.recipient, head.recipient);
        assert!(text(next).starts_with("second"));
    }
}
