//! What the ledger tells about a message and about itself.

use tidegate_domain::{
    AttemptRecord, AttemptResult, Body, Clock, Due, Lane, MessageId, MessageRecord, Outcome, Recipient,
    Settled, Status,
};

use super::steps::{LEASE_MS, QUEUE, dead, queue, retry, sms, user};
use crate::Harness;

pub async fn a_delivered_record_tells_its_attempts(h: &Harness) {
    h.ledger().put_quota(user("ann"), 9, 60_000).await.expect("put_quota");
    let start = h.clock.now();
    let id = h.put(sms("hello").to("+49 1").lane(Lane::Low).charged_to("ann")).await;
    h.clock.advance_ms(10);
    let first = h.claim_one().await;
    h.clock.advance_ms(10);
    assert_eq!(h.settle(&first, retry(100)).await, Settled::Done);
    h.clock.advance_ms(100);
    let second = h.claim_one().await;
    h.clock.advance_ms(1);
    h.deliver(&second).await;
    let expected = MessageRecord {
        id,
        queue: queue(QUEUE),
        recipient: Some(Recipient::new("+49 1").expect("a valid recipient")),
        lane: Lane::Low,
        user: Some(user("ann")),
        admitted_at: start,
        due_at: start.plus_ms(120),
        status: Status::Delivered,
        settled_at: Some(start.plus_ms(121)),
        reason: None,
        attempts: vec![
            attempt(1, start.plus_ms(20), AttemptResult::Failed, Some("busy")),
            attempt(2, start.plus_ms(121), AttemptResult::Delivered, None),
        ],
        expires_at: None,
        headers: tidegate_domain::Headers::default(),
        ack_required: false,
        body: Body::Whole("hello".into()),
    };
    assert_eq!(h.record(id).await, expected);
}

pub async fn a_dead_record_keeps_its_reason(h: &Harness) {
    let id = h.put(sms("a")).await;
    h.clock.advance_ms(5);
    assert_eq!(h.settle(&h.claim_one().await, dead()).await, Settled::Done);
    let record = h.record(id).await;
    let now = h.clock.now();
    assert_eq!((record.status, record.settled_at), (Status::Dead, Some(now)));
    assert_eq!(record.reason.as_deref(), Some("no such number"));
    assert_eq!(record.attempts, [attempt(1, now, AttemptResult::Failed, Some("no such number"))]);
}

pub async fn an_expired_record_says_so(h: &Harness) {
    let id = h.put(sms("a")).await;
    h.clock.advance_ms(5);
    assert_eq!(h.settle(&h.claim_one().await, Outcome::Expired).await, Settled::Done);
    let record = h.record(id).await;
    let now = h.clock.now();
    assert_eq!((record.status, record.settled_at, record.reason), (Status::Expired, Some(now), None));
    assert_eq!(record.attempts, [], "nobody tried it");
}

pub async fn an_unknown_id_has_no_record(h: &Harness) {
    let id = h.put(sms("a")).await;
    let now = h.clock.now();
    for other in [MessageId::new(now, id.seq() + 1, 7), MessageId::new(now.plus_ms(1), id.seq(), 7)] {
        assert_eq!(h.ledger().message(other).await.expect("message"), None);
    }
}

pub async fn an_ended_lease_leaves_a_gap_in_the_numbers(h: &Harness) {
    let id = h.put(sms("a")).await;
    h.claim_one().await;
    h.clock.advance_ms(LEASE_MS);
    h.deliver(&h.claim_one().await).await;
    let numbers: Vec<_> = h.record(id).await.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [2]);
}

pub async fn the_books_balance_through_every_settlement(h: &Harness) {
    // Every step checks the balance; here are the sums.
    h.put_all(["a", "b", "c", "d", "e", "f"].map(sms)).await;
    let claims = h.claim(5).await;
    let outcomes = [Outcome::Delivered, retry(1_000), dead(), Outcome::Expired, Outcome::Released];
    for (claim, outcome) in claims.iter().zip(outcomes) {
        assert_eq!(h.settle(claim, outcome).await, Settled::Done);
    }
    let counts = h.counts().await;
    assert_eq!((counts.admitted, counts.delivered, counts.dead, counts.expired), (6, 1, 1, 1));
    assert_eq!((counts.deleted, counts.pending, counts.leased), (0, 3, 0));
}

pub async fn depth_is_told_per_lane(h: &Harness) {
    let later = Due::At(h.clock.now().plus_ms(1_000));
    h.put_all([
        sms("a").lane(Lane::High).to("ann"),
        sms("b").lane(Lane::Low).to("ann"),
        sms("c").lane(Lane::Low).due(later),
        sms("d"),
    ])
    .await;
    // A lent lane is not a message's own.
    assert_eq!(h.counts().await.depth, [1, 1, 2]);
    let claim = h.claim_one().await;
    assert_eq!(h.counts().await.depth, [1, 1, 2]);
    h.deliver(&claim).await;
    assert_eq!(h.counts().await.depth, [0, 1, 2]);
}

pub async fn refused_admissions_leave_no_trace(h: &Harness) {
    h.ledger().put_quota(user("ann"), 1, 60_000).await.expect("put_quota");
    h.put(sms("a").charged_to("ann").key("k")).await;
    let books = h.counts().await;
    h.admit([
        sms("b").charged_to("ann"),
        sms("c").charged_to("nobody"),
        sms("a").key("k"),
        sms("other").key("k"),
    ])
    .await;
    assert_eq!(h.counts().await, books);
    h.reopen().await.expect("reopen");
    assert_eq!(h.counts().await, books);
    assert_eq!(h.deliver_all().await, ["a"]);
}

fn attempt(
    number: u32,
    at: tidegate_domain::Timestamp,
    result: AttemptResult,
    reason: Option<&str>,
) -> AttemptRecord {
    AttemptRecord { number, at, latency_ms: 7, result, reason: reason.map(Into::into) }
}
