use tidegate_adapters::channels::inbox::InboxOptions;

use crate::bench::{Bench, id, waiting};

#[tokio::test]
async fn what_is_not_acked_is_found_again() {
    let bench = Bench::new();
    bench.hand_over("ann", 2).await;
    bench.hand_over("ann", 1).await;
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1, 2], "in admission order");
    bench.inbox.acked(&[id(1), id(99)]);
    assert_eq!(waiting(&mut bench.subscribe("ann")), [2]);
    bench.inbox.acked(&[id(2)]);
    assert!(waiting(&mut bench.subscribe("ann")).is_empty());
}

#[tokio::test]
async fn a_repetition_takes_the_place_of_what_was() {
    let bench = Bench::new();
    bench.hand_over("ann", 1).await;
    bench.advance_ms(200_000);
    bench.hand_over("ann", 1).await;
    bench.advance_ms(200_000);
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1], "once, and for as long as the younger one");
}

#[tokio::test]
async fn nothing_is_kept_beyond_the_time_for_an_ack() {
    let bench = Bench::new();
    bench.hand_over("ann", 1).await;
    bench.advance_ms(299_999);
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1]);
    bench.advance_ms(1);
    assert!(waiting(&mut bench.subscribe("ann")).is_empty());
}

#[tokio::test]
async fn memory_is_bounded_and_listeners_are_served_all_the_same() {
    let bench = Bench::with(|options| InboxOptions { kept_bytes_max: 1_200, ..options });
    for seq in 0..4 {
        bench.hand_over("ann", seq).await;
        bench.hand_over("bob", 10 + seq).await;
    }
    let kept = waiting(&mut bench.subscribe("ann")).len() + waiting(&mut bench.subscribe("bob")).len();
    assert_eq!(kept, 2);
    // Acks and time make room again.
    bench.inbox.acked(&[id(0)]);
    bench.advance_ms(300_000);
    bench.hand_over("cyd", 20).await;
    assert_eq!(waiting(&mut bench.subscribe("cyd")), [20]);
}

#[tokio::test]
async fn acks_make_room() {
    let bench = Bench::with(|options| InboxOptions { kept_bytes_max: 600, ..options });
    for seq in 0..100 {
        bench.hand_over("ann", seq).await;
        assert_eq!(waiting(&mut bench.subscribe("ann")), [seq]);
        bench.inbox.acked(&[id(seq)]);
    }
}
