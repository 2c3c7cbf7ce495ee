//! What nobody holds can be taken back.

use tidegate_domain::{Cancelled, Clock, Due, Lane, MessageId, Requeued, Settled, Status};

use super::queue_steps::{ACK_MS, requeue_of};
use super::steps::{dead, retry, sms, texts};
use crate::Harness;

pub async fn a_cancelled_message_is_deleted(h: &Harness) {
    let id = h.put(sms("a")).await;
    h.clock.advance_ms(5);
    assert_eq!(h.cancel(id).await, Cancelled::Cancelled);
    let record = h.record(id).await;
    assert_eq!((record.status, record.settled_at), (Status::Deleted, Some(h.clock.now())));
    assert!(record.attempts.is_empty());
    assert_eq!(h.claim(9).await, []);
    let books = h.counts().await;
    assert_eq!((books.deleted, books.pending, books.depth), (1, 0, [0, 0, 0]));
}

pub async fn a_cancelled_head_frees_its_chain(h: &Harness) {
    let ids = chain(h).await;
    assert_eq!(h.cancel(ids[0]).await, Cancelled::Cancelled);
    assert_eq!(h.deliver_all().await, ["a2", "a3", "a4"]);
}

pub async fn the_middle_of_a_chain_can_be_cancelled(h: &Harness) {
    let ids = chain(h).await;
    assert_eq!(h.cancel(ids[1]).await, Cancelled::Cancelled);
    assert_eq!(h.cancel(ids[2]).await, Cancelled::Cancelled);
    assert_eq!(h.deliver_all().await, ["a1", "a4"]);
}

pub async fn the_tail_of_a_chain_can_be_cancelled(h: &Harness) {
    let ids = chain(h).await;
    assert_eq!(h.cancel(ids[3]).await, Cancelled::Cancelled);
    h.put(sms("a5").to("ann")).await;
    assert_eq!(h.deliver_all().await, ["a1", "a2", "a3", "a5"]);
}

pub async fn behind_a_leased_head_the_rest_can_be_cancelled(h: &Harness) {
    let ids = chain(h).await;
    let head = h.claim_one().await;
    for id in &ids[1..] {
        assert_eq!(h.cancel(*id).await, Cancelled::Cancelled);
    }
    h.put(sms("a5").to("ann")).await;
    assert_eq!(h.claim(9).await, []);
    h.deliver(&head).await;
    assert_eq!(h.deliver_all().await, ["a5"]);
}

pub async fn a_cancelled_future_head_frees_its_chain(h: &Harness) {
    let later = Due::At(h.clock.now().plus_ms(60_000));
    let id = h.put(sms("a1").to("ann").due(later)).await;
    h.put(sms("a2").to("ann")).await;
    assert_eq!(h.claim(9).await, []);
    assert_eq!(h.cancel(id).await, Cancelled::Cancelled);
    assert_eq!(h.deliver_all().await, ["a2"]);
}

pub async fn a_message_under_way_cannot_be_cancelled(h: &Harness) {
    let id = h.put(sms("a")).await;
    let claim = h.claim_one().await;
    assert_eq!(h.cancel(id).await, Cancelled::UnderWay);
    assert_eq!(h.settle(&claim, retry(1_000)).await, Settled::Done);
    assert_eq!(h.cancel(id).await, Cancelled::Cancelled);
    assert_eq!(h.record(id).await.attempts.len(), 1);
}

pub async fn an_ended_lease_no_longer_stands_against_a_cancel(h: &Harness) {
    let id = h.put(sms("a")).await;
    h.claim_one().await;
    h.let_lease_end();
    assert_eq!(h.cancel(id).await, Cancelled::Cancelled);
}

pub async fn what_a_channel_has_cannot_be_cancelled(h: &Harness) {
    let id = h.put_accepted(sms("a")).await;
    assert_eq!(h.cancel(id).await, Cancelled::Sent);
    h.reopen().await.expect("reopen");
    h.clock.advance_ms(ACK_MS);
    assert_eq!(h.cancel(id).await, Cancelled::Sent, "it is out, though its ack is overdue");
    let again = h.claim_one().await;
    assert_eq!(h.cancel(id).await, Cancelled::UnderWay);
    assert_eq!(h.settle(&again, dead()).await, Settled::Done);
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    assert_eq!(h.cancel(id).await, Cancelled::Cancelled, "a requeue begins anew");
}

pub async fn what_has_ended_cannot_be_cancelled(h: &Harness) {
    let delivered = h.put(sms("a")).await;
    h.deliver_all().await;
    let refused = h.put_dead(sms("b")).await;
    let id = h.put(sms("c")).await;
    let cancelled = h.queues().cancel(vec![delivered, refused, id, id]).await;
    let ended = Cancelled::Ended;
    assert_eq!(cancelled.expect("cancel"), [ended, ended, Cancelled::Cancelled, ended]);
    let unknown = h.queues().cancel(h.unknown_ids().await.to_vec()).await;
    assert_eq!(unknown.expect("cancel"), [Cancelled::Unknown; 3]);
    assert_eq!(h.counts().await.deleted, 1);
    h.reopen().await.expect("reopen");
    assert_eq!((h.cancel(id).await, h.status(id).await), (ended, Status::Deleted));
}

pub async fn a_lent_lane_ends_when_its_lender_is_cancelled(h: &Harness) {
    h.put(sms("a1").to("ann").lane(Lane::Low)).await;
    let lender = h.put(sms("a2").to("ann").lane(Lane::High)).await;
    h.put(sms("normal")).await;
    assert_eq!(h.cancel(lender).await, Cancelled::Cancelled);
    assert_eq!(texts(&h.claim(9).await), ["normal", "a1"]);
}

async fn chain(h: &Harness) -> Vec<MessageId> {
    h.put_all(["a1", "a2", "a3", "a4"].map(|body| sms(body).to("ann"))).await
}
