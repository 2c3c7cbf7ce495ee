use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidegate_domain::{MessageId, Recipient};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Inbox, InboxMessage};

/// A message that is offered to every device of its recipient that listens, under the lease of the pick-up.
///
/// It ends with the first device that it was written to: a device that comes later is given it only if none has it yet. When
/// every device that it was offered to has gone before that, the last one lets go of it, and no device has seen it.
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
    /// The last listener that was there when it was made.
    last_listener: u64,
    /// Taken back: devices that have not begun with it pass it over.
    is_void: bool,
    is_acked: bool,
}

/// Whether a device may be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Now,
    /// It is being written to another device, which may fail.
    Elsewhere,
    TooLate,
}

/// What it meant that a device has a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    /// It is the first, and those who made the offer settle it.
    pub ends_offer: bool,
    /// Until its ack.
    pub is_kept: bool,
}

/// An offer from the side of those who made it.
#[derive(Debug)]
pub struct Offered {
    inbox: Inbox,
    offer: Weak<Offer>,
    taken: oneshot::Receiver<()>,
    recipient: Recipient,
    id: MessageId,
    is_taken: bool,
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
        let state =
            State { taken: Some(sender), writing: 0, last_listener: 0, is_void: false, is_acked: false };
        let id = message.id;
        let offer = Arc::new(Self { recipient: recipient.clone(), message, state: Mutex::new(state) });
        let weak = Arc::downgrade(&offer);
        (offer, Offered { inbox, offer: weak, taken, recipient, id, is_taken: false })
    }

    pub(super) fn made_for(&self, last_listener: u64) {
        self.state().last_listener = last_listener;
    }

    /// A device is about to be written to. One that came late is not given what another device has, nor, while it waits,
    /// what another device is given just now.
    pub(super) fn begin(&self, is_late: bool, waits: bool) -> Begun {
        let mut state = self.state();
        if state.is_void || is_late && state.taken.is_none() {
            return Begun::TooLate;
        }
        if is_late && waits && state.writing > 0 {
            return Begun::Elsewhere;
        }
        state.writing += 1;
        Begun::Now
    }

    /// No device has it yet, and it can still be had.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state();
        state.taken.is_some() && !state.is_void
    }

    /// And no device has it yet.
    pub(super) fn is_being_written(&self) -> bool {
        let state = self.state();
        state.writing > 0 && state.taken.is_some() && !state.is_void
    }

    pub(super) fn acked(&self) {
        self.state().is_acked = true;
    }

    pub(super) fn written(&self) -> Written {
        let mut state = self.state();
        // Those who made the offer may have gone; their lease decides.
        let ends_offer = state.taken.take().is_some_and(|taken| taken.send(()).is_ok());
        Written { ends_offer, is_kept: self.message.ack_required && !state.is_acked }
    }

    fn ended_writing(&self) {
        self.state().writing -= 1;
    }

    /// Takes it back, unless a device is being written to just now: the last listener that had it all the time.
    fn revoke(&self) -> Option<u64> {
        let mut state = self.state();
        state.is_void |= state.writing == 0;
        state.is_void.then_some(state.last_listener)
    }

    fn end(&self) {
        self.state().is_void = true;
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
                Ok(Ok(taken)) => {
                    self.is_taken = taken.is_ok();
                    break;
                }
                Ok(Err(_elapsed)) => {
                    let Some(offer) = self.offer.upgrade() else { continue };
                    if let Some(last_listener) = offer.revoke() {
                        self.inbox.leave_behind(&offer.recipient, last_listener);
                        self.is_taken = self.taken.try_recv().is_ok();
                        break;
                    }
                }
                Err(_elapsed) => {
                    self.is_taken = self.taken.try_recv().is_ok();
                    break;
                }
            }
        }
        self.is_taken
    }
}

impl Drop for Offered {
    /// Devices that listened when it was made may have it, even after another device has taken it. What none has taken is
    /// not begun any more: it is handed out anew.
    fn drop(&mut self) {
        if !self.is_taken
            && let Some(offer) = self.offer.upgrade()
        {
            offer.end();
        }
        self.inbox.end_offer(&self.recipient, self.id, self.is_taken);
    }
}

impl Handover {
    pub(super) fn begun(inbox: &Inbox, offer: Arc<Offer>) -> Self {
        Self { message: offer.message.clone(), source: Some((inbox.clone(), offer)) }
    }

    /// It was handed over before, and is kept until its ack.
    pub fn is_repeated(&self) -> bool {
        !self.is_offered()
    }

    pub(super) fn is_offered(&self) -> bool {
        self.source.is_some()
    }

    /// The device has it, as far as its connection tells.
    pub fn written(self) {
        if let Some((inbox, offer)) = &self.source {
            inbox.written(offer);
        }
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if let Some((inbox, offer)) = &self.source {
            offer.ended_writing();
            inbox.0.moved.notify_waiters();
        }
    }
}
