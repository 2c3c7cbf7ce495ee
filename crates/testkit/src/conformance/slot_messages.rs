//! A slot and its message are one: both or neither, and due exactly then.

use tidegate_domain::{Due, Headers, Lane, Reserved, Status};

use super::slot_steps::{WINDOW_MS, ask, at_ms, per_window, window};
use super::steps::{sms, text};
use crate::Harness;

pub async fn a_slots_message_is_due_at_its_scheduled_time(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    let message = sms("paid").to("ann").lane(Lane::High).header("trace", "7");
    let slot = h.assign(ask("a").after_ms(WINDOW_MS).jitter(1_234).with(message)).await;
    let record = h.record(slot.message.expect("a message")).await;
    assert_eq!((record.due_at, record.admitted_at), (at_ms(WINDOW_MS + 1_234), at_ms(0)));
    assert_eq!((record.status, record.lane, record.user), (Status::Pending, Lane::High, None));
    h.clock.advance_ms(WINDOW_MS + 1_233);
    assert_eq!(h.claim(9).await, []);
    h.clock.advance_ms(1);
    let claim = h.claim_one().await;
    assert_eq!((claim.id, text(&claim)), (record.id, "paid".to_owned()));
    assert_eq!(claim.recipient, record.recipient);
    let headers = Headers(vec![("trace".to_owned(), "7".to_owned())]);
    assert_eq!((&claim.headers, &record.headers), (&headers, &headers));
}

pub async fn an_event_admits_its_message_once(h: &Harness) {
    h.put_slots("default", per_window(9)).await;
    let asked = || ask("a").with(sms("paid"));
    let reserved = h.reserve([asked(), asked()]).await;
    assert!(matches!(&reserved[..], [Reserved::Assigned(_), Reserved::Existing(_)]), "{reserved:?}");
    assert!(matches!(h.reserve_one(asked()).await, Reserved::Existing(_)));
    assert_eq!(h.deliver_all().await, ["paid"]);
}

pub async fn without_a_slot_there_is_no_message(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    assert_eq!(h.reserve_one(ask("a").of("other").with(sms("a"))).await, Reserved::UnknownConfig);
    let books = h.counts().await;
    assert_eq!((books.admitted, books.pending), (0, 0));
}

pub async fn without_room_for_the_message_there_is_no_slot(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    let max = h.setup().pending_max;
    let later = Due::At(at_ms(99 * WINDOW_MS));
    h.put_all((0..max).map(|n| sms(&n.to_string()).due(later))).await;
    assert_eq!(h.reserve_one(ask("a").with(sms("a"))).await, Reserved::Full);
    assert_eq!(h.slot_of("a").await, None);
    assert_eq!(window(&h.assign(ask("b")).await), 0, "its place was not taken");
}

pub async fn messages_of_slots_keep_their_recipients_order(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    let asks = [
        ask("a").after_ms(2 * WINDOW_MS).with(sms("first").to("ann")),
        ask("b").with(sms("second").to("ann")),
        ask("c").with(sms("other").to("bob")),
    ];
    h.reserve(asks).await;
    h.clock.advance_ms(WINDOW_MS);
    assert_eq!(h.deliver_all().await, ["other"]);
    h.clock.advance_ms(WINDOW_MS);
    assert_eq!(h.deliver_all().await, ["first", "second"]);
}

/// The windows, the versions, and who has which place.
pub async fn slots_survive_a_reopen(h: &Harness) {
    h.put_slots("default", per_window(2)).await;
    h.put_slots("other", per_window(1)).await;
    h.reserve((0..5u64).map(|n| ask(&n.to_string()).jitter(n * 777))).await;
    h.release("2").await;
    h.put_slots("default", per_window(3)).await;
    let versions = h.slot_versions("default").await;
    let slot = h.assign(ask("a").with(sms("paid").to("ann"))).await;
    h.reopen().await.expect("reopen");
    assert_eq!(h.slot_versions("default").await, versions);
    assert_eq!(h.slot_of("a").await, Some(slot.clone()));
    assert_eq!(h.slot_of("2").await, None);
    assert_eq!(h.reserve_one(ask("a")).await, Reserved::Existing(slot));
    // Three in the first window; one and one in the next, where a place was given back.
    let mut windows = Vec::new();
    for n in 10..16 {
        windows.push(window(&h.assign(ask(&n.to_string())).await));
    }
    assert_eq!(windows, [1, 1, 2, 2, 3, 3]);
    h.reopen().await.expect("reopen");
    assert_eq!(window(&h.assign(ask("b")).await), 3);
    assert_eq!(h.deliver_all().await, ["paid"]);
    assert_eq!(h.put_slots("default", per_window(4)).await.version, 3);
}
