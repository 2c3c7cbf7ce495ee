use tidegate_domain::limits::{BucketRule, Debt, Standing};

const SECOND_NS: u64 = 1_000_000_000;

/// A bucket as it stands in Redis: "MARK OWED AT", see take.lua.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The version that it was kept under, and that version's rule.
    pub number: u64,
    pub rule: BucketRule,
    pub debt: Debt,
}

impl Kept {
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').map(str::parse::<u64>);
        let mut next = || words.next()?.ok();
        let (number, capacity, ns_per_token) = (next()?, u32::try_from(next()?).ok()?, next()?);
        let rule = BucketRule::kept(capacity, ns_per_token).ok()?;
        let (whole, part) = (next()?, next()?);
        let owed = if rule.refills() { nanoseconds(whole, part)? } else { whole };
        let at_ns = nanoseconds(next()?, next()?)?;
        Some(Self { number, rule, debt: Debt { owed, at_ns } })
    }
}

pub fn nanoseconds(s: u64, ns: u64) -> Option<u64> {
    s.checked_mul(SECOND_NS)?.checked_add(ns)
}

/// As the script judges it: time that was set back has not passed.
pub fn standing(rule: &BucketRule, debt: Debt, now_ns: u64) -> Standing {
    let at_ns = debt.at_ns.min(now_ns);
    rule.standing(rule.state(Debt { owed: debt.owed, at_ns }), now_ns)
}
