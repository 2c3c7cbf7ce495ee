use redis::Value;
use tidegate_domain::limits::{BucketRule, Debt, Standing};

use super::kept::{nanoseconds, standing};

/// What take.lua answers.
#[derive(Debug)]
pub enum Answer {
    Taken {
        passed: bool,
        standings: Vec<Standing>,
    },
    /// Buckets that are kept under another version, by their place in the call. Nothing was taken.
    Stale {
        now_ns: u64,
        kept: Vec<(usize, Vec<u8>)>,
    },
}

impl Answer {
    /// None for what no script of ours says.
    pub fn read<'a>(value: Value, rules: impl Iterator<Item = &'a BucketRule>) -> Option<Self> {
        let Value::Array(items) = value else { return None };
        let mut items = items.into_iter();
        let verdict = number(&items.next()?)?;
        let now_ns = nanoseconds(number(&items.next()?)?, number(&items.next()?)?)?;
        if verdict == 2 {
            let mut kept = Vec::new();
            while let (Some(place), Some(Value::BulkString(bytes))) = (items.next(), items.next()) {
                let place = usize::try_from(number(&place)?).ok()?.checked_sub(1)?;
                kept.push((place, bytes));
            }
            return Some(Self::Stale { now_ns, kept });
        }
        let mut standings = Vec::with_capacity(items.len() / 3);
        for rule in rules {
            let lacked = number(&items.next()?)? == 1;
            let (whole, part) = (number(&items.next()?)?, number(&items.next()?)?);
            let owed = if rule.refills() { nanoseconds(whole, part)? } else { whole };
            standings.push(Standing { lacked, ..standing(rule, Debt { owed, at_ns: now_ns }, now_ns) });
        }
        Some(Self::Taken { passed: verdict == 1, standings })
    }
}

/// What peek.lua answers: the time, and each bucket if there is one.
pub fn peeked(value: Value) -> Option<(u64, Vec<Option<Vec<u8>>>)> {
    let Value::Array(items) = value else { return None };
    let mut items = items.into_iter();
    let now_ns = nanoseconds(number(&items.next()?)?, number(&items.next()?)?)?;
    let bytes = |item| if let Value::BulkString(bytes) = item { Some(bytes) } else { None };
    Some((now_ns, items.map(bytes).collect()))
}

/// What carry.lua answers: which buckets were replaced.
pub fn replaced(value: Value) -> Option<Vec<bool>> {
    let Value::Array(items) = value else { return None };
    items.iter().map(|item| number(item).map(|replaced| replaced == 1)).collect()
}

/// Lists of texts, as configure.lua answers them.
pub fn lists(value: Value) -> Option<Vec<Vec<String>>> {
    let Value::Array(lists) = value else { return None };
    lists.into_iter().map(texts).collect()
}

pub fn texts(value: Value) -> Option<Vec<String>> {
    let Value::Array(texts) = value else { return None };
    texts.into_iter().map(text_of).collect()
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn text_of(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}
