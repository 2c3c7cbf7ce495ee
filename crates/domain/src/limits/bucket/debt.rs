use super::{BadRule, BucketRule, FULL_AFTER_NS_MAX, Lack, SECOND_NS, Standing, spent_at, touched};

/// A bucket as a store outside of this process keeps it: what it lacked to be full, and when.
///
/// Such a store's clock may be set back. With the moment kept beside the debt, time that runs twice refills nothing
/// and takes nothing away, where a moment at which the bucket is full would seem to lie far ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debt {
    /// Nanoseconds until full; for a bucket that never refills, the tokens spent.
    pub owed: u64,
    pub at_ns: u64,
}

impl BucketRule {
    /// The rule that a bucket was kept under, as far as its tokens are concerned.
    pub fn kept(capacity: u32, ns_per_token: u64) -> Result<Self, BadRule> {
        if !(1..=Self::CAPACITY_MAX).contains(&capacity) {
            return Err(BadRule::Capacity(capacity));
        }
        if u64::from(capacity).checked_mul(ns_per_token).is_none_or(|full_ns| full_ns > FULL_AFTER_NS_MAX) {
            return Err(BadRule::TooSlow);
        }
        Ok(Self { capacity, cost: 1, ns_per_token, shadow: false })
    }

    /// What this rule costs and denies, with the tokens of another.
    #[must_use]
    pub fn with_tokens_of(&self, other: &Self) -> Self {
        let cost = self.cost.min(other.capacity);
        Self { capacity: other.capacity, cost, ns_per_token: other.ns_per_token, shadow: self.shadow }
    }

    /// Zero: never refills.
    pub const fn ns_per_token(&self) -> u64 {
        self.ns_per_token
    }

    /// The cost in what a [`Debt`] counts.
    pub const fn cost_owed(&self) -> u64 {
        if self.refills() { self.cost as u64 * self.ns_per_token } else { self.cost as u64 }
    }

    /// An empty bucket in what a [`Debt`] counts.
    pub const fn owed_max(&self) -> u64 {
        if self.refills() { self.full_after_ns() } else { self.capacity as u64 }
    }

    /// So many tokens in what a [`Debt`] counts.
    pub const fn tokens_owed(&self, tokens: u32) -> u64 {
        if self.refills() { tokens as u64 * self.ns_per_token } else { tokens as u64 }
    }

    /// What a bucket of this rule owes that lacks as much of what it can hold; rounded up, so that none gains by it.
    pub fn owing(&self, lack: Lack) -> u64 {
        let (owed, of) = (u128::from(lack.owed), u128::from(lack.of.max(1)));
        let owed = (owed * u128::from(self.owed_max())).div_ceil(of);
        u64::try_from(owed).unwrap_or(u64::MAX).min(self.owed_max())
    }

    pub fn debt(&self, state: u64, now_ns: u64) -> Debt {
        if self.refills() {
            Debt { owed: state.saturating_sub(now_ns), at_ns: now_ns }
        } else {
            Debt { owed: self.spent(state, now_ns).into(), at_ns: touched(state) * SECOND_NS }
        }
    }

    pub fn state(&self, debt: Debt) -> u64 {
        let owed = debt.owed.min(self.owed_max());
        match (self.refills(), u32::try_from(owed)) {
            (_, Ok(0)) => 0,
            (false, Ok(spent)) => spent_at(spent, debt.at_ns / SECOND_NS),
            _ => debt.at_ns + owed,
        }
    }
}

impl Standing {
    /// Nothing when the store has no rule.
    pub fn lack(&self) -> Lack {
        let Some(rule) = &self.rule else { return Lack::default() };
        let spent = rule.capacity().saturating_sub(self.remaining);
        let owed = if rule.refills() { self.full_in_ns } else { spent.into() };
        Lack { owed, of: rule.owed_max() }
    }
}
