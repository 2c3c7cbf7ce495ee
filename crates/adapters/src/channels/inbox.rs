//! Delivers to devices that come and listen.

mod desk;
mod hub;
mod offer;
mod subscription;
mod tokens;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_domain::{Clock, Headers, MessageId, QueueName, Recipient, Timestamp};
use tokio::sync::Notify;

use self::desk::DeskLine;
pub use self::desk::{Desk, Newcomer};
use self::hub::Hub;
use self::offer::Offer;
pub use self::offer::{Handover, Offered};
use self::subscription::Look;
pub use self::subscription::Subscription;
use self::tokens::Tokens;

/// Where recipients' devices read their messages.
///
/// A device shows its token and [subscribes](Inbox::subscribe). The task that takes messages from the ledger has a queue's
/// [desk](Inbox::desk), learns there who listens, and offers what waits for them; a message that no device listens for
/// stays in the ledger. A message is handed over when it was written to one device.
///
/// One that requires an ack is kept in memory until then, or for `kept_ms`, within a bound: a device that lost its
/// connection, or that polls, finds at once what it has not acked. What the inbox forgets, the ledger delivers again when the
/// time for the ack is over.
#[derive(Clone)]
pub struct Inbox(Arc<Inner>);

struct Inner {
    hub: Mutex<Hub>,
    desks: Mutex<Vec<Arc<DeskLine>>>,
    /// Told when the writing of an offer has ended, and when its message is settled.
    moved: Notify,
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
    /// Which attempt hands it over.
    pub attempt: u32,
    /// Without, it is delivered when it was written to a device.
    pub ack_required: bool,
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
        let hub = Mutex::new(Hub::new(&options));
        let (desks, moved) = (Mutex::default(), Notify::new());
        Ok(Self(Arc::new(Inner { hub, desks, moved, tokens, clock, options })))
    }

    /// From now on, and what was handed over before and awaits its ack, oldest first. Ends with the subscription.
    pub fn subscribe(&self, recipient: &Recipient) -> Result<Subscription, TooManyListeners> {
        let joined = self.hub().join(recipient, self.0.clock.now())?;
        let listeners_max = self.0.options.listeners_max;
        let look = |line: &Arc<DeskLine>| Look {
            queue: line.queue.clone(),
            looked: line.enter(recipient, listeners_max),
        };
        let looks = self.desks().iter().map(look).collect();
        Ok(Subscription::new(self.clone(), recipient.clone(), joined, looks))
    }

    /// The place of a queue whose messages are handed over here. From then on, those who subscribe are told when it has been
    /// looked for them in this queue.
    pub fn desk(&self, queue: &QueueName) -> Desk {
        let mut desks = self.desks();
        let line = desks.iter().find(|line| line.queue == *queue).cloned().unwrap_or_else(|| {
            let line = Arc::new(DeskLine::new(queue.clone()));
            desks.push(line.clone());
            line
        });
        Desk::new(self.clone(), line)
    }

    /// The ledger has these acks: they are not handed out again. Unknown ids are fine.
    pub fn acked(&self, ids: &[MessageId]) {
        let mut hub = self.hub();
        ids.iter().for_each(|id| hub.acked(*id));
    }

    /// Waits for the settlement of a message that a device has, or that is being written to one just now. Its end is for
    /// the caller to bound.
    pub async fn until_settled(&self, id: MessageId) {
        loop {
            // Before the look at it: what is settled from here on is heard.
            let moved = self.0.moved.notified();
            if !self.hub().is_unsettled(id) {
                return;
            }
            moved.await;
        }
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

    fn offer(&self, recipient: &Recipient, message: InboxMessage) -> Option<Offered> {
        let (offer, offered) = Offer::new(self.clone(), recipient.clone(), message);
        let is_offered = self.hub().offer(&offer);
        is_offered.then_some(offered)
    }

    fn end_offer(&self, recipient: &Recipient, id: MessageId, is_taken: bool) {
        self.hub().end_offer(recipient, id, is_taken);
        self.0.moved.notify_waiters();
    }

    fn written(&self, offer: &Offer) {
        self.hub().written(offer, self.0.clock.now());
    }

    fn settled(&self, id: MessageId) {
        self.hub().settled(id);
        self.0.moved.notify_waiters();
    }

    fn leave(&self, recipient: &Recipient, id: u64) {
        self.hub().leave(recipient, id);
    }

    fn leave_behind(&self, recipient: &Recipient, last: u64) {
        self.hub().leave_behind(recipient, last);
    }

    /// Nothing here panics half-way through a change.
    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.0.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desks(&self) -> MutexGuard<'_, Vec<Arc<DeskLine>>> {
        self.0.desks.lock().unwrap_or_else(PoisonError::into_inner)
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
