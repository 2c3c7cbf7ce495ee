use tidegate_domain::limits::{BucketRule, Debt, Standing};

const SECOND_NS: u64 = 1_000_000_000;

/// A bucket as it stands in Redis: owed, at and mark, packed as take.lua says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The version that it was kept under, and that version's rule.
    pub number: u64,
    pub rule: BucketRule,
    pub debt: Debt,
}

/// Four bytes of whole seconds or tokens owed, four of nanoseconds; five and four for the moment.
const SIZES: [usize; 4] = [4, 4, 5, 4];

impl Kept {
    pub fn read(mut bytes: &[u8]) -> Option<Self> {
        let mut numbers = [0; SIZES.len()];
        for (number, size) in numbers.iter_mut().zip(SIZES) {
            let (first, rest) = bytes.split_at_checked(size)?;
            *number = first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            bytes = rest;
        }
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ').map(str::parse::<u64>);
        let mut next = || words.next()?.ok();
        let (number, capacity, ns_per_token) = (next()?, u32::try_from(next()?).ok()?, next()?);
        let rule = BucketRule::kept(capacity, ns_per_token).ok()?;
        let owed = if rule.refills() { nanoseconds(numbers[0], numbers[1])? } else { numbers[0] };
        Some(Self { number, rule, debt: Debt { owed, at_ns: nanoseconds(numbers[2], numbers[3])? } })
    }
}

/// What [`Kept::read`] reads.
pub fn write(rule: &BucketRule, debt: Debt, mark: &str) -> Vec<u8> {
    let (whole, part) = pair(rule, debt.owed);
    let mut bytes = Vec::with_capacity(SIZES.iter().sum::<usize>() + mark.len());
    let numbers = [whole, part, debt.at_ns / SECOND_NS, debt.at_ns % SECOND_NS];
    for (number, size) in numbers.into_iter().zip(SIZES) {
        bytes.extend_from_slice(&number.to_be_bytes()[8 - size..]);
    }
    bytes.extend_from_slice(mark.as_bytes());
    bytes
}

/// Seconds and nanoseconds where a rule refills; tokens and 0 otherwise.
pub fn pair(rule: &BucketRule, owed: u64) -> (u64, u64) {
    if rule.refills() { (owed / SECOND_NS, owed % SECOND_NS) } else { (owed, 0) }
}

pub fn nanoseconds(s: u64, ns: u64) -> Option<u64> {
    s.checked_mul(SECOND_NS)?.checked_add(ns)
}

/// As the script judges it: time that was set back has not passed.
pub fn standing(rule: &BucketRule, debt: Debt, now_ns: u64) -> Standing {
    let at_ns = debt.at_ns.min(now_ns);
    rule.standing(rule.state(Debt { owed: debt.owed, at_ns }), now_ns)
}
