//! No window ever holds more than its limit, and no event is early or has two.

use std::collections::BTreeMap;

use tidegate_domain::{Clock, Forecast, Reserved, Slot};
use tokio::task::JoinSet;

use super::slot_steps::{WINDOW_MS, ask, assigned, at_ms, event, per_window, slot_config, window};
use crate::Harness;

pub async fn an_event_is_assigned_at_or_after_its_request(h: &Harness) {
    h.put_slots("default", per_window(100)).await;
    h.clock.advance_ms(7);
    let expected = Slot {
        event: event("a"),
        config: slot_config("default"),
        requested: at_ms(WINDOW_MS),
        scheduled: at_ms(WINDOW_MS + 2_371),
        window_start: at_ms(WINDOW_MS),
        created_at: h.clock.now(),
        message: None,
    };
    assert_eq!(h.assign(ask("a").after_ms(WINDOW_MS).jitter(2_371)).await, expected);
    assert_eq!(h.slot_of("a").await, Some(expected));
    for (n, jitter) in [0, 1, 999, 3_999, 4_000, u64::MAX].into_iter().enumerate() {
        let slot = h.assign(ask(&n.to_string()).after_ms(1_500).jitter(jitter)).await;
        assert!(slot.scheduled >= at_ms(1_500) && slot.scheduled < at_ms(WINDOW_MS), "{slot:?}");
    }
    assert_eq!(h.slot_of("nobody").await, None);
}

pub async fn a_request_for_the_past_is_placed_there(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    h.clock.advance_ms(1_000_000);
    let slot = h.assign(ask("a")).await;
    assert_eq!((slot.scheduled, slot.created_at), (at_ms(0), at_ms(1_000_000)));
}

pub async fn the_same_event_gets_the_same_slot_whatever_it_asks(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    h.put_slots("other", per_window(1)).await;
    let slot = h.assign(ask("a").jitter(5)).await;
    h.clock.advance_ms(50);
    for again in [ask("a"), ask("a").after_ms(90_000).jitter(7), ask("a").of("other"), ask("a").of("nowhere")]
    {
        assert_eq!(h.reserve_one(again).await, Reserved::Existing(slot.clone()));
    }
    assert_eq!(window(&h.assign(ask("b").of("other")).await), 0, "nothing was taken there");
    assert_eq!(window(&h.assign(ask("c")).await), 1);
}

pub async fn the_first_window_counts_in_proportion(h: &Harness) {
    h.put_slots("default", per_window(8)).await;
    // A quarter of the window is left: a quarter of eight.
    let mut windows = Vec::new();
    for n in 0..4 {
        windows.push(window(&h.assign(ask(&n.to_string()).after_ms(3_000).jitter(n)).await));
    }
    assert_eq!(windows, [0, 0, 1, 1]);
    // What those took counts for whoever asks for the whole window.
    for n in 4..10 {
        assert_eq!(window(&h.assign(ask(&n.to_string())).await), 0);
    }
    assert_eq!(window(&h.assign(ask("late")).await), 1);
    // Less than a place is left.
    assert_eq!(window(&h.assign(ask("last").after_ms(2 * WINDOW_MS - 1)).await), 2);
}

pub async fn the_earliest_windows_fill_first(h: &Harness) {
    h.put_slots("default", per_window(3)).await;
    let mut windows = Vec::new();
    for n in 0..10u64 {
        windows.push(window(&h.assign(ask(&n.to_string()).jitter(n * 977)).await));
    }
    assert_eq!(windows, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]);
    assert_eq!(window(&h.assign(ask("from the second")).await), 3);
    assert_eq!(window(&h.assign(ask("later").after_ms(5 * WINDOW_MS)).await), 5);
}

pub async fn parallel_reservations_never_fill_a_window_past_its_limit(h: &Harness) {
    h.put_slots("default", per_window(7)).await;
    let mut tasks = JoinSet::new();
    for task in 0..16u64 {
        let slots = h.slots();
        tasks.spawn(async move {
            let mut taken = Vec::new();
            for batch in 0..4u64 {
                let asks = (0..5u64).map(|n| ask(&format!("{task}-{batch}-{n}")).jitter(task * 731 + n).0);
                taken.extend(slots.reserve(asks.collect()).await.expect("reserve"));
            }
            taken
        });
    }
    let mut held: BTreeMap<u64, usize> = BTreeMap::new();
    for slot in tasks.join_all().await.into_iter().flatten().map(assigned) {
        *held.entry(window(&slot)).or_default() += 1;
    }
    // 320 events: 45 full windows, and five in the next.
    let expected: BTreeMap<_, _> = (0..45).map(|n| (n, 7)).chain([(45, 5)]).collect();
    assert_eq!(held, expected);
}

pub async fn of_parallel_requests_for_one_event_one_takes_a_place(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    let mut tasks = JoinSet::new();
    for n in 0..16 {
        let slots = h.slots();
        tasks.spawn(async move { slots.reserve(vec![ask("a").jitter(n).0]).await.expect("reserve") });
    }
    let (mut first, mut all) = (0, Vec::new());
    for reserved in tasks.join_all().await.into_iter().flatten() {
        first += usize::from(matches!(reserved, Reserved::Assigned(_)));
        match reserved {
            Reserved::Assigned(slot) | Reserved::Existing(slot) => all.push(slot),
            other => panic!("{other:?}"),
        }
    }
    assert!(first == 1 && all.iter().all(|slot| *slot == all[0]), "{all:?}");
    assert_eq!(window(&h.assign(ask("b")).await), 1);
}

pub async fn past_the_headroom_there_is_no_room(h: &Harness) {
    let rule = per_window(1);
    h.put_slots("default", tidegate_domain::limits::slot::SlotRule { headroom_windows: 2, ..rule }).await;
    for n in 0..3 {
        assert_eq!(window(&h.assign(ask(&n.to_string())).await), n);
    }
    assert_eq!(h.reserve_one(ask("a")).await, Reserved::NoRoom);
    assert_eq!(h.forecast(&ask("a")).await, Forecast::NoRoom);
    assert_eq!(h.slot_of("a").await, None);
    assert_eq!(window(&h.assign(ask("a").after_ms(WINDOW_MS)).await), 3, "it may ask for later");
}

pub async fn an_unknown_config_has_no_slots(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    assert_eq!(h.reserve_one(ask("a").of("other")).await, Reserved::UnknownConfig);
    assert_eq!(h.forecast(&ask("a").of("other")).await, Forecast::UnknownConfig);
    assert_eq!(h.slot_of("a").await, None);
    assert_eq!(h.slot_versions("other").await, []);
}

pub async fn configurations_do_not_share_windows(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    h.put_slots("other", per_window(1)).await;
    assert_eq!(window(&h.assign(ask("a")).await), 0);
    assert_eq!(window(&h.assign(ask("b").of("other")).await), 0);
}

pub async fn a_batch_of_reservations_is_decided_in_order(h: &Harness) {
    h.put_slots("default", per_window(1)).await;
    let reserved =
        h.reserve([ask("a"), ask("b").of("other"), ask("a").after_ms(9_000), ask("c"), ask("d")]).await;
    let slot = h.slot_of("a").await.expect("a slot");
    assert_eq!(reserved[0], Reserved::Assigned(slot.clone()));
    assert_eq!(reserved[1], Reserved::UnknownConfig);
    assert_eq!(reserved[2], Reserved::Existing(slot), "one slot for an event that is there twice");
    let windows: Vec<_> = reserved[3..].iter().map(|reserved| window(&assigned(reserved.clone()))).collect();
    assert_eq!(windows, [1, 2]);
}

pub async fn a_forecast_says_what_a_reservation_then_gets(h: &Harness) {
    h.put_slots("default", per_window(2)).await;
    for n in 0..7u64 {
        let asked = ask(&n.to_string()).after_ms(1_000).jitter(n * 1_234_567);
        let (forecast, again) = (h.forecast(&asked).await, h.forecast(&asked).await);
        let slot = h.assign(asked).await;
        let expected = Forecast::At { window_start: slot.window_start, scheduled: slot.scheduled };
        assert_eq!((forecast, again), (expected.clone(), expected), "looking takes nothing");
    }
}

pub async fn a_ledger_full_of_slots_refuses_until_one_is_given_back(h: &Harness) {
    h.put_slots("default", per_window(1_000)).await;
    let max = h.setup().slots_max;
    h.reserve((0..max).map(|n| ask(&n.to_string()))).await;
    assert_eq!(h.reserve_one(ask("a")).await, Reserved::Full);
    assert!(matches!(h.reserve_one(ask("7")).await, Reserved::Existing(_)), "it knows what it holds");
    h.release("7").await;
    h.assign(ask("a")).await;
    assert_eq!(h.reserve_one(ask("b")).await, Reserved::Full);
}

pub async fn a_slot_is_forgotten_when_its_time_is_over(h: &Harness) {
    h.put_slots("default", per_window(2)).await;
    let first = h.assign(ask("a")).await;
    h.clock.advance_ms(WINDOW_MS + h.setup().slot_retention_ms - 1);
    let late = h.assign(ask("b")).await;
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(h.slot_of("a").await, Some(first));
    h.clock.advance_ms(1);
    h.ledger().sweep().await.expect("sweep");
    assert_eq!(h.slot_of("a").await, None);
    assert_eq!(h.slot_of("b").await, Some(late), "asked for late, kept as long");
    h.reopen().await.expect("reopen");
    assert_eq!(h.slot_of("a").await, None);
    assert_eq!(window(&h.assign(ask("a")).await), 0);
}
