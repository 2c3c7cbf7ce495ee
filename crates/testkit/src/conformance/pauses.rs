//! A paused queue admits and hands out none. And what is told about queues.

use std::time::Duration;

use tidegate_domain::{Cancelled, Clock, Lane, QueueCounts};
use tokio::time::timeout;

use super::steps::{QUEUE, queue, sms, texts};
use crate::{Harness, LOOSE, NARROW};

const WAIT_MS: u64 = 50_000;
const WAKES_WITHIN: Duration = Duration::from_secs(20);

pub async fn a_paused_queue_hands_out_none(h: &Harness) {
    h.put_all([sms("a"), sms("mail").on("mail")]).await;
    let held = h.claim_one().await;
    assert!(h.pause(QUEUE, true).await);
    h.put(sms("b")).await;
    assert_eq!(h.claim(9).await, []);
    assert!(h.pop(9).await.is_empty());
    h.deliver(&held).await;
    assert_eq!(h.pop_from("mail", 9).await.len(), 1);
    assert!(h.pause(QUEUE, false).await);
    assert_eq!(h.pop(9).await, ["b"]);
}

pub async fn a_pause_outlives_a_reopen(h: &Harness) {
    h.put_all([sms("a"), sms("mail").on("mail")]).await;
    assert!(h.pause(QUEUE, true).await);
    h.reopen().await.expect("reopen");
    assert_eq!(h.claim(9).await, []);
    assert_eq!(h.claim_from("mail", 9).await.len(), 1);
    assert!(h.pause(QUEUE, false).await);
    h.reopen().await.expect("reopen");
    assert_eq!(h.deliver_all().await, ["a"]);
}

pub async fn a_queue_that_never_was_cannot_be_paused(h: &Harness) {
    assert!(!h.pause("never-seen", true).await);
    h.admit_one(sms("refused").on("never-seen").charged_to("nobody")).await;
    assert!(!h.pause("never-seen", true).await);
    h.put(sms("a").on("never-seen")).await;
    assert_eq!(h.claim_from("never-seen", 9).await.len(), 1);
}

pub async fn a_queue_of_the_settings_is_paused_before_its_first_message(h: &Harness) {
    assert!(h.pause(NARROW, true).await);
    assert!(h.pause(LOOSE, false).await);
    let counts = |name, paused, depth| QueueCounts { queue: queue(name), paused, depth, leased: 0 };
    assert_eq!(h.queue_counts().await, [counts(LOOSE, false, [0; 3]), counts(NARROW, true, [0; 3])]);
    for text in ["a", "b"] {
        h.reopen().await.expect("reopen");
        h.put(sms(text).on(NARROW)).await;
        assert_eq!(h.claim_from(NARROW, 9).await, [], "it holds");
    }
    assert_eq!(h.queue_counts().await, [counts(LOOSE, false, [0; 3]), counts(NARROW, true, [0, 2, 0])]);
    assert!(h.pause(NARROW, false).await);
    assert_eq!(texts(&h.pop_from(NARROW, 9).await), ["a", "b"]);
}

pub async fn a_paused_queue_still_expires_and_cancels(h: &Harness) {
    let ids = h.put_all([sms("a").expires(h.clock.now().plus_ms(10)), sms("b"), sms("c")]).await;
    assert!(h.pause(QUEUE, true).await);
    h.clock.advance_ms(10);
    assert_eq!(h.cancel(ids[1]).await, Cancelled::Cancelled);
    h.ledger().sweep().await.expect("sweep");
    let books = h.counts().await;
    assert_eq!((books.expired, books.deleted, books.pending), (1, 1, 1));
    assert!(h.pause(QUEUE, true).await, "again");
}

pub async fn who_waits_wakes_when_the_queue_goes_on(h: &Harness) {
    h.put(sms("a")).await;
    assert!(h.pause(QUEUE, true).await);
    let waiting = h.pop_waiting(9, WAIT_MS).await;
    assert_eq!(h.counts().await.pending, 1);
    assert!(h.pause(QUEUE, false).await);
    let popped = timeout(WAKES_WITHIN, waiting).await.expect("the pop wakes").expect("no panic");
    assert_eq!(texts(&popped), ["a"]);
}

pub async fn queues_are_counted_by_name(h: &Harness) {
    assert_eq!(h.queue_counts().await, []);
    h.put_all([
        sms("a").lane(Lane::High),
        sms("b").lane(Lane::Low).to("ann"),
        sms("c").to("ann"),
        sms("mail").on("mail"),
    ])
    .await;
    h.claim(2).await;
    h.pop_from("mail", 1).await;
    h.pause("mail", true).await;
    let counts = |name, paused, depth, leased| QueueCounts { queue: queue(name), paused, depth, leased };
    assert_eq!(h.queue_counts().await, [counts("mail", true, [0; 3], 0), counts(QUEUE, false, [1; 3], 2)]);
    h.reopen().await.expect("reopen");
    assert_eq!(h.queue_counts().await, [counts("mail", true, [0; 3], 0), counts(QUEUE, false, [1; 3], 0)]);
    h.put(sms("d").on("a-third")).await;
    let names: Vec<_> = h.queue_counts().await.into_iter().map(|counts| counts.queue).collect();
    assert_eq!(names, ["a-third", "mail", QUEUE].map(queue));
}
