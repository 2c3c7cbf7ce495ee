use tidegate_adapters::channels::inbox::InboxOptions;
use tidegate_domain::Delivery;

use crate::bench::{Bench, id, waiting};

#[tokio::test]
async fn what_is_not_acked_is_found_again() {
    let bench = Bench::new();
    let device = bench.subscribe("ann");
    bench.deliver("ann", 2).await;
    bench.deliver("ann", 1).await;
    drop(device);
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1, 2], "in admission order");
    bench.inbox.acked(&[id(1), id(99)]);
    assert_eq!(waiting(&mut bench.subscribe("ann")), [2]);
    bench.inbox.acked(&[id(2)]);
    assert!(waiting(&mut bench.subscribe("ann")).is_empty());
}

#[tokio::test]
async fn a_repetition_takes_the_place_of_what_was() {
    let bench = Bench::new();
    let _device = bench.subscribe("ann");
    bench.deliver("ann", 1).await;
    bench.advance_ms(200_000);
    bench.deliver("ann", 1).await;
    bench.advance_ms(200_000);
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1], "once, and for as long as the younger one");
}

#[tokio::test]
async fn nothing_is_kept_beyond_the_time_for_an_ack() {
    let bench = Bench::new();
    let device = bench.subscribe("ann");
    bench.deliver("ann", 1).await;
    drop(device);
    bench.advance_ms(299_999);
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1]);
    bench.advance_ms(1);
    assert!(waiting(&mut bench.subscribe("ann")).is_empty());
}

#[tokio::test]
async fn memory_is_bounded_and_listeners_are_served_all_the_same() {
    let bench = Bench::with(|options| InboxOptions { kept_bytes_max: 1_200, ..options });
    let (mut ann, mut bob) = (bench.subscribe("ann"), bench.subscribe("bob"));
    for seq in 0..4 {
        assert_eq!(bench.deliver("ann", seq).await, Delivery::Accepted);
        assert_eq!(bench.deliver("bob", 10 + seq).await, Delivery::Accepted);
    }
    assert_eq!((waiting(&mut ann), waiting(&mut bob)), (vec![0, 1, 2, 3], vec![10, 11, 12, 13]));
    drop((ann, bob));
    let kept = waiting(&mut bench.subscribe("ann")).len() + waiting(&mut bench.subscribe("bob")).len();
    assert_eq!(kept, 2);
    // Acks and time make room again.
    bench.inbox.acked(&[id(0)]);
    bench.advance_ms(300_000);
    let mut cyd = bench.subscribe("cyd");
    bench.deliver("cyd", 20).await;
    assert_eq!(waiting(&mut cyd), [20]);
    drop(cyd);
    assert_eq!(waiting(&mut bench.subscribe("cyd")), [20]);
}

#[tokio::test]
async fn acks_make_room() {
    let bench = Bench::with(|options| InboxOptions { kept_bytes_max: 1_200, ..options });
    for seq in 0..100 {
        assert_eq!(bench.deliver("ann", seq).await, Delivery::Accepted);
        bench.inbox.acked(&[id(seq)]);
    }
}
