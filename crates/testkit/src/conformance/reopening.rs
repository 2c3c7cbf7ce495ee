//! What was answered is there after a restart; leases are not.

use std::collections::BTreeSet;

use tidegate_domain::{Admitted, Clock, Due, Lane, Outcome, Settled, Status};

use super::steps::{LEASE_MS, dead, retry, sms, text, texts, user};
use crate::Harness;

pub async fn pending_messages_keep_their_order(h: &Harness) {
    let later = Due::At(h.clock.now().plus_ms(1_000));
    h.put_all([
        sms("low").lane(Lane::Low),
        sms("a1").to("ann").lane(Lane::Low),
        sms("a2").to("ann").lane(Lane::High),
        sms("later").due(later),
        sms("normal"),
        sms("overdue").due(Due::At(h.clock.now().minus_ms(5))),
    ])
    .await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.deliver_all().await, ["a1", "a2", "overdue", "normal", "low"]);
    h.reopen().await.expect("reopen");
    assert_eq!(h.claim(9).await, []);
    h.clock.advance_ms(1_000);
    assert_eq!(h.deliver_all().await, ["later"]);
}

pub async fn attempts_and_due_times_survive(h: &Harness) {
    let id = h.put(sms("a").to("ann")).await;
    h.put(sms("a2").to("ann")).await;
    assert_eq!(h.settle(&h.claim_one().await, retry(0)).await, Settled::Done);
    assert_eq!(h.settle(&h.claim_one().await, retry(5_000)).await, Settled::Done);
    let record = h.record(id).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.record(id).await, record);
    h.clock.advance_ms(4_999);
    assert_eq!(h.claim(9).await, []);
    h.clock.advance_ms(1);
    let claim = h.claim_one().await;
    assert_eq!((claim.id, claim.attempt), (id, 3));
    h.deliver(&claim).await;
    assert_eq!(text(&h.claim_one().await), "a2");
}

pub async fn quotas_survive_in_mid_window(h: &Harness) {
    h.ledger().put_quota(user("ann"), 3, 60_000).await.expect("put_quota");
    h.put_all([sms("a").charged_to("ann"), sms("b").charged_to("ann")]).await;
    let quota = h.ledger().quota(user("ann")).await.expect("quota");
    h.clock.advance_ms(10_000);
    h.reopen().await.expect("reopen");
    assert_eq!(h.ledger().quota(user("ann")).await.expect("quota"), quota);
    h.put(sms("c").charged_to("ann")).await;
    let answer = h.admit_one(sms("d").charged_to("ann")).await;
    assert!(matches!(answer, Admitted::OverQuota { retry_after_ms: 50_000, .. }), "{answer:?}");
    h.clock.advance_ms(50_000);
    h.reopen().await.expect("reopen");
    h.put(sms("d").charged_to("ann")).await;
}

pub async fn counts_survive(h: &Harness) {
    h.put_all(["a", "b", "c", "d", "e"].map(|body| sms(body).lane(Lane::High))).await;
    let claims = h.claim(4).await;
    for (claim, outcome) in claims.iter().zip([Outcome::Delivered, dead(), Outcome::Expired, retry(9)]) {
        assert_eq!(h.settle(claim, outcome).await, Settled::Done);
    }
    let books = h.counts().await;
    assert_eq!((books.admitted, books.pending, books.depth), (5, 2, [2, 0, 0]));
    h.reopen().await.expect("reopen");
    assert_eq!(h.counts().await, books);
    h.put(sms("f")).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.counts().await.admitted, 6);
}

pub async fn settled_messages_stay_settled(h: &Harness) {
    let ids = h.put_all(["a", "b", "c"].map(sms)).await;
    let claims = h.claim(3).await;
    for (claim, outcome) in claims.iter().zip([Outcome::Delivered, dead(), Outcome::Expired]) {
        assert_eq!(h.settle(claim, outcome).await, Settled::Done);
    }
    h.clock.advance_ms(5);
    h.reopen().await.expect("reopen");
    h.clock.advance_ms(LEASE_MS);
    assert_eq!(h.claim(9).await, []);
    let mut ends = Vec::new();
    for id in ids {
        let record = h.record(id).await;
        ends.push((record.status, record.reason, record.attempts.len()));
    }
    let reason = Some("no such number".to_owned());
    let expected = [(Status::Delivered, None, 1), (Status::Dead, reason, 1), (Status::Expired, None, 0)];
    assert_eq!(ends, expected);
}

pub async fn leases_are_void_and_unspent(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("b1").to("bob")]).await;
    let before = h.claim(9).await;
    assert_eq!(texts(&before), ["a1", "b1"]);
    h.reopen().await.expect("reopen");
    assert_eq!(h.counts().await.leased, 0);
    let after = h.claim(9).await;
    assert_eq!(texts(&after), ["a1", "b1"]);
    assert!(after.iter().all(|claim| claim.attempt == 1), "{after:?}");
}

/// Fencing has to hold beyond the process: whoever kept a token over the restart is a late worker too.
pub async fn a_token_from_an_earlier_life_settles_nothing(h: &Harness) {
    h.put(sms("a")).await;
    let old = h.claim_one().await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.settle(&old, Outcome::Delivered).await, Settled::LostLease);
    let new = h.claim_one().await;
    assert!(new.token > old.token, "{} then {}", old.token, new.token);
    assert_eq!(h.settle(&old, Outcome::Delivered).await, Settled::LostLease);
    h.deliver(&new).await;
}

pub async fn new_ids_are_new(h: &Harness) {
    let mut ids = BTreeSet::new();
    for life in 0..3 {
        ids.extend(h.put_all(["a", "b"].map(sms)).await);
        h.admit_one(sms("refused").charged_to("nobody")).await;
        assert_eq!(ids.len(), 2 * (life + 1));
        h.deliver_all().await;
        h.reopen().await.expect("reopen");
    }
    let seqs: BTreeSet<_> = ids.iter().map(|id| id.seq()).collect();
    assert_eq!(seqs.len(), 6, "a sequence number is used once: {ids:?}");
    for id in ids {
        assert_eq!(h.record(id).await.id, id);
    }
}
