use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_domain::{MessageId, QueueName, Recipient};
use tokio::sync::{Notify, oneshot};

use super::{Inbox, InboxMessage, Offered};

/// Where one queue's messages are handed to recipients that listen: who takes them from the ledger stands here.
#[derive(Debug, Clone)]
pub struct Desk {
    inbox: Inbox,
    line: Arc<DeskLine>,
}

/// A recipient that listens, and for whom it has not been looked in this queue since.
#[derive(Debug)]
pub struct Newcomer {
    pub recipient: Recipient,
    /// Told when it has been looked, and what was found is offered. Dropped: it could not be done.
    pub looked: oneshot::Sender<()>,
}

#[derive(Debug)]
pub(super) struct DeskLine {
    pub(super) queue: QueueName,
    newcomers: Mutex<Vec<Newcomer>>,
    arrived: Notify,
}

impl DeskLine {
    pub(super) fn new(queue: QueueName) -> Self {
        Self { queue, newcomers: Mutex::default(), arrived: Notify::new() }
    }

    /// Those who have left again are forgotten when there are more than may listen.
    pub(super) fn enter(&self, recipient: &Recipient, listeners_max: usize) -> oneshot::Receiver<()> {
        let (looked, look) = oneshot::channel();
        let mut newcomers = self.newcomers();
        if newcomers.len() >= listeners_max {
            newcomers.retain(|newcomer| !newcomer.looked.is_closed());
        }
        newcomers.push(Newcomer { recipient: recipient.clone(), looked });
        drop(newcomers);
        self.arrived.notify_one();
        look
    }

    fn newcomers(&self) -> MutexGuard<'_, Vec<Newcomer>> {
        self.newcomers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    pub(super) fn new(inbox: Inbox, line: Arc<DeskLine>) -> Self {
        Self { inbox, line }
    }

    /// Those who have come, waiting for the first. Nothing is lost when the future is dropped.
    pub async fn newcomers(&self) -> Vec<Newcomer> {
        loop {
            let newcomers = std::mem::take(&mut *self.line.newcomers());
            if !newcomers.is_empty() {
                return newcomers;
            }
            self.line.arrived.notified().await;
        }
    }

    /// Every recipient that listens.
    pub fn listening(&self) -> Vec<Recipient> {
        self.inbox.hub().recipients()
    }

    pub fn listens(&self, recipient: &Recipient) -> bool {
        self.inbox.hub().listens(recipient)
    }

    /// Offers a message to all devices of its recipient that listen. `None`: there is none.
    pub fn offer(&self, recipient: &Recipient, message: InboxMessage) -> Option<Offered> {
        self.inbox.offer(recipient, message)
    }

    /// What was taken from the ledger for this desk is settled.
    pub fn settled(&self, id: MessageId) {
        self.inbox.settled(id);
    }
}
