//! Same key, same request, within the window: one message.

use tidegate_domain::{Admitted, Clock, MessageId};
use tokio::task::JoinSet;

use super::steps::{sms, user};
use crate::Harness;

pub async fn the_same_key_answers_the_first_message(h: &Harness) {
    let at = h.clock.now();
    let id = h.put(sms("a").key("k")).await;
    h.clock.advance_ms(1_000);
    assert_eq!(h.admit_one(sms("a").key("k")).await, Admitted::Duplicate { id, at });
    assert_eq!(h.counts().await.admitted, 1);
    h.put(sms("a").key("another")).await;
}

pub async fn another_request_under_the_key_is_a_conflict(h: &Harness) {
    let id = h.put(sms("a").key("k")).await;
    assert_eq!(h.admit_one(sms("b").key("k")).await, Admitted::KeyConflict { id });
    assert_eq!(h.deliver_all().await, ["a"]);
}

pub async fn a_duplicate_is_not_charged(h: &Harness) {
    h.ledger().put_quota(user("ann"), 5, 60_000).await.expect("put_quota");
    h.put(sms("a").charged_to("ann").key("k")).await;
    h.admit([sms("a").charged_to("ann").key("k"), sms("b").charged_to("ann").key("k")]).await;
    assert_eq!(h.ledger().quota(user("ann")).await.expect("quota").map(|quota| quota.count), Some(1));
}

pub async fn a_duplicate_is_found_before_the_quota_is_asked(h: &Harness) {
    h.ledger().put_quota(user("ann"), 1, 60_000).await.expect("put_quota");
    let at = h.clock.now();
    let id = h.put(sms("a").charged_to("ann").key("k")).await;
    assert_eq!(h.admit_one(sms("a").charged_to("ann").key("k")).await, Admitted::Duplicate { id, at });
    assert_eq!(h.admit_one(sms("a").charged_to("nobody").key("k")).await, Admitted::Duplicate { id, at });
}

pub async fn a_key_is_free_again_when_its_window_has_ended(h: &Harness) {
    let window_ms = h.setup().idempotency_window_ms;
    let at = h.clock.now();
    let id = h.put(sms("a").key("k")).await;
    h.clock.advance_ms(window_ms - 1);
    // A duplicate does not prolong the window.
    assert_eq!(h.admit_one(sms("a").key("k")).await, Admitted::Duplicate { id, at });
    h.clock.advance_ms(1);
    let second = h.put(sms("a").key("k")).await;
    assert_ne!(second, id);
    let at = h.clock.now();
    assert_eq!(h.admit_one(sms("a").key("k")).await, Admitted::Duplicate { id: second, at });
}

pub async fn a_repeated_key_in_one_batch_is_a_duplicate(h: &Harness) {
    let answers = h.admit([sms("a").key("k"), sms("a").key("k"), sms("b").key("k")]).await;
    let Admitted::Admitted { id, at, .. } = answers[0] else { panic!("{answers:?}") };
    assert_eq!(answers[1..], [Admitted::Duplicate { id, at }, Admitted::KeyConflict { id }]);
    assert_eq!(h.deliver_all().await, ["a"]);
}

pub async fn of_parallel_requests_with_one_key_one_message_comes(h: &Harness) {
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let ledger = h.ledger();
        tasks.spawn(async move { ledger.admit(vec![sms("a").key("k").0]).await });
    }
    let answers: Vec<_> =
        tasks.join_all().await.into_iter().flat_map(|answer| answer.expect("admit")).collect();
    let admitted: Vec<MessageId> = answers.iter().filter_map(fresh_id).collect();
    assert_eq!(admitted.len(), 1, "{answers:?}");
    let duplicate = Admitted::Duplicate { id: admitted[0], at: h.clock.now() };
    assert_eq!(answers.iter().filter(|answer| **answer == duplicate).count(), 31);
    assert_eq!(h.deliver_all().await, ["a"]);
}

pub async fn a_refused_admission_leaves_its_key_free(h: &Harness) {
    let refused = h.admit_one(sms("a").charged_to("ann").key("k")).await;
    assert_eq!(refused, Admitted::UnknownUser);
    h.ledger().put_quota(user("ann"), 1, 60_000).await.expect("put_quota");
    h.put(sms("a").charged_to("ann").key("k")).await;
    let refused = h.admit_one(sms("b").charged_to("ann").key("l")).await;
    assert!(matches!(refused, Admitted::OverQuota { .. }), "{refused:?}");
    h.clock.advance_ms(60_000);
    h.put(sms("another body").charged_to("ann").key("l")).await;
}

pub async fn a_key_outlives_its_message(h: &Harness) {
    let at = h.clock.now();
    let id = h.put(sms("a").key("k")).await;
    assert_eq!(h.deliver_all().await, ["a"]);
    assert_eq!(h.admit_one(sms("a").key("k")).await, Admitted::Duplicate { id, at });
    assert_eq!(h.deliver_all().await, [""; 0]);
}

pub async fn keys_survive_a_reopen(h: &Harness) {
    let at = h.clock.now();
    let delivered = h.put(sms("a").key("k")).await;
    assert_eq!(h.deliver_all().await, ["a"]);
    let pending = h.put(sms("b").key("l")).await;
    h.clock.advance_ms(5);
    h.reopen().await.expect("reopen");
    assert_eq!(h.admit_one(sms("a").key("k")).await, Admitted::Duplicate { id: delivered, at });
    assert_eq!(h.admit_one(sms("b").key("l")).await, Admitted::Duplicate { id: pending, at });
    assert_eq!(h.admit_one(sms("c").key("l")).await, Admitted::KeyConflict { id: pending });
    h.clock.advance_ms(h.setup().idempotency_window_ms - 5);
    h.put(sms("c").key("l")).await;
}

fn fresh_id(answer: &Admitted) -> Option<MessageId> {
    match answer {
        Admitted::Admitted { id, .. } => Some(*id),
        _ => None,
    }
}
