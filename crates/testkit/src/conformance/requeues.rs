//! A dead letter that is requeued begins anew, at the end of its chain.

use tidegate_domain::{
    Admitted, AttemptResult, Body, Clock, MessageId, Requeue, Requeued, Settled, Status, Timestamp,
};
use tokio::task::JoinSet;

use super::queue_steps::{ACK_MS, accepted, requeue_of};
use super::steps::{dead, retry, sms, text};
use crate::Harness;

pub async fn a_requeued_message_is_pending_under_its_old_id(h: &Harness) {
    let id = h.put_dead(sms("a").to("ann").header("trace", "7").needs_ack()).await;
    h.clock.advance_ms(50);
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    let record = h.record(id).await;
    assert_eq!((record.status, record.settled_at, record.reason), (Status::Pending, None, None));
    assert_eq!(record.due_at, h.clock.now());
    let books = h.counts().await;
    assert_eq!((books.admitted, books.dead, books.pending), (1, 0, 1));
    let claim = h.claim_one().await;
    assert_eq!((claim.id, text(&claim), claim.admitted_at), (id, "a".to_owned(), record.admitted_at));
    assert_eq!((claim.headers.0.len(), claim.ack_required), (1, true));
    h.deliver(&claim).await;
    assert_eq!(h.counts().await.delivered, 1);
}

/// Attempts are history: the one that killed the message, too.
pub async fn attempts_go_on_and_failures_begin_anew(h: &Harness) {
    let id = h.put(sms("a")).await;
    assert_eq!(h.settle(&h.claim_one().await, retry(0)).await, Settled::Done);
    let last = h.claim_one().await;
    assert_eq!((last.attempt, last.failures), (2, 1));
    assert_eq!(h.settle(&last, dead()).await, Settled::Done);
    let before = h.record(id).await.attempts;
    h.clock.advance_ms(5);
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    for _ in 0..2 {
        let attempts = h.record(id).await.attempts;
        assert_eq!(attempts[..2], before);
        let third = &attempts[2];
        assert_eq!((third.number, third.result, third.at), (3, AttemptResult::Requeued, h.clock.now()));
        h.reopen().await.expect("reopen");
        let claim = h.claim_one().await;
        assert_eq!((claim.attempt, claim.failures), (4, 0));
    }
    h.let_lease_end();
    let claim = h.claim_one().await;
    assert_eq!((claim.attempt, claim.failures), (5, 1));
    assert_eq!(h.settle(&claim, dead()).await, Settled::Done);
    let numbers: Vec<_> = h.record(id).await.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3, 5]);
}

/// One that was never acknowledged has all its chances again.
pub async fn deliveries_without_an_ack_begin_anew(h: &Harness) {
    let id = h.put(sms("a").needs_ack()).await;
    for _ in 0..2 {
        assert_eq!(h.settle(&h.claim_one().await, accepted()).await, Settled::Done);
        h.clock.advance_ms(ACK_MS);
    }
    let last = h.claim_one().await;
    assert_eq!((last.attempt, last.ack_attempts), (3, 2));
    assert_eq!(h.settle(&last, dead()).await, Settled::Done);
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    h.reopen().await.expect("reopen");
    let claim = h.claim_one().await;
    assert_eq!((claim.attempt, claim.failures, claim.ack_attempts), (5, 0, 0));
    assert_eq!(h.settle(&claim, accepted()).await, Settled::Done);
    h.clock.advance_ms(ACK_MS);
    h.reopen().await.expect("reopen");
    assert_eq!(h.claim_one().await.ack_attempts, 1);
}

/// It would end at once: there is nothing to be had from it but its loss.
pub async fn a_dead_letter_whose_time_is_over_stays(h: &Harness) {
    let expires = h.clock.now().plus_ms(1_000);
    let id = h.put_dead(sms("a").expires(expires)).await;
    assert_eq!(h.requeue(Requeue { delay_ms: 1_000, ..requeue_of(id) }).await, Requeued::Expired);
    h.clock.advance_ms(1_000);
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Expired);
    assert_eq!(h.record(id).await.status, Status::Dead);
    let books = h.counts().await;
    assert_eq!((books.dead, books.pending), (1, 0));
}

pub async fn an_edited_text_goes_out_instead(h: &Harness) {
    let id = h.put_dead(sms("wrong")).await;
    let edited = Requeue { body: Some("right".into()), ..requeue_of(id) };
    assert_eq!(h.requeue(edited).await, Requeued::Requeued);
    assert_eq!(h.record(id).await.body, Body::Whole("right".into()));
    h.reopen().await.expect("reopen");
    assert_eq!(h.record(id).await.body, Body::Whole("right".into()));
    assert_eq!(h.deliver_all().await, ["right"]);
}

pub async fn an_emptied_text_goes_out_empty(h: &Harness) {
    let id = h.put_dead(sms("wrong")).await;
    let emptied = Requeue { body: Some(bytes::Bytes::new()), ..requeue_of(id) };
    assert_eq!(h.requeue(emptied).await, Requeued::Requeued);
    assert_eq!(h.deliver_all().await, [""]);
}

pub async fn a_delayed_requeue_is_due_later(h: &Harness) {
    let id = h.put_dead(sms("a")).await;
    assert_eq!(h.requeue(Requeue { delay_ms: 500, ..requeue_of(id) }).await, Requeued::Requeued);
    assert_eq!(h.record(id).await.due_at, h.clock.now().plus_ms(500));
    h.reopen().await.expect("reopen");
    h.clock.advance_ms(499);
    assert_eq!(h.claim(9).await, []);
    h.clock.advance_ms(1);
    assert_eq!(h.deliver_all().await, ["a"]);
}

pub async fn a_requeued_message_goes_to_the_end_of_its_chain(h: &Harness) {
    let id = h.put_dead(sms("a1").to("ann")).await;
    h.put_all([sms("a2").to("ann"), sms("a3").to("ann")]).await;
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    h.put(sms("a4").to("ann")).await;
    assert_eq!(h.deliver_all().await, ["a2", "a3", "a1", "a4"]);
}

pub async fn the_end_of_the_chain_survives_a_reopen(h: &Harness) {
    let first = h.put_dead(sms("a1").to("ann")).await;
    let second = h.put_dead(sms("a2").to("ann")).await;
    h.put(sms("a3").to("ann")).await;
    assert_eq!(h.requeue(requeue_of(second)).await, Requeued::Requeued);
    h.put(sms("a4").to("ann")).await;
    assert_eq!(h.requeue(requeue_of(first)).await, Requeued::Requeued);
    h.put(sms("a5").to("ann")).await;
    h.reopen().await.expect("reopen");
    h.put(sms("a6").to("ann")).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.deliver_all().await, ["a3", "a2", "a4", "a1", "a5", "a6"]);
}

/// Many at a time, so that some meet in one commit: the order in which they came is the order on disk.
pub async fn requeues_and_admissions_of_one_moment_keep_one_order(h: &Harness) {
    let mut ids = Vec::new();
    for n in 0..12 {
        ids.push(h.put_dead(sms(&format!("dead{n}")).to("ann")).await);
    }
    let mut tasks = JoinSet::new();
    for id in ids {
        let (ledger, queues) = (h.ledger(), h.queues());
        tasks.spawn(async move { drop(queues.requeue(vec![requeue_of(id)]).await.expect("requeue")) });
        let draft = sms(&format!("new{}", id.seq())).to("ann");
        tasks.spawn(async move { drop(ledger.admit(vec![draft.0]).await.expect("admit")) });
    }
    tasks.join_all().await;
    let head = h.claim_one().await;
    h.reopen().await.expect("reopen");
    assert_eq!(text(&h.claim_one().await), text(&head), "the chain's head before the reopen");
    h.reopen().await.expect("reopen");
    assert_eq!(h.deliver_all().await.len(), 24);
}

pub async fn only_dead_letters_are_requeued(h: &Harness) {
    let waiting = h.put(sms("a")).await;
    for id in h.unknown_ids().await.into_iter().chain([waiting]) {
        assert_eq!(h.requeue(requeue_of(id)).await, Requeued::NotDead);
    }
    h.deliver_all().await;
    assert_eq!(h.requeue(requeue_of(waiting)).await, Requeued::NotDead);
    let cancelled = h.put(sms("b")).await;
    h.cancel(cancelled).await;
    assert_eq!(h.requeue(requeue_of(cancelled)).await, Requeued::NotDead);
}

pub async fn twice_in_a_batch_is_once(h: &Harness) {
    let a = h.put_dead(sms("a")).await;
    let b = h.put_dead(sms("b")).await;
    let batch = [a, b, a].map(requeue_of).to_vec();
    let requeued = h.queues().requeue(batch).await.expect("requeue");
    assert_eq!(requeued, [Requeued::Requeued, Requeued::Requeued, Requeued::NotDead]);
    assert_eq!((h.counts().await.pending, h.deliver_all().await.len()), (2, 2));
}

/// What was said of a message before it was requeued does not make it one that can be requeued again.
pub async fn a_message_refused_first_in_a_batch_is_requeued_once(h: &Harness) {
    let expires = h.clock.now().plus_ms(1_000);
    let id = h.put_dead(sms("a").expires(expires)).await;
    let batch = vec![Requeue { delay_ms: 1_000, ..requeue_of(id) }, requeue_of(id), requeue_of(id)];
    let answers = h.queues().requeue(batch).await.expect("requeue");
    assert_eq!(answers, [Requeued::Expired, Requeued::Requeued, Requeued::NotDead]);
    let books = h.counts().await;
    assert_eq!((books.dead, books.pending), (0, 1));
    assert_eq!(h.deliver_all().await, ["a"]);
}

pub async fn of_parallel_requeues_one_counts(h: &Harness) {
    let id = h.put_dead(sms("a")).await;
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let queues = h.queues();
        tasks.spawn(async move { queues.requeue(vec![requeue_of(id)]).await.expect("requeue").remove(0) });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| **answer == Requeued::Requeued).count(), 1, "{answers:?}");
    assert_eq!(h.deliver_all().await, ["a"]);
}

/// It dies as soon as it is claimed, while others requeue it again and again: whoever looked at it before it came
/// back and died once more must not act on what it saw then. The long text makes looking slow.
pub async fn a_message_that_dies_again_meanwhile_is_requeued_again(h: &Harness) {
    let id = h.put_dead(sms(&"x".repeat(1 << 20))).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let queues = h.queues();
        tasks.spawn(async move {
            let mut counted = 0;
            for _ in 0..20 {
                let answer = queues.requeue(vec![requeue_of(id)]).await.expect("requeue");
                counted += u64::from(answer[0] == Requeued::Requeued);
            }
            counted
        });
    }
    let (mut died, mut requeued) = (1, 0);
    loop {
        for claim in h.claim(1).await {
            died += u64::from(h.settle(&claim, dead()).await == Settled::Done);
        }
        match tasks.try_join_next() {
            Some(counted) => requeued += counted.expect("no panic"),
            None if tasks.is_empty() => break,
            None => tokio::task::yield_now().await,
        }
    }
    let books = h.counts().await;
    assert_eq!((books.admitted, books.dead, books.pending), (1, died - requeued, 1 + requeued - died));
    let numbers: Vec<_> = h.record(id).await.attempts.iter().map(|attempt| attempt.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    assert_eq!(numbers.len() as u64, died + requeued);
}

pub async fn a_full_ledger_takes_no_dead_letters_back(h: &Harness) {
    let id = h.put_dead(sms("a")).await;
    h.put_all((0..h.setup().pending_max).map(|n| sms(&n.to_string()))).await;
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Full);
    assert_eq!(h.status(id).await, Status::Dead);
    h.deliver(&h.claim_one().await).await;
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    assert_eq!(h.admit_one(sms("b")).await, Admitted::Full);
}

pub async fn the_books_balance_through_deaths_and_requeues(h: &Harness) {
    let ids: Vec<MessageId> = h.put_all((0..5).map(|n| sms(&n.to_string()))).await;
    for round in 0..3 {
        for claim in h.claim(9).await {
            h.settle(&claim, dead()).await;
        }
        let books = h.counts().await;
        assert_eq!((books.admitted, books.dead, books.pending), (5, 5, 0), "round {round}");
        let requeued = h.queues().requeue(ids.iter().copied().map(requeue_of).collect()).await;
        assert_eq!(requeued.expect("requeue"), [Requeued::Requeued; 5]);
        h.reopen().await.expect("reopen");
        assert_eq!(h.counts().await.pending, 5);
    }
    assert_eq!(h.deliver_all().await.len(), 5);
}

pub async fn a_requeued_message_expires_all_the_same(h: &Harness) {
    let at: Timestamp = h.clock.now().plus_ms(100);
    let id = h.put_dead(sms("a").expires(at)).await;
    assert_eq!(h.requeue(Requeue { delay_ms: 50, ..requeue_of(id) }).await, Requeued::Requeued);
    h.clock.advance_ms(100);
    assert_eq!(h.claim(9).await, []);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(h.status(id).await, Status::Expired);
}
