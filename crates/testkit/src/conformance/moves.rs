//! What a move must not lose, in either direction. `target` is empty.

use tidegate_domain::limits::QuotaRule;
use tidegate_domain::{Cancelled, Filter, Lane, Requeued, Settled};

use super::erasure::{assert_erased, secret};
use super::queue_steps::requeue_of;
use super::steps::{queue, retry, sms, text, user};
use crate::{Backend, Harness, transfer};

pub async fn a_requeued_message_keeps_its_new_place(h: &Harness, target: impl Backend) {
    let first = h.put_dead(sms("first").to("ann")).await;
    h.put(sms("second").to("ann")).await;
    assert_eq!(h.requeue(requeue_of(first)).await, Requeued::Requeued);
    h.put(sms("third").to("ann")).await;
    h.move_to(target).await.expect("a move");
    for expected in ["second", "first", "third"] {
        let claim = h.claim_one().await;
        assert_eq!(text(&claim), expected);
        h.deliver(&claim).await;
    }
}

pub async fn a_lease_from_before_settles_nothing_and_tokens_go_on(h: &Harness, target: impl Backend) {
    let id = h.put(sms("a").to("ann")).await;
    assert_eq!(h.settle(&h.claim_one().await, retry(0)).await, Settled::Done);
    let before = h.claim_one().await;
    h.move_to(target).await.expect("a move");
    assert_eq!(h.settle(&before, retry(0)).await, Settled::LostLease);
    let after = h.claim_one().await;
    assert!(after.token > before.token, "{} is not larger than {}", after.token, before.token);
    assert_eq!((after.id, after.attempt, after.failures), (id, 2, 1));
    assert_eq!(h.settle(&before, retry(0)).await, Settled::LostLease);
    h.deliver(&after).await;
    let next = h.put(sms("b").to("ann")).await;
    assert!(next > id && next.salt() == id.salt());
    h.deliver(&h.claim_one().await).await;
}

pub async fn a_forgotten_queue_stays_so_and_what_ended_there_is_found(h: &Harness, target: impl Backend) {
    let id = h.put(sms("a").on("jobs")).await;
    assert_eq!(h.pop_from("jobs", 9).await.len(), 1);
    let dead = h.put_dead(sms("dead")).await;
    h.put(sms("b").on("other")).await;
    h.forget_idle_queues().await;
    h.move_to(target).await.expect("a move");
    let names: Vec<_> = h.queue_counts().await.into_iter().map(|counts| counts.queue).collect();
    assert_eq!(names, [queue("other")]);
    assert_eq!(h.record(id).await.queue, queue("jobs"));
    let again = h.put(sms("c").on("jobs")).await;
    let of_jobs = Filter { queue: Some(queue("jobs")), ..Filter::default() };
    let found: Vec<_> = h.list(of_jobs, 9).await.iter().map(|record| record.id).collect();
    assert_eq!(found, [id, again]);
    assert_eq!(h.requeue(requeue_of(dead)).await, Requeued::Requeued);
    assert_eq!(h.deliver_all().await, ["dead"]);
}

pub async fn a_quotas_exemption_comes_along(h: &Harness, target: impl Backend) {
    let rule = QuotaRule { limit: 1, window_ms: 60_000, exempts_high: true };
    h.ledger().set_quota(user("ann"), rule).await.expect("set_quota");
    h.put(sms("a").charged_to("ann")).await;
    let before = h.quota_of("ann").await;
    h.move_to(target).await.expect("a move");
    assert_eq!(h.quota_of("ann").await, before);
    h.put(sms("b").charged_to("ann").lane(Lane::High)).await;
}

/// An erased message is erased in the ledger that it is moved to.
pub async fn what_is_erased_stays_so_in_another_ledger(h: &Harness, target: impl Backend) {
    let ids = h.put_all([secret("a"), secret("b")]).await;
    assert_eq!(h.cancel(ids[0]).await, Cancelled::Cancelled);
    let before = h.record(ids[0]).await;
    h.move_to(target).await.expect("a move");
    assert_eq!(h.record(ids[0]).await, before);
    assert_erased(h, &ids[..1]).await;
    assert_eq!(h.deliver_all().await, ["b"]);
}

/// The ledger of `h` is moved into a target that then holds something, and is asked to take it once more.
pub async fn a_target_with_something_in_it_is_refused(
    h: &Harness,
    source: impl Backend,
    target: impl Backend,
) {
    h.put(sms("a")).await;
    h.move_to(target).await.expect("a move");
    let counts = h.counts().await;
    let held = h.backend();
    h.close().await.expect("closed");
    drop(source.open(h.setup()).await.expect("an empty ledger"));
    let error = transfer(&source, &*held, h.setup()).await.expect_err("it is not empty");
    assert!(error.to_string().contains("something in it"), "{error:#}");
    h.open_again().await.expect("open");
    assert_eq!(h.counts().await, counts);
}
