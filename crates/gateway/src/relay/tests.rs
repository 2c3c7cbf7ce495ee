use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_domain::*;
use tidegate_testkit::bus::{InProcessBus, Mischief};
use tidegate_testkit::{Setup, TestClock};
use tokio::task::JoinHandle;

use super::*;
use crate::config::SenderSettings;
use crate::faulty::FaultyLedger;
use crate::sender::{Arrivals, Sender, SharedChannel};
use crate::stop::StopSignal;

const TRANSIT_MS: u64 = 30_000;

/// Notes who got what, in the order it came.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<(Option<Recipient>, MessageId, u32)>>);

#[async_trait]
impl Channel for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    async fn deliver(&self, claim: &Claim, body: &Bytes) -> Delivery {
        assert!(!body.is_empty());
        self.0.lock().unwrap().push((claim.recipient.clone(), claim.id, claim.attempt));
        Delivery::Delivered
    }
}

/// A relay and senders, with a bus between them.
struct Bench {
    clock: Arc<TestClock>,
    ledger: Arc<FaultyLedger>,
    bus: InProcessBus,
    channel: Arc<Notes>,
    tally: Arc<QueueTally>,
    signal: StopSignal,
    tasks: Vec<JoinHandle<()>>,
}

fn queue() -> QueueName {
    QueueName::new("sms").unwrap()
}

fn settings() -> SenderSettings {
    crate::config::Loaded::from_sources(&crate::config::Sources::default()).unwrap().settings.sender
}

impl Bench {
    fn start(mischief: Mischief, senders: usize) -> Self {
        let setup = Setup { pending_max: 1_000, ..Setup::default() };
        let clock = setup.clock.clone();
        let ledger = Arc::new(FaultyLedger::new(setup));
        let bus = InProcessBus::new([queue()]);
        bus.set_mischief(mischief);
        let channel = Arc::new(Notes::default());
        let (signal, stop) = StopSignal::new();
        let tally = Arc::<QueueTally>::default();
        let relay = Relay {
            queue: queue(),
            ledger: ledger.clone(),
            transit: ledger.clone(),
            bus: Arc::new(bus.clone()),
            batch: 16,
            in_transit_max: 40,
            transit_ms: TRANSIT_MS,
            retry: settings().retry,
            tally: tally.clone(),
        };
        let mut tasks = vec![tokio::spawn(relay.run(stop.clone()))];
        for _ in 0..senders {
            let shared = SharedChannel::new(channel.clone(), 64, BreakerRule::default(), 0, clock.clone());
            let arrivals = Arrivals::new(Arc::new(bus.clone()), ledger.clone(), ledger.clone(), queue());
            let sender = Sender {
                queue: queue(),
                ledger: ledger.clone(),
                queues: ledger.clone(),
                arrivals: Some(Arc::new(arrivals)),
                channel: Arc::new(shared),
                settings: settings(),
                tally: Arc::default(),
                drain_timeout: Duration::from_secs(3),
            };
            tasks.push(tokio::spawn(sender.run(stop.clone())));
        }
        Self { clock, ledger, bus, channel, tally, signal, tasks }
    }

    async fn admit(&self, count: usize) {
        self.admit_to(7, count).await;
    }

    async fn admit_to(&self, recipients: usize, count: usize) {
        let admission = |n: usize| Admission {
            recipient: Some(Recipient::new(&format!("r-{}", n % recipients)).unwrap()),
            ..Admission::new(queue(), Bytes::from(format!("text {n}")))
        };
        self.ledger.admit((0..count).map(admission).collect()).await.unwrap();
    }

    /// Time passes by itself, in steps that end what is in transit.
    async fn until_delivered(&self, count: u64) {
        for step in 0.. {
            if self.ledger.counts().await.unwrap().delivered >= count {
                return;
            }
            assert!(step < 2_000, "{:?}", self.ledger.counts().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
            if step % 20 == 19 {
                self.clock.advance_ms(TRANSIT_MS);
            }
        }
    }

    async fn stop(self) -> Vec<(Option<Recipient>, MessageId, u32)> {
        self.signal.stop();
        for task in self.tasks {
            tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
        }
        let counts = self.ledger.counts().await.unwrap();
        assert!(counts.balanced() && counts.leased == 0, "{counts:?}");
        std::mem::take(&mut self.channel.0.lock().unwrap())
    }
}

/// Once each, on the first attempt, and of each recipient in the order of admission.
fn assert_in_order(notes: &[(Option<Recipient>, MessageId, u32)], count: usize) {
    assert_eq!(notes.len(), count, "each once");
    let mut last: HashMap<_, MessageId> = HashMap::new();
    for (recipient, id, attempt) in notes {
        assert_eq!(*attempt, 1, "the way costs no attempt");
        let before = last.insert(recipient.clone(), *id);
        assert!(before.is_none_or(|before| before < *id), "{recipient:?}: {id} after {before:?}");
    }
}

#[tokio::test]
async fn a_record_that_the_bus_never_takes_holds_up_its_recipient_alone() {
    let mischief = Mischief { refuses: Some("r-3"), ..Mischief::default() };
    let bench = Bench::start(mischief, 1);
    bench.admit(70).await;
    // The clock stands still, so whoever is held stays held.
    while bench.ledger.counts().await.unwrap().delivered < 60 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(bench.ledger.counts().await.unwrap().pending, 10);
    assert_eq!(bench.bus.refused(), 1, "it is not asked again and again");
    bench.bus.set_mischief(Mischief::default());
    bench.until_delivered(70).await;
    assert_in_order(&bench.stop().await, 70);
}

#[tokio::test]
async fn a_queue_that_the_bus_takes_nothing_from_is_known_until_it_does() {
    let bench = Bench::start(Mischief { refuses: Some("r-0"), ..Mischief::default() }, 1);
    assert!(!bench.tally.is_refused_by_bus());
    bench.admit(1).await;
    while !bench.tally.is_refused_by_bus() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bench.bus.set_mischief(Mischief::default());
    bench.until_delivered(1).await;
    assert!(!bench.tally.is_refused_by_bus());
    assert_in_order(&bench.stop().await, 1);
}

#[tokio::test]
async fn everything_arrives_once_and_in_order() {
    let bench = Bench::start(Mischief::default(), 2);
    bench.admit(200).await;
    bench.until_delivered(200).await;
    assert_in_order(&bench.stop().await, 200);
}

#[tokio::test]
async fn a_recipients_next_messages_need_no_bus_and_are_copied_to_it() {
    let bench = Bench::start(Mischief::default(), 2);
    bench.admit_to(1, 40).await;
    // The clock stands still: what waited for a lease in transit to end would wait for ever.
    while bench.ledger.counts().await.unwrap().delivered < 40 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Each message is on the bus, as a record or as a copy.
    while bench.bus.published() < 40 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = bench.ledger.begun.load(std::sync::atomic::Ordering::SeqCst);
    assert!(begun < 20, "{begun} of 40 messages travelled before their attempt");
    assert_in_order(&bench.stop().await, 40);
}

#[tokio::test]
async fn what_the_bus_loses_is_published_again_and_costs_no_attempt() {
    let bench = Bench::start(Mischief { loses_every: 3, ..Mischief::default() }, 2);
    bench.admit_to(200, 200).await;
    bench.until_delivered(200).await;
    let published = bench.bus.published();
    assert!(published > 200, "{published}");
    assert_in_order(&bench.stop().await, 200);
}

#[tokio::test]
async fn what_the_bus_repeats_and_turns_round_is_delivered_once_and_in_order() {
    let mischief = Mischief { copies: 2, reverses: true, ..Mischief::default() };
    let bench = Bench::start(mischief, 3);
    bench.admit(200).await;
    bench.until_delivered(200).await;
    assert_in_order(&bench.stop().await, 200);
}

#[tokio::test]
async fn while_the_bus_is_away_messages_wait_where_they_are() {
    let away = Mischief { away: true, ..Mischief::default() };
    let bench = Bench::start(away, 1);
    bench.admit(50).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let counts = bench.ledger.counts().await.unwrap();
    assert_eq!((counts.pending, counts.leased, counts.delivered), (50, 0, 0));
    bench.bus.set_mischief(Mischief::default());
    bench.until_delivered(50).await;
    // It goes away with records on it, and comes back.
    bench.admit(50).await;
    bench.bus.set_mischief(away);
    tokio::time::sleep(Duration::from_millis(50)).await;
    bench.bus.set_mischief(Mischief::default());
    bench.until_delivered(100).await;
    assert_in_order(&bench.stop().await, 100);
}

#[tokio::test]
async fn a_ledger_that_fails_for_a_while_loses_nothing_on_the_way() {
    let bench = Bench::start(Mischief::default(), 2);
    bench.ledger.fail_sender(4);
    bench.admit(200).await;
    bench.until_delivered(200).await;
    assert_in_order(&bench.stop().await, 200);
}

#[tokio::test]
async fn records_without_their_texts_are_completed_from_the_ledger() {
    let bench = Bench::start(Mischief::default(), 0);
    bench.admit(1).await;
    while bench.bus.published() == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut consumer = bench.bus.consumer(queue()).await.unwrap();
    let mut claim = consumer.receive(1, 1_000).await.unwrap().remove(0);
    consumer.done().await.unwrap();
    claim.body = None;
    bench.bus.publish(vec![claim]).await;
    let bus: Arc<dyn Bus> = Arc::new(bench.bus.clone());
    let arrivals = Arrivals::new(bus, bench.ledger.clone(), bench.ledger.clone(), queue());
    let claims = arrivals.claim(9, 30_000, 1_000).await.unwrap();
    assert_eq!(claims[0].body.as_deref(), Some(&b"text 0"[..]));
}
