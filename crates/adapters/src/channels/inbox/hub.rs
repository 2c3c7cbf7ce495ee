use std::collections::BTreeMap;

use hashbrown::HashMap;
use tidegate_domain::{MessageId, Recipient, Timestamp};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{InboxMessage, InboxOptions, TooManyListeners};

/// How often what nobody needs any more is looked for.
const SWEEP_MS: u64 = 10_000;
/// What a kept message costs beside its texts.
const OVERHEAD_BYTES: usize = 512;

/// Who listens, and what awaits an ack.
pub struct Hub {
    places: HashMap<Recipient, Place>,
    /// Where each kept message lies.
    kept: HashMap<MessageId, Recipient>,
    kept_bytes: usize,
    listeners: usize,
    last_id: u64,
    swept_at: Timestamp,
    limits: Limits,
}

struct Limits {
    buffer: usize,
    listeners_max: usize,
    listeners_per_recipient_max: usize,
    kept_bytes_max: usize,
    kept_ms: u64,
    grace_ms: u64,
}

/// A recipient's corner of the hub.
#[derive(Default)]
struct Place {
    listeners: Vec<(u64, Sender<InboxMessage>)>,
    /// Ids sort by admission.
    kept: BTreeMap<MessageId, (InboxMessage, Timestamp)>,
    left_at: Option<Timestamp>,
}

impl Hub {
    pub fn new(options: &InboxOptions) -> Self {
        let limits = Limits {
            buffer: options.buffer.max(1),
            listeners_max: options.listeners_max,
            listeners_per_recipient_max: options.listeners_per_recipient_max,
            kept_bytes_max: options.kept_bytes_max,
            kept_ms: options.kept_ms,
            grace_ms: options.grace_ms,
        };
        Self {
            places: HashMap::new(),
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

    /// A new listener, with what is kept for it in its buffer already.
    pub fn join(
        &mut self,
        recipient: &Recipient,
        now: Timestamp,
    ) -> Result<(u64, Receiver<InboxMessage>), TooManyListeners> {
        self.sweep(now, false);
        let there = self.places.get(recipient).map_or(0, |place| place.listeners.len());
        if self.listeners >= self.limits.listeners_max || there >= self.limits.listeners_per_recipient_max {
            return Err(TooManyListeners);
        }
        let (sender, receiver) = channel(self.limits.buffer);
        let place = self.places.entry_ref(recipient).or_default();
        for (message, until) in place.kept.values() {
            if *until > now {
                // No more is kept than the buffer holds.
                let _ = sender.try_send(message.clone());
            }
        }
        self.last_id += 1;
        self.listeners += 1;
        place.listeners.push((self.last_id, sender));
        Ok((self.last_id, receiver))
    }

    pub fn leave(&mut self, recipient: &Recipient, id: u64, now: Timestamp) {
        let Some(place) = self.places.get_mut(recipient) else { return };
        let before = place.listeners.len();
        place.listeners.retain(|(listener, _)| *listener != id);
        self.listeners -= before - place.listeners.len();
        place.left_at = Some(now);
        self.sweep(now, false);
    }

    /// Whether a message would be taken now: by a listener, or kept for one that will be back soon.
    pub fn takes(&self, recipient: &Recipient, now: Timestamp) -> bool {
        let Some(place) = self.places.get(recipient) else { return false };
        let near = place.is_near(now, self.limits.grace_ms);
        !place.listeners.is_empty() || near && self.kept_bytes < self.limits.kept_bytes_max
    }

    /// True when somebody has it now. Whoever can't keep up is dropped: its buffer is full of what it has not read.
    pub fn hand_over(&mut self, recipient: &Recipient, message: &InboxMessage, now: Timestamp) -> bool {
        self.sweep(now, self.kept_bytes >= self.limits.kept_bytes_max);
        let Some(place) = self.places.get_mut(recipient) else {
            return self.keep(recipient, message, now);
        };
        let before = place.listeners.len();
        place.listeners.retain(|(_, listener)| listener.try_send(message.clone()).is_ok());
        let handed_over = !place.listeners.is_empty();
        self.listeners -= before - place.listeners.len();
        if before > 0 && !handed_over {
            place.left_at = Some(now);
        }
        self.keep(recipient, message, now) || handed_over
    }

    pub fn forget(&mut self, id: MessageId) {
        let Some(recipient) = self.kept.remove(&id) else { return };
        let message = self.places.get_mut(&recipient).and_then(|place| place.kept.remove(&id));
        if let Some((message, _)) = message {
            self.kept_bytes -= bytes(&message);
        }
    }

    fn keep(&mut self, recipient: &Recipient, message: &InboxMessage, now: Timestamp) -> bool {
        self.forget(message.id);
        let bytes = bytes(message);
        if self.kept_bytes + bytes > self.limits.kept_bytes_max {
            return false;
        }
        let place = self.places.entry_ref(recipient).or_default();
        // The ledger brings the oldest back when its ack is overdue.
        let oldest = place.kept.first_key_value().map(|(id, _)| *id);
        if let Some(oldest) = oldest.filter(|_| place.kept.len() >= self.limits.buffer) {
            self.forget(oldest);
        }
        let place = self.places.entry_ref(recipient).or_default();
        place.kept.insert(message.id, (message.clone(), now.plus_ms(self.limits.kept_ms)));
        self.kept.insert(message.id, recipient.clone());
        self.kept_bytes += bytes;
        true
    }

    /// Lets go of what has waited too long, and of places where nobody is.
    fn sweep(&mut self, now: Timestamp, pressed: bool) {
        let pause_ms = if pressed { SWEEP_MS / 10 } else { SWEEP_MS };
        if now.since_ms(self.swept_at) < pause_ms {
            return;
        }
        self.swept_at = now;
        let grace_ms = self.limits.grace_ms;
        self.places.retain(|_, place| {
            place.kept.retain(|id, (message, until)| {
                let stays = *until > now;
                if !stays {
                    self.kept.remove(id);
                    self.kept_bytes -= bytes(message);
                }
                stays
            });
            !place.listeners.is_empty() || !place.kept.is_empty() || place.is_near(now, grace_ms)
        });
    }
}

impl Place {
    /// Left a moment ago.
    fn is_near(&self, now: Timestamp, grace_ms: u64) -> bool {
        self.left_at.is_some_and(|at| now.since_ms(at) < grace_ms)
    }
}

fn bytes(message: &InboxMessage) -> usize {
    let headers: usize = message.headers.0.iter().map(|(name, value)| name.len() + value.len()).sum();
    message.body.len() + headers + message.idempotency_key.len() + OVERHEAD_BYTES
}
