use tidegate_adapters::channels::inbox::TooManyListeners;
use tidegate_domain::{Channel, Claim, Delivery, Recipient};

use crate::bench::{Bench, id, waiting};

#[tokio::test]
async fn a_listener_gets_its_message_whole() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    assert_eq!(bench.hold_ms("ann", 7), None);
    assert_eq!(bench.deliver("ann", 7).await, Delivery::Accepted);
    let message = device.next().await.unwrap();
    let claim = bench.claim("ann", 7);
    assert_eq!((message.id, message.attempt, &message.body[..]), (id(7), 1, &b"7"[..]));
    assert_eq!(
        (message.headers, message.queue, message.admitted_at),
        (claim.headers, claim.queue, claim.admitted_at)
    );
}

#[tokio::test]
async fn a_listener_that_waits_is_woken() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    let waiting = tokio::spawn(async move { device.next().await });
    tokio::task::yield_now().await;
    bench.deliver("ann", 1).await;
    assert_eq!(waiting.await.unwrap().unwrap().id, id(1));
}

#[tokio::test]
async fn all_devices_of_a_recipient_get_it_and_no_others() {
    let bench = Bench::new();
    let (mut phone, mut tablet, mut other) =
        (bench.subscribe("ann"), bench.subscribe("ann"), bench.subscribe("bob"));
    bench.deliver("ann", 1).await;
    bench.deliver("ann", 2).await;
    assert_eq!((waiting(&mut phone), waiting(&mut tablet)), (vec![1, 2], vec![1, 2]));
    assert!(waiting(&mut other).is_empty());
}

#[tokio::test]
async fn a_slow_device_is_dropped_and_the_others_stay() {
    let bench = Bench::new();
    let (mut slow, mut quick) = (bench.subscribe("ann"), bench.subscribe("ann"));
    for seq in 0..5 {
        assert_eq!(bench.deliver("ann", seq).await, Delivery::Accepted);
        assert_eq!(waiting(&mut quick), [seq]);
    }
    assert_eq!(bench.inbox.listeners(), 1);
    for seq in 0..4 {
        assert_eq!(slow.next().await.unwrap().id, id(seq), "what was in its buffer it may still read");
    }
    assert_eq!(slow.next().await, None);
    drop(slow);
    assert_eq!(bench.inbox.listeners(), 1);
    // It comes back, and finds what it has not acked, as far as that is kept.
    assert_eq!(waiting(&mut bench.subscribe("ann")), [1, 2, 3, 4]);
}

#[tokio::test]
async fn subscriptions_are_bounded_and_free_their_place() {
    let bench = Bench::with(|mut options| {
        options.listeners_max = 3;
        options
    });
    let again = |name: &str| bench.inbox.subscribe(&Recipient::new(name).unwrap());
    let (first, _second) = (bench.subscribe("ann"), bench.subscribe("ann"));
    assert_eq!(again("ann").err(), Some(TooManyListeners));
    let _third = bench.subscribe("bob");
    assert_eq!(again("cyd").err(), Some(TooManyListeners));
    drop(first);
    assert_eq!(bench.inbox.listeners(), 2);
    assert!(again("cyd").is_ok());
}

#[tokio::test]
async fn a_message_without_a_recipient_is_refused() {
    let bench = Bench::new();
    let claim = Claim { recipient: None, ..bench.claim("ann", 1) };
    assert_eq!(bench.inbox.hold_ms(&claim), None);
    let delivery = bench.inbox.deliver(&claim, &bytes::Bytes::new()).await;
    assert!(matches!(delivery, Delivery::Refused { .. }), "{delivery:?}");
}
