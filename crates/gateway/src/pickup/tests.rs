use bytes::Bytes;
use tidegate_adapters::channels::inbox::{Inbox, InboxOptions, Subscription};
use tidegate_domain::*;
use tidegate_testkit::{HANG, Setup, TestClock};
use tokio::time::timeout;

use super::*;
use crate::devices::Devices;
use crate::faulty::FaultyLedger;
use crate::stop::StopSignal;

const ACK_MS: u64 = 60_000;

/// A pick-up at work, and the two sides that it stands between.
struct Bench {
    clock: Arc<TestClock>,
    ledger: Arc<FaultyLedger>,
    inbox: Inbox,
    signal: StopSignal,
    running: tokio::task::JoinHandle<()>,
}

impl Bench {
    fn start(drain_timeout: Duration) -> Self {
        let setup = Setup { pending_max: 10_000, pending_hard_max: 10_000, ..Setup::default() };
        let clock = setup.clock.clone();
        let ledger = Arc::new(FaultyLedger::new(setup));
        let mut options = InboxOptions::new(vec!["0123456789abcdef".to_owned()]);
        options.kept_ms = ACK_MS;
        let inbox = Inbox::new(options, clock.clone()).unwrap();
        let pickup = Pickup {
            queue: queue(),
            ledger: ledger.clone(),
            queues: ledger.clone(),
            desk: Devices::desk(&inbox, &queue()),
            settings: SenderSettings {
                concurrency: 8,
                batch: 4,
                lease_ms: 30_000,
                attempt_timeout: Duration::from_secs(1),
                retry: RetryPolicy { attempts_max: 2, base_ms: 10, max_ms: 100, ack_within_ms: ACK_MS },
                retry_jitter_percent: 0,
                breaker: BreakerRule::default(),
            },
            tally: Arc::default(),
            drain_timeout,
        };
        let (signal, stop) = StopSignal::new();
        let running = tokio::spawn(pickup.run(stop));
        Self { clock, ledger, inbox, signal, running }
    }

    fn listen(&self, name: &str) -> Subscription {
        self.inbox.subscribe(&recipient(name)).unwrap()
    }

    async fn admit(&self, name: &str, text: &str, ack_required: bool) -> MessageId {
        let admission = Admission {
            recipient: Some(recipient(name)),
            ack_required,
            ..Admission::new(queue(), Bytes::copy_from_slice(text.as_bytes()))
        };
        match self.ledger.admit(vec![admission]).await.unwrap()[0] {
            Admitted::Admitted { id, .. } => id,
            ref other => panic!("{other:?}"),
        }
    }

    async fn until(&self, id: MessageId, wanted: impl Fn(&MessageRecord) -> bool) -> MessageRecord {
        let found = async {
            loop {
                let record = self.ledger.message(id).await.unwrap().unwrap();
                if wanted(&record) {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(HANG, found).await.expect("in time")
    }

    async fn stop(self) -> Arc<FaultyLedger> {
        self.signal.stop();
        timeout(HANG, self.running).await.unwrap().unwrap();
        self.ledger
    }
}

fn queue() -> QueueName {
    QueueName::new("devices").unwrap()
}

fn recipient(name: &str) -> Recipient {
    Recipient::new(name).unwrap()
}

/// The next message's text, which the device then has.
async fn read(device: &mut Subscription) -> String {
    let handover = timeout(HANG, device.next()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&handover.message.body).into_owned();
    handover.written();
    text
}

const PATIENT: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_ledger_that_comes_back_is_looked_through_and_settled() {
    let bench = Bench::start(PATIENT);
    bench.ledger.fail_sender(2);
    let id = bench.admit("ann", "hi", false).await;
    let mut device = bench.listen("ann");
    assert!(timeout(HANG, device.looked()).await.unwrap(), "only when it is known what waits");
    let handover = device.try_next().expect("what waits is there by then");
    bench.ledger.fail_sender(2);
    handover.written();
    let record = bench.until(id, |record| record.status == Status::Delivered).await;
    assert_eq!(record.attempts.len(), 1);
}

#[tokio::test]
async fn a_message_that_no_device_took_spends_no_attempt() {
    let bench = Bench::start(PATIENT);
    let id = bench.admit("ann", "hi", true).await;
    for _ in 0..10 {
        let mut device = bench.listen("ann");
        let handover = timeout(HANG, device.next()).await.unwrap().unwrap();
        assert_eq!(handover.message.attempt, 1);
        // The connection breaks.
        drop(handover);
    }
    let ledger = bench.stop().await;
    let record = ledger.message(id).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts.len()), (Status::Pending, 0));
    assert_eq!(ledger.counts().await.unwrap().leased, 0);
}

#[tokio::test]
async fn a_message_that_is_handed_over_and_never_acked_is_given_up_when_the_recipient_comes_again() {
    let bench = Bench::start(PATIENT);
    let id = bench.admit("ann", "one", true).await;
    bench.admit("ann", "two", true).await;
    for handed_over in 1..=2 {
        assert_eq!(read(&mut bench.listen("ann")).await, "one");
        bench.until(id, |record| record.attempts.len() == handed_over).await;
        bench.clock.advance_ms(ACK_MS);
    }
    assert_eq!(read(&mut bench.listen("ann")).await, "two");
    let record = bench.until(id, |record| record.status == Status::Dead).await;
    assert_eq!(record.reason.as_deref(), Some("never acknowledged: delivered 2 times without an ack"));
}

#[tokio::test]
async fn a_device_that_listens_on_is_given_its_next_messages_with_the_settlements() {
    const MESSAGES: usize = 30;
    let bench = Bench::start(PATIENT);
    for n in 0..MESSAGES {
        bench.admit("ann", &n.to_string(), false).await;
    }
    let mut device = bench.listen("ann");
    for n in 0..MESSAGES {
        assert_eq!(read(&mut device).await, n.to_string());
    }
    let looks = bench.ledger.last_pick_up.borrow().0;
    assert!(looks < MESSAGES / 2, "{looks} looks for {MESSAGES} messages");
    assert_eq!(bench.stop().await.counts().await.unwrap().leased, 0);
}

#[tokio::test]
async fn an_ack_that_overtakes_the_settlement_frees_the_next_message() {
    let bench = Bench::start(PATIENT);
    let id = bench.admit("ann", "one", true).await;
    bench.admit("ann", "two", true).await;
    let mut device = bench.listen("ann");
    let handover = timeout(HANG, device.next()).await.unwrap().unwrap();
    assert_eq!(bench.ledger.ack(vec![id]).await.unwrap(), [Acked::Acked]);
    bench.inbox.acked(&[id]);
    handover.written();
    assert_eq!(read(&mut device).await, "two");
}

#[tokio::test]
async fn all_who_listen_at_once_are_served_and_in_order() {
    const RECIPIENTS: usize = 100;
    let bench = Bench::start(PATIENT);
    let name = |n: usize| format!("r{n}");
    let admission = |n: usize| Admission {
        recipient: Some(recipient(&name(n % RECIPIENTS))),
        ..Admission::new(queue(), Bytes::from((n / RECIPIENTS).to_string()))
    };
    // One for each that waits before it comes.
    bench.ledger.admit((0..RECIPIENTS).map(admission).collect()).await.unwrap();
    let mut devices: Vec<_> = (0..RECIPIENTS).map(|n| bench.listen(&name(n))).collect();
    for device in &mut devices {
        assert_eq!(read(device).await, "0");
    }
    // And one that comes while all of them listen, for some.
    bench.ledger.admit((RECIPIENTS..RECIPIENTS + 30).map(admission).collect()).await.unwrap();
    for device in devices.iter_mut().take(30) {
        assert_eq!(read(device).await, "1");
    }
    let last = async {
        while bench.ledger.counts().await.unwrap().pending > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANG, last).await.expect("all are settled");
    assert_eq!(bench.stop().await.counts().await.unwrap().leased, 0);
}

#[tokio::test]
async fn a_stop_waits_for_what_is_being_written() {
    let bench = Bench::start(PATIENT);
    let id = bench.admit("ann", "hi", false).await;
    let mut device = bench.listen("ann");
    let handover = timeout(HANG, device.next()).await.unwrap().unwrap();
    bench.signal.stop();
    tokio::task::yield_now().await;
    handover.written();
    let ledger = bench.stop().await;
    assert_eq!(ledger.message(id).await.unwrap().unwrap().status, Status::Delivered);
}

#[tokio::test]
async fn a_stop_hands_back_what_is_not_written_in_time() {
    let bench = Bench::start(Duration::from_millis(20));
    let id = bench.admit("ann", "hi", true).await;
    let mut device = bench.listen("ann");
    let writing = timeout(HANG, device.next()).await.unwrap().unwrap();
    let ledger = bench.stop().await;
    let record = ledger.message(id).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts.len()), (Status::Pending, 0));
    assert_eq!(ledger.counts().await.unwrap().leased, 0);
    drop(writing);
}

/// A poll is a listener of its own, and comes as soon as the one before has been answered: while its message is settled.
#[tokio::test]
async fn polls_back_to_back_are_given_each_message_once_and_at_once() {
    const MESSAGES: usize = 300;
    let bench = Bench::start(PATIENT);
    let text = |n: usize| n.to_string();
    let mut ids = Vec::new();
    for n in 0..MESSAGES {
        ids.push(bench.admit("ann", &text(n), false).await);
    }
    for (n, id) in ids.into_iter().enumerate() {
        let mut poll = bench.listen("ann");
        assert!(timeout(HANG, poll.looked()).await.unwrap(), "poll {n} knows what waits");
        let handover = poll.try_next().unwrap_or_else(|| panic!("poll {n} is empty"));
        assert_eq!(handover.message.body, text(n));
        assert!(poll.try_next().is_none());
        drop(poll);
        // Before or after the device asks for the next.
        match n % 3 {
            0 => handover.written(),
            1 => {
                let next = bench.listen("ann");
                handover.written();
                tokio::task::yield_now().await;
                drop(next);
            }
            _ => {
                handover.written();
                bench.until(id, |record| record.status == Status::Delivered).await;
            }
        }
    }
    let mut poll = bench.listen("ann");
    assert!(timeout(HANG, poll.looked()).await.unwrap() && poll.try_next().is_none());
}

#[tokio::test]
async fn a_device_that_acks_what_it_was_written_can_wait_for_the_settlement() {
    let bench = Bench::start(PATIENT);
    let id = bench.admit("ann", "hi", false).await;
    let mut device = bench.listen("ann");
    let at_once = |id| timeout(Duration::ZERO, bench.inbox.until_settled(id));
    at_once(id).await.expect("no device has begun with it");
    let handover = timeout(HANG, device.next()).await.unwrap().unwrap();
    at_once(id).await.expect_err("it is being written");
    bench.ledger.fail_sender(2);
    handover.written();
    at_once(id).await.expect_err("it is written, and not settled");
    timeout(HANG, bench.inbox.until_settled(id)).await.unwrap();
    assert_eq!(bench.ledger.ack(vec![id]).await.unwrap(), [Acked::Already]);
}

#[tokio::test]
async fn a_message_that_can_not_be_handed_over_does_not_hide_the_next() {
    let bench = Bench::start(PATIENT);
    let id = bench.admit("ann", "one", true).await;
    bench.admit("ann", "two", false).await;
    for handed_over in 1..=2 {
        assert_eq!(read(&mut bench.listen("ann")).await, "one");
        bench.until(id, |record| record.attempts.len() == handed_over).await;
        bench.clock.advance_ms(ACK_MS);
    }
    // The look finds the first, which is given up. An empty answer would say that nothing waits.
    bench.ledger.settle_calls.forget_permits(usize::MAX);
    let mut poll = bench.listen("ann");
    let leased = async {
        while bench.ledger.counts().await.unwrap().leased == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(HANG, leased).await.unwrap();
    timeout(Duration::ZERO, poll.looked()).await.expect_err("the first is not settled");
    bench.ledger.settle_calls.add_permits(1_000);
    assert!(timeout(HANG, poll.looked()).await.unwrap());
    assert_eq!(poll.try_next().expect("the next").message.body, "two");
}

#[tokio::test]
async fn newcomers_without_a_pause_do_not_hold_up_those_who_listen_on() {
    let bench = Bench::start(PATIENT);
    let mut waiting = bench.listen("bob");
    assert!(timeout(HANG, waiting.looked()).await.unwrap());
    bench.ledger.pick_ups.forget_permits(usize::MAX);
    let mut pick_ups = bench.ledger.last_pick_up.subscribe();
    let _first = bench.listen("first");
    let is_first = |(_, recipients): &(usize, Vec<Recipient>)| recipients.contains(&recipient("first"));
    timeout(HANG, pick_ups.wait_for(is_first)).await.unwrap().unwrap();
    bench.admit("bob", "hi", false).await;
    // Each look ends when the next newcomer is there already.
    let crowd = async {
        let mut here = std::collections::VecDeque::new();
        for n in 0.. {
            here.push_back(bench.listen(&format!("newcomer {n}")));
            if here.len() > 3 {
                here.pop_front();
            }
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            bench.ledger.pick_ups.add_permits(1);
            pick_ups.changed().await.unwrap();
            if let Some(handover) = waiting.try_next() {
                return handover.written();
            }
        }
    };
    timeout(HANG, crowd).await.expect("it is looked for those who listen on");
}
