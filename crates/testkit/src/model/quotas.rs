use std::collections::BTreeSet;

use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{Timestamp, UserId};

/// Later windows that deferred messages may reach into.
const WINDOWS_MAX: u64 = 1_000;

/// A user's window, and when each deferred message goes out. A deferred message is a charge that happens when
/// it is due, in a window that begins then. Up to the last of these, windows follow one another without gaps.
#[derive(Debug)]
pub struct Account {
    pub user: UserId,
    pub quota: Quota,
    /// Kept for what was deferred, in case the user has a quota again.
    pub is_deleted: bool,
    deferred: Vec<Timestamp>,
    /// When the later windows begin, those without messages too.
    windows: BTreeSet<Timestamp>,
}

impl Account {
    pub fn new(user: UserId, rule: QuotaRule, now: Timestamp) -> Self {
        let QuotaRule { limit, window_ms, exempts_high } = rule;
        let quota = Quota { limit, window_ms, count: 0, since: now, exempts_high };
        Self { user, quota, is_deleted: false, deferred: Vec::new(), windows: BTreeSet::new() }
    }

    /// A fresh window; what was deferred falls into it or into later ones.
    pub fn reconfigure(&mut self, rule: QuotaRule, now: Timestamp) {
        let window_ms = rule.window_ms;
        let deferred = std::mem::take(&mut self.deferred);
        *self = Self::new(self.user.clone(), rule, now);
        for due in deferred.into_iter().filter(|due| *due > now) {
            match due.since_ms(now) / window_ms {
                0 => self.quota.count += 1,
                windows => self.deferred.push(now.plus_ms(windows * window_ms)),
            }
        }
        self.windows.extend(&self.deferred);
        let last = self.windows.last().copied().unwrap_or(now);
        let mut begins = now.plus_ms(window_ms);
        while begins < last && (self.windows.len() as u64) < WINDOWS_MAX {
            self.windows.insert(begins);
            begins = begins.plus_ms(window_ms);
        }
    }

    /// Counts one message or says how long until the window ends. A window that begins in the future (the
    /// clock was set back) begins now and keeps its count.
    pub fn charge(&mut self, now: Timestamp) -> Result<(), u64> {
        self.quota.since = self.quota.since.min(now);
        self.catch_up(now);
        let end = self.end();
        if now >= end {
            self.quota.since = now;
            self.quota.count = 0;
            let within: Vec<_> =
                self.deferred.extract_if(.., |due| *due < now.plus_ms(self.quota.window_ms)).collect();
            self.quota.count = u32::try_from(within.len()).expect("few messages");
            self.windows.retain(|begins| *begins >= now.plus_ms(self.quota.window_ms));
        }
        if self.quota.count >= self.quota.limit {
            return Err(self.end().since_ms(now));
        }
        self.quota.count += 1;
        Ok(())
    }

    /// The first later window that holds fewer than the limit.
    pub fn defer(&mut self, now: Timestamp, horizon_ms: u64) -> Option<Timestamp> {
        for window in 1..=WINDOWS_MAX {
            let begins = self.quota.since.plus_ms(window * self.quota.window_ms);
            if begins.since_ms(now) > horizon_ms {
                return None;
            }
            let held = self.deferred.iter().filter(|due| **due == begins).count();
            if held < self.quota.limit as usize {
                self.deferred.push(begins);
                self.windows.insert(begins);
                return Some(begins);
            }
        }
        None
    }

    /// The windows that have begun since, with the messages that went out when they did.
    pub fn catch_up(&mut self, now: Timestamp) {
        while let Some(begins) = self.windows.first().copied().filter(|begins| *begins <= now) {
            self.windows.remove(&begins);
            if begins > self.quota.since {
                self.quota.since = begins;
                self.quota.count = 0;
            }
            let gone = self.deferred.extract_if(.., |due| *due == begins).count();
            self.quota.count += u32::try_from(gone).expect("few messages");
        }
    }

    fn end(&self) -> Timestamp {
        self.quota.since.plus_ms(self.quota.window_ms)
    }
}
