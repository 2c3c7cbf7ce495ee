use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_adapters::channels::inbox::{Desk, Inbox, InboxMessage, InboxOptions, Offered, Subscription};
use tidegate_domain::{Clock, Headers, MessageId, QueueName, Recipient};
use tidegate_testkit::TestClock;

/// Longer than any test takes.
pub const LONG: Duration = Duration::from_secs(3_600);

/// An inbox, and the clock it goes by.
pub struct Bench {
    pub clock: Arc<TestClock>,
    pub inbox: Inbox,
    pub desk: Desk,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(|options| options)
    }

    pub fn with(change: impl Fn(InboxOptions) -> InboxOptions) -> Self {
        let clock = Arc::new(TestClock::new());
        let options =
            InboxOptions { buffer: 4, listeners_per_recipient_max: 2, ..options(&["0123456789abcdef"]) };
        let inbox = Inbox::new(change(options), clock.clone()).unwrap();
        let desk = inbox.desk(&QueueName::new("push").unwrap());
        Self { clock, inbox, desk }
    }

    pub fn subscribe(&self, recipient: &str) -> Subscription {
        self.inbox.subscribe(&Recipient::new(recipient).unwrap()).unwrap()
    }

    /// None when no device listens.
    pub fn offer(&self, recipient: &str, seq: u64) -> Option<Offered> {
        self.desk.offer(&Recipient::new(recipient).unwrap(), message(seq))
    }

    /// Offers a message to a device that reads it at once.
    pub async fn hand_over(&self, recipient: &str, seq: u64) {
        let mut device = self.inbox.subscribe(&Recipient::new(recipient).unwrap()).unwrap();
        let offered = self.offer(recipient, seq).unwrap();
        while let Some(handover) = device.try_next() {
            handover.written();
        }
        assert!(offered.is_taken(LONG, LONG).await);
    }

    pub fn advance_ms(&self, ms: u64) {
        self.clock.set(self.clock.now().plus_ms(ms));
    }
}

pub fn options(secrets: &[&str]) -> InboxOptions {
    InboxOptions::new(secrets.iter().map(|secret| (*secret).to_owned()).collect())
}

pub fn id(seq: u64) -> MessageId {
    MessageId::new(TestClock::START, seq, 1)
}

/// Admitted when the clock began.
pub fn message(seq: u64) -> InboxMessage {
    InboxMessage {
        id: id(seq),
        queue: QueueName::new("push").unwrap(),
        idempotency_key: seq.to_string(),
        headers: Headers(vec![("subject".to_owned(), "Grüße".to_owned())]),
        body: Bytes::from(seq.to_string()),
        admitted_at: TestClock::START,
        attempt: 1,
        ack_required: true,
    }
}

/// What lies in the buffer, by sequence number. The device breaks off before any of it arrives.
pub fn waiting(subscription: &mut Subscription) -> Vec<u64> {
    std::iter::from_fn(|| subscription.try_next()).map(|handover| handover.message.id.seq()).collect()
}
