//! What waits for certain recipients is leased, and nothing else.

use std::time::Duration;

use bytes::Bytes;
use tidegate_domain::{
    BATCH_BYTES_MAX, Claim, Clock, Due, Lane, Outcome, PickUp, Recipient, Settled, Status,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::queue_steps::{ACK_MS, accepted};
use super::steps::{LEASE_MS, QUEUE, queue, sms, texts};
use crate::{Harness, LOOSE};

const WAIT_MS: u64 = 50_000;
const WAKES_WITHIN: Duration = Duration::from_secs(20);

impl Harness {
    async fn pick_up_from(&self, name: &str, recipients: &[&str], max: usize) -> Vec<Claim> {
        let recipients = recipients.iter().map(|name| Recipient::new(name).expect("a valid recipient"));
        let request =
            PickUp { queue: queue(name), recipients: recipients.collect(), max, lease_ms: LEASE_MS };
        let claims = self.queues().pick_up(request).await.expect("pick_up");
        let until = self.clock.now().plus_ms(LEASE_MS);
        assert!(claims.iter().all(|claim| claim.lease_until == until), "leased for what was asked");
        self.counts().await;
        claims
    }

    async fn pick_up(&self, recipients: &[&str]) -> Vec<String> {
        texts(&self.pick_up_from(QUEUE, recipients, 99).await)
    }

    /// Where the queue's count stands. A ledger that has just been opened has its first hints behind it then.
    async fn count_of_changes(&self) -> u64 {
        self.queues().stirred(queue(QUEUE), 0, 0).await.expect("stirred")
    }

    async fn stirring(&self, seen: u64) -> JoinHandle<u64> {
        let queues = self.queues();
        let task = tokio::spawn(async move {
            let mut count = seen;
            while count == seen {
                count = queues.stirred(queue(QUEUE), seen, WAIT_MS).await.expect("stirred");
            }
            count
        });
        for _ in 0..10 {
            self.counts().await;
            tokio::task::yield_now().await;
        }
        task
    }
}

async fn stirs(waiting: JoinHandle<u64>) {
    timeout(WAKES_WITHIN, waiting).await.expect("it stirs").expect("no panic");
}

pub async fn only_the_named_recipients_first_messages_are_leased(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann"), sms("b1").to("bob"), sms("none")]).await;
    h.put_all([sms("c1").to("cid"), sms("elsewhere").to("ann").on("mail")]).await;
    assert_eq!(h.pick_up(&["ann", "cid", "unknown"]).await, ["a1", "c1"]);
    assert_eq!(h.pick_up(&["ann", "cid"]).await, [""; 0], "they are leased");
    assert_eq!(texts(&h.claim(9).await), ["b1", "none"], "nothing else is");
}

pub async fn however_many_wait_for_others_a_recipient_is_served(h: &Harness) {
    h.put_all((0..30).map(|n| sms("old").to(&format!("away{n}")).lane(Lane::High))).await;
    h.put(sms("hi").to("ann").lane(Lane::Low)).await;
    assert_eq!(h.pick_up(&["ann"]).await, ["hi"]);
}

pub async fn what_is_picked_up_is_a_claim_like_any_other(h: &Harness) {
    let id = h.put(sms("a1").to("ann").needs_ack().header("subject", "x")).await;
    h.put(sms("a2").to("ann")).await;
    let claim = h.pick_up_from(QUEUE, &["ann"], 9).await.remove(0);
    assert_eq!((claim.id, claim.attempt, claim.ack_required, claim.failures), (id, 1, true, 0));
    assert_eq!(claim.headers.0, [("subject".to_owned(), "x".to_owned())]);
    h.let_lease_end();
    let again = h.pick_up_from(QUEUE, &["ann"], 9).await.remove(0);
    assert_eq!((again.id, again.attempt, again.failures), (id, 2, 1), "a lease that ends is an attempt");
    assert!(again.token > claim.token);
    assert_eq!(h.settle(&claim, Outcome::Delivered).await, Settled::LostLease);
    h.deliver(&again).await;
    assert_eq!(h.pick_up(&["ann"]).await, ["a2"]);
}

pub async fn an_untried_pick_up_spends_nothing(h: &Harness) {
    let id = h.put(sms("a1").to("ann")).await;
    for _ in 0..5 {
        let claim = h.pick_up_from(QUEUE, &["ann"], 9).await.remove(0);
        assert_eq!((claim.attempt, claim.failures, claim.ack_attempts), (1, 0, 0));
        assert_eq!(h.settle(&claim, Outcome::Released).await, Settled::Done);
    }
    assert_eq!(h.record(id).await.attempts, []);
}

pub async fn a_recipient_named_twice_gets_one_message(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    assert_eq!(h.pick_up(&["ann", "bob", "ann"]).await, ["a1"]);
}

pub async fn higher_lanes_are_picked_up_first(h: &Harness) {
    h.put_all([sms("low").to("ann").lane(Lane::Low), sms("n1").to("bob"), sms("n2").to("cid")]).await;
    h.put_all([sms("lent").to("dan").lane(Lane::Low), sms("high").to("dan").lane(Lane::High)]).await;
    let all = ["ann", "bob", "cid", "dan"];
    assert_eq!(texts(&h.pick_up_from(QUEUE, &all, 2).await), ["lent", "n1"]);
    assert_eq!(h.pick_up_from(QUEUE, &all, 0).await, []);
    assert_eq!(h.pick_up(&all).await, ["n2", "low"]);
}

pub async fn a_pick_up_leases_no_more_than_fits_into_its_answer(h: &Harness) {
    let names = ["ann", "bob", "cid"];
    let large = |name: &&str| {
        let mut draft = sms("").to(name);
        draft.0.body = Bytes::from(vec![b'x'; 3 * BATCH_BYTES_MAX / 8]);
        draft
    };
    let ids = h.put_all(names.iter().map(large)).await;
    for part in [&ids[..2], &ids[2..]] {
        let claims = h.pick_up_from(QUEUE, &names, 9).await;
        assert_eq!(claims.iter().map(|claim| claim.id).collect::<Vec<_>>(), part);
    }
}

pub async fn nothing_is_picked_up_before_it_is_due_or_after_it_has_expired(h: &Harness) {
    let now = h.clock.now();
    h.put(sms("later").to("ann").due(Due::At(now.plus_ms(1_000)))).await;
    let over = h.put(sms("over").to("bob").expires(now.plus_ms(500))).await;
    h.put(sms("next").to("bob")).await;
    assert_eq!(h.pick_up(&["ann"]).await, [""; 0]);
    h.clock.advance_ms(999);
    assert_eq!(h.pick_up(&["ann", "bob"]).await, ["next"]);
    assert_eq!(h.status(over).await, Status::Expired);
    h.clock.advance_ms(1);
    assert_eq!(h.pick_up(&["ann"]).await, ["later"]);
}

pub async fn an_awaited_ack_is_not_picked_up_before_its_time(h: &Harness) {
    let id = h.put(sms("a1").to("ann").needs_ack()).await;
    h.put(sms("a2").to("ann")).await;
    let claim = h.pick_up_from(QUEUE, &["ann"], 9).await.remove(0);
    h.settle(&claim, accepted()).await;
    assert_eq!(h.pick_up(&["ann"]).await, [""; 0], "its chain waits with it");
    h.clock.advance_ms(ACK_MS);
    let again = h.pick_up_from(QUEUE, &["ann"], 9).await.remove(0);
    assert_eq!((again.id, again.attempt, again.ack_attempts), (id, 2, 1));
    h.ack(id).await;
    assert_eq!(h.pick_up(&["ann"]).await, ["a2"]);
}

pub async fn a_paused_queue_hands_nothing_to_those_who_pick_up(h: &Harness) {
    h.put(sms("a1").to("ann")).await;
    assert!(h.pause(QUEUE, true).await);
    assert_eq!(h.pick_up(&["ann"]).await, [""; 0]);
    assert!(h.pause(QUEUE, false).await);
    assert_eq!(h.pick_up(&["ann"]).await, ["a1"]);
}

pub async fn a_queue_without_order_has_no_first_messages(h: &Harness) {
    h.put(sms("a1").to("ann").on(LOOSE)).await;
    assert_eq!(h.pick_up_from(LOOSE, &["ann"], 9).await, []);
    assert_eq!(h.pick_up_from("never-seen", &["ann"], 9).await, []);
}

pub async fn parallel_pick_ups_share_no_message(h: &Harness) {
    let names: Vec<String> = (0..50).map(|n| format!("r{n}")).collect();
    h.put_all(names.iter().map(|name| sms(name).to(name))).await;
    let pick_up = |_| {
        let recipients = names.iter().map(|name| Recipient::new(name).expect("valid")).collect();
        let (queues, request) =
            (h.queues(), PickUp { queue: queue(QUEUE), recipients, max: 7, lease_ms: LEASE_MS });
        tokio::spawn(async move { queues.pick_up(request).await.expect("pick_up") })
    };
    let tasks: Vec<_> = (0..20).map(pick_up).collect();
    let mut found = Vec::new();
    for task in tasks {
        found.extend(texts(&task.await.expect("no panic")));
    }
    // Those who asked at the same moment may have passed each other's over.
    while let claims @ [_, ..] =
        &h.pick_up_from(QUEUE, &names.iter().map(String::as_str).collect::<Vec<_>>(), 99).await[..]
    {
        found.extend(texts(claims));
    }
    found.sort();
    let mut all = names.clone();
    all.sort();
    assert_eq!(found, all);
}

pub async fn a_message_that_waited_through_a_reopen_is_picked_up(h: &Harness) {
    h.put_all([sms("a1").to("ann"), sms("a2").to("ann")]).await;
    h.pick_up(&["ann"]).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.pick_up(&["ann"]).await, ["a1"]);
}

pub async fn a_queue_stirs_when_a_message_comes(h: &Harness) {
    let seen = h.count_of_changes().await;
    let waiting = h.stirring(seen).await;
    h.put(sms("a1").to("ann")).await;
    stirs(waiting).await;
    assert_ne!(h.count_of_changes().await, seen, "also for those who ask later");
}

pub async fn a_queue_stirs_when_a_message_steps_forward_or_comes_back(h: &Harness) {
    let id = h.put(sms("a1").to("ann").needs_ack()).await;
    h.put(sms("a2").to("ann")).await;
    let claim = h.pick_up_from(QUEUE, &["ann"], 9).await.remove(0);
    let waiting = h.stirring(h.count_of_changes().await).await;
    h.settle(&claim, Outcome::Released).await;
    stirs(waiting).await;
    h.pick_up(&["ann"]).await;
    let waiting = h.stirring(h.count_of_changes().await).await;
    h.ack(id).await;
    stirs(waiting).await;
    assert_eq!(h.pick_up(&["ann"]).await, ["a2"]);
}

pub async fn a_queue_stirs_when_it_goes_on(h: &Harness) {
    h.put(sms("a1").to("ann")).await;
    assert!(h.pause(QUEUE, true).await);
    let waiting = h.stirring(h.count_of_changes().await).await;
    assert!(h.pause(QUEUE, false).await);
    stirs(waiting).await;
}

pub async fn a_wait_for_a_queue_to_stir_ends_by_itself(h: &Harness) {
    let seen = h.count_of_changes().await;
    h.queues().stirred(queue(QUEUE), seen, 10).await.expect("stirred");
}
