//! A purge takes back everything that waits in a queue.

use tidegate_domain::{Acked, Clock, Due, Lane, Settled, Status};

use super::queue_steps::{ACK_MS, requeue_of};
use super::steps::{QUEUE, retry, sms};
use crate::Harness;

pub async fn a_purge_takes_what_waits_and_nothing_else(h: &Harness) {
    let dead = h.put_dead(sms("dead")).await;
    let later = Due::At(h.clock.now().plus_ms(60_000));
    h.put_all([
        sms("a1").to("ann").lane(Lane::High),
        sms("a2").to("ann"),
        sms("later").due(later).lane(Lane::Low),
        sms("free"),
        sms("mail").on("mail").to("ann"),
    ])
    .await;
    let held = h.claim_one().await;
    assert_eq!(h.purge(QUEUE).await, 3);
    let books = h.counts().await;
    assert_eq!((books.deleted, books.pending, books.leased, books.dead), (3, 2, 1, 1));
    assert_eq!(h.purge(QUEUE).await, 0);
    assert_eq!(h.claim(9).await, []);
    h.deliver(&held).await;
    h.put(sms("a3").to("ann")).await;
    assert_eq!(h.deliver_all().await, ["a3"]);
    assert_eq!(h.pop_from("mail", 9).await.len(), 1);
    assert_eq!(h.requeue(requeue_of(dead)).await, tidegate_domain::Requeued::Requeued);
}

pub async fn a_purge_spares_what_a_channel_has(h: &Harness) {
    let sent = h.put_accepted(sms("a1").to("ann")).await;
    let behind = h.put(sms("a2").to("ann")).await;
    assert_eq!(h.purge(QUEUE).await, 1);
    assert_eq!((h.status(sent).await, h.status(behind).await), (Status::Pending, Status::Deleted));
    h.clock.advance_ms(ACK_MS);
    assert_eq!(h.purge(QUEUE).await, 0, "its recipient may still say so");
    assert_eq!(h.ack(sent).await, Acked::Acked);
    assert_eq!(h.status(sent).await, Status::Delivered);
}

pub async fn purged_messages_stay_deleted_after_a_reopen(h: &Harness) {
    let ids = h.put_all(["a", "b"].map(sms)).await;
    assert_eq!(h.settle(&h.claim_one().await, retry(0)).await, Settled::Done);
    assert_eq!(h.purge(QUEUE).await, 2);
    let books = h.counts().await;
    h.reopen().await.expect("reopen");
    assert_eq!((h.counts().await, h.status(ids[0]).await), (books, Status::Deleted));
    assert_eq!(h.claim(9).await, []);
}

pub async fn a_purge_makes_room(h: &Harness) {
    h.put_all((0..h.setup().pending_max).map(|n| sms(&n.to_string()))).await;
    assert_eq!(h.purge(QUEUE).await, h.setup().pending_max as u64);
    h.put_all((0..h.setup().pending_max).map(|n| sms(&n.to_string()).to("ann"))).await;
    assert_eq!(h.purge(QUEUE).await, h.setup().pending_max as u64);
}

pub async fn a_queue_that_never_was_has_nothing_to_purge(h: &Harness) {
    h.put(sms("a")).await;
    assert_eq!(h.purge("never-seen").await, 0);
    assert_eq!(h.deliver_all().await, ["a"]);
}
