//! Versions are kept, one is active, and windows keep what they hold.

use tidegate_domain::limits::slot::{BusinessHours, Calendar, Period, SlotRule};
use tidegate_domain::{Clock, Forecast, Reserved, SlotConfig, SlotConfigPut};

use super::slot_steps::{WINDOW_MS, ask, assigned, at_ms, per_window, slot_config, window};
use crate::Harness;

const HOUR_MS: u64 = 3_600_000;

pub async fn versions_are_kept_and_the_newest_is_active(h: &Harness) {
    let first = h.put_slots("default", per_window(1)).await;
    let expected =
        SlotConfig { name: slot_config("default"), version: 1, rule: per_window(1), created_at: at_ms(0) };
    assert_eq!(first, expected);
    h.clock.advance_ms(9);
    h.put_slots("other", per_window(5)).await;
    let second = h.put_slots("default", per_window(2)).await;
    assert_eq!((second.version, second.created_at), (2, h.clock.now()));
    assert_eq!(h.slot_versions("default").await, [second, first]);
    assert_eq!(h.slot_versions("other").await.len(), 1);
    let windows = [h.assign(ask("a")).await, h.assign(ask("b")).await, h.assign(ask("c")).await];
    assert_eq!(windows.each_ref().map(window), [0, 0, 1]);
}

pub async fn a_larger_maximum_opens_full_windows(h: &Harness) {
    h.put_slots("default", per_window(2)).await;
    for n in 0..3 {
        h.assign(ask(&n.to_string())).await;
    }
    h.put_slots("default", per_window(3)).await;
    let mut windows = Vec::new();
    for n in 3..7 {
        windows.push(window(&h.assign(ask(&n.to_string())).await));
    }
    assert_eq!(windows, [0, 1, 1, 2], "they see what is there");
}

pub async fn a_smaller_maximum_leaves_windows_full(h: &Harness) {
    h.put_slots("default", per_window(3)).await;
    let slots = h.reserve((0..3).map(|n| ask(&n.to_string()))).await;
    h.put_slots("default", per_window(1)).await;
    assert_eq!(window(&h.assign(ask("a")).await), 1);
    let again = h.reserve((0..3).map(|n| ask(&n.to_string()))).await;
    for (first, again) in slots.into_iter().zip(again) {
        let (Reserved::Assigned(first), Reserved::Existing(again)) = (first, again) else { panic!("lost") };
        assert_eq!(first, again);
    }
    // Three in a window for one: two places back open nothing.
    h.release("0").await;
    h.release("1").await;
    assert_eq!(window(&h.assign(ask("b")).await), 2);
    h.release("2").await;
    assert_eq!(window(&h.assign(ask("c")).await), 0);
}

pub async fn another_window_size_is_refused_while_slots_lie_ahead(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    h.assign(ask("a")).await;
    h.assign(ask("b")).await;
    let wider = SlotRule { window_ms: 2 * WINDOW_MS, ..per_window(1) };
    let refused = SlotConfigPut::WindowSizeInUse { window_ms: WINDOW_MS, until: at_ms(2 * WINDOW_MS) };
    assert_eq!(h.try_put_slots("default", wider.clone()).await, refused);
    h.clock.advance_ms(2 * WINDOW_MS - 1);
    assert_eq!(h.try_put_slots("default", wider.clone()).await, refused);
    assert_eq!(h.slot_versions("default").await.len(), 1);
    h.put_slots("other", wider.clone()).await;
    h.put_slots("default", per_window(9)).await;
    h.clock.advance_ms(1);
    assert_eq!(h.put_slots("default", wider).await.version, 3);
}

pub async fn slots_given_back_do_not_hold_the_window_size(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    h.assign(ask("a").after_ms(100 * WINDOW_MS)).await;
    h.release("a").await;
    h.put_slots("default", SlotRule { window_ms: 1_000, ..per_window(1) }).await;
    let slot = h.assign(ask("a").after_ms(1_000)).await;
    assert_eq!((slot.window_start, slot.scheduled), (at_ms(1_000), at_ms(1_000)));
}

/// A window holds the slots that lie in it, whatever size windows had when they were assigned; and an event keeps what it was
/// told.
pub async fn windows_of_another_size_count_the_slots_that_lie_in_them(h: &Harness) {
    h.put_slots("default", per_window(2)).await;
    let old = h.assign(ask("a").jitter(17)).await;
    let late = h.assign(ask("late").after_ms(WINDOW_MS)).await;
    h.clock.advance_ms(2 * WINDOW_MS);
    h.put_slots("default", SlotRule { window_ms: 3 * WINDOW_MS, ..per_window(3) }).await;
    assert_eq!(h.reserve_one(ask("a")).await, Reserved::Existing(old.clone()));
    let new = h.assign(ask("b")).await;
    assert_eq!(new.window_start, at_ms(0), "the third of three");
    assert_eq!(h.assign(ask("c")).await.window_start, at_ms(3 * WINDOW_MS));
    h.reopen().await.expect("reopen");
    assert_eq!(h.slot_of("a").await, Some(old));
    assert_eq!(h.slot_of("b").await, Some(new));
    assert_eq!(h.assign(ask("d")).await.window_start, at_ms(3 * WINDOW_MS));
    h.release("a").await;
    assert_eq!(h.assign(ask("e")).await.window_start, at_ms(0), "the place that was given back");
    h.clock.advance_ms(9 * WINDOW_MS);
    h.put_slots("default", SlotRule { window_ms: WINDOW_MS, ..per_window(1) }).await;
    assert_eq!(h.slot_of("late").await, Some(late));
    // The slots lie at 0, 0, W, 3 W and 3 W now.
    assert_eq!(h.assign(ask("f")).await.window_start, at_ms(2 * WINDOW_MS));
    assert_eq!(h.assign(ask("g")).await.window_start, at_ms(4 * WINDOW_MS));
}

pub async fn blackouts_have_no_capacity(h: &Harness) {
    let blackout = Period { from: at_ms(WINDOW_MS + 1), to: at_ms(3 * WINDOW_MS + 1) };
    let calendar = Calendar { blackouts: vec![blackout], business_hours: None };
    h.put_slots("default", SlotRule { calendar, ..per_window(1) }).await;
    let slots = [h.assign(ask("a")).await, h.assign(ask("b")).await];
    // The windows that begin and end inside touch it too.
    assert_eq!(slots.each_ref().map(window), [0, 4]);
    assert_eq!(window(&h.assign(ask("c").after_ms(2 * WINDOW_MS)).await), 5);
    h.put_slots("default", per_window(1)).await;
    assert_eq!(window(&h.assign(ask("d")).await), 1, "lifted");
}

pub async fn outside_business_hours_there_is_no_capacity(h: &Harness) {
    // The cases begin on a Saturday at 22:00 UTC, which is 23:00 in Berlin.
    let days = ["SAT".to_owned(), "MON".to_owned()];
    let hours = BusinessHours::new("Europe/Berlin", &days, "09:00", "23:30").expect("business hours");
    let calendar = Calendar { blackouts: Vec::new(), business_hours: Some(hours) };
    let rule = SlotRule { window_ms: HOUR_MS / 2, calendar, headroom_windows: 1_000, ..per_window(1) };
    h.put_slots("default", rule).await;
    assert_eq!(h.assign(ask("a")).await.window_start, at_ms(0));
    let monday_at_nine = at_ms(34 * HOUR_MS);
    assert_eq!(h.assign(ask("b")).await.window_start, monday_at_nine);
    assert_eq!(h.assign(ask("c").after_ms(HOUR_MS)).await.window_start, monday_at_nine.plus_ms(HOUR_MS / 2));
}

/// An hour on each weekday, in a window of its own.
pub async fn an_event_finds_room_beyond_many_full_stretches_of_open_time(h: &Harness) {
    let days = ["MON", "TUE", "WED", "THU", "FRI"].map(str::to_owned);
    let hours = BusinessHours::new("UTC", &days, "09:00", "10:00").expect("business hours");
    let calendar = Calendar { blackouts: Vec::new(), business_hours: Some(hours) };
    let rule = SlotRule { max_per_window: 1, window_ms: HOUR_MS, headroom_windows: 1_000_000, calendar };
    h.put_slots("default", rule.clone()).await;
    // The first is on the Monday after the cases' start, a Saturday at 22:00.
    let opens = |nth: u64| at_ms(HOUR_MS * (11 + 24 * (1 + nth / 5 * 7 + nth % 5)));
    let starts = |reserved: Vec<Reserved>| -> Vec<_> {
        reserved.into_iter().map(|reserved| assigned(reserved).window_start).collect()
    };
    let batch = h.reserve((0..290).map(|n| ask(&n.to_string()))).await;
    assert_eq!(starts(batch), (0..290).map(opens).collect::<Vec<_>>());
    for nth in 290..293 {
        let forecast = h.forecast(&ask("next")).await;
        assert_eq!(forecast, Forecast::At { window_start: opens(nth), scheduled: opens(nth) });
        assert_eq!(h.assign(ask(&nth.to_string())).await.window_start, opens(nth));
    }
    let asked_for = |nth: u64| ask("there").after_ms(opens(nth).since_ms(at_ms(0)));
    let batch = h.reserve([ask("before"), asked_for(293)]).await;
    assert_eq!(starts(batch), [opens(293), opens(294)], "in order, however far the first one has to look");
    // The headroom ends them all the same: the last of them is the hundredth.
    let headroom_windows = opens(99).since_ms(at_ms(0)) / HOUR_MS;
    h.put_slots("near", SlotRule { headroom_windows, ..rule }).await;
    let near = h.reserve((0..101).map(|n| ask(&format!("near {n}")).of("near"))).await;
    assert_eq!(near.last(), Some(&Reserved::NoRoom));
    assert_eq!(starts(near[..100].to_vec()), (0..100).map(opens).collect::<Vec<_>>());
    assert_eq!(h.forecast(&ask("near").of("near")).await, Forecast::NoRoom);
}
