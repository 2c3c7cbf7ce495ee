use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use tidegate_domain::Timestamp;

use super::Principal;
use super::secret::Digest;

const ENTRIES_MAX: usize = 1_024;
const TTL_MS: u64 = 5 * 60 * 1_000;

/// Passwords that were verified lately, by their keyed digest. Without it argon2id would cap a small machine
/// at a few dozen requests per second.
#[derive(Debug, Default)]
pub(super) struct Verified {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_digest: HashMap<Digest, (Principal, Timestamp)>,
    /// Oldest first; all live equally long, so this is also the order of expiry.
    order: VecDeque<Digest>,
}

impl Verified {
    pub fn recall(&self, digest: &Digest, now: Timestamp) -> Option<Principal> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (principal, since) = entries.by_digest.get(digest)?;
        (now.since_ms(*since) < TTL_MS).then(|| principal.clone())
    }

    pub fn remember(&self, digest: Digest, principal: Principal, now: Timestamp) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.forget_expired(now);
        if entries.by_digest.insert(digest, (principal, now)).is_some() {
            entries.order.retain(|other| *other != digest);
        }
        entries.order.push_back(digest);
        if entries.order.len() > ENTRIES_MAX {
            entries.forget_oldest();
        }
    }
}

impl Entries {
    fn forget_expired(&mut self, now: Timestamp) {
        while let Some((_, since)) = self.order.front().and_then(|digest| self.by_digest.get(digest)) {
            if now.since_ms(*since) < TTL_MS {
                break;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(digest) = self.order.pop_front() {
            self.by_digest.remove(&digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Role;

    fn digest(n: usize) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&n.to_le_bytes());
        digest
    }

    fn anna() -> Principal {
        Principal { name: Arc::from("anna"), role: Role::User }
    }

    #[test]
    fn a_verified_password_is_recalled_for_five_minutes_from_its_verification() {
        let verified = Verified::default();
        let at = Timestamp::from_millis;
        verified.remember(digest(1), anna(), at(1_000));
        assert!(verified.recall(&digest(1), at(300_999)).is_some());
        assert!(verified.recall(&digest(1), at(301_000)).is_none());
        assert!(verified.recall(&digest(2), at(1_000)).is_none());
    }

    #[test]
    fn the_oldest_makes_room() {
        let verified = Verified::default();
        let now = Timestamp::from_millis(0);
        for n in 0..=ENTRIES_MAX {
            verified.remember(digest(n), anna(), now);
            verified.remember(digest(n), anna(), now);
        }
        assert!(verified.recall(&digest(0), now).is_none());
        assert!(verified.recall(&digest(1), now).is_some());
        let entries = verified.entries.lock().unwrap();
        assert_eq!((entries.order.len(), entries.by_digest.len()), (ENTRIES_MAX, ENTRIES_MAX));
    }
}
