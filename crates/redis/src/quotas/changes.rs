use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_domain::UserId;
use tokio::sync::Notify;

/// Users that are remembered; beyond, the end of their window has to do.
const CHANGES_MAX: usize = 10_000;

/// Users whose quota was changed, and of whom Redis has yet to be told.
#[derive(Debug, Default)]
pub struct Changes {
    waiting: Mutex<Waiting>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// With the number of the last change: what was told before it does not count.
    users: BTreeMap<UserId, u64>,
    last: u64,
}

impl Changes {
    /// Remembers a change before Redis is told, whatever becomes of the call.
    pub fn add(&self, user: &UserId) -> u64 {
        let mut waiting = self.waiting();
        waiting.last += 1;
        let number = waiting.last;
        if waiting.users.len() < CHANGES_MAX || waiting.users.contains_key(user) {
            waiting.users.insert(user.clone(), number);
        } else {
            tracing::warn!(%user, "too many quotas were changed while Redis was away; it may deny by the old one until its window ends");
        }
        number
    }

    pub fn done(&self, told: &[(UserId, u64)]) {
        let mut waiting = self.waiting();
        for (user, number) in told {
            if waiting.users.get(user) == Some(number) {
                waiting.users.remove(user);
            }
        }
    }

    pub fn all(&self) -> Vec<(UserId, u64)> {
        self.waiting().users.iter().map(|(user, number)| (user.clone(), *number)).collect()
    }

    /// Redis was not told: somebody has to see to it.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_was_told_of_does_not_cover_a_later_one() {
        let (changes, alice) = (Changes::default(), UserId::new("alice").unwrap());
        let first = changes.add(&alice);
        let second = changes.add(&alice);
        changes.done(&[(alice.clone(), first)]);
        assert_eq!(changes.all(), [(alice.clone(), second)]);
        changes.done(&[(alice, second)]);
        assert!(changes.all().is_empty());
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let changes = Changes::default();
        for number in 0..=CHANGES_MAX {
            changes.add(&UserId::new(&format!("user-{number}")).unwrap());
        }
        assert_eq!(changes.all().len(), CHANGES_MAX);
    }
}
