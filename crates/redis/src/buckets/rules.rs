//! The rules in force, as they stand in Redis: versions, and how a bucket gets from one to the next.

use tidegate_domain::limits::{BucketRule, Debt, IDLE_SECONDS, PolicyRule};

use super::kept::{Kept, pair, write};

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
/// The least that an idle bucket lives.
const TTL_MIN_MS: u64 = 60_000;

/// A policy's rule, and all that calls need of it.
#[derive(Debug, Clone)]
pub struct Ruled {
    /// As this gateway wants it. What is learned starts from here, whatever was learned before.
    pub policy: PolicyRule,
    /// With the tokens of the version in force.
    pub rule: BucketRule,
    /// Oldest first. The last one is in force.
    versions: Vec<Version>,
    newest: Version,
    /// What buckets under this rule are marked with.
    mark: String,
    /// The rule as the script takes it.
    pub args: [String; 8],
    pub ttl_ms: u64,
}

/// A rule of the past or the present, and since when it was in force. None: an older gateway noted that it had dropped
/// the policy, which means nothing to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub number: u64,
    since_ns: u64,
    rule: Option<BucketRule>,
}

impl Ruled {
    /// None when there is no version to put in force: somebody removed the list.
    pub fn new(policy: &PolicyRule, versions: Vec<Version>) -> Option<Self> {
        let newest = versions.last()?;
        let in_force = versions.iter().rev().find_map(|version| version.rule).unwrap_or(policy.rule);
        // Where another gateway has put a newer rule in force, its tokens count, for all gateways.
        let rule = policy.rule.with_tokens_of(&in_force);
        let mark = format!("{} {} {}", newest.number, rule.capacity(), rule.ns_per_token());
        let ttl_ms = ttl_ms(&rule);
        let (cost, full) = (pair(&rule, rule.cost_owed()), pair(&rule, rule.owed_max()));
        let flags = [rule.refills(), rule.shadow()].map(u64::from);
        let [refills, shadow, cost_s, cost_ns, full_s, full_ns, ttl] =
            [flags[0], flags[1], cost.0, cost.1, full.0, full.1, ttl_ms].map(|number| number.to_string());
        let args = [mark.clone(), refills, shadow, cost_s, cost_ns, full_s, full_ns, ttl];
        Some(Self { policy: policy.clone(), rule, newest: *newest, versions, mark, args, ttl_ms })
    }

    pub fn newest(&self) -> &Version {
        &self.newest
    }

    pub fn number(&self) -> u64 {
        self.newest.number
    }

    /// What a bucket owes under the rule in force that was kept under another: as if it had been there at every
    /// change since, at the moment of the change.
    pub fn carry(&self, kept: &Kept, now_ns: u64) -> Debt {
        let (mut rule, mut debt) = (kept.rule, kept.debt);
        for version in self.versions.iter().filter(|version| version.number > kept.number) {
            let Some(next) = version.rule else { continue };
            // Not before the bucket was last used, by a gateway that did not know yet, and not ahead of time.
            let at_ns = version.since_ns.max(debt.at_ns).min(now_ns.max(debt.at_ns));
            (rule, debt) = (next, step(&rule, debt, &next, at_ns));
        }
        // A version that nobody remembers, or one that is yet unknown here.
        if owes_otherwise(&rule, &self.rule) {
            debt = step(&rule, debt, &self.rule, now_ns.max(debt.at_ns));
        }
        debt
    }

    pub fn keep(&self, debt: Debt) -> Vec<u8> {
        write(&self.rule, debt, &self.mark)
    }
}

impl Version {
    /// From "NUMBER SINCE CAPACITY NS_PER_TOKEN".
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').map(str::parse::<u64>);
        let mut next = || words.next()?.ok();
        let (number, s, ns) = (next()?, next()?, next()?);
        let (capacity, ns_per_token) = (u32::try_from(next()?).ok()?, next()?);
        let since_ns = s.checked_mul(SECOND_NS)?.checked_add(ns)?;
        let rule = if capacity == 0 { None } else { Some(BucketRule::kept(capacity, ns_per_token).ok()?) };
        Some(Self { number, since_ns, rule })
    }

    /// What [`Version::parse`] reads.
    pub fn text(&self) -> String {
        let (s, ns) = (self.since_ns / SECOND_NS, self.since_ns % SECOND_NS);
        let tokens = self.rule.as_ref().map_or_else(|| "0 0".to_owned(), tokens);
        format!("{} {s} {ns} {tokens}", self.number)
    }
}

/// "CAPACITY NS_PER_TOKEN".
pub fn tokens(rule: &BucketRule) -> String {
    format!("{} {}", rule.capacity(), rule.ns_per_token())
}

fn step(from: &BucketRule, debt: Debt, to: &BucketRule, at_ns: u64) -> Debt {
    to.debt(to.carry(from, from.state(debt), at_ns), at_ns)
}

fn owes_otherwise(one: &BucketRule, other: &BucketRule) -> bool {
    (one.capacity(), one.ns_per_token()) != (other.capacity(), other.ns_per_token())
}

/// Twice the time to fill: a bucket that is forgotten is full. A bucket that never refills is full again after an idle
/// hour, in whole seconds.
fn ttl_ms(rule: &BucketRule) -> u64 {
    if rule.refills() {
        (2 * rule.full_after_ns().div_ceil(MS_NS)).max(TTL_MIN_MS)
    } else {
        (IDLE_SECONDS + 2) * 1_000
    }
}
