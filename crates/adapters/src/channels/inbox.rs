//! Delivers to devices that come and listen.

mod hub;
mod subscription;
mod tokens;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_domain::{Channel, Claim, Clock, Delivery, Headers, MessageId, QueueName, Recipient, Timestamp};

use self::hub::Hub;
pub use self::subscription::Subscription;
use self::tokens::Tokens;

/// Where recipients' devices read their messages.
///
/// A device shows its token and [subscribes](Inbox::subscribe); what is delivered to its recipient is handed to
/// every subscription, and awaits the ack. Until the ack, or for `kept_ms`, the inbox also keeps it in memory, within
/// a bound: a device that lost its connection, or that polls, finds at once what it has not acked. What the inbox
/// forgets, the ledger delivers again when the time for the ack is over.
///
/// While nobody listens, messages wait in the ledger without an attempt spent ([`Channel::hold_ms`]).
#[derive(Clone)]
pub struct Inbox(Arc<Inner>);

struct Inner {
    hub: Mutex<Hub>,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    options: InboxOptions,
}

#[derive(Clone)]
pub struct InboxOptions {
    /// The first makes tokens, all of them verify: how a secret is changed. Each at least 16 bytes.
    pub secrets: Vec<String>,
    /// Messages that a subscription may be behind; then it ends. Also what is kept per recipient.
    pub buffer: usize,
    pub listeners_max: usize,
    pub listeners_per_recipient_max: usize,
    /// For messages kept until their ack, of all recipients.
    pub kept_bytes_max: usize,
    /// As long as an ack is awaited; longer serves nobody.
    pub kept_ms: u64,
    /// How long a recipient without a connection still counts as there: the gap between two polls.
    pub grace_ms: u64,
    /// How long a message for an absent recipient waits before it is asked about again: an eighth of its age, between
    /// these. Young ones are noticed soon, and a crowd of old ones costs little.
    pub hold_min_ms: u64,
    pub hold_max_ms: u64,
}

/// A message as its recipient's devices see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxMessage {
    /// The same in every repetition, and what an ack names.
    pub id: MessageId,
    pub queue: QueueName,
    pub idempotency_key: String,
    /// The caller's.
    pub headers: Headers,
    pub body: Bytes,
    pub admitted_at: Timestamp,
    /// Which attempt handed it over.
    pub attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InboxError {
    #[error("the inbox needs a secret to make tokens with")]
    NoSecret,
    #[error("a secret of the inbox is shorter than 16 bytes")]
    ShortSecret,
}

/// As many subscriptions as there may be, of this recipient or in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many subscriptions")]
pub struct TooManyListeners;

/// Whether tokens can be made with this secret.
pub fn check_secret(secret: &str) -> Result<(), InboxError> {
    Tokens::new(&[secret.to_owned()]).map(drop)
}

impl Inbox {
    pub fn new(options: InboxOptions, clock: Arc<dyn Clock>) -> Result<Self, InboxError> {
        let tokens = Tokens::new(&options.secrets)?;
        Ok(Self(Arc::new(Inner { hub: Mutex::new(Hub::new(&options)), tokens, clock, options })))
    }

    /// From now on, and what was handed over before and awaits its ack, oldest first. Ends with the subscription.
    pub fn subscribe(&self, recipient: &Recipient) -> Result<Subscription, TooManyListeners> {
        let (id, messages) = self.hub().join(recipient, self.0.clock.now())?;
        Ok(Subscription::new(self.clone(), recipient.clone(), id, messages))
    }

    /// The ledger has these acks: they are not handed out again. Unknown ids are fine.
    pub fn acked(&self, ids: &[MessageId]) {
        let mut hub = self.hub();
        ids.iter().for_each(|id| hub.forget(*id));
    }

    /// What a recipient's device has to show.
    pub fn token_for(&self, recipient: &Recipient) -> String {
        self.0.tokens.issue(recipient)
    }

    pub fn verify(&self, recipient: &Recipient, token: &str) -> bool {
        self.0.tokens.verify(recipient, token)
    }

    /// Subscriptions right now.
    pub fn listeners(&self) -> usize {
        self.hub().listeners()
    }

    fn leave(&self, recipient: &Recipient, id: u64) {
        self.hub().leave(recipient, id, self.0.clock.now());
    }

    /// Nothing here panics half-way through a change.
    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.0.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Channel for Inbox {
    fn name(&self) -> &'static str {
        "inbox"
    }

    /// Accepted once a subscription or the inbox itself has it.
    async fn deliver(&self, claim: &Claim, body: &Bytes) -> Delivery {
        let Some(recipient) = &claim.recipient else {
            return Delivery::Refused { reason: "a message without a recipient has no inbox".to_owned() };
        };
        let message = InboxMessage {
            id: claim.id,
            queue: claim.queue.clone(),
            idempotency_key: claim.headers.key_of(claim.id),
            headers: claim.headers.given(),
            body: body.clone(),
            admitted_at: claim.admitted_at,
            attempt: claim.attempt,
        };
        if self.hub().hand_over(recipient, &message, self.0.clock.now()) {
            return Delivery::Accepted;
        }
        let reason = "the recipient has just left, and the inbox is full".to_owned();
        Delivery::TryLater { after_ms: Some(self.0.options.hold_max_ms), reason }
    }

    fn hold_ms(&self, claim: &Claim) -> Option<u64> {
        let now = self.0.clock.now();
        let recipient = claim.recipient.as_ref()?;
        if self.hub().takes(recipient, now) {
            return None;
        }
        let (min, max) = (self.0.options.hold_min_ms, self.0.options.hold_max_ms);
        Some((now.since_ms(claim.admitted_at) / 8).min(max).max(min))
    }
}

impl InboxOptions {
    /// The defaults.
    pub fn new(secrets: Vec<String>) -> Self {
        Self {
            secrets,
            buffer: 64,
            listeners_max: 10_000,
            listeners_per_recipient_max: 8,
            kept_bytes_max: 64 * 1024 * 1024,
            kept_ms: 300_000,
            grace_ms: 10_000,
            hold_min_ms: 1_000,
            hold_max_ms: 60_000,
        }
    }
}

impl fmt::Debug for InboxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxOptions")
            .field("secrets", &self.secrets.len())
            .field("buffer", &self.buffer)
            .field("listeners_max", &self.listeners_max)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("listeners", &self.listeners()).finish_non_exhaustive()
    }
}
