//! Recipients' devices, as the handlers see them: the other side of the channel "inbox".

use std::fmt::Debug;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tidegate_domain::{Headers, MessageId, QueueName, Recipient, Timestamp};

/// Who may read whose messages, and where they come from. What was handed over and not acked is handed over again to
/// whoever listens next.
pub trait Devices: Debug + Send + Sync + 'static {
    fn token_for(&self, recipient: &Recipient) -> String;

    fn verify(&self, recipient: &Recipient, token: &str) -> bool;

    /// `None`: as many listen as may.
    fn listen(&self, recipient: &Recipient) -> Option<Box<dyn Listening>>;

    /// The ledger has these acks.
    fn acked(&self, ids: &[MessageId]);

    fn listeners(&self) -> usize;
}

/// A device that listens, until it is dropped.
pub trait Listening: Send + Sync {
    /// `None`: it was too slow, and has to come back. Nothing is lost when the future is dropped.
    fn next(&mut self) -> BoxFuture<'_, Option<DeviceMessage>>;

    /// What is there already.
    fn try_next(&mut self) -> Option<DeviceMessage>;
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
}
