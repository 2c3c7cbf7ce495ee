use std::collections::VecDeque;

use hashbrown::HashMap;
use tidegate_domain::{Fingerprint, Idempotency, IdempotencyKey, Timestamp};

/// The idempotency keys of the window, in memory: a random key in an on-disk index would dirty a page per
/// message.
#[derive(Debug)]
pub(super) struct Keys {
    known: HashMap<IdempotencyKey, Known>,
    by_age: VecDeque<(Timestamp, IdempotencyKey)>,
    window_ms: u64,
    keys_max: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) seq: u64,
    pub(super) at: Timestamp,
    pub(super) fingerprint: Fingerprint,
}

impl Keys {
    pub(super) fn new(window_ms: u64, keys_max: usize) -> Self {
        Self { known: HashMap::new(), by_age: VecDeque::new(), window_ms, keys_max }
    }

    /// The message admitted under this key, if its window is still open.
    pub(super) fn get(&self, key: &IdempotencyKey, now: Timestamp) -> Option<Known> {
        self.known.get(key).filter(|known| now.since_ms(known.at) < self.window_ms).copied()
    }

    pub(super) fn is_full(&self) -> bool {
        self.known.len() >= self.keys_max
    }

    pub(super) fn insert(&mut self, idempotency: &Idempotency, seq: u64, at: Timestamp) {
        let known = Known { seq, at, fingerprint: idempotency.fingerprint };
        self.known.insert(idempotency.key, known);
        self.by_age.push_back((at, idempotency.key));
    }

    /// Takes back the newest insertion.
    pub(super) fn undo(&mut self, key: &IdempotencyKey) {
        self.known.remove(key);
        self.by_age.pop_back();
    }

    /// Forgets keys whose window has closed.
    pub(super) fn expire(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.by_age.front() {
            if now.since_ms(*at) < self.window_ms {
                return;
            }
            // A key used again after its window has a newer entry, which stays.
            if self.known.get(key).is_some_and(|known| known.at == *at) {
                self.known.remove(key);
            }
            self.by_age.pop_front();
        }
    }
}
