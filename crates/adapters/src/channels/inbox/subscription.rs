use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{QueueName, Recipient};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::hub::Item;
use super::offer::Begun;
use super::{Handover, Inbox, Offer};

/// How long a newcomer waits for the end of a message that is being written to a device that came before. It is far longer
/// than the bytes of a healthy connection take; one that is stuck may be the newcomer's own old one.
const ELSEWHERE_MAX: Duration = Duration::from_secs(1);

/// A device that listens. Dropping it is how it leaves.
#[derive(Debug)]
pub struct Subscription {
    inbox: Inbox,
    recipient: Recipient,
    id: u64,
    items: Receiver<Item>,
    /// Begun while it was looked for more.
    here: VecDeque<Handover>,
    elsewhere: Vec<Elsewhere>,
    /// One for each queue in which it has not been looked for the recipient's messages yet.
    looks: Vec<Look>,
}

#[derive(Debug)]
pub(super) struct Look {
    pub queue: QueueName,
    pub looked: oneshot::Receiver<()>,
}

/// Being written to a device that came before. It is taken over should that fail.
#[derive(Debug)]
struct Elsewhere {
    offer: Arc<Offer>,
    until: Instant,
}

impl Subscription {
    pub(super) fn new(
        inbox: Inbox,
        recipient: Recipient,
        (id, items): (u64, Receiver<Item>),
        looks: Vec<Look>,
    ) -> Self {
        Self { inbox, recipient, id, items, here: VecDeque::new(), elsewhere: Vec::new(), looks }
    }

    pub fn recipient(&self) -> &Recipient {
        &self.recipient
    }

    /// Waits until it is known for every queue what waits for the recipient, which is there by then: it has been looked
    /// for, or a message of the queue has come. False when that could not be done. Nothing is lost when the future is
    /// dropped.
    pub async fn looked(&mut self) -> bool {
        loop {
            while let Ok(item) = self.items.try_recv() {
                self.receive(item);
            }
            self.take_over();
            // A look waits for the end of the queue's offer. The newcomer that has begun with it must not wait for that.
            let here = &self.here;
            let is_here =
                |queue: &QueueName| here.iter().any(|one| one.is_offered() && one.message.queue == *queue);
            self.looks.retain(|look| !is_here(&look.queue));
            let Some(look) = self.looks.last_mut() else { return true };
            tokio::select! {
                biased;
                item = self.items.recv() => match item {
                    Some(item) => self.receive(item),
                    None => return false,
                },
                () = moved(&self.inbox, &self.elsewhere) => {}
                looked = &mut look.looked => {
                    if looked.is_err() {
                        return false;
                    }
                    self.looks.pop();
                }
            }
        }
    }

    /// Waits for the next message. Nothing is lost when the future is dropped. `None`: the device was too slow and
    /// has been left behind; it subscribes anew and finds what it has not acked.
    pub async fn next(&mut self) -> Option<Handover> {
        loop {
            if let Some(handover) = self.try_next() {
                return Some(handover);
            }
            tokio::select! {
                biased;
                item = self.items.recv() => self.receive(item?),
                () = moved(&self.inbox, &self.elsewhere) => {}
            }
        }
    }

    /// What is there already: the rest of a poll's answer.
    pub fn try_next(&mut self) -> Option<Handover> {
        loop {
            if self.here.is_empty() {
                self.take_over();
            }
            if let Some(handover) = self.here.pop_front() {
                return Some(handover);
            }
            let item = self.items.try_recv().ok()?;
            self.receive(item);
        }
    }

    fn receive(&mut self, item: Item) {
        let (offer, is_late) = match item {
            Item::Kept(message) => return self.here.push_back(Handover { message, source: None }),
            Item::Offered(offer) => (offer, false),
            Item::OfferedBefore(offer) => (offer, true),
        };
        match offer.begin(is_late, true) {
            Begun::Now => self.here.push_back(Handover::begun(&self.inbox, offer)),
            Begun::Elsewhere => {
                self.elsewhere.push(Elsewhere { offer, until: Instant::now() + ELSEWHERE_MAX });
            }
            Begun::TooLate => {}
        }
    }

    /// Begins with what no other device has got in the end.
    fn take_over(&mut self) {
        let (here, inbox) = (&mut self.here, &self.inbox);
        self.elsewhere.retain(|one| match one.offer.begin(true, Instant::now() < one.until) {
            Begun::Now => {
                here.push_back(Handover::begun(inbox, one.offer.clone()));
                false
            }
            Begun::Elsewhere => true,
            Begun::TooLate => false,
        });
    }
}

/// Waits until one of these may be taken over, or is with a device. Never ends without any.
async fn moved(inbox: &Inbox, elsewhere: &[Elsewhere]) {
    let Some(until) = elsewhere.iter().map(|one| one.until).min() else {
        return std::future::pending().await;
    };
    // Before the look at them: what moves from here on is heard.
    let moved = inbox.0.moved.notified();
    if elsewhere.iter().all(|one| one.offer.is_being_written()) {
        let _ = timeout_at(until, moved).await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.inbox.leave(&self.recipient, self.id);
    }
}
