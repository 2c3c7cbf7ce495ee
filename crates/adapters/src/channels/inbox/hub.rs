use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use hashbrown::{HashMap, HashSet};
use tidegate_domain::{MessageId, Recipient, Timestamp};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{InboxMessage, InboxOptions, Offer, TooManyListeners};

/// How often kept messages are looked for whose time is over.
const SWEEP_MS: u64 = 10_000;
/// What a kept message costs beside its texts.
const OVERHEAD_BYTES: usize = 512;

/// Who listens, what is offered, and what awaits an ack.
pub struct Hub {
    places: HashMap<Recipient, Place>,
    offers: HashMap<MessageId, Weak<Offer>>,
    /// Devices have them, and the ledger does not know it yet.
    unsettled: HashSet<MessageId>,
    /// Where each kept message lies.
    kept: HashMap<MessageId, Recipient>,
    kept_bytes: usize,
    listeners: usize,
    last_id: u64,
    swept_at: Timestamp,
    limits: Limits,
}

/// What a listener's buffer holds.
#[derive(Debug)]
pub enum Item {
    Offered(Arc<Offer>),
    /// It was offered before this listener came.
    OfferedBefore(Arc<Offer>),
    Kept(InboxMessage),
}

struct Limits {
    buffer: usize,
    listeners_max: usize,
    listeners_per_recipient_max: usize,
    kept_bytes_max: usize,
    kept_ms: u64,
}

/// A recipient's corner of the hub.
#[derive(Default)]
struct Place {
    listeners: Vec<(u64, Sender<Item>)>,
    /// Offered just now, at most one of each queue.
    offers: Vec<MessageId>,
    /// Ids sort by admission.
    kept: BTreeMap<MessageId, (InboxMessage, Timestamp)>,
}

impl Hub {
    pub fn new(options: &InboxOptions) -> Self {
        let limits = Limits {
            buffer: options.buffer.max(1),
            listeners_max: options.listeners_max,
            listeners_per_recipient_max: options.listeners_per_recipient_max,
            kept_bytes_max: options.kept_bytes_max,
            kept_ms: options.kept_ms,
        };
        Self {
            places: HashMap::new(),
            offers: HashMap::new(),
            unsettled: HashSet::new(),
            kept: HashMap::new(),
            kept_bytes: 0,
            listeners: 0,
            last_id: 0,
            swept_at: Timestamp::from_millis(0),
            limits,
        }
    }

    pub fn listeners(&self) -> usize {
        self.listeners
    }

    pub fn recipients(&self) -> Vec<Recipient> {
        let there = self.places.iter().filter(|(_, place)| !place.listeners.is_empty());
        there.map(|(recipient, _)| recipient.clone()).collect()
    }

    pub fn listens(&self, recipient: &Recipient) -> bool {
        self.places.get(recipient).is_some_and(|place| !place.listeners.is_empty())
    }

    /// A new listener, with what is kept for its recipient, and what is offered just now, in its buffer already.
    pub fn join(
        &mut self,
        recipient: &Recipient,
        now: Timestamp,
    ) -> Result<(u64, Receiver<Item>), TooManyListeners> {
        self.sweep(now, false);
        let there = self.places.get(recipient).map_or(0, |place| place.listeners.len());
        if self.listeners >= self.limits.listeners_max || there >= self.limits.listeners_per_recipient_max {
            return Err(TooManyListeners);
        }
        let (sender, receiver) = channel(self.limits.buffer);
        let place = self.places.entry_ref(recipient).or_default();
        let kept = place.kept.values().filter(|(_, until)| *until > now);
        let mut items: Vec<Item> = kept.map(|(message, _)| Item::Kept(message.clone())).collect();
        let offers = place.offers.iter().filter_map(|id| self.offers.get(id).and_then(Weak::upgrade));
        items.extend(offers.filter(|offer| offer.is_open()).map(Item::OfferedBefore));
        items.sort_by_key(Item::id);
        for item in items {
            // What does not fit stays where it is: the next to listen finds it.
            let _ = sender.try_send(item);
        }
        self.last_id += 1;
        self.listeners += 1;
        place.listeners.push((self.last_id, sender));
        Ok((self.last_id, receiver))
    }

    pub fn leave(&mut self, recipient: &Recipient, id: u64) {
        let Some(place) = self.places.get_mut(recipient) else { return };
        let before = place.listeners.len();
        place.listeners.retain(|(listener, _)| *listener != id);
        self.listeners -= before - place.listeners.len();
        self.tidy(recipient);
    }

    /// The listeners of a recipient up to this one go: none of them reads.
    pub fn leave_behind(&mut self, recipient: &Recipient, last: u64) {
        if let Some(place) = self.places.get_mut(recipient) {
            let before = place.listeners.len();
            place.listeners.retain(|(listener, _)| *listener > last);
            self.listeners -= before - place.listeners.len();
            self.tidy(recipient);
        }
    }

    /// False when no listener is there to take it. One that can't keep up is dropped: its buffer is full of what it has not
    /// read.
    pub fn offer(&mut self, offer: &Arc<Offer>) -> bool {
        // A repetition takes the place of what is kept of it.
        self.forget(offer.message.id);
        offer.made_for(self.last_id);
        let Some(place) = self.places.get_mut(&offer.recipient) else { return false };
        let before = place.listeners.len();
        place.listeners.retain(|(_, listener)| listener.try_send(Item::Offered(offer.clone())).is_ok());
        self.listeners -= before - place.listeners.len();
        let is_offered = !place.listeners.is_empty();
        if is_offered {
            place.offers.push(offer.message.id);
            self.offers.insert(offer.message.id, Arc::downgrade(offer));
        }
        self.tidy(&offer.recipient);
        is_offered
    }

    /// What a device has taken is to be settled.
    pub fn end_offer(&mut self, recipient: &Recipient, id: MessageId, is_taken: bool) {
        self.offers.remove(&id);
        if !is_taken {
            self.unsettled.remove(&id);
        }
        if let Some(place) = self.places.get_mut(recipient) {
            place.offers.retain(|other| *other != id);
            self.tidy(recipient);
        }
    }

    /// A device has it. Those who come from now on find it kept, or not at all.
    pub fn written(&mut self, offer: &Offer, now: Timestamp) {
        let written = offer.written();
        if written.ends_offer {
            self.unsettled.insert(offer.message.id);
        }
        if written.is_kept {
            self.keep(&offer.recipient, &offer.message, now);
        }
    }

    pub fn settled(&mut self, id: MessageId) {
        self.unsettled.remove(&id);
    }

    /// Devices have it, or are just being written to, and the ledger does not know it yet.
    pub fn is_unsettled(&self, id: MessageId) -> bool {
        let offer = self.offers.get(&id).and_then(Weak::upgrade);
        self.unsettled.contains(&id) || offer.is_some_and(|offer| offer.is_being_written())
    }

    /// Neither what is kept nor what is offered just now is handed out from here on.
    pub fn acked(&mut self, id: MessageId) {
        if let Some(offer) = self.offers.get(&id).and_then(Weak::upgrade) {
            offer.acked();
        }
        self.forget(id);
    }

    /// A message that a device has, until its ack. When there is no room, the ledger brings it back when its ack is overdue.
    fn keep(&mut self, recipient: &Recipient, message: &InboxMessage, now: Timestamp) {
        self.sweep(now, self.kept_bytes >= self.limits.kept_bytes_max);
        self.forget(message.id);
        let bytes = bytes(message);
        if self.kept_bytes + bytes > self.limits.kept_bytes_max {
            return;
        }
        let place = self.places.entry_ref(recipient).or_default();
        let oldest = place.kept.first_key_value().map(|(id, _)| *id);
        if let Some(oldest) = oldest.filter(|_| place.kept.len() >= self.limits.buffer) {
            self.forget(oldest);
        }
        let place = self.places.entry_ref(recipient).or_default();
        place.kept.insert(message.id, (message.clone(), now.plus_ms(self.limits.kept_ms)));
        self.kept.insert(message.id, recipient.clone());
        self.kept_bytes += bytes;
    }

    fn forget(&mut self, id: MessageId) {
        let Some(recipient) = self.kept.remove(&id) else { return };
        let message = self.places.get_mut(&recipient).and_then(|place| place.kept.remove(&id));
        if let Some((message, _)) = message {
            self.kept_bytes -= bytes(&message);
        }
        self.tidy(&recipient);
    }

    fn tidy(&mut self, recipient: &Recipient) {
        if self.places.get(recipient).is_some_and(Place::is_empty) {
            self.places.remove(recipient);
        }
    }

    /// Lets go of what has waited too long for its ack.
    fn sweep(&mut self, now: Timestamp, pressed: bool) {
        let pause_ms = if pressed { SWEEP_MS / 10 } else { SWEEP_MS };
        if now.since_ms(self.swept_at) < pause_ms {
            return;
        }
        self.swept_at = now;
        self.places.retain(|_, place| {
            place.kept.retain(|id, (message, until)| {
                let stays = *until > now;
                if !stays {
                    self.kept.remove(id);
                    self.kept_bytes -= bytes(message);
                }
                stays
            });
            !place.is_empty()
        });
    }
}

impl Place {
    fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.offers.is_empty() && self.kept.is_empty()
    }
}

impl Item {
    fn id(&self) -> MessageId {
        match self {
            Self::Offered(offer) | Self::OfferedBefore(offer) => offer.message.id,
            Self::Kept(message) => message.id,
        }
    }
}

fn bytes(message: &InboxMessage) -> usize {
    let headers: usize = message.headers.0.iter().map(|(name, value)| name.len() + value.len()).sum();
    message.body.len() + headers + message.idempotency_key.len() + OVERHEAD_BYTES
}
