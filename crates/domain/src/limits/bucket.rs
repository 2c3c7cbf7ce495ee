mod debt;

pub use debt::Debt;

/// A token bucket's rule, in whole numbers: what decides never passes through a float.
///
/// The state of a bucket is one number. For a bucket that refills it is the moment, in monotonic nanoseconds, at
/// which it will be full again: a full bucket is a moment in the past, and zero is full at any time. So there is
/// nothing to refill, no level to overflow while idle, and an interval can't be negative.
///
/// A bucket that never refills (rate 0) keeps the tokens spent and the second of its last use instead, and is
/// full again after [`IDLE_SECONDS`] without use.
///
/// Over any interval t a bucket passes at most capacity + rate × t: the time per token is rounded up to whole
/// nanoseconds, once, so that the burst is exactly the capacity and the rate is never above the one asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketRule {
    capacity: u32,
    cost: u32,
    /// Zero: never refills.
    ns_per_token: u64,
    /// Counts and never says no.
    shadow: bool,
}

/// What a bucket holds at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What decided, which may be newer than the rule that the asker knows. None: the store has none.
    pub rule: Option<BucketRule>,
    /// Too few tokens for the take.
    pub lacked: bool,
    /// Whole tokens, after the take when there was one.
    pub remaining: u32,
    pub full_in_ns: u64,
    /// When a take could pass; zero when it can now.
    pub retry_after_ns: u64,
}

/// How much of what a bucket can hold is missing, so that buckets of different sizes can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lack {
    pub owed: u64,
    /// Of an empty bucket.
    pub of: u64,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadRule {
    #[error("a capacity of {0} is out of range")]
    Capacity(u32),
    #[error("a cost of {cost} never fits a capacity of {capacity}")]
    Cost { cost: u32, capacity: u32 },
    #[error("a refill of {0} tokens per second is out of range")]
    Refill(f64),
    #[error("it would take more than ten years to refill")]
    TooSlow,
}

/// How long a bucket that never refills remembers an idle client.
pub const IDLE_SECONDS: u64 = 3_600;

const SECOND_NS: u64 = 1_000_000_000;
const FULL_AFTER_NS_MAX: u64 = 10 * 365 * 86_400 * SECOND_NS;

impl BucketRule {
    pub const CAPACITY_MAX: u32 = 1_000_000_000;
    /// Above, rounding to whole nanoseconds would cost more than a hundredth of the rate.
    pub const REFILL_MAX: f64 = 10_000_000.0;

    pub fn new(capacity: u32, refill_per_second: f64, cost: u32, shadow: bool) -> Result<Self, BadRule> {
        if !(1..=Self::CAPACITY_MAX).contains(&capacity) {
            return Err(BadRule::Capacity(capacity));
        }
        if !(1..=capacity).contains(&cost) {
            return Err(BadRule::Cost { cost, capacity });
        }
        if !(0.0..=Self::REFILL_MAX).contains(&refill_per_second) {
            return Err(BadRule::Refill(refill_per_second));
        }
        let ns_per_token = if refill_per_second > 0.0 {
            let ns = (1e9 / refill_per_second).ceil();
            #[expect(clippy::cast_precision_loss, reason = "a bound of years")]
            if ns * f64::from(capacity) > FULL_AFTER_NS_MAX as f64 {
                return Err(BadRule::TooSlow);
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
            let ns = ns as u64;
            ns
        } else {
            0
        };
        Ok(Self { capacity, cost, ns_per_token, shadow })
    }

    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    pub const fn cost(&self) -> u32 {
        self.cost
    }

    pub const fn shadow(&self) -> bool {
        self.shadow
    }

    pub const fn refills(&self) -> bool {
        self.ns_per_token > 0
    }

    /// For people: what decides is the time per token, which was rounded.
    pub fn refill_per_second(&self) -> f64 {
        if !self.refills() {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "six digits are shown")]
        let rate = 1e9 / self.ns_per_token as f64;
        format!("{rate:.5e}").parse().unwrap_or(rate)
    }

    /// From empty to full; for a bucket that never refills, the time it has to be left alone.
    pub const fn full_after_ns(&self) -> u64 {
        if self.refills() { self.capacity as u64 * self.ns_per_token } else { IDLE_SECONDS * SECOND_NS }
    }

    /// The state after taking the cost, or none when the bucket lacks it.
    pub fn take(&self, state: u64, now_ns: u64) -> Option<u64> {
        if self.refills() {
            let full_at = state.max(now_ns) + u64::from(self.cost) * self.ns_per_token;
            (full_at - now_ns <= self.full_after_ns()).then_some(full_at)
        } else {
            let spent = self.spent(state, now_ns) + self.cost;
            (spent <= self.capacity).then(|| pack(spent, now_ns))
        }
    }

    /// The state after an attempt that took nothing. Only a bucket that never refills remembers one: it is full
    /// again when it was left alone, and hammering is not that.
    pub fn touch(&self, state: u64, now_ns: u64) -> u64 {
        match (self.refills(), self.spent(state, now_ns)) {
            (true, _) | (_, 0) => state,
            (false, spent) => pack(spent, now_ns),
        }
    }

    pub fn standing(&self, state: u64, now_ns: u64) -> Standing {
        let lacked = self.take(state, now_ns).is_none();
        if !self.refills() {
            let spent = self.spent(state, now_ns);
            let full_in_ns = if spent == 0 { 0 } else { full_when_idle(state).saturating_sub(now_ns) };
            let retry_after_ns = if lacked { full_in_ns } else { 0 };
            let remaining = self.capacity - spent;
            return Standing { rule: Some(*self), lacked, remaining, full_in_ns, retry_after_ns };
        }
        let full_in_ns = state.saturating_sub(now_ns);
        let level_ns = self.full_after_ns().saturating_sub(full_in_ns);
        let cost_ns = u64::from(self.cost) * self.ns_per_token;
        let remaining = u32::try_from(level_ns / self.ns_per_token).unwrap_or(self.capacity);
        let retry_after_ns = cost_ns.saturating_sub(level_ns);
        Standing { rule: Some(*self), lacked, remaining, full_in_ns, retry_after_ns }
    }

    /// Nothing is lost when a full bucket is forgotten.
    pub fn is_full(&self, state: u64, now_ns: u64) -> bool {
        if self.refills() { state <= now_ns } else { self.spent(state, now_ns) == 0 }
    }

    /// The state of a bucket that holds no more than either. For what must be remembered of several buckets in
    /// the room of one.
    pub fn emptier(&self, one: u64, other: u64, now_ns: u64) -> u64 {
        if self.refills() {
            return one.max(other);
        }
        let spent = self.spent(one, now_ns).max(self.spent(other, now_ns));
        if spent == 0 { 0 } else { spent_at(spent, touched(one).max(touched(other))) }
    }

    /// The state under `self` of a bucket that was kept under `old`: its tokens, down to fractions, but no more
    /// than it can hold. Full stays full, since a full bucket may as well have been forgotten.
    pub fn carry(&self, old: &Self, state: u64, now_ns: u64) -> u64 {
        if (self.capacity, self.ns_per_token) == (old.capacity, old.ns_per_token) {
            return state;
        }
        if old.is_full(state, now_ns) {
            return 0;
        }
        let tokens = old.standing(state, now_ns).remaining.min(self.capacity);
        match (old.refills(), self.refills()) {
            (_, false) => pack(self.capacity - tokens, now_ns),
            (false, true) => now_ns + u64::from(self.capacity - tokens) * self.ns_per_token,
            (true, true) => {
                let level_ns = u128::from(old.full_after_ns().saturating_sub(state.saturating_sub(now_ns)));
                let level_ns = level_ns * u128::from(self.ns_per_token) / u128::from(old.ns_per_token);
                let full = self.full_after_ns();
                now_ns + full - u64::try_from(level_ns).unwrap_or(full).min(full)
            }
        }
    }

    fn spent(&self, state: u64, now_ns: u64) -> u32 {
        let idle_seconds = (now_ns / SECOND_NS).saturating_sub(touched(state));
        if idle_seconds > IDLE_SECONDS { 0 } else { u32::try_from(state >> 32).unwrap_or(self.capacity) }
    }
}

/// Tokens spent above, the second of the last use below: 136 years of uptime fit.
fn pack(spent: u32, now_ns: u64) -> u64 {
    spent_at(spent, now_ns / SECOND_NS)
}

fn spent_at(spent: u32, second: u64) -> u64 {
    u64::from(spent) << 32 | second.min(u32::MAX.into())
}

const fn touched(state: u64) -> u64 {
    state & 0xffff_ffff
}

/// Whole seconds are kept, so it takes up to a second longer than the idle time, never less.
const fn full_when_idle(state: u64) -> u64 {
    (touched(state) + IDLE_SECONDS + 1) * SECOND_NS
}

#[cfg(test)]
mod tests;
