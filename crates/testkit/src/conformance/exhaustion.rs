//! A message whose attempts are spent becomes a dead letter, whether or not a claim asks for it again.

use tidegate_domain::{
    AttemptResult, ClaimRequest, Clock, MessageId, Outcome, REASON_BYTES_MAX, Requeued, Settled, Status,
    lapsed_reason,
};

use super::Draft;
use super::queue_steps::requeue_of;
use super::steps::{LEASE_MS, queue, retry, sms, texts};
use crate::{BRIEF, Harness};

pub async fn the_last_lease_that_ends_unsettled_leaves_a_dead_letter(h: &Harness) {
    let id = h.put(brief("a")).await;
    lapse(h).await;
    assert_eq!(h.status(id).await, Status::Pending);
    let claim = h.claim_from(BRIEF, 1).await.remove(0);
    assert_eq!((claim.attempt, claim.failures), (2, 1));
    h.clock.advance_ms(LEASE_MS);
    h.ledger().sweep().await.expect("sweep");
    let books = h.counts().await;
    assert_eq!((books.dead, books.pending, books.leased), (1, 0, 0));
    let record = h.record(id).await;
    assert_eq!((record.status, record.settled_at), (Status::Dead, Some(h.clock.now())));
    assert_eq!(record.reason, Some(lapsed_reason(2)));
    assert_eq!(attempts(h, id).await, [(2, AttemptResult::Failed)]);
    assert_eq!(h.settle(&claim, Outcome::Delivered).await, Settled::LostLease);
    h.reopen().await.expect("reopen");
    assert_eq!(h.record(id).await, record);
}

pub async fn failed_attempts_and_ended_leases_count_together(h: &Harness) {
    let id = h.put(brief("a")).await;
    let claim = h.claim_from(BRIEF, 1).await.remove(0);
    assert_eq!(h.settle(&claim, retry(0)).await, Settled::Done);
    lapse(h).await;
    assert_eq!(h.status(id).await, Status::Dead);
    assert_eq!(attempts(h, id).await, [(1, AttemptResult::Failed), (2, AttemptResult::Failed)]);
}

pub async fn a_lease_with_attempts_left_goes_back_to_its_queue(h: &Harness) {
    h.put_all([brief("a"), sms("b")]).await;
    for _ in 0..4 {
        assert_eq!(h.claim(9).await.len(), 1, "no bound, no end");
        h.clock.advance_ms(LEASE_MS);
    }
    lapse(h).await;
    let claims = h.claim_from(BRIEF, 9).await;
    assert_eq!(texts(&claims), ["a"]);
    h.deliver(&claims[0]).await;
}

pub async fn what_was_lost_in_transit_is_not_exhausted(h: &Harness) {
    let id = h.put(brief("a")).await;
    for _ in 0..3 {
        let request = ClaimRequest { queue: queue(BRIEF), max: 1, lease_ms: LEASE_MS, wait_ms: 0 };
        assert_eq!(h.transit().dispatch(request, 9).await.expect("dispatch").len(), 1);
        h.clock.advance_ms(LEASE_MS);
        h.ledger().sweep().await.expect("sweep");
    }
    assert_eq!(h.status(id).await, Status::Pending);
    assert_eq!(h.claim_from(BRIEF, 1).await[0].attempt, 1);
}

/// Also without a sweep: the claim that comes by notices it first.
pub async fn an_exhausted_message_frees_its_chain(h: &Harness) {
    let ids = h.put_all([brief("a1").to("ann"), brief("a2").to("ann"), brief("b")]).await;
    for _ in 0..2 {
        assert_eq!(texts(&h.claim_from(BRIEF, 1).await), ["a1"]);
        h.clock.advance_ms(LEASE_MS);
    }
    let claims = h.claim_from(BRIEF, 9).await;
    let mut claimed = texts(&claims);
    claimed.sort();
    assert_eq!(claimed, ["a2", "b"]);
    assert_eq!(h.status(ids[0]).await, Status::Dead);
}

pub async fn a_requeued_message_has_its_attempts_again(h: &Harness) {
    let id = h.put(brief("a")).await;
    lapse(h).await;
    lapse(h).await;
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    let claim = h.claim_from(BRIEF, 1).await.remove(0);
    assert_eq!((claim.attempt, claim.failures), (4, 0), "numbers go on, failures begin anew");
    h.clock.advance_ms(LEASE_MS);
    lapse(h).await;
    assert_eq!(h.status(id).await, Status::Dead);
    let expected = [(2, AttemptResult::Failed), (3, AttemptResult::Requeued), (5, AttemptResult::Failed)];
    assert_eq!(attempts(h, id).await, expected);
}

pub async fn of_a_reason_no_more_is_kept_than_its_bound(h: &Harness) {
    let ids = h.put_all([sms("a"), sms("b"), sms("c")]).await;
    let reason = "\u{1F30A}".repeat(REASON_BYTES_MAX);
    let (again, last) = (reason.clone(), reason.clone());
    for outcome in [
        Outcome::Retry { delay_ms: 1, reason },
        Outcome::Dead { reason: again },
        Outcome::GivenUp { reason: last },
    ] {
        assert_eq!(h.settle(&h.claim_one().await, outcome).await, Settled::Done);
    }
    let mut kept = Vec::new();
    for id in ids {
        let record = h.record(id).await;
        kept.extend(
            record.reason.into_iter().chain(record.attempts.into_iter().filter_map(|one| one.reason)),
        );
    }
    assert_eq!(kept.len(), 4);
    assert!(kept.iter().all(|reason| reason.len() <= REASON_BYTES_MAX && reason.ends_with('\u{2026}')));
    assert!(kept.iter().all(|reason| reason.len() > REASON_BYTES_MAX / 2));
}

fn brief(body: &str) -> Draft {
    sms(body).on(BRIEF)
}

/// A lease that ends unsettled, and a sweep.
async fn lapse(h: &Harness) {
    h.claim_from(BRIEF, 1).await;
    h.clock.advance_ms(LEASE_MS);
    h.ledger().sweep().await.expect("sweep");
}

async fn attempts(h: &Harness, id: MessageId) -> Vec<(u32, AttemptResult)> {
    h.record(id).await.attempts.iter().map(|one| (one.number, one.result)).collect()
}
