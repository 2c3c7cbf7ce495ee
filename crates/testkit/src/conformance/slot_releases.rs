//! A slot given back is free again, unless its message has been on its way.

use tidegate_domain::{Clock, Released, Reserved, Status};

use super::slot_steps::{WINDOW_MS, ask, per_window, window};
use super::steps::{sms, text};
use crate::Harness;

pub async fn a_slot_given_back_is_taken_by_the_next_event(h: &Harness) {
    h.put_slots("default", per_window(2)).await;
    h.reserve((0..6).map(|n| ask(&n.to_string()))).await;
    let slot = h.slot_of("3").await.expect("a slot");
    assert_eq!(h.release("3").await, Released::Released(slot));
    assert_eq!(h.slot_of("3").await, None);
    assert_eq!(window(&h.assign(ask("a")).await), 1);
    assert_eq!(window(&h.assign(ask("b")).await), 3);
}

pub async fn an_unknown_event_gives_nothing_back(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    assert_eq!(h.release("a").await, Released::UnknownEvent);
    h.assign(ask("a")).await;
    h.release("a").await;
    assert_eq!(h.release("a").await, Released::UnknownEvent);
}

pub async fn an_event_that_gave_its_slot_back_may_ask_again(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    h.assign(ask("a")).await;
    h.release("a").await;
    let slot = h.assign(ask("a").after_ms(3 * WINDOW_MS).jitter(3)).await;
    assert_eq!((window(&slot), h.slot_of("a").await), (3, Some(slot)));
    assert_eq!(window(&h.assign(ask("b")).await), 0);
}

pub async fn a_slot_given_back_deletes_its_waiting_message(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    let slot = h.assign(ask("a").after_ms(WINDOW_MS).with(sms("paid").to("ann"))).await;
    let id = slot.message.expect("a message");
    h.clock.advance_ms(5);
    assert_eq!(h.release("a").await, Released::Released(slot));
    let record = h.record(id).await;
    assert_eq!((record.status, record.settled_at), (Status::Deleted, Some(h.clock.now())));
    let books = h.counts().await;
    assert_eq!((books.admitted, books.deleted, books.pending), (1, 1, 0));
    h.clock.advance_ms(2 * WINDOW_MS);
    assert_eq!(h.claim(9).await, []);
    h.reopen().await.expect("reopen");
    assert_eq!((h.counts().await, h.record(id).await), (books, record));
    assert_eq!(h.claim(9).await, []);
}

pub async fn a_message_taken_back_lets_the_next_of_its_recipient_go(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    h.assign(ask("a").after_ms(9 * WINDOW_MS).with(sms("head").to("ann"))).await;
    h.put(sms("between").to("ann")).await;
    h.assign(ask("b").with(sms("second").to("ann"))).await;
    h.put(sms("last").to("ann")).await;
    assert_eq!(h.claim(9).await, []);
    assert!(matches!(h.release("b").await, Released::Released(_)));
    assert!(matches!(h.release("a").await, Released::Released(_)));
    assert_eq!(h.deliver_all().await, ["between", "last"]);
}

pub async fn a_slot_is_used_once_its_message_is_on_its_way(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    let slot = h.assign(ask("a").with(sms("paid"))).await;
    let claim = h.claim_one().await;
    assert_eq!(text(&claim), "paid");
    assert_eq!(h.release("a").await, Released::Used(slot.clone()));
    h.deliver(&claim).await;
    assert_eq!(h.release("a").await, Released::Used(slot.clone()));
    h.reopen().await.expect("reopen");
    assert_eq!(h.release("a").await, Released::Used(slot.clone()));
    assert_eq!(h.reserve_one(ask("a")).await, Reserved::Existing(slot));
    let books = h.counts().await;
    assert_eq!((books.delivered, books.deleted), (1, 0));
    assert_eq!(window(&h.assign(ask("b")).await), 1, "its place stays taken");
}

pub async fn a_slot_is_used_once_its_message_is_dead(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    let slot = h.assign(ask("a").with(sms("paid"))).await;
    h.settle(&h.claim_one().await, super::steps::dead()).await;
    assert_eq!(h.release("a").await, Released::Used(slot));
}
