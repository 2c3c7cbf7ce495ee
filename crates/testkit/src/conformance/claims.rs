//! Which message is leased next.

use tidegate_domain::{Clock, Due, Lane, Recipient};
use tokio::task::JoinSet;

use super::steps::{LEASE_MS, QUEUE, queue, sms, texts, user};
use crate::Harness;

pub async fn a_claim_carries_what_was_admitted(h: &Harness) {
    h.ledger().put_quota(user("ann"), 5, 60_000).await.expect("put_quota");
    let at = h.clock.now();
    let id = h.put(sms("hello").to("ann's phone").lane(Lane::High).charged_to("ann")).await;
    h.clock.advance_ms(3);
    let claim = h.claim_one().await;
    assert_eq!((claim.id, &claim.queue, claim.lane), (id, &queue(QUEUE), Lane::High));
    assert_eq!(claim.recipient.as_ref().map(Recipient::as_str), Some("ann's phone"));
    assert_eq!(claim.user, Some(user("ann")));
    assert_eq!((claim.admitted_at, claim.attempt), (at, 1));
    assert_eq!(claim.lease_until, at.plus_ms(3 + LEASE_MS));
    assert_eq!(claim.body.as_deref(), Some(b"hello".as_slice()));
    assert_eq!(h.counts().await.leased, 1);
}

pub async fn claims_follow_due_time_then_admission(h: &Harness) {
    let now = h.clock.now();
    let at = |ms| Due::At(now.plus_ms(ms));
    h.put_all([
        sms("third").due(at(20)),
        sms("first").due(at(10)),
        sms("fourth").due(at(20)),
        sms("second").due(at(10)),
    ])
    .await;
    h.clock.advance_ms(20);
    assert_eq!(texts(&h.claim(9).await), ["first", "second", "third", "fourth"]);
}

pub async fn a_past_due_time_goes_before_a_later_one(h: &Harness) {
    let past = h.clock.now().minus_ms(10_000);
    h.put(sms("now")).await;
    let id = h.put(sms("overdue").due(Due::At(past))).await;
    assert_eq!(h.record(id).await.due_at, past);
    assert_eq!(texts(&h.claim(9).await), ["overdue", "now"]);
}

pub async fn a_future_message_is_not_claimable_until_it_is_due(h: &Harness) {
    let due = h.clock.now().plus_ms(500);
    let id = h.put(sms("later").due(Due::At(due))).await;
    assert_eq!(h.record(id).await.due_at, due);
    assert_eq!(h.counts().await.pending, 1);
    h.clock.advance_ms(499);
    assert_eq!(h.claim(9).await, []);
    h.clock.advance_ms(1);
    assert_eq!(texts(&h.claim(9).await), ["later"]);
}

pub async fn a_claim_takes_no_more_than_it_asked_for(h: &Harness) {
    h.put_all(["a", "b", "c"].map(sms)).await;
    assert_eq!(h.claim(0).await, []);
    assert_eq!(texts(&h.claim(2).await), ["a", "b"]);
    assert_eq!(texts(&h.claim(2).await), ["c"]);
    assert_eq!(h.counts().await.leased, 3);
}

pub async fn a_leased_message_is_not_claimed_again(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.claim_one().await;
    assert_eq!(h.claim(9).await, []);
    assert_eq!(h.counts().await.leased, 1);
    h.deliver(&claim).await;
    assert_eq!(h.counts().await.leased, 0);
}

pub async fn queues_do_not_mix(h: &Harness) {
    h.put_all([sms("a"), sms("b").on("mail"), sms("c").on("mail")]).await;
    assert_eq!(texts(&h.claim_from("mail", 9).await), ["b", "c"]);
    assert_eq!(texts(&h.claim_from(QUEUE, 9).await), ["a"]);
    assert_eq!(h.claim_from("never-seen", 9).await, []);
}

pub async fn parallel_claims_never_share_a_message(h: &Harness) {
    h.put_all((0..60).map(|n| sms(&n.to_string()).to(&(n % 30).to_string()))).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let ledger = h.ledger();
        let request =
            tidegate_domain::ClaimRequest { queue: queue(QUEUE), max: 7, lease_ms: LEASE_MS, wait_ms: 0 };
        tasks.spawn(async move { ledger.claim(request).await.expect("claim") });
    }
    let claims = tasks.join_all().await.concat();
    let mut recipients: Vec<_> = claims.iter().filter_map(|claim| claim.recipient.clone()).collect();
    recipients.sort();
    recipients.dedup();
    // 30 recipients with two messages each: one lease per recipient, all of them the first.
    assert_eq!((claims.len(), recipients.len()), (30, 30));
    assert!(texts(&claims).iter().all(|body| body.parse::<u32>().expect("a number") < 30));
}
