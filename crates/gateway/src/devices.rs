//! Recipients' devices, as handlers and pick-ups see them: the other side of the channel "inbox".

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tidegate_domain::{Claim, Headers, MessageId, QueueName, Recipient, Timestamp};
use tokio::sync::oneshot;

/// Who may read whose messages, and where they come from. What was handed over and not acked is handed over again to
/// those who listen next.
pub trait Devices: Debug + Send + Sync + 'static {
    fn token_for(&self, recipient: &Recipient) -> String;

    fn verify(&self, recipient: &Recipient, token: &str) -> bool;

    /// `None`: as many listen as may.
    fn listen(&self, recipient: &Recipient) -> Option<Box<dyn Listening>>;

    /// The ledger has these acks.
    fn acked(&self, ids: &[MessageId]);

    /// Waits for the settlement of a message that a device here has, or that is being written to one just now.
    fn until_settled(&self, id: MessageId) -> BoxFuture<'_, ()>;

    fn listeners(&self) -> usize;

    /// Where a queue's messages are handed to those who listen.
    fn desk(&self, queue: &QueueName) -> Arc<dyn Desk>;
}

/// A device that listens, until it is dropped. Nothing is lost when a future of it is dropped.
pub trait Listening: Send + Sync {
    /// It is known of every queue what waits in it, and that is here by then. False when that could not be done.
    fn looked(&mut self) -> BoxFuture<'_, bool>;

    /// `None`: it was too slow, and has to come back.
    fn next(&mut self) -> BoxFuture<'_, Option<Handover>>;

    /// What is there already.
    fn try_next(&mut self) -> Option<Handover>;
}

/// A message on its way to one device. Dropped without being called written, it has not arrived.
#[derive(Debug)]
pub struct Handover {
    pub message: DeviceMessage,
    /// It was handed over before: its ack may have come since, elsewhere.
    pub is_repeated: bool,
    pub ticket: Box<dyn Ticket>,
}

pub trait Ticket: Debug + Send + Sync {
    /// The device has it, as far as its connection tells.
    fn written(self: Box<Self>);
}

/// One queue's side of the inbox: who has come to listen, and what is offered to them.
pub trait Desk: Debug + Send + Sync + 'static {
    /// Those who have come, waiting for the first. Nothing is lost when the future is dropped.
    fn newcomers(&self) -> BoxFuture<'_, Vec<Newcomer>>;

    /// Every recipient that listens.
    fn listening(&self) -> Vec<Recipient>;

    fn listens(&self, recipient: &Recipient) -> bool;

    /// Offers a message to all devices of its recipient that listen, and to those that come before one has it. `None`: there
    /// is none. The future ends when a device has it (true) or none is left that could have it; devices that do not begin to read within `patience` are left
    /// behind, and it ends when `lease` is over.
    fn offer(
        &self,
        recipient: &Recipient,
        message: DeviceMessage,
        patience: Duration,
        lease: Duration,
    ) -> Option<BoxFuture<'static, bool>>;

    /// The ledger has settled a message that was picked up, or never will.
    fn settled(&self, id: MessageId);
}

/// A recipient that has come to listen. It is told when it has been looked for what waits for it.
#[derive(Debug)]
pub struct Newcomer {
    pub recipient: Recipient,
    pub looked: oneshot::Sender<()>,
}

#[derive(Debug, Clone)]
pub struct DeviceMessage {
    pub id: MessageId,
    pub queue: QueueName,
    pub idempotency_key: String,
    pub headers: Headers,
    pub body: Bytes,
    pub admitted_at: Timestamp,
    pub attempt: u32,
    pub ack_required: bool,
}

impl DeviceMessage {
    pub fn new(claim: &Claim, body: Bytes) -> Self {
        Self {
            id: claim.id,
            queue: claim.queue.clone(),
            idempotency_key: claim.headers.key_of(claim.id),
            headers: claim.headers.given(),
            body,
            admitted_at: claim.admitted_at,
            attempt: claim.attempt,
            ack_required: claim.ack_required,
        }
    }
}
