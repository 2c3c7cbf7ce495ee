use std::sync::Mutex;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_domain::*;
use tidegate_testkit::{Setup, TestClock};

use super::*;
use crate::faulty::FaultyLedger;
use crate::stop::StopSignal;

/// What the channel does with a message, by the message's text.
#[derive(Debug, Default)]
struct Script {
    delivered: Mutex<Vec<String>>,
}

#[async_trait]
impl Channel for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    async fn deliver(&self, _claim: &Claim, body: &Bytes) -> Delivery {
        let text = String::from_utf8_lossy(body).into_owned();
        match text.as_str() {
            "panic" => panic!("planted"),
            "hang" => std::future::pending().await,
            "slow" => tokio::time::sleep(Duration::from_millis(200)).await,
            "busy" => return Delivery::TryLater { after_ms: None, reason: "busy".to_owned() },
            "refuse" => return Delivery::Refused { reason: "no such number".to_owned() },
            _ => {}
        }
        self.delivered.lock().unwrap().push(text);
        Delivery::Delivered
    }
}

/// A sender at work, and the two sides that it stands between.
struct Bench {
    clock: Arc<TestClock>,
    ledger: Arc<FaultyLedger>,
    channel: Arc<Script>,
    signal: StopSignal,
    status: Arc<SenderStatus>,
    sender: Sender,
    supervisor: tokio::task::JoinHandle<()>,
}

impl Bench {
    fn start(failures: usize, drain_timeout: Duration) -> Self {
        let setup = Setup::default();
        let clock = setup.clock.clone();
        let ledger = Arc::new(FaultyLedger::new(setup));
        ledger.fail_sender(failures);
        let channel = Arc::new(Script::default());
        let breaker = BreakerRule { failure_percent: 100, ..BreakerRule::default() };
        let sender = Sender {
            queue: QueueName::new("sms").unwrap(),
            ledger: ledger.clone(),
            queues: ledger.clone(),
            arrivals: None,
            channel: Arc::new(SharedChannel::new(channel.clone(), 8, breaker, 0, clock.clone())),
            tally: Arc::default(),
            settings: SenderSettings {
                concurrency: 8,
                batch: 4,
                lease_ms: 30_000,
                attempt_timeout: Duration::from_millis(400),
                retry: RetryPolicy { attempts_max: 2, base_ms: 10, max_ms: 100, ack_within_ms: 300_000 },
                retry_jitter_percent: 0,
                breaker,
            },
            drain_timeout,
        };
        let (signal, stop) = StopSignal::new();
        let status = Arc::new(SenderStatus::new(1));
        let (queue, work) = (sender.queue.clone(), sender.clone());
        let work = move |stop| work.clone().run(stop);
        let supervisor = tokio::spawn(supervise("sender", queue, work, stop, status.clone()));
        Self { clock, ledger, channel, signal, status, sender, supervisor }
    }

    async fn admit(&self, text: &str) -> MessageId {
        self.admit_with(text, false).await
    }

    async fn admit_with(&self, text: &str, ack_required: bool) -> MessageId {
        let admission = Admission {
            queue: QueueName::new("sms").unwrap(),
            recipient: None,
            lane: Lane::Normal,
            due: Due::Now,
            body: Bytes::copy_from_slice(text.as_bytes()),
            charge: None,
            on_limit: OnLimit::Deny,
            idempotency: None,
            expires: None,
            headers: tidegate_domain::Headers::default(),
            ack_required,
        };
        match self.ledger.admit(vec![admission]).await.unwrap()[0] {
            Admitted::Admitted { id, .. } => id,
            ref other => panic!("{other:?}"),
        }
    }

    async fn until(&self, id: MessageId, wanted: impl Fn(&MessageRecord) -> bool) -> MessageRecord {
        for _ in 0..2_000 {
            let record = self.ledger.message(id).await.unwrap().unwrap();
            if wanted(&record) {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never: {:?}", self.ledger.message(id).await);
    }

    async fn stop(self) -> Arc<FaultyLedger> {
        self.signal.stop();
        tokio::time::timeout(Duration::from_secs(5), self.supervisor).await.unwrap().unwrap();
        assert!(!self.status.is_running());
        self.ledger
    }
}

const PATIENT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn everything_admitted_is_delivered_once() {
    let bench = Bench::start(0, PATIENT);
    for n in 0..50 {
        bench.admit(&n.to_string()).await;
    }
    let last = bench.admit("last").await;
    bench.until(last, |record| record.status == Status::Delivered).await;
    let channel = bench.channel.clone();
    let counts = bench.stop().await.counts().await.unwrap();
    assert_eq!((counts.delivered, counts.leased, counts.pending), (51, 0, 0));
    assert_eq!(channel.delivered.lock().unwrap().len(), 51);
}

#[tokio::test]
async fn a_channel_that_hangs_or_panics_costs_an_attempt_and_no_sender() {
    let bench = Bench::start(0, PATIENT);
    let (hang, panic) = (bench.admit("hang").await, bench.admit("panic").await);
    let refuse = bench.admit("refuse").await;
    let record = bench.until(panic, |record| record.attempts.len() == 1).await;
    assert_eq!(record.attempts[0].reason.as_deref(), Some("the channel failed"));
    let record = bench.until(hang, |record| record.attempts.len() == 1).await;
    assert_eq!(record.attempts[0].reason.as_deref(), Some("no answer within 400 ms"));
    let record = bench.until(refuse, |record| record.status == Status::Dead).await;
    assert_eq!(record.reason.as_deref(), Some("no such number"));
    let fine = bench.admit("fine").await;
    bench.until(fine, |record| record.status == Status::Delivered).await;
    assert!(bench.status.is_running());
}

#[tokio::test]
async fn attempts_run_out_into_a_dead_letter() {
    let bench = Bench::start(0, PATIENT);
    let busy = bench.admit("busy").await;
    bench.until(busy, |record| record.attempts.len() == 1).await;
    bench.clock.advance_ms(1_000);
    let record = bench.until(busy, |record| record.status == Status::Dead).await;
    assert_eq!(record.reason.as_deref(), Some("gave up after 2 attempts: busy"));
}

#[tokio::test]
async fn a_ledger_that_comes_back_finds_its_sender() {
    let bench = Bench::start(3, PATIENT);
    let id = bench.admit("hi").await;
    bench.until(id, |record| record.status == Status::Delivered).await;
    // One more failure, and the settlement is repeated, not forgotten: the lease is far from its end.
    bench.ledger.fail_sender(2);
    let id = bench.admit("again").await;
    bench.until(id, |record| record.status == Status::Delivered).await;
    assert_eq!(bench.channel.delivered.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_ledger_that_can_not_write_for_long_causes_no_second_delivery() {
    let bench = Bench::start(0, PATIENT);
    let id = bench.admit("slow").await;
    bench.until_leased(1).await;
    bench.ledger.fail_sender(1_000);
    // Much longer than the lease, in steps that each leave something of it.
    for extension in 1..=4 {
        while bench.ledger.extensions.load(Ordering::SeqCst) < extension {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bench.clock.advance_ms(20_000);
    }
    bench.ledger.fail_sender(0);
    bench.until(id, |record| record.status == Status::Delivered).await;
    assert_eq!(*bench.channel.delivered.lock().unwrap(), ["slow"]);
}

#[tokio::test]
async fn a_message_that_nobody_ever_acks_is_given_up() {
    let bench = Bench::start(0, PATIENT);
    let id = bench.admit_with("hi", true).await;
    for deliveries in 1..=2 {
        bench.until(id, |record| record.attempts.len() == deliveries).await;
        bench.clock.advance_ms(300_000);
    }
    let record = bench.until(id, |record| record.status == Status::Dead).await;
    assert_eq!(record.reason.as_deref(), Some("never acknowledged: delivered 2 times without an ack"));
    assert_eq!(record.attempts.len(), 2, "giving up is no attempt");
}

#[tokio::test]
async fn a_sender_that_dies_is_missed_and_started_again() {
    let bench = Bench::start(0, PATIENT);
    bench.ledger.claim_panics.store(true, Ordering::SeqCst);
    while bench.status.is_running() || bench.ledger.claim_panics.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let id = bench.admit("hi").await;
    bench.until(id, |record| record.status == Status::Delivered).await;
    assert!(bench.status.is_running());
}

#[tokio::test]
async fn a_stop_waits_for_attempts_under_way() {
    let bench = Bench::start(0, PATIENT);
    let slow = bench.admit("slow").await;
    bench.until_leased(1).await;
    let ledger = bench.stop().await;
    assert_eq!(ledger.message(slow).await.unwrap().unwrap().status, Status::Delivered);
}

#[tokio::test]
async fn a_stop_hands_back_what_does_not_end_in_time() {
    let bench = Bench::start(0, Duration::from_millis(20));
    let hang = bench.admit("hang").await;
    bench.until_leased(1).await;
    let ledger = bench.stop().await;
    let record = ledger.message(hang).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts.len()), (Status::Pending, 1));
    assert_eq!(ledger.counts().await.unwrap().leased, 0);
}

#[tokio::test]
async fn a_claim_that_comes_back_after_the_stop_is_released_untried() {
    let bench = Bench::start(0, PATIENT);
    let first = bench.admit("first").await;
    bench.until(first, |record| record.status == Status::Delivered).await;
    bench.signal.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let late = bench.admit("late").await;
    let ledger = bench.stop().await;
    let record = ledger.message(late).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts.len()), (Status::Pending, 0));
    assert_eq!(ledger.counts().await.unwrap().leased, 0);
}

#[tokio::test]
async fn an_attempt_that_its_lease_does_not_outlast_is_not_begun() {
    let bench = Bench::start(0, PATIENT);
    bench.signal.stop();
    while bench.status.is_running() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let id = bench.admit("late").await;
    let request =
        ClaimRequest { queue: QueueName::new("sms").unwrap(), max: 1, lease_ms: 30_000, wait_ms: 0 };
    let claim = bench.ledger.claim(request).await.unwrap().remove(0);
    let body = claim.body.clone().unwrap();
    // As if the process had been stopped: an attempt takes up to 400 ms, and 300 are left.
    bench.clock.advance_ms(29_700);
    let settlement = attempt::attempt(bench.sender.clone(), claim, body).await;
    assert_eq!((settlement.id, settlement.outcome), (id, Outcome::Released));
    assert!(bench.channel.delivered.lock().unwrap().is_empty());
}

impl Bench {
    async fn until_leased(&self, leased: u64) {
        while self.ledger.counts().await.unwrap().leased < leased {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Messages of one recipient.
async fn chain(bench: &Bench, count: usize) -> Vec<MessageId> {
    let admission = |n: usize| Admission {
        recipient: Some(Recipient::new("ann").unwrap()),
        ..Admission::new(QueueName::new("sms").unwrap(), Bytes::from(n.to_string()))
    };
    let admitted = bench.ledger.admit((0..count).map(admission).collect()).await.unwrap();
    let id = |admitted: Admitted| match admitted {
        Admitted::Admitted { id, .. } => id,
        other => panic!("{other:?}"),
    };
    admitted.into_iter().map(id).collect()
}

#[tokio::test]
async fn a_recipients_next_messages_come_with_the_settlements() {
    let bench = Bench::start(0, PATIENT);
    let ids = chain(&bench, 30).await;
    bench.until(ids[29], |record| record.status == Status::Delivered).await;
    let claimed = bench.ledger.claimed.load(Ordering::SeqCst);
    assert!(claimed < 15, "{claimed} of 30 messages took a claim of their own");
    let delivered = bench.channel.delivered.lock().unwrap().clone();
    assert_eq!(delivered, (0..30).map(|n| n.to_string()).collect::<Vec<_>>(), "in order, once each");
    assert_eq!(bench.stop().await.counts().await.unwrap().leased, 0);
}

/// The others have been sent: were they to wait for a settlement that never succeeds, they would be sent again.
#[tokio::test]
async fn a_settlement_that_meets_a_defect_takes_no_other_along() {
    let bench = Bench::start(0, Duration::from_secs(1));
    // Both are claimed together, and settled together: nothing is before they are there.
    bench.ledger.fail_sender(1);
    let bad = bench.admit("bad").await;
    *bench.ledger.defective.lock().unwrap() = Some(bad);
    let good = bench.admit("good").await;
    bench.until(good, |record| record.status == Status::Delivered).await;
    let record = bench.ledger.message(bad).await.unwrap().unwrap();
    assert_eq!(record.status, Status::Pending, "left to its lease");
    bench.clock.advance_ms(30_000);
    *bench.ledger.defective.lock().unwrap() = None;
    bench.until(bad, |record| record.status == Status::Delivered).await;
    let delivered = bench.channel.delivered.lock().unwrap().clone();
    assert_eq!(delivered.iter().filter(|text| *text == "good").count(), 1, "{delivered:?}");
}

/// What comes with a settlement asks for no turn, so there is none of it while others wait.
#[tokio::test]
async fn no_recipient_goes_on_before_those_that_wait() {
    const RECIPIENTS: usize = 30;
    let bench = Bench::start(0, PATIENT);
    let admission = |n: usize| Admission {
        recipient: Some(Recipient::new(&format!("r{}", n % RECIPIENTS)).unwrap()),
        ..Admission::new(QueueName::new("sms").unwrap(), Bytes::from(n.to_string()))
    };
    // Claims and settlements race, so that one round may not show it.
    for round in 0..5 {
        bench.ledger.admit((0..2 * RECIPIENTS).map(admission).collect()).await.unwrap();
        while bench.ledger.counts().await.unwrap().pending > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let delivered = std::mem::take(&mut *bench.channel.delivered.lock().unwrap());
        let delivered: Vec<usize> = delivered.iter().map(|text| text.parse().unwrap()).collect();
        let second = delivered.iter().position(|n| *n >= RECIPIENTS).unwrap();
        // All first ones were claimed by then, and as many may be under way as there are places.
        let most = bench.sender.settings.concurrency;
        assert!(second + most >= RECIPIENTS, "round {round}: {delivered:?}");
    }
}
