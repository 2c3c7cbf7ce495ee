use tidegate_adapters::channels::inbox::TooManyListeners;
use tidegate_domain::Recipient;

use crate::bench::{Bench, id, message, waiting};

#[tokio::test]
async fn a_listener_gets_its_message_whole() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    let _offered = bench.offer("ann", 7).unwrap();
    assert_eq!(device.next().await.unwrap().message, message(7));
}

#[tokio::test]
async fn a_listener_that_waits_is_woken() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    let waiting = tokio::spawn(async move { device.next().await.unwrap().message.id });
    tokio::task::yield_now().await;
    let _offered = bench.offer("ann", 1).unwrap();
    assert_eq!(waiting.await.unwrap(), id(1));
}

#[tokio::test]
async fn all_devices_of_a_recipient_get_it_and_no_others() {
    let bench = Bench::new();
    let (mut phone, mut tablet, mut other) =
        (bench.subscribe("ann"), bench.subscribe("ann"), bench.subscribe("bob"));
    let _offered = (bench.offer("ann", 1).unwrap(), bench.offer("ann", 2).unwrap());
    assert_eq!((waiting(&mut phone), waiting(&mut tablet)), (vec![1, 2], vec![1, 2]));
    assert!(waiting(&mut other).is_empty());
}

#[tokio::test]
async fn a_slow_device_is_dropped_and_the_others_stay() {
    let bench = Bench::new();
    let (mut slow, mut quick) = (bench.subscribe("ann"), bench.subscribe("ann"));
    let mut offered = Vec::new();
    for seq in 0..5 {
        offered.push(bench.offer("ann", seq).unwrap());
        quick.try_next().unwrap().written();
    }
    assert_eq!(bench.inbox.listeners(), 1);
    for seq in 0..4 {
        let read = slow.next().await.unwrap().message.id;
        assert_eq!(read, id(seq), "what was in its buffer it may still read");
    }
    assert!(slow.next().await.is_none());
    drop((slow, offered));
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
