use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};
use tidegate_domain::limits::{Charge, Deferrals, Quota, QuotaRule};
use tidegate_domain::{Admitted, Lane, OnLimit, Timestamp, UserId};

use super::rows::{ChargeRow, QuotaRow};

/// Charged quotas that may wait for their own row; the messages' rows hold them meanwhile.
const DIRTY_MAX: usize = 4_096;
/// Deleted quotas that one group forgets.
const FORGOTTEN_MAX: usize = 1_000;

/// Every user's quota, with the later windows that deferred messages have taken room in.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    accounts: HashMap<UserId, Account>,
    dirty: HashSet<UserId>,
    /// Of deleted quotas: when the last window begins that they are kept for.
    deleted: BTreeSet<(Timestamp, UserId)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) quota: Quota,
    pub(super) deferrals: Deferrals,
}

/// How a user's account was before a change.
#[derive(Debug)]
pub(super) struct Before(UserId, Option<Account>);

/// A charge that passed.
#[derive(Debug)]
pub(super) struct Charged {
    pub(super) row: ChargeRow,
    pub(super) quota: Quota,
    /// When the later window begins that was charged, if it was not the current one.
    pub(super) deferred_to: Option<Timestamp>,
}

impl Quotas {
    /// Counts one message against its user's quota, or says why not.
    pub(super) fn charge(
        &mut self,
        user: UserId,
        lane: Lane,
        on_limit: OnLimit,
        now: Timestamp,
    ) -> Result<(Charged, Before), Admitted> {
        let Some(account) = self.accounts.get_mut(&user).filter(|account| !account.quota.is_deleted()) else {
            return Err(Admitted::UnknownUser);
        };
        let before = account.clone();
        let (row, deferred_to) = match (account.quota.charge(&mut account.deferrals, now), on_limit) {
            (Charge::Passed, _) => ((account.quota.count, account.quota.since), None),
            // Uncounted: the window is full.
            (Charge::Denied { .. }, _) if account.quota.lets_pass(lane) => {
                ((account.quota.count, account.quota.since), None)
            }
            (Charge::Denied { retry_after_ms }, on_limit) => {
                let quota = account.quota;
                let denied = Admitted::OverQuota { retry_after_ms, at: now, quota };
                let OnLimit::Defer { horizon_ms } = on_limit else { return Err(denied) };
                match quota.defer(&mut account.deferrals, now, horizon_ms) {
                    None => return Err(denied),
                    Some((begins, count)) => ((count, begins), Some(begins)),
                }
            }
        };
        let quota = account.quota;
        let row = ChargeRow { user: user.clone(), count: row.0, since: row.1 };
        if !self.dirty.contains(&user) {
            self.dirty.insert(user.clone());
        }
        Ok((Charged { row, quota, deferred_to }, Before(user, Some(before))))
    }

    pub(super) fn put(&mut self, user: UserId, rule: QuotaRule, now: Timestamp) -> (Account, Before) {
        let former = self.accounts.get(&user).map(|account| account.deferrals.clone());
        let mut deferrals = former.unwrap_or_default();
        let quota = Quota::reconfigure(rule, now, &mut deferrals);
        let account = Account { quota, deferrals };
        let before = self.set(&user, Some(account.clone()));
        (account, Before(user, before))
    }

    /// With what stays of it.
    pub(super) fn delete(&mut self, user: &UserId, now: Timestamp) -> Option<(Option<Account>, Before)> {
        let account = self.accounts.get(user).filter(|account| !account.quota.is_deleted())?;
        let mut deferrals = account.deferrals.clone();
        let quota = account.quota.deleted(&mut deferrals, now);
        let kept = quota.map(|quota| Account { quota, deferrals });
        let before = self.set(user, kept.clone());
        self.dirty.remove(user);
        Some((kept, Before(user.clone(), before)))
    }

    /// Forgets deleted quotas whose last window has begun, a bounded number of them.
    pub(super) fn forget(&mut self, now: Timestamp) -> Vec<(UserId, Before)> {
        let mut forgotten = Vec::new();
        while forgotten.len() < FORGOTTEN_MAX && self.has_old(now) {
            let Some((_, user)) = self.deleted.first().cloned() else { break };
            let before = self.set(&user, None);
            forgotten.push((user.clone(), Before(user, before)));
        }
        forgotten
    }

    pub(super) fn has_old(&self, now: Timestamp) -> bool {
        self.deleted.first().is_some_and(|(last, _)| *last <= now)
    }

    /// Returns how it was before.
    fn set(&mut self, user: &UserId, account: Option<Account>) -> Option<Account> {
        let kept_until = |account: &Account| {
            account.quota.is_deleted().then(|| account.deferrals.last().unwrap_or_default())
        };
        let until = account.as_ref().and_then(kept_until);
        let before = match account {
            Some(account) => self.accounts.insert(user.clone(), account),
            None => self.accounts.remove(user),
        };
        if let Some(until) = before.as_ref().and_then(kept_until) {
            self.deleted.remove(&(until, user.clone()));
        }
        if let Some(until) = until {
            self.deleted.insert((until, user.clone()));
        }
        before
    }

    pub(super) fn undo(&mut self, Before(user, account): Before) {
        match account {
            Some(account) => {
                self.set(&user, Some(account));
                // Its row may have to be written again.
                self.dirty.insert(user);
            }
            None => {
                self.set(&user, None);
                self.dirty.remove(&user);
            }
        }
    }

    pub(super) fn get(&self, user: &UserId, now: Timestamp) -> Option<Quota> {
        let account = self.accounts.get(user).filter(|account| !account.quota.is_deleted())?;
        Some(account.quota.seen_at(&account.deferrals, now))
    }

    /// Those that are deleted, too.
    pub(super) fn all(&self) -> impl Iterator<Item = (&UserId, &Account)> {
        self.accounts.iter()
    }

    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub(super) fn is_dirty_full(&self) -> bool {
        self.dirty.len() >= DIRTY_MAX
    }

    /// The rows of all quotas that changed since they were written last; `seq` is the last message.
    pub(super) fn dirty_rows(&self, seq: u64) -> impl Iterator<Item = QuotaRow> {
        let row = move |user: &UserId| {
            let account = self.accounts.get(user)?.clone();
            Some(QuotaRow { user: user.clone(), account, seq })
        };
        self.dirty.iter().filter_map(row)
    }

    pub(super) fn flushed(&mut self) {
        self.dirty.clear();
    }

    pub(super) fn restore(&mut self, user: UserId, account: Account) {
        self.set(&user, Some(account));
    }

    /// A charge that the quota's own row does not contain yet, of a message admitted at `at`.
    pub(super) fn restore_charge(&mut self, charge: ChargeRow, at: Timestamp) {
        let Some(account) = self.accounts.get_mut(&charge.user) else { return };
        if charge.since > at {
            account.deferrals.restore(charge.since, charge.count);
        } else {
            account.quota.count = charge.count;
            account.quota.since = charge.since;
            account.deferrals.forget_until(at);
        }
        self.dirty.insert(charge.user);
    }
}
