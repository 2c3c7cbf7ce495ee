//! How a queue is kept: its limits, its order. And what travels with a message.

use tidegate_domain::{Admitted, Clock, Headers, Lane, Outcome, Requeued, Settled};

use super::Draft;
use super::queue_steps::requeue_of;
use super::steps::{QUEUE, retry, sms, texts};
use crate::{Harness, LOOSE, NARROW};

pub async fn a_full_queue_still_takes_what_is_urgent(h: &Harness) {
    let lanes = [Lane::Normal, Lane::Low, Lane::High, Lane::Normal];
    h.put_all(lanes.map(|lane| narrow("a").lane(lane))).await;
    assert_eq!(h.admit_one(narrow("b")).await, Admitted::QueueFull);
    assert_eq!(h.admit_one(narrow("b").lane(Lane::Low)).await, Admitted::QueueFull);
    h.put_all([narrow("c").lane(Lane::High), narrow("d").lane(Lane::High)]).await;
    assert_eq!(h.admit_one(narrow("e").lane(Lane::High)).await, Admitted::QueueFull);
    h.put(sms("elsewhere")).await;
    assert_eq!(h.counts().await.admitted, 7);
}

pub async fn a_batch_fills_a_queue_item_by_item(h: &Harness) {
    let admitted = h.admit((0..6).map(|n| narrow(&n.to_string()))).await;
    assert!(admitted[..4].iter().all(|answer| matches!(answer, Admitted::Admitted { .. })));
    assert_eq!(admitted[4..], [Admitted::QueueFull, Admitted::QueueFull]);
    h.reopen().await.expect("reopen");
    assert_eq!(h.admit_one(narrow("more")).await, Admitted::QueueFull);
}

pub async fn a_queue_has_room_again_when_a_message_ends(h: &Harness) {
    let ids = h.put_all(["a", "b", "c", "d"].map(narrow)).await;
    let claim = h.claim_from(NARROW, 1).await.remove(0);
    assert_eq!(h.admit_one(narrow("a lease makes no room")).await, Admitted::QueueFull);
    assert_eq!(h.settle(&claim, retry(0)).await, Settled::Done);
    assert_eq!(h.admit_one(narrow("nor does a retry")).await, Admitted::QueueFull);
    h.cancel(ids[3]).await;
    h.put(narrow("e")).await;
    assert_eq!(h.pop_from(NARROW, 2).await.len(), 2);
    h.put_all(["f", "g"].map(narrow)).await;
    assert_eq!(h.admit_one(narrow("h")).await, Admitted::QueueFull);
    assert_eq!(h.purge(NARROW).await, 4);
    h.put_all(["i", "j", "k", "l"].map(narrow)).await;
}

pub async fn a_full_queue_still_knows_its_duplicates(h: &Harness) {
    let id = h.put(narrow("a").key("k")).await;
    h.put_all(["b", "c", "d"].map(narrow)).await;
    let at = h.clock.now();
    assert_eq!(h.admit_one(narrow("a").key("k")).await, Admitted::Duplicate { id, at });
    assert_eq!(h.admit_one(narrow("e").key("l")).await, Admitted::QueueFull);
    h.pop_from(NARROW, 1).await;
    h.put(narrow("e").key("l")).await;
}

pub async fn a_full_queue_takes_no_dead_letters_back(h: &Harness) {
    let id = h.put_dead(narrow("a")).await;
    let urgent = h.put_dead(narrow("b").lane(Lane::High)).await;
    h.put_all(["c", "d", "e", "f"].map(narrow)).await;
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::QueueFull);
    assert_eq!(h.requeue(requeue_of(urgent)).await, Requeued::Requeued);
    h.pop_from(NARROW, 2).await;
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::Requeued);
    assert_eq!(h.requeue(requeue_of(id)).await, Requeued::NotDead);
}

pub async fn without_order_nobody_waits_for_another(h: &Harness) {
    let loose = |body: &str| sms(body).on(LOOSE).to("ann");
    h.put_all([loose("a1").lane(Lane::Low), loose("a2"), loose("a3")]).await;
    h.reopen().await.expect("reopen");
    let claims = h.claim_from(LOOSE, 2).await;
    // Nor does anybody lend a lane.
    assert_eq!(texts(&claims), ["a2", "a3"]);
    assert_eq!(h.settle(&claims[0], retry(60_000)).await, Settled::Done);
    assert_eq!(texts(&h.claim_from(LOOSE, 9).await), ["a1"]);
    let dead = h.put_dead(loose("a4")).await;
    assert_eq!(h.requeue(requeue_of(dead)).await, Requeued::Requeued);
    assert_eq!(texts(&h.pop_from(LOOSE, 9).await), ["a4"]);
}

pub async fn headers_and_ack_required_travel_with_the_message(h: &Harness) {
    let headers = [("trace", "7"), ("x", ""), ("x", "\u{1F30A} \"quoted\"\n"), ("", "nameless")];
    let draft = headers.iter().fold(sms("a").needs_ack(), |draft, (name, value)| draft.header(name, value));
    let expected = draft.0.headers.clone();
    let ids = h.put_all([draft, sms("plain")]).await;
    for _ in 0..2 {
        let record = h.record(ids[0]).await;
        assert_eq!((&record.headers, record.ack_required), (&expected, true));
        let plain = h.record(ids[1]).await;
        assert_eq!((plain.headers, plain.ack_required), (Headers::default(), false));
        let claims = h.claim_from(QUEUE, 2).await;
        assert_eq!((&claims[0].headers, claims[0].ack_required), (&expected, true));
        assert_eq!((&claims[1].headers, claims[1].ack_required), (&Headers::default(), false));
        assert_eq!(h.settle(&claims[0], Outcome::Released).await, Settled::Done);
        h.reopen().await.expect("reopen");
    }
    assert_eq!(h.pop_from(QUEUE, 1).await[0].headers, expected);
}

fn narrow(body: &str) -> Draft {
    sms(body).on(NARROW)
}
