//! A message whose time is over is not sent any more.

use tidegate_domain::{Cancelled, Clock, Due, Lane, Outcome, Settled, Status};

use super::steps::{retry, sms, text};
use crate::Harness;

pub async fn an_expired_message_is_never_handed_out(h: &Harness) {
    let at = h.clock.now().plus_ms(100);
    let ids = h.put_all([sms("a").expires(at), sms("b").expires(at.plus_ms(1)), sms("c")]).await;
    assert_eq!(h.record(ids[0]).await.expires_at, Some(at));
    h.clock.advance_ms(100);
    assert_eq!(h.pop(1).await, ["b"]);
    h.clock.advance_ms(100);
    assert_eq!(text(&h.claim_one().await), "c");
    let record = h.record(ids[0]).await;
    assert_eq!((record.status, record.attempts.len()), (Status::Expired, 0));
    assert!(record.settled_at.is_some_and(|settled| settled >= at));
}

pub async fn a_sweep_counts_what_has_expired(h: &Harness) {
    let at = h.clock.now().plus_ms(100);
    h.put_all([sms("a").expires(at), sms("b").expires(at).lane(Lane::Low), sms("c")]).await;
    h.clock.advance_ms(100);
    h.ledger().sweep().await.expect("sweep");
    let books = h.counts().await;
    assert_eq!((books.expired, books.pending, books.depth), (2, 1, [0, 1, 0]));
}

pub async fn a_chain_goes_on_without_its_expired(h: &Harness) {
    let at = h.clock.now().plus_ms(100);
    h.put_all([
        sms("a1").to("ann").expires(at),
        sms("a2").to("ann"),
        sms("a3").to("ann").expires(at),
        sms("a4").to("ann"),
        sms("a5").to("ann").expires(at),
    ])
    .await;
    h.clock.advance_ms(100);
    assert_eq!(h.deliver_all().await, ["a2", "a4"]);
    assert_eq!(h.counts().await.expired, 3);
}

pub async fn what_is_leased_may_still_be_delivered(h: &Harness) {
    let at = h.clock.now().plus_ms(100);
    let id = h.put(sms("a").expires(at)).await;
    let claim = h.claim_one().await;
    h.clock.advance_ms(200);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!((h.status(id).await, h.cancel(id).await), (Status::Pending, Cancelled::UnderWay));
    h.deliver(&claim).await;
    assert_eq!(h.status(id).await, Status::Delivered);
}

pub async fn what_is_handed_back_too_late_has_expired(h: &Harness) {
    for outcome in [retry(0), Outcome::Released] {
        let id = h.put(sms("a").expires(h.clock.now().plus_ms(100))).await;
        let claim = h.claim_one().await;
        h.clock.advance_ms(100);
        assert_eq!(h.settle(&claim, outcome).await, Settled::Done);
        assert_eq!(h.claim(9).await, []);
        assert_eq!(h.status(id).await, Status::Expired);
    }
}

pub async fn a_lease_that_ends_too_late_leaves_it_expired(h: &Harness) {
    let id = h.put(sms("a").expires(h.clock.now().plus_ms(100))).await;
    let claim = h.claim_one().await;
    h.let_lease_end();
    assert_eq!(h.claim(9).await, []);
    assert_eq!(h.settle(&claim, Outcome::Delivered).await, Settled::LostLease);
    assert_eq!(h.status(id).await, Status::Expired);
}

pub async fn what_is_not_due_before_its_end_expires_unsent(h: &Harness) {
    let now = h.clock.now();
    let id = h.put(sms("a").due(Due::At(now.plus_ms(500))).expires(now.plus_ms(100))).await;
    h.clock.advance_ms(500);
    assert_eq!(h.claim(9).await, []);
    assert_eq!((h.status(id).await, h.cancel(id).await), (Status::Expired, Cancelled::Ended));
}

pub async fn expiry_survives_a_reopen(h: &Harness) {
    let at = h.clock.now().plus_ms(100);
    let ids = h.put_all([sms("a").expires(at), sms("b").expires(at.plus_ms(50))]).await;
    h.clock.advance_ms(100);
    h.ledger().sweep().await.expect("sweep");
    h.reopen().await.expect("reopen");
    assert_eq!((h.status(ids[0]).await, h.status(ids[1]).await), (Status::Expired, Status::Pending));
    h.reopen_after(|clock| clock.advance_ms(50)).await.expect("reopen");
    assert_eq!(h.claim(9).await, []);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!((h.status(ids[1]).await, h.counts().await.expired), (Status::Expired, 2));
}
