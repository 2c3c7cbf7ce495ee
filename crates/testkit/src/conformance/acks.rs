//! Accepted by its channel is not delivered; its recipient's ack is.

use tidegate_domain::{Acked, AttemptResult, Clock, Outcome, Requeued, Settled, Status};

use super::queue_steps::{ACK_MS, accepted, requeue_of};
use super::steps::{dead, retry, sms, text};
use crate::Harness;

pub async fn an_acked_message_is_delivered(h: &Harness) {
    let id = h.put_accepted(sms("a")).await;
    assert_eq!((h.status(id).await, h.counts().await.leased), (Status::Pending, 0));
    h.clock.advance_ms(1_000);
    assert_eq!(h.ack(id).await, Acked::Acked);
    let record = h.record(id).await;
    assert_eq!((record.status, record.settled_at), (Status::Delivered, Some(h.clock.now())));
    let attempts: Vec<_> = record.attempts.iter().map(|a| (a.number, a.result, a.latency_ms)).collect();
    assert_eq!(attempts, [(1, AttemptResult::Accepted, 7)]);
    h.clock.advance_ms(ACK_MS);
    assert_eq!(h.claim(9).await, []);
    assert_eq!(h.counts().await.delivered, 1);
}

pub async fn an_unacked_message_is_due_again_and_counted_apart(h: &Harness) {
    let id = h.put_accepted(sms("a")).await;
    assert_eq!(h.record(id).await.due_at, h.clock.now().plus_ms(ACK_MS));
    h.clock.advance_ms(ACK_MS - 1);
    assert_eq!(h.claim(9).await, []);
    h.clock.advance_ms(1);
    let again = h.claim_one().await;
    assert_eq!((again.attempt, again.failures, again.ack_attempts), (2, 0, 1));
    assert!(again.ack_required);
    assert_eq!(h.settle(&again, retry(0)).await, Settled::Done);
    let third = h.claim_one().await;
    assert_eq!((third.attempt, third.failures, third.ack_attempts), (3, 1, 1));
    assert_eq!(h.settle(&third, accepted()).await, Settled::Done);
    h.clock.advance_ms(ACK_MS);
    let fourth = h.claim_one().await;
    assert_eq!((fourth.attempt, fourth.failures, fourth.ack_attempts), (4, 1, 2));
}

pub async fn an_ack_during_a_redelivery_voids_its_lease(h: &Harness) {
    let id = h.put_accepted(sms("a1").to("ann")).await;
    h.put(sms("a2").to("ann")).await;
    h.clock.advance_ms(ACK_MS);
    let again = h.claim_one().await;
    assert_eq!(again.id, id);
    assert_eq!(h.ack(id).await, Acked::Acked);
    assert_eq!(h.counts().await.leased, 0);
    assert_eq!(h.settle(&again, retry(0)).await, Settled::LostLease);
    assert_eq!((h.status(id).await, h.record(id).await.attempts.len()), (Status::Delivered, 1));
    assert_eq!(text(&h.claim_one().await), "a2");
}

pub async fn an_awaited_ack_holds_its_chain(h: &Harness) {
    let id = h.put_accepted(sms("a1").to("ann")).await;
    h.put_all([sms("a2").to("ann"), sms("b1").to("bob")]).await;
    assert_eq!(h.deliver_all().await, ["b1"]);
    assert_eq!(h.ack(id).await, Acked::Acked);
    assert_eq!(h.deliver_all().await, ["a2"]);
}

pub async fn only_what_has_been_out_can_be_acked(h: &Harness) {
    for unknown in h.unknown_ids().await {
        assert_eq!(h.ack(unknown).await, Acked::Unknown);
    }
    let id = h.put(sms("a").needs_ack()).await;
    assert_eq!(h.ack(id).await, Acked::NotAwaited);
    let claim = h.claim_one().await;
    assert_eq!(h.settle(&claim, Outcome::Released).await, Settled::Done);
    assert_eq!(h.ack(id).await, Acked::NotAwaited, "handed back untried");
    h.deliver_all().await;
    assert_eq!(h.ack(id).await, Acked::Already);
    let unasked = h.put(sms("no ack required")).await;
    let claim = h.claim_one().await;
    assert_eq!(h.ack(unasked).await, Acked::NotAwaited);
    h.deliver(&claim).await;
    let refused = h.put_dead(sms("b")).await;
    assert_eq!(h.ack(refused).await, Acked::NotAwaited);
}

pub async fn a_second_ack_changes_nothing(h: &Harness) {
    let id = h.put_accepted(sms("a")).await;
    assert_eq!(h.ack(id).await, Acked::Acked);
    let record = h.record(id).await;
    h.clock.advance_ms(5);
    assert_eq!(h.ack(id).await, Acked::Already);
    assert_eq!(h.record(id).await, record);
    h.reopen().await.expect("reopen");
    assert_eq!(h.ack(id).await, Acked::Already);
    assert_eq!(h.counts().await.delivered, 1);
}

pub async fn a_batch_of_acks_is_decided_item_by_item(h: &Harness) {
    let a = h.put_accepted(sms("a")).await;
    let b = h.put_accepted(sms("b")).await;
    let c = h.put(sms("c")).await;
    let unknown = h.unknown_ids().await[0];
    let acked = h.queues().ack(vec![a, c, unknown, b, a]).await.expect("ack");
    assert_eq!(acked, [Acked::Acked, Acked::NotAwaited, Acked::Unknown, Acked::Acked, Acked::Already]);
    assert_eq!(h.counts().await.delivered, 2);
}

/// The sender that gave up only guessed that the recipient does not have it.
pub async fn an_ack_wins_over_a_dead_letter(h: &Harness) {
    let given_up = || Outcome::GivenUp { reason: "never acknowledged".into() };
    for (round, end) in [dead(), given_up()].into_iter().enumerate() {
        let id = h.put_accepted(sms("a").to("ann")).await;
        h.clock.advance_ms(ACK_MS);
        let again = h.claim_one().await;
        let made = if end == dead() { 2 } else { 1 };
        assert_eq!(h.settle(&again, end).await, Settled::Done);
        let died = h.record(id).await;
        assert_eq!((died.status, died.attempts.len()), (Status::Dead, made), "none that was not made");
        h.reopen().await.expect("reopen");
        h.clock.advance_ms(5);
        assert_eq!((h.ack(id).await, h.ack(id).await), (Acked::Acked, Acked::Already));
        let record = h.record(id).await;
        assert_eq!((record.status, record.settled_at), (Status::Delivered, Some(h.clock.now())));
        assert_eq!((record.reason, record.attempts, record.due_at), (None, died.attempts, died.due_at));
        let counts = h.counts().await;
        assert_eq!((counts.dead, counts.delivered), (0, round as u64 + 1));
        assert_eq!(h.requeue(requeue_of(id)).await, Requeued::NotDead);
        h.reopen().await.expect("reopen");
        assert_eq!((h.status(id).await, h.ack(id).await), (Status::Delivered, Acked::Already));
    }
    let refused = h.put_dead(sms("refused").needs_ack()).await;
    assert_eq!(h.ack(refused).await, Acked::Acked, "the ack of a recipient wins over a refusal");
    let unasked = h.put_dead(sms("no ack required")).await;
    assert_eq!(h.ack(unasked).await, Acked::NotAwaited);
    let gone = h.put_dead(sms("gone").needs_ack()).await;
    h.delete_dead(gone).await;
    assert_eq!(h.ack(gone).await, Acked::Unknown);
}

pub async fn an_ack_wins_over_expiry(h: &Harness) {
    let until = h.clock.now().plus_ms(50);
    let id = h.put_accepted(sms("a").expires(until)).await;
    let unsent = h.put(sms("b").needs_ack().expires(until)).await;
    h.clock.advance_ms(50);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!((h.status(id).await, h.status(unsent).await), (Status::Expired, Status::Expired));
    let acked = h.queues().ack(vec![id, unsent, id]).await.expect("ack");
    assert_eq!(acked, [Acked::Acked, Acked::NotAwaited, Acked::Already]);
    assert_eq!((h.status(id).await, h.record(id).await.attempts.len()), (Status::Delivered, 1));
    let counts = h.counts().await;
    assert_eq!((counts.expired, counts.delivered), (1, 1));
    // Also when no sweep has noticed yet that its time is over.
    let until = h.clock.now().plus_ms(50);
    let unswept = h.put_accepted(sms("c").expires(until)).await;
    h.clock.advance_ms(50);
    assert_eq!((h.ack(unswept).await, h.status(unswept).await), (Acked::Acked, Status::Delivered));
}

pub async fn an_awaited_ack_survives_a_reopen(h: &Harness) {
    let id = h.put_accepted(sms("a")).await;
    let other = h.put_accepted(sms("b")).await;
    let record = h.record(id).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.record(id).await, record);
    h.clock.advance_ms(ACK_MS - 1);
    assert_eq!(h.claim(9).await, []);
    assert_eq!(h.ack(id).await, Acked::Acked);
    h.clock.advance_ms(1);
    let again = h.claim_one().await;
    assert_eq!((again.id, again.attempt, again.failures, again.ack_attempts), (other, 2, 0, 1));
}

/// Whatever a settlement of the same moment says, what was answered as acked is delivered.
pub async fn an_ack_beside_a_settlement_is_kept(h: &Harness) {
    for round in 0..20 {
        let id = h.put_accepted(sms(&round.to_string())).await;
        h.clock.advance_ms(ACK_MS);
        let again = h.claim_one().await;
        let (_, acked) = tokio::join!(h.settle(&again, retry(1)), h.ack(id));
        assert_eq!((acked, h.status(id).await), (Acked::Acked, Status::Delivered), "round {round}");
    }
    h.clock.advance_ms(ACK_MS);
    assert_eq!(h.claim(9).await, []);
}

pub async fn a_released_redelivery_still_awaits_its_ack(h: &Harness) {
    let id = h.put_accepted(sms("a")).await;
    h.clock.advance_ms(ACK_MS);
    let again = h.claim_one().await;
    assert_eq!(h.settle(&again, Outcome::Released).await, Settled::Done);
    assert_eq!(h.ack(id).await, Acked::Acked);
    assert_eq!(h.claim(9).await, []);
}

/// A quick device acks before the sender has told the ledger that its channel took the message.
pub async fn an_ack_may_come_before_its_settlement(h: &Harness) {
    let id = h.put(sms("a1").to("ann").needs_ack()).await;
    h.put(sms("a2").to("ann")).await;
    let claim = h.claim_one().await;
    h.clock.advance_ms(5);
    assert_eq!(h.ack(id).await, Acked::Acked);
    assert_eq!((h.counts().await.leased, h.counts().await.delivered), (0, 1));
    assert_eq!(h.settle(&claim, accepted()).await, Settled::LostLease);
    for _ in 0..2 {
        let record = h.record(id).await;
        assert_eq!((record.status, record.settled_at), (Status::Delivered, Some(h.clock.now())));
        let attempts: Vec<_> = record.attempts.iter().map(|a| (a.number, a.result)).collect();
        assert_eq!(attempts, [(1, AttemptResult::Delivered)]);
        assert_eq!(h.ack(id).await, Acked::Already);
        h.reopen().await.expect("reopen");
    }
    h.clock.advance_ms(ACK_MS);
    assert_eq!(h.deliver_all().await, ["a2"]);
}

/// Providers lie: what was answered as an error may have arrived.
pub async fn an_ack_counts_after_an_attempt_that_seemed_to_fail(h: &Harness) {
    let answered = h.put(sms("a").needs_ack()).await;
    let claim = h.claim_one().await;
    assert_eq!(h.settle(&claim, retry(1_000)).await, Settled::Done);
    assert_eq!(h.ack(answered).await, Acked::Acked);
    assert_eq!(h.record(answered).await.attempts.len(), 1);
    let silent = h.put(sms("b").needs_ack()).await;
    h.claim_one().await;
    h.let_lease_end();
    assert_eq!(h.ack(silent).await, Acked::Acked);
    h.clock.advance_ms(ACK_MS);
    assert_eq!(h.claim(9).await, []);
}

/// Whichever comes first, what was answered as acked is delivered.
pub async fn an_ack_beside_its_own_settlement_is_kept(h: &Harness) {
    for round in 0..20 {
        let id = h.put(sms(&round.to_string()).needs_ack()).await;
        let claim = h.claim_one().await;
        let (_, acked) = tokio::join!(h.settle(&claim, accepted()), h.ack(id));
        assert_eq!((acked, h.status(id).await), (Acked::Acked, Status::Delivered), "round {round}");
    }
    h.clock.advance_ms(ACK_MS);
    assert_eq!(h.claim(9).await, []);
}
