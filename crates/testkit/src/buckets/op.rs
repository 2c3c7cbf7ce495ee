use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::strategy::BoxedStrategy;

use super::model::ModelRule;

pub const POLICIES: usize = 4;

#[derive(Debug, Clone)]
pub enum Op {
    /// Policy and key, each policy once.
    Take(Vec<(usize, u8)>),
    AdvanceNs(u64),
    /// The wall clock steps; nothing may come of it.
    WallBackMs(u64),
    Reconfigure(Vec<Option<ModelRule>>),
    Peek(usize, u8),
    Reset(usize, u8),
    Sweep,
}

/// Rates whose time per token is a whole number of nanoseconds, so that the two can agree to the nanosecond.
pub fn rule() -> impl Strategy<Value = ModelRule> {
    let rates = prop::sample::select(vec![0, 0, 1, 2, 5, 10, 10, 16, 20, 40, 100, 1_000, 10_000]);
    (1..=8u32, rates, 1..=3u32, prop::bool::weighted(0.2)).prop_map(
        |(capacity, rate_tenths, cost, shadow)| ModelRule {
            capacity,
            rate_tenths,
            cost: cost.min(capacity),
            shadow,
        },
    )
}

pub fn rules() -> impl Strategy<Value = Vec<Option<ModelRule>>> {
    vec(prop::option::weighted(0.9, rule()), POLICIES)
}

pub fn ops(keys: u8, max: usize) -> BoxedStrategy<Vec<Op>> {
    let policies = btree_set(0..POLICIES, 1..=3);
    let take = (policies, vec(0..keys, POLICIES)).prop_map(move |(policies, keys)| {
        Op::Take(policies.into_iter().map(|policy| (policy, keys[policy])).collect())
    });
    let advance = prop_oneof![
        4 => 1..2_000_000_000u64,
        2 => (1..5_000u64).prop_map(|ms| ms * 1_000_000),
        1 => 0..3u64,
        1 => (1..5_000u64).prop_map(|s| s * 1_000_000_000),
    ];
    let op = prop_oneof![
        12 => take,
        5 => advance.prop_map(Op::AdvanceNs),
        1 => (0..100_000u64).prop_map(Op::WallBackMs),
        1 => rules().prop_map(Op::Reconfigure),
        1 => (0..POLICIES, 0..keys).prop_map(|(policy, key)| Op::Peek(policy, key)),
        1 => (0..POLICIES, 0..keys).prop_map(|(policy, key)| Op::Reset(policy, key)),
        1 => Just(Op::Sweep),
    ];
    vec(op, 1..=max).boxed()
}
