use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Keys remembered per policy.
const KEYS_MAX: usize = 32;
const STRIPES: usize = 8;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// What became of the requests that a policy was about.
#[derive(Debug, Default)]
pub struct Tally {
    allowed: Striped,
    denied: AtomicU64,
    degraded: AtomicU64,
    shadow_denied: AtomicU64,
    exempted: AtomicU64,
    denied_keys: Mutex<Vec<DeniedKey>>,
}

/// A count that every request raises. Each thread has a place of its own: one place for all would travel between
/// the cores with every request.
#[derive(Debug, Default)]
struct Striped([Stripe; STRIPES]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// Requests that passed.
    pub allowed: u64,
    /// Requests for which this policy's bucket lacked tokens.
    pub denied: u64,
    /// Requests decided without the store.
    pub degraded: u64,
    /// Requests that this policy would have denied, were it not in the shadow.
    pub shadow_denied: u64,
    /// Requests that passed without tokens, for their priority.
    pub exempted: u64,
}

/// A key and how often it was denied: at most `denied` times, at least `denied - over` times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedKey {
    pub key: Box<str>,
    pub denied: u64,
    pub over: u64,
}

impl Tally {
    pub fn outcomes(&self) -> Outcomes {
        Outcomes {
            allowed: self.allowed.sum(),
            denied: self.denied.load(Ordering::Relaxed),
            degraded: self.degraded.load(Ordering::Relaxed),
            shadow_denied: self.shadow_denied.load(Ordering::Relaxed),
            exempted: self.exempted.load(Ordering::Relaxed),
        }
    }

    /// The most denied keys, most denied first.
    pub fn denied_keys(&self) -> Vec<DeniedKey> {
        let mut keys = self.denied_keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        keys.sort_by(|one, other| other.denied.cmp(&one.denied).then_with(|| one.key.cmp(&other.key)));
        keys
    }

    pub(super) fn allowed(&self) {
        self.allowed.raise();
    }

    pub(super) fn degraded(&self) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn exempted(&self) {
        self.exempted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn denied(&self, key: &str, shadow: bool) {
        let count = if shadow { &self.shadow_denied } else { &self.denied };
        count.fetch_add(1, Ordering::Relaxed);
        self.note(key);
    }

    /// Metwally's space-saving: a newcomer takes the place of the least denied key and inherits its count, so that
    /// whoever is denied often enough is on the list, however many others there are.
    fn note(&self, key: &str) {
        let mut keys = self.denied_keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = keys.iter_mut().find(|known| *known.key == *key) {
            known.denied += 1;
            return;
        }
        if keys.len() < KEYS_MAX {
            keys.push(DeniedKey { key: key.into(), denied: 1, over: 0 });
        } else if let Some(least) = keys.iter_mut().min_by_key(|known| known.denied) {
            *least = DeniedKey { key: key.into(), denied: least.denied + 1, over: least.denied };
        }
    }
}

impl Striped {
    fn raise(&self) {
        STRIPE.with(|stripe| self.0[*stripe].0.fetch_add(1, Ordering::Relaxed));
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_denied_often_is_on_the_list_in_a_crowd() {
        let tally = Tally::default();
        for round in 0..10_000 {
            tally.denied(&format!("passer-by {round}"), false);
            if round % 10 == 0 {
                tally.denied("noisy", false);
            }
        }
        let keys = tally.denied_keys();
        assert_eq!((keys.len(), tally.outcomes().denied), (KEYS_MAX, 11_000));
        let noisy =
            keys.iter().find(|known| &*known.key == "noisy").expect("1,000 of 11,000 is more than 1/32");
        assert!(noisy.denied >= 1_000 && noisy.denied - noisy.over <= 1_000, "{noisy:?}");
    }
}
