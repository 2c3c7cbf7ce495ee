//! A popped message is taken for good, and by one alone.

use std::time::Duration;

use tidegate_domain::{AttemptRecord, AttemptResult, Clock, Due, Lane, Status};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::steps::{QUEUE, queue, sms, text, texts};
use crate::Harness;

/// Far longer than any case takes: a pop that returns only then was not woken.
const WAIT_MS: u64 = 50_000;
const WAKES_WITHIN: Duration = Duration::from_secs(20);

pub async fn pops_follow_lane_then_due_time_then_admission(h: &Harness) {
    let past = Due::At(h.clock.now().minus_ms(10));
    let later = Due::At(h.clock.now().plus_ms(10));
    h.put_all([
        sms("low").lane(Lane::Low),
        sms("second"),
        sms("later").due(later),
        sms("first").due(past),
        sms("third"),
        sms("high").lane(Lane::High),
    ])
    .await;
    assert_eq!(h.pop(9).await, ["high", "first", "second", "third", "low"]);
}

pub async fn a_pop_takes_no_more_than_it_asked_for(h: &Harness) {
    h.put_all(["a", "b", "c"].map(sms)).await;
    assert!(h.pop(0).await.is_empty());
    assert_eq!(h.pop(2).await, ["a", "b"]);
    assert_eq!(h.counts().await.delivered, 2);
    assert_eq!(h.pop(2).await, ["c"]);
    assert!(h.pop(2).await.is_empty());
    assert!(h.pop_from("never-seen", 2).await.is_empty());
}

pub async fn a_popped_message_is_delivered(h: &Harness) {
    let id = h.put(sms("a").to("ann").header("trace", "7")).await;
    h.clock.advance_ms(5);
    let popped = h.pop_from(QUEUE, 1).await.remove(0);
    assert_eq!((popped.id, popped.attempt, popped.failures), (id, 1, 0));
    assert_eq!(popped.headers.0, [("trace".to_owned(), "7".to_owned())]);
    let (record, at) = (h.record(id).await, h.clock.now());
    assert_eq!((record.status, record.settled_at), (Status::Delivered, Some(at)));
    let result = AttemptResult::Delivered;
    assert_eq!(record.attempts, [AttemptRecord { number: 1, at, latency_ms: 0, result, reason: None }]);
    assert_eq!(h.counts().await.leased, 0);
}

pub async fn many_pops_at_once_share_no_message(h: &Harness) {
    h.put_all((0..60).map(|n| sms(&n.to_string()).to(&(n % 20).to_string()))).await;
    let mut tasks = JoinSet::new();
    for n in 0..16 {
        let queues = h.queues();
        tasks.spawn(async move {
            let mut mine = Vec::new();
            loop {
                match queues.pop(queue(QUEUE), 1 + n % 4, 0).await.expect("pop") {
                    popped if popped.is_empty() => return mine,
                    popped => mine.extend(popped),
                }
            }
        });
    }
    let mut bodies = texts(&tasks.join_all().await.concat());
    // A pop may find nothing while others hold what there is; what is left is there for the next.
    bodies.extend(h.pop(60).await);
    bodies.sort_by_key(|body| body.parse::<u32>().expect("a number"));
    assert_eq!(bodies, (0..60).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(h.counts().await.delivered, 60);
}

pub async fn a_pop_ends_its_chains_head_and_may_take_the_next(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("b1").to("bob"), sms("a2").to("ann"), sms("a3").to("ann")]).await;
    assert_eq!(h.pop(3).await, ["a1", "b1", "a2"]);
    assert_eq!(h.pop(3).await, ["a3"]);
}

pub async fn a_pop_does_not_pass_a_leased_head(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("b1").to("bob")]).await;
    let head = h.claim_one().await;
    assert_eq!(h.pop(9).await, ["b1"]);
    h.deliver(&head).await;
    assert_eq!(h.pop(9).await, ["a2"]);
}

pub async fn a_popped_chain_counts_as_its_highest_lane(h: &Harness) {
    h.put_all([
        sms("normal"),
        sms("a1").to("ann").lane(Lane::Low),
        sms("a2").to("ann").lane(Lane::High),
        sms("a3").to("ann").lane(Lane::Low),
    ])
    .await;
    assert_eq!(h.pop(9).await, ["a1", "a2", "normal", "a3"]);
}

pub async fn a_waiting_pop_wakes_when_a_message_comes(h: &Harness) {
    let waiting = h.pop_waiting(9, WAIT_MS).await;
    h.put(sms("a")).await;
    let popped = timeout(WAKES_WITHIN, waiting).await.expect("the pop wakes").expect("no panic");
    assert_eq!(texts(&popped), ["a"]);
}

pub async fn a_waiting_pop_wakes_when_a_message_falls_due(h: &Harness) {
    h.put(sms("a").due(Due::At(h.clock.now().plus_ms(20)))).await;
    let waiting = h.pop_waiting(9, WAIT_MS).await;
    h.clock.advance_ms(20);
    let popped = timeout(WAKES_WITHIN, waiting).await.expect("the pop wakes").expect("no panic");
    assert_eq!(texts(&popped), ["a"]);
}

pub async fn every_waiting_pop_is_served_once(h: &Harness) {
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(h.pop_waiting(1, WAIT_MS).await);
    }
    h.put_all(["a", "b", "c", "d"].map(sms)).await;
    let mut bodies = Vec::new();
    for pop in waiting {
        let popped = timeout(WAKES_WITHIN, pop).await.expect("the pop wakes").expect("no panic");
        bodies.extend(popped.iter().map(text));
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "b", "c", "d"]);
}

pub async fn a_pop_that_was_given_up_takes_nothing(h: &Harness) {
    let waiting = h.pop_waiting(9, WAIT_MS).await;
    waiting.abort();
    assert!(waiting.await.expect_err("given up").is_cancelled());
    h.put(sms("a")).await;
    assert_eq!(h.pop(9).await, ["a"]);
}

pub async fn an_empty_wait_of_a_pop_ends_by_itself(h: &Harness) {
    let begun = Instant::now();
    assert_eq!(h.queues().pop(queue(QUEUE), 1, 50).await.expect("pop"), []);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(45) && took < WAKES_WITHIN, "{took:?}");
}

pub async fn popped_messages_stay_delivered_after_a_reopen(h: &Harness) {
    let ids = h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("a3").to("ann")]).await;
    assert_eq!(h.pop(2).await, ["a1", "a2"]);
    let books = h.counts().await;
    h.reopen().await.expect("reopen");
    assert_eq!((h.counts().await, h.status(ids[1]).await), (books, Status::Delivered));
    assert_eq!(h.pop(9).await, ["a3"]);
}
