use tidegate_domain::Recipient;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

use super::hub::Item;
use super::{Handover, Inbox};

/// A device that listens. Dropping it is how it leaves.
#[derive(Debug)]
pub struct Subscription {
    inbox: Inbox,
    recipient: Recipient,
    id: u64,
    items: Receiver<Item>,
    /// One for each queue in which it has not been looked for the recipient's messages yet.
    looks: Vec<oneshot::Receiver<()>>,
}

impl Subscription {
    pub(super) fn new(
        inbox: Inbox,
        recipient: Recipient,
        (id, items): (u64, Receiver<Item>),
        looks: Vec<oneshot::Receiver<()>>,
    ) -> Self {
        Self { inbox, recipient, id, items, looks }
    }

    pub fn recipient(&self) -> &Recipient {
        &self.recipient
    }

    /// Waits until every queue has been looked through for what waits for the recipient, which is there by then. False when
    /// that could not be done. Nothing is lost when the future is dropped.
    pub async fn looked(&mut self) -> bool {
        while let Some(look) = self.looks.last_mut() {
            if look.await.is_err() {
                return false;
            }
            self.looks.pop();
        }
        true
    }

    /// Waits for the next message. Nothing is lost when the future is dropped. `None`: the device was too slow and
    /// has been left behind; it subscribes anew and finds what it has not acked.
    pub async fn next(&mut self) -> Option<Handover> {
        loop {
            let item = self.items.recv().await?;
            if let Some(handover) = begun(&self.inbox, item) {
                return Some(handover);
            }
        }
    }

    /// What is there already: the rest of a poll's answer.
    pub fn try_next(&mut self) -> Option<Handover> {
        loop {
            let item = self.items.try_recv().ok()?;
            if let Some(handover) = begun(&self.inbox, item) {
                return Some(handover);
            }
        }
    }
}

fn begun(inbox: &Inbox, item: Item) -> Option<Handover> {
    match item {
        Item::Kept(message) => Some(Handover { message, source: None }),
        Item::Offered(offer) if offer.begin() => {
            let message = offer.message.clone();
            Some(Handover { message, source: Some((inbox.clone(), offer)) })
        }
        Item::Offered(_void) => None,
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.inbox.leave(&self.recipient, self.id);
    }
}
