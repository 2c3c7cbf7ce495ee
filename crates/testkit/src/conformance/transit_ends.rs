//! How a message on its way ends by other hands than its sender's.

use tidegate_domain::{Acked, AttemptResult, Begun, Cancelled, Clock, Outcome, Settled, Status};

use super::queue_steps::{ACK_MS, accepted};
use super::steps::{dead, retry, sms, texts};
use super::transit_steps::TRANSIT_MS;
use crate::Harness;

pub async fn a_dispatched_message_may_be_handed_back(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    let first = h.dispatch_one().await;
    assert_eq!(h.settle(&first, Outcome::Released).await, Settled::Done);
    assert_eq!(h.counts().await.leased, 0);
    assert_eq!(h.begin(&first).await, Begun::LostLease);
    let again = h.dispatch_one().await;
    assert_eq!((again.id, again.attempt, again.failures), (first.id, 1, 0));
    assert_eq!(h.settle(&again, Outcome::Held { for_ms: 100 }).await, Settled::Done);
    assert_eq!(h.dispatch(9).await, []);
    h.clock.advance_ms(100);
    assert_eq!((h.dispatch_one().await.id, h.counts().await.leased), (first.id, 1));
}

pub async fn a_dispatched_message_is_settled_like_any_other(h: &Harness) {
    let ids = h.put_all(["a", "b", "c"].map(|body| sms(body).to(body))).await;
    let claims = h.dispatch(9).await;
    assert_eq!(h.settle(&claims[0], dead()).await, Settled::Done);
    assert_eq!(h.settle(&claims[1], retry(10)).await, Settled::Done);
    assert_eq!(h.settle(&claims[2], Outcome::Delivered).await, Settled::Done);
    for claim in &claims {
        assert_eq!(h.begin(claim).await, Begun::LostLease);
    }
    let mut ends = Vec::new();
    for id in &ids {
        let record = h.record(*id).await;
        ends.push((record.status, record.attempts.iter().map(|a| a.number).collect::<Vec<_>>()));
    }
    assert_eq!(ends, [Status::Dead, Status::Pending, Status::Delivered].map(|status| (status, vec![1])));
    h.clock.advance_ms(10);
    let again = h.dispatch_one().await;
    assert_eq!((again.id, again.attempt, again.failures), (ids[1], 2, 1));
    assert_eq!(h.requeue(super::queue_steps::requeue_of(ids[0])).await, tidegate_domain::Requeued::Requeued);
    let requeued = h.dispatch_one().await;
    assert_eq!((requeued.id, requeued.attempt, requeued.failures), (ids[0], 3, 0));
}

pub async fn a_way_may_be_made_longer_and_is_still_a_way(h: &Harness) {
    h.put(sms("a")).await;
    let claim = h.dispatch_one().await;
    assert_eq!(h.extend(&claim, 3 * TRANSIT_MS).await, Settled::Done);
    h.clock.advance_ms(3 * TRANSIT_MS - 1);
    assert_eq!(h.dispatch(9).await, []);
    h.clock.advance_ms(1);
    let again = h.dispatch_one().await;
    assert_eq!((again.attempt, again.failures), (1, 0));
    assert_eq!(h.extend(&again, 10).await, Settled::Done);
    h.clock.advance_ms(9);
    h.deliver(&h.begun(&again).await).await;
}

pub async fn a_message_on_its_way_is_under_way(h: &Harness) {
    let id = h.put(sms("a").to("ann")).await;
    let next = h.put(sms("a2").to("ann")).await;
    let claim = h.dispatch_one().await;
    assert_eq!(h.cancel(id).await, Cancelled::UnderWay);
    assert_eq!(h.purge(super::steps::QUEUE).await, 1, "what waits behind it");
    assert_eq!((h.status(id).await, h.status(next).await), (Status::Pending, Status::Deleted));
    h.begun(&claim).await;
    assert_eq!(h.cancel(id).await, Cancelled::UnderWay);
    let lost = h.put(sms("b")).await;
    h.dispatch_one().await;
    h.let_transit_end();
    assert_eq!(h.cancel(lost).await, Cancelled::Cancelled, "its way is over");
    assert_eq!(h.dispatch(9).await, []);
}

pub async fn a_message_on_its_way_expires_when_that_is_over(h: &Harness) {
    let at = h.clock.now().plus_ms(1_000);
    let ids = h.put_all(["a", "b"].map(|body| sms(body).expires(at))).await;
    let claims = h.dispatch(9).await;
    h.clock.advance_ms(2_000);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!((h.counts().await.expired, h.counts().await.leased), (0, 2));
    let begun = h.begun(&claims[0]).await;
    h.clock.advance_ms(TRANSIT_MS - 2_000);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!((h.status(ids[0]).await, h.status(ids[1]).await), (Status::Pending, Status::Expired));
    assert_eq!(h.record(ids[1]).await.attempts, []);
    assert_eq!(h.begin(&claims[1]).await, Begun::LostLease);
    h.deliver(&begun).await;
}

/// It has not been out: there is nothing to acknowledge.
pub async fn a_message_on_its_first_way_awaits_no_ack(h: &Harness) {
    let id = h.put(sms("a").needs_ack()).await;
    let claim = h.dispatch_one().await;
    assert_eq!(h.ack(id).await, Acked::NotAwaited);
    h.let_transit_end();
    assert_eq!(h.ack(id).await, Acked::NotAwaited, "and got lost there");
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(h.ack(id).await, Acked::NotAwaited);
    assert_eq!(h.begin(&claim).await, Begun::LostLease);
    let begun = h.begun(&h.dispatch_one().await).await;
    assert_eq!(h.ack(id).await, Acked::Acked, "out at last");
    assert_eq!(h.settle(&begun, accepted()).await, Settled::LostLease);
    let attempts = h.record(id).await.attempts;
    let attempts: Vec<_> = attempts.iter().map(|a| (a.number, a.result)).collect();
    assert_eq!(attempts, [(1, AttemptResult::Delivered)]);
}

pub async fn an_ack_ends_a_way_that_is_not_the_first(h: &Harness) {
    let accepted = h.put_accepted(sms("a1").to("ann")).await;
    let failed = h.put(sms("b1").to("bob").needs_ack()).await;
    assert_eq!(h.settle(&h.claim_one().await, retry(0)).await, Settled::Done);
    h.put_all([sms("a2").to("ann"), sms("b2").to("bob")]).await;
    h.clock.advance_ms(ACK_MS);
    let claims = h.dispatch(9).await;
    assert_eq!(texts(&claims), ["b1", "a1"]);
    for id in [accepted, failed] {
        assert_eq!(h.ack(id).await, Acked::Acked);
        let record = h.record(id).await;
        // No attempt was under way, so none is recorded.
        assert_eq!((record.status, record.attempts.len()), (Status::Delivered, 1));
        assert_eq!(h.ack(id).await, Acked::Already);
    }
    assert_eq!(h.counts().await.leased, 0);
    for claim in &claims {
        assert_eq!(h.begin(claim).await, Begun::LostLease);
        assert_eq!(h.settle(claim, retry(0)).await, Settled::LostLease);
    }
    assert_eq!(texts(&h.dispatch(9).await), ["a2", "b2"]);
    h.reopen().await.expect("reopen");
    assert_eq!((h.record(accepted).await.attempts.len(), h.counts().await.delivered), (1, 2));
}

pub async fn a_slot_is_used_once_its_message_is_on_its_way_to_a_bus(h: &Harness) {
    use super::slot_steps::{ask, event, per_window, slot_config};
    h.slots().put_slot_config(slot_config("default"), per_window(9)).await.expect("put_slot_config");
    let asked = ask("e").with(sms("a")).0;
    h.slots().reserve(vec![asked]).await.expect("reserve");
    h.clock.advance_ms(60_000);
    h.dispatch_one().await;
    let released = h.slots().release(event("e")).await.expect("release");
    assert!(matches!(released, tidegate_domain::Released::Used(_)), "{released:?}");
    h.let_transit_end();
    let released = h.slots().release(event("e")).await.expect("release");
    assert!(matches!(released, tidegate_domain::Released::Released(_)), "{released:?}");
}
