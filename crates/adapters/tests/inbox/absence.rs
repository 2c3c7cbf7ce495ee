use tidegate_adapters::channels::inbox::InboxOptions;
use tidegate_domain::Delivery;

use crate::bench::{Bench, waiting};

#[tokio::test]
async fn a_message_for_an_absent_recipient_is_held_the_longer_the_older_it_is() {
    let bench = Bench::new();
    assert_eq!(bench.hold_ms("ann", 1), Some(1_000));
    bench.advance_ms(80_000);
    assert_eq!(bench.hold_ms("ann", 1), Some(10_000));
    bench.advance_ms(86_400_000);
    assert_eq!(bench.hold_ms("ann", 1), Some(60_000));
    let _device = bench.subscribe("ann");
    assert_eq!((bench.hold_ms("ann", 1), bench.hold_ms("bob", 2)), (None, Some(60_000)));
}

#[tokio::test]
async fn between_two_polls_a_recipient_counts_as_there() {
    let bench = Bench::new();
    drop(bench.subscribe("ann"));
    bench.advance_ms(9_999);
    assert_eq!(bench.hold_ms("ann", 1), None);
    assert_eq!(bench.deliver("ann", 1).await, Delivery::Accepted);
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1]);
    bench.advance_ms(10_000);
    assert!(bench.hold_ms("ann", 2).is_some());
}

#[tokio::test]
async fn a_recipient_that_leaves_at_the_last_moment_costs_no_attempt() {
    let bench = Bench::new();
    let device = bench.subscribe("ann");
    assert_eq!(bench.hold_ms("ann", 1), None);
    drop(device);
    bench.advance_ms(60_000);
    assert_eq!(bench.deliver("ann", 1).await, Delivery::Accepted, "the inbox has it");
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1]);
}

#[tokio::test]
async fn without_room_nothing_is_taken_for_a_recipient_that_is_not_there() {
    let bench = Bench::with(|options| InboxOptions { kept_bytes_max: 0, ..options });
    drop(bench.subscribe("ann"));
    assert_eq!(bench.hold_ms("ann", 1), Some(1_000));
    let delivery = bench.deliver("ann", 1).await;
    assert!(matches!(delivery, Delivery::TryLater { after_ms: Some(60_000), .. }), "{delivery:?}");
}
