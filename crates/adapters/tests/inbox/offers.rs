use std::time::Duration;

use tidegate_domain::Recipient;

use crate::bench::{Bench, LONG, id, message, waiting};

const SHORT: Duration = Duration::from_millis(5);

#[tokio::test]
async fn nothing_is_offered_where_nobody_listens() {
    let bench = Bench::new();
    assert!(bench.offer("ann", 1).is_none());
    let device = bench.subscribe("ann");
    assert!(bench.offer("bob", 2).is_none());
    assert_eq!(bench.desk.listening(), [Recipient::new("ann").unwrap()]);
    drop(device);
    assert!(bench.offer("ann", 3).is_none() && bench.desk.listening().is_empty());
}

#[tokio::test]
async fn a_message_is_taken_when_it_was_written_to_one_device() {
    let bench = Bench::new();
    let (mut phone, mut tablet) = (bench.subscribe("ann"), bench.subscribe("ann"));
    let offered = bench.offer("ann", 1).unwrap();
    drop(phone.next().await.unwrap());
    tablet.next().await.unwrap().written();
    assert!(offered.is_taken(LONG, LONG).await);
}

#[tokio::test]
async fn a_message_that_no_connection_took_is_not_taken() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    let offered = bench.offer("ann", 1).unwrap();
    assert_eq!(waiting(&mut device), [1]);
    assert!(!offered.is_taken(LONG, LONG).await, "it broke off while it was written");
    let offered = bench.offer("ann", 2).unwrap();
    drop(device);
    assert!(!offered.is_taken(LONG, LONG).await, "it left without having read");
    assert!(waiting(&mut bench.subscribe("ann")).is_empty(), "nothing is kept of it");
}

#[tokio::test]
async fn a_device_that_comes_meanwhile_is_offered_the_same() {
    let bench = Bench::new();
    let phone = bench.subscribe("ann");
    let offered = bench.offer("ann", 1).unwrap();
    let mut tablet = bench.subscribe("ann");
    assert!(tablet.looked().await, "no look has to end before it reads that");
    drop(phone);
    tablet.try_next().unwrap().written();
    assert!(offered.is_taken(LONG, LONG).await);
}

#[tokio::test]
async fn devices_that_do_not_begin_to_read_are_left_behind() {
    let bench = Bench::new();
    let mut stalled = bench.subscribe("ann");
    let offered = bench.offer("ann", 1).unwrap();
    assert!(!offered.is_taken(SHORT, LONG).await);
    assert_eq!(bench.inbox.listeners(), 0);
    assert!(stalled.next().await.is_none(), "it is too late for what it was offered");
}

#[tokio::test]
async fn a_device_that_is_being_written_to_has_until_the_lease_ends() {
    let bench = Bench::new();
    let mut slow = bench.subscribe("ann");
    let offered = bench.offer("ann", 1).unwrap();
    let writing = slow.next().await.unwrap();
    let taken = tokio::spawn(offered.is_taken(SHORT, LONG));
    // Its patience ends several times meanwhile.
    tokio::time::sleep(SHORT * 10).await;
    writing.written();
    assert!(taken.await.unwrap());
    let offered = bench.offer("ann", 2).unwrap();
    let _writing = slow.next().await.unwrap();
    assert!(!offered.is_taken(LONG, SHORT).await);
}

#[tokio::test]
async fn those_who_subscribe_are_told_when_it_has_been_looked_for_them() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    let newcomer = bench.desk.newcomers().await.remove(0);
    assert_eq!(newcomer.recipient.as_str(), "ann");
    let _offered = bench.offer("ann", 1).unwrap();
    newcomer.looked.send(()).unwrap();
    assert!(device.looked().await && device.looked().await, "once and for all");
    assert_eq!(waiting(&mut device), [1]);
    let mut device = bench.subscribe("bob");
    drop(bench.desk.newcomers().await);
    assert!(!device.looked().await, "it could not be done");
}

#[tokio::test]
async fn an_ack_that_comes_before_its_message_is_known_to_be_written_is_heard() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    let _offered = bench.offer("ann", 1).unwrap();
    let writing = device.next().await.unwrap();
    bench.inbox.acked(&[id(1)]);
    writing.written();
    assert!(waiting(&mut bench.subscribe("ann")).is_empty());
}

#[tokio::test]
async fn what_requires_no_ack_is_not_kept() {
    let bench = Bench::new();
    let mut device = bench.subscribe("ann");
    let read = tidegate_adapters::channels::inbox::InboxMessage { ack_required: false, ..message(1) };
    let _offered = bench.desk.offer(&Recipient::new("ann").unwrap(), read).unwrap();
    device.next().await.unwrap().written();
    assert!(waiting(&mut bench.subscribe("ann")).is_empty());
}
