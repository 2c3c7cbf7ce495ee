use tidegate_domain::limits::{Quota, QuotaRule};
use tidegate_domain::{Timestamp, UserId};

/// Later windows that deferred messages may reach into.
const WINDOWS_MAX: u64 = 1_000;

/// A user's window, and when each deferred message goes out. A deferred message is a charge that happens when
/// it is due. Up to the last of these, windows follow one another without gaps.
#[derive(Debug)]
pub struct Account {
    pub user: UserId,
    pub quota: Quota,
    /// Kept for what was deferred, in case the user has a quota again.
    pub is_deleted: bool,
    deferred: Vec<Timestamp>,
}

impl Account {
    pub fn new(user: UserId, rule: QuotaRule, now: Timestamp) -> Self {
        let QuotaRule { limit, window_ms, exempts_high } = rule;
        let quota = Quota { limit, window_ms, count: 0, since: now, exempts_high };
        Self { user, quota, is_deleted: false, deferred: Vec::new() }
    }

    /// A fresh window; what was deferred falls into it or into later ones.
    pub fn reconfigure(&mut self, rule: QuotaRule, now: Timestamp) {
        let deferred = std::mem::take(&mut self.deferred);
        *self = Self::new(self.user.clone(), rule, now);
        self.deferred = deferred.into_iter().filter(|due| *due > now).collect();
        self.quota.count = self.held_from(now);
    }

    /// Counts one message or says how long until the window ends. A window that begins in the future (the
    /// clock was set back) begins now and keeps its count.
    pub fn charge(&mut self, now: Timestamp) -> Result<(), u64> {
        self.quota.since = self.quota.since.min(now);
        self.catch_up(now);
        if now >= self.end() {
            self.quota.since = now;
            self.quota.count = 0;
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
            if self.held_from(begins) < self.quota.limit {
                self.deferred.push(begins);
                return Some(begins);
            }
        }
        None
    }

    /// The windows that have begun since, with the messages that go out in them.
    pub fn catch_up(&mut self, now: Timestamp) {
        while now >= self.end() && self.deferred.iter().any(|due| *due >= self.end()) {
            self.quota.since = self.end();
            self.quota.count = self.held_from(self.quota.since);
        }
        self.deferred.retain(|due| *due > now);
    }

    /// Deferred messages that go out in the window that begins then.
    fn held_from(&self, begins: Timestamp) -> u32 {
        let end = begins.plus_ms(self.quota.window_ms);
        let held = self.deferred.iter().filter(|due| (begins..end).contains(due)).count();
        u32::try_from(held).expect("few messages")
    }

    fn end(&self) -> Timestamp {
        self.quota.since.plus_ms(self.quota.window_ms)
    }
}
