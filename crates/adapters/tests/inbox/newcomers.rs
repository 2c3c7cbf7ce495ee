//! Devices that come while a message is offered, written or settled.

use std::future::Future;
use std::time::Duration;

use tidegate_testkit::HANG;
use tokio::time::timeout;

use crate::bench::{Bench, LONG, id, waiting};

/// What a future has to say without waiting.
async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    timeout(Duration::ZERO, future).await.ok()
}

#[tokio::test]
async fn what_is_offered_to_a_newcomer_ends_its_wait_for_a_look() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    let offered = bench.offer("ann", 1).unwrap();
    // The look that the newcomer asked for comes after the end of this very offer.
    assert_eq!(at_once(device.looked()).await, Some(true));
    device.try_next().unwrap().written();
    assert!(offered.is_taken(LONG, LONG).await);
}

#[tokio::test]
async fn a_message_that_was_written_is_not_offered_to_a_device_that_came_later() {
    let bench = Bench::new();
    let mut first = bench.subscribe("ann");
    let offered = bench.offer("ann", 1).unwrap();
    let writing = first.next().await.unwrap();
    drop(first);
    // The bytes are with the device already: it asks for the next before they are known to be written.
    let mut second = bench.subscribe("ann");
    assert_eq!(at_once(second.looked()).await, None, "it is not known yet what waits");
    assert!(second.try_next().is_none());
    bench.inbox.acked(&[id(1)]);
    writing.written();
    assert!(offered.is_taken(LONG, LONG).await);
    assert!(second.try_next().is_none() && at_once(second.next()).await.is_none());
    let looked = bench.desk.newcomers().await.pop().unwrap().looked;
    assert_eq!(at_once(second.looked()).await, None);
    looked.send(()).unwrap();
    assert_eq!(at_once(second.looked()).await, Some(true));
}

#[tokio::test]
async fn a_newcomer_that_has_not_begun_with_a_message_passes_it_over_when_another_device_has_it() {
    let bench = Bench::new();
    let mut first = bench.subscribe("ann");
    let _offered = bench.offer("ann", 1).unwrap();
    let mut second = bench.subscribe("ann");
    bench.inbox.acked(&[id(1)]);
    first.try_next().unwrap().written();
    assert_eq!(at_once(second.looked()).await, None, "the next message may wait");
    assert!(second.try_next().is_none());
}

#[tokio::test]
async fn a_newcomer_is_given_what_another_device_broke_off() {
    let bench = Bench::new();
    let mut first = bench.subscribe("ann");
    let offered = bench.offer("ann", 1).unwrap();
    let writing = first.next().await.unwrap();
    let mut second = bench.subscribe("ann");
    let reading = tokio::spawn(async move { (second.looked().await, second.try_next()) });
    tokio::task::yield_now().await;
    assert!(!reading.is_finished(), "it is being written to the first");
    drop((writing, first));
    let (looked, handover) = timeout(HANG, reading).await.unwrap().unwrap();
    assert!(looked);
    handover.unwrap().written();
    assert!(offered.is_taken(LONG, LONG).await);
}

#[tokio::test]
async fn a_device_that_comes_back_is_not_held_up_by_its_old_connection_for_long() {
    let bench = Bench::new();
    let mut stuck = bench.subscribe("ann");
    let _offered = bench.offer("ann", 1).unwrap();
    let _writing = stuck.next().await.unwrap();
    let mut again = bench.subscribe("ann");
    assert_eq!(timeout(HANG, again.next()).await.unwrap().unwrap().message.id, id(1));
}

#[tokio::test]
async fn those_who_came_after_an_offer_are_not_left_behind_with_those_who_do_not_read() {
    let bench = Bench::new();
    let mut stalled = bench.subscribe("ann");
    let offered = bench.offer("ann", 1).unwrap();
    let mut newcomer = bench.subscribe("ann");
    assert!(!offered.is_taken(Duration::ZERO, LONG).await);
    assert!(stalled.next().await.is_none());
    assert_eq!(bench.inbox.listeners(), 1);
    assert_eq!(at_once(newcomer.looked()).await, None);
    let _offered = bench.offer("ann", 1).unwrap();
    assert_eq!((at_once(newcomer.looked()).await, waiting(&mut newcomer)), (Some(true), vec![1]));
}

#[tokio::test]
async fn what_a_lease_has_ended_for_is_begun_by_no_device() {
    let bench = Bench::new();
    let (mut slow, mut stalled) = (bench.subscribe("ann"), bench.subscribe("ann"));
    let offered = bench.offer("ann", 1).unwrap();
    let _writing = slow.next().await.unwrap();
    assert!(!offered.is_taken(LONG, Duration::ZERO).await);
    assert!(stalled.try_next().is_none(), "another process may have it by now");
}

#[tokio::test]
async fn what_is_handed_over_is_found_by_the_next_poll_from_the_moment_it_is_written() {
    let bench = Bench::new();
    let mut first = bench.subscribe("ann");
    let _offered = bench.offer("ann", 1).unwrap();
    let writing = first.next().await.unwrap();
    let mut second = bench.subscribe("ann");
    writing.written();
    assert!(second.try_next().is_none(), "it came before, and was written to the first");
    assert_eq!(
        waiting(&mut {
            drop(second);
            bench.subscribe("ann")
        }),
        [1],
        "its ack is awaited"
    );
}
