use tidegate_domain::Recipient;
use tokio::sync::mpsc::Receiver;

use super::{Inbox, InboxMessage};

/// A device that listens. Dropping it is how it leaves.
#[derive(Debug)]
pub struct Subscription {
    inbox: Inbox,
    recipient: Recipient,
    id: u64,
    messages: Receiver<InboxMessage>,
}

impl Subscription {
    pub(super) fn new(inbox: Inbox, recipient: Recipient, id: u64, messages: Receiver<InboxMessage>) -> Self {
        Self { inbox, recipient, id, messages }
    }

    pub fn recipient(&self) -> &Recipient {
        &self.recipient
    }

    /// Waits for the next message. Nothing is lost when the future is dropped. `None`: the device was too slow and
    /// has been left behind; it subscribes anew and finds what it has not acked.
    pub async fn next(&mut self) -> Option<InboxMessage> {
        self.messages.recv().await
    }

    /// What is there already: the rest of a poll's answer.
    pub fn try_next(&mut self) -> Option<InboxMessage> {
        self.messages.try_recv().ok()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.inbox.leave(&self.recipient, self.id);
    }
}
