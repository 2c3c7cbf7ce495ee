//! Dead letters stay until somebody removes them.

use tidegate_domain::{Acked, Admitted, Cancelled, Clock, Filter, MessageId, Requeued, Status};
use tokio::task::JoinSet;

use super::queue_steps::requeue_of;
use super::steps::{sms, user};
use crate::Harness;

pub async fn a_deleted_dead_letter_is_gone_and_counted(h: &Harness) {
    let id = h.put_dead(sms("a")).await;
    let other = h.put_dead(sms("b")).await;
    assert!(h.delete_dead(id).await);
    for _ in 0..2 {
        assert_eq!(h.ledger().message(id).await.expect("message"), None);
        let books = h.counts().await;
        assert_eq!((books.admitted, books.dead, books.deleted, books.pending), (2, 1, 1, 0));
        let dead = Filter { status: Some(Status::Dead), ..Filter::default() };
        assert_eq!(h.list(dead, 9).await.iter().map(|record| record.id).collect::<Vec<_>>(), [other]);
        assert_eq!(h.list(Filter::default(), 9).await.len(), 1);
        assert_eq!(h.requeue(requeue_of(id)).await, Requeued::NotDead);
        assert_eq!((h.ack(id).await, h.cancel(id).await), (Acked::Unknown, Cancelled::Unknown));
        h.reopen().await.expect("reopen");
    }
}

pub async fn only_dead_letters_are_deleted(h: &Harness) {
    let dead = h.put_dead(sms("dead")).await;
    let delivered = h.put(sms("delivered")).await;
    h.deliver_all().await;
    let waiting = h.put(sms("waiting")).await;
    let forged = MessageId::new(h.clock.now().plus_ms(1), dead.seq(), dead.salt());
    let mut batch = vec![waiting, delivered, forged, dead, dead];
    batch.extend(h.unknown_ids().await);
    let deleted = h.queues().delete_dead(batch).await.expect("delete_dead");
    assert_eq!(deleted, [false, false, false, true, false, false, false, false]);
    assert_eq!(h.deliver_all().await, ["waiting"]);
}

pub async fn a_requeued_message_is_no_longer_deleted(h: &Harness) {
    let id = h.put_dead(sms("a")).await;
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    assert!(!h.delete_dead(id).await);
    assert_eq!(h.deliver_all().await, ["a"]);
}

pub async fn of_a_requeue_and_a_deletion_one_counts(h: &Harness) {
    for round in 0..20 {
        let id = h.put_dead(sms(&round.to_string())).await;
        let (requeued, deleted) = tokio::join!(h.requeue(requeue_of(id)), h.delete_dead(id));
        assert_eq!(requeued == Requeued::Requeued, !deleted, "{requeued:?}, {deleted}");
        assert_eq!(h.deliver_all().await.len(), usize::from(!deleted));
    }
}

pub async fn of_parallel_deletions_one_counts(h: &Harness) {
    let id = h.put_dead(sms("a")).await;
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let queues = h.queues();
        tasks.spawn(async move { queues.delete_dead(vec![id]).await.expect("delete_dead").remove(0) });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|deleted| **deleted).count(), 1);
    assert_eq!(h.counts().await.deleted, 1);
}

/// The charge was made, whatever became of the message: a window never holds more than its limit.
pub async fn a_deleted_dead_letter_stays_charged(h: &Harness) {
    h.ledger().put_quota(user("ann"), 1, 60_000).await.expect("put_quota");
    let id = h.put_dead(sms("a").charged_to("ann")).await;
    assert!(h.delete_dead(id).await);
    h.reopen().await.expect("reopen");
    let answer = h.admit_one(sms("b").charged_to("ann")).await;
    assert!(matches!(answer, Admitted::OverQuota { .. }), "{answer:?}");
}

/// An idempotency key outlives its message, and so does the message's number.
pub async fn a_deleted_dead_letters_number_is_not_used_again(h: &Harness) {
    let id = h.put_dead(sms("a").key("k")).await;
    let at = h.clock.now();
    assert!(h.delete_dead(id).await);
    h.reopen().await.expect("reopen");
    let next = h.put(sms("b").key("l")).await;
    assert!(next.seq() > id.seq(), "{next} after {id}");
    assert_eq!(h.admit_one(sms("a").key("k")).await, Admitted::Duplicate { id, at });
    assert_eq!(h.deliver_all().await, ["b"]);
}
