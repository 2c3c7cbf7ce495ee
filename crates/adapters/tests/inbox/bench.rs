use std::sync::Arc;

use bytes::Bytes;
use tidegate_adapters::channels::inbox::{Inbox, InboxOptions, Subscription};
use tidegate_domain::{
    Channel, Claim, Clock, Delivery, Headers, Lane, MessageId, QueueName, Recipient, Timestamp,
};
use tidegate_testkit::TestClock;

/// An inbox, and the clock it goes by.
pub struct Bench {
    pub clock: Arc<TestClock>,
    pub inbox: Inbox,
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
        Self { clock, inbox }
    }

    pub fn subscribe(&self, recipient: &str) -> Subscription {
        self.inbox.subscribe(&Recipient::new(recipient).unwrap()).unwrap()
    }

    pub async fn deliver(&self, recipient: &str, seq: u64) -> Delivery {
        self.inbox.deliver(&self.claim(recipient, seq), &Bytes::from(seq.to_string())).await
    }

    pub fn hold_ms(&self, recipient: &str, seq: u64) -> Option<u64> {
        self.inbox.hold_ms(&self.claim(recipient, seq))
    }

    /// Admitted when the clock began.
    pub fn claim(&self, recipient: &str, seq: u64) -> Claim {
        Claim {
            id: id(seq),
            queue: QueueName::new("push").unwrap(),
            recipient: Some(Recipient::new(recipient).unwrap()),
            lane: Lane::Normal,
            user: None,
            admitted_at: TestClock::START,
            attempt: 1,
            failures: 0,
            ack_attempts: 0,
            ack_required: true,
            headers: Headers(vec![("subject".to_owned(), "Grüße".to_owned())]),
            token: 1,
            lease_until: Timestamp::MAX,
            body: None,
        }
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

/// What lies in the buffer, by sequence number.
pub fn waiting(subscription: &mut Subscription) -> Vec<u64> {
    std::iter::from_fn(|| subscription.try_next()).map(|message| message.id.seq()).collect()
}
