//! A queue that is empty and unused is forgotten after a while, unless the settings name it or it is paused.

use tidegate_domain::{Filter, Lane, QueueName, Requeued, Status};

use super::queue_steps::requeue_of;
use super::steps::{queue, sms, texts};
use crate::{Harness, NARROW};

impl Harness {
    /// A ledger counts from when it noticed the last use, which may be as late as the first of these sweeps.
    pub(super) async fn forget_idle_queues(&self) {
        for _ in 0..2 {
            self.clock.advance_ms(self.setup().queue_forget_after_ms);
            self.sweep().await;
        }
    }

    async fn sweep(&self) {
        self.ledger().sweep().await.expect("sweep");
    }

    async fn queue_names(&self) -> Vec<QueueName> {
        self.queue_counts().await.into_iter().map(|counts| counts.queue).collect()
    }

    /// Admits a message to a queue and pops it.
    async fn use_queue(&self, name: &str) {
        self.put(sms("used").on(name)).await;
        assert_eq!(self.pop_from(name, 9).await.len(), 1);
    }
}

pub async fn an_empty_queue_is_forgotten_after_a_while(h: &Harness) {
    h.use_queue("jobs").await;
    h.clock.advance_ms(h.setup().queue_forget_after_ms - 1);
    h.sweep().await;
    assert_eq!(h.queue_names().await, [queue("jobs")], "not yet");
    h.forget_idle_queues().await;
    assert_eq!(h.queue_names().await, []);
    assert!(!h.pause("jobs", true).await, "as if it had never been");
    assert!(h.pop_from("jobs", 9).await.is_empty());
    h.reopen().await.expect("reopen");
    assert_eq!(h.queue_names().await, []);
}

pub async fn a_queue_in_use_is_not_forgotten(h: &Harness) {
    for _ in 0..4 {
        h.use_queue("jobs").await;
        h.sweep().await;
        h.clock.advance_ms(h.setup().queue_forget_after_ms / 2);
        h.sweep().await;
    }
    assert_eq!(h.queue_names().await, [queue("jobs")]);
    // Nor is one by a restart: it is idle from then on.
    h.clock.advance_ms(h.setup().queue_forget_after_ms / 4);
    h.reopen().await.expect("reopen");
    h.sweep().await;
    assert_eq!(h.queue_names().await, [queue("jobs")]);
}

pub async fn what_is_pending_or_paused_or_of_the_settings_is_kept(h: &Harness) {
    h.put(sms("waits").on("waiting")).await;
    h.put(sms("held").on("leased")).await;
    let lease_ms = 10 * h.setup().queue_forget_after_ms;
    let request = tidegate_domain::ClaimRequest { queue: queue("leased"), max: 1, lease_ms, wait_ms: 0 };
    let held = h.ledger().claim(request).await.expect("claim").remove(0);
    h.use_queue("paused").await;
    assert!(h.pause("paused", true).await);
    h.use_queue(NARROW).await;
    h.use_queue("gone").await;
    h.forget_idle_queues().await;
    assert_eq!(h.queue_names().await, ["leased", NARROW, "paused", "waiting"].map(queue));
    h.deliver(&held).await;
    assert!(h.pause("paused", false).await);
    assert_eq!(texts(&h.pop_from("waiting", 9).await), ["waits"]);
    h.forget_idle_queues().await;
    assert_eq!(h.queue_names().await, [queue(NARROW)]);
}

pub async fn what_ended_in_a_forgotten_queue_is_still_found(h: &Harness) {
    let ended = h.put(sms("delivered").on("jobs")).await;
    assert_eq!(h.pop_from("jobs", 9).await.len(), 1);
    let cancelled = h.put(sms("cancelled").on("jobs").lane(Lane::Low)).await;
    h.cancel(cancelled).await;
    h.put(sms("other").on("other")).await;
    h.forget_idle_queues().await;
    for _ in 0..2 {
        assert_eq!(h.queue_names().await, [queue("other")]);
        assert_eq!(h.record(ended).await.queue, queue("jobs"));
        let of_jobs = Filter { queue: Some(queue("jobs")), ..Filter::default() };
        let found = h.list(of_jobs, 9).await;
        assert_eq!(found.iter().map(|record| record.id).collect::<Vec<_>>(), [ended, cancelled]);
        assert!(found.iter().all(|record| record.queue == queue("jobs")));
        h.reopen().await.expect("reopen");
    }
}

pub async fn a_forgotten_queue_comes_back_with_its_next_message(h: &Harness) {
    let before = h.put(sms("before").on("jobs")).await;
    assert_eq!(h.pop_from("jobs", 9).await.len(), 1);
    h.forget_idle_queues().await;
    h.put(sms("another").on("newcomer")).await;
    let after = h.put(sms("after").on("jobs").to("ann")).await;
    for _ in 0..2 {
        assert_eq!(h.queue_names().await, ["jobs", "newcomer"].map(queue));
        let of_jobs = Filter { queue: Some(queue("jobs")), ..Filter::default() };
        let found: Vec<_> = h.list(of_jobs, 9).await.iter().map(|record| record.id).collect();
        assert_eq!(found, [before, after]);
        h.reopen().await.expect("reopen");
    }
    assert!(h.pause("jobs", true).await && h.pause("jobs", false).await);
    assert_eq!(texts(&h.pop_from("jobs", 9).await), ["after"]);
    assert_eq!(texts(&h.pop_from("newcomer", 9).await), ["another"]);
}

pub async fn a_dead_letter_brings_its_forgotten_queue_back(h: &Harness) {
    let dead = [h.put_dead(sms("a").to("ann")).await, h.put_dead(sms("b").to("ann")).await];
    h.forget_idle_queues().await;
    assert_eq!(h.queue_names().await, []);
    let letters = h.list(Filter { status: Some(Status::Dead), ..Filter::default() }, 9).await;
    assert_eq!(letters.iter().map(|letter| letter.id).collect::<Vec<_>>(), dead);
    let batch = dead.map(requeue_of).to_vec();
    let requeued = h.queues().requeue(batch).await.expect("requeue");
    assert_eq!(requeued, [Requeued::Requeued; 2]);
    assert_eq!(h.queue_names().await.len(), 1);
    h.reopen().await.expect("reopen");
    assert_eq!(h.deliver_all().await, ["a", "b"]);
}

pub async fn a_forgotten_queue_leaves_the_books_as_they_are(h: &Harness) {
    h.put_dead(sms("dead")).await;
    h.use_queue("jobs").await;
    h.put(sms("waits").on("other")).await;
    let before = h.counts().await;
    h.forget_idle_queues().await;
    assert_eq!(h.queue_names().await, [queue("other")]);
    assert_eq!(h.counts().await, before);
    h.reopen().await.expect("reopen");
    assert_eq!(h.counts().await, before);
}

pub async fn many_queues_come_and_go(h: &Harness) {
    for round in 0..3 {
        for number in 0..40 {
            h.use_queue(&format!("round{round}-{number}")).await;
        }
        h.forget_idle_queues().await;
        assert_eq!(h.queue_names().await, []);
    }
    assert_eq!(h.counts().await.delivered, 120);
}
