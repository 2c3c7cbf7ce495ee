//! Per recipient, in admission order; a failing head blocks its recipient alone.

use tidegate_domain::{Clock, Due, Lane, Outcome, Settled};

use super::steps::{QUEUE, dead, retry, sms, text, texts};
use crate::Harness;

pub async fn a_recipient_has_one_lease_at_a_time(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("b1").to("bob")]).await;
    let claims = h.claim(9).await;
    assert_eq!(texts(&claims), ["a1", "b1"]);
    assert_eq!(h.claim(9).await, []);
    h.deliver(&claims[0]).await;
    assert_eq!(texts(&h.claim(9).await), ["a2"]);
}

pub async fn a_recipient_is_served_in_admission_order_whatever_the_lanes(h: &Harness) {
    let past = Due::At(h.clock.now().minus_ms(1_000));
    h.put_all([
        sms("a1").to("ann").lane(Lane::Low),
        sms("a2").to("ann").lane(Lane::High),
        sms("a3").to("ann").due(past),
    ])
    .await;
    assert_eq!(h.deliver_all().await, ["a1", "a2", "a3"]);
}

pub async fn a_blocked_head_blocks_its_recipient_alone(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("b1").to("bob"), sms("free")]).await;
    let head = h.claim_one().await;
    assert_eq!(h.settle(&head, retry(5_000)).await, Settled::Done);
    assert_eq!(h.deliver_all().await, ["b1", "free"]);
}

pub async fn a_retried_head_keeps_its_place(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    for _ in 0..3 {
        let head = h.claim_one().await;
        assert_eq!(text(&head), "a1");
        assert_eq!(h.settle(&head, retry(1_000)).await, Settled::Done);
        h.clock.advance_ms(1_000);
    }
    h.put(sms("a3").to("ann")).await;
    assert_eq!(h.deliver_all().await, ["a1", "a2", "a3"]);
}

pub async fn a_dead_head_lets_the_next_one_go(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    let head = h.claim_one().await;
    assert_eq!(h.settle(&head, dead()).await, Settled::Done);
    assert_eq!(h.deliver_all().await, ["a2"]);
    assert_eq!(h.counts().await.dead, 1);
}

pub async fn an_expired_head_lets_the_next_one_go(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    let head = h.claim_one().await;
    assert_eq!(h.settle(&head, Outcome::Expired).await, Settled::Done);
    assert_eq!(h.deliver_all().await, ["a2"]);
    assert_eq!(h.counts().await.expired, 1);
}

pub async fn a_head_in_the_future_holds_its_chain(h: &Harness) {
    let later = Due::At(h.clock.now().plus_ms(100));
    h.put_all([sms("a1").to("ann").due(later), sms("a2").to("ann"), sms("b1").to("bob")]).await;
    assert_eq!(h.deliver_all().await, ["b1"]);
    h.clock.advance_ms(100);
    assert_eq!(h.deliver_all().await, ["a1", "a2"]);
}

pub async fn one_recipient_in_two_queues_is_two_chains(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("m1").to("ann").on("mail")]).await;
    assert_eq!(texts(&h.claim_from(QUEUE, 9).await), ["a1"]);
    assert_eq!(texts(&h.claim_from("mail", 9).await), ["m1"]);
}

pub async fn messages_without_a_recipient_wait_for_nobody(h: &Harness) {
    h.put_all(["a", "b", "c"].map(sms)).await;
    let claims = h.claim(2).await;
    assert_eq!(h.settle(&claims[0], retry(1_000)).await, Settled::Done);
    assert_eq!(texts(&h.claim(9).await), ["c"]);
}
