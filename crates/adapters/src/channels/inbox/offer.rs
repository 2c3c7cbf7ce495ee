use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidegate_domain::{MessageId, Recipient};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Inbox, InboxMessage};

/// A message that is offered to every device of its recipient that listens, under the lease of the pick-up.
///
/// It ends with the first device that it was written to. When every device that it was offered to has gone before that, the
/// last one lets go of it, and no device has seen it.
#[derive(Debug)]
pub struct Offer {
    pub(super) recipient: Recipient,
    pub(super) message: InboxMessage,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Told of the first device that has it.
    taken: Option<oneshot::Sender<()>>,
    /// Devices that it is being written to.
    writing: usize,
    /// Taken back: devices that have not begun with it pass it over.
    is_void: bool,
    is_acked: bool,
}

/// An offer from the side of those who made it.
#[derive(Debug)]
pub struct Offered {
    inbox: Inbox,
    offer: Weak<Offer>,
    taken: oneshot::Receiver<()>,
    recipient: Recipient,
    id: MessageId,
}

/// A message on its way to one device. Dropped without a word, it has not arrived.
#[derive(Debug)]
pub struct Handover {
    pub message: InboxMessage,
    /// None: it was offered before, and is kept until its ack.
    pub(super) source: Option<(Inbox, Arc<Offer>)>,
}

impl Offer {
    pub(super) fn new(inbox: Inbox, recipient: Recipient, message: InboxMessage) -> (Arc<Self>, Offered) {
        let (sender, taken) = oneshot::channel();
        let state = State { taken: Some(sender), writing: 0, is_void: false, is_acked: false };
        let id = message.id;
        let offer = Arc::new(Self { recipient: recipient.clone(), message, state: Mutex::new(state) });
        let offered = Offered { inbox, offer: Arc::downgrade(&offer), taken, recipient, id };
        (offer, offered)
    }

    /// A device is about to be written to. False when it is too late for that.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        if !state.is_void {
            state.writing += 1;
        }
        !state.is_void
    }

    /// No device has it yet, and it can still be had.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state();
        state.taken.is_some() && !state.is_void
    }

    pub(super) fn acked(&self) {
        self.state().is_acked = true;
    }

    /// True when the message is to be kept until its ack.
    fn written(&self) -> bool {
        let mut state = self.state();
        if let Some(taken) = state.taken.take() {
            // Those who made the offer may have gone; their lease decides.
            let _ = taken.send(());
        }
        self.message.ack_required && !state.is_acked
    }

    fn ended_writing(&self) {
        self.state().writing -= 1;
    }

    /// Takes it back, unless a device is being written to just now.
    fn revoke(&self) -> bool {
        let mut state = self.state();
        state.is_void |= state.writing == 0;
        state.is_void
    }

    /// Nothing here panics half-way through a change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offered {
    /// Waits until a device has it, or none is left that could. Devices that have not begun to read within `patience` are
    /// left behind; one that is being written to has until `lease` is over.
    pub async fn is_taken(mut self, patience: Duration, lease: Duration) -> bool {
        let end = Instant::now() + lease;
        loop {
            let within = timeout_at(end, timeout(patience, &mut self.taken)).await;
            match within {
                Ok(Ok(taken)) => return taken.is_ok(),
                Ok(Err(_elapsed)) => {
                    let Some(offer) = self.offer.upgrade() else { continue };
                    if offer.revoke() {
                        self.inbox.leave_behind(&offer.recipient);
                        return self.taken.try_recv().is_ok();
                    }
                }
                Err(_elapsed) => return self.taken.try_recv().is_ok(),
            }
        }
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.inbox.end_offer(&self.recipient, self.id);
    }
}

impl Handover {
    /// It was handed over before, and is kept until its ack.
    pub fn is_repeated(&self) -> bool {
        self.source.is_none()
    }

    /// The device has it, as far as its connection tells.
    pub fn written(self) {
        if let Some((inbox, offer)) = &self.source
            && offer.written()
        {
            inbox.keep(offer);
        }
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if let Some((_, offer)) = &self.source {
            offer.ended_writing();
        }
    }
}
