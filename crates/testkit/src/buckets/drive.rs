use std::sync::Arc;

use anyhow::{Context, ensure};
use proptest::test_runner::TestCaseError;
use tidegate_domain::Clock;
use tidegate_domain::limits::{PolicyId, PolicyName, PolicyRule, Take};

use super::harness::{BucketsBackend, OpenBuckets};
use super::model::{ModelBuckets, ModelRule};
use super::op::{Op, ops, rules};
use crate::TestClock;
use crate::seeds::property;

const OPS_MAX: usize = 120;

/// Whether the store has room for all buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// Every answer is the model's.
    None,
    /// Buckets are given up: a request passes only if it would with nothing given up.
    Evicting,
}

/// Runs `cases` random sequences, each on a fresh store, and panics with the shortest one that goes wrong.
pub fn compare_buckets_with_model(cases: u32, pressure: Pressure, backend: &impl BucketsBackend) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let keys = if pressure == Pressure::None { 4 } else { 40 };
    let strategy = (rules(), ops(keys, OPS_MAX));
    property(cases, &strategy, |(rules, ops)| {
        let clock = Arc::new(TestClock::new());
        let outcome = runtime.block_on(async {
            let store = backend.open(clock.clone()).await?;
            let mut pair = Pair { store, model: ModelBuckets::new(backend.is_shared()), clock, pressure };
            pair.apply(&Op::Reconfigure(rules)).await?;
            for (number, op) in ops.iter().enumerate() {
                pair.apply(op).await.with_context(|| format!("operation {number}, {op:?}, of {ops:?}"))?;
            }
            anyhow::Ok(())
        });
        outcome.map_err(|error| TestCaseError::fail(format!("{error:#}")))
    });
}

struct Pair {
    store: OpenBuckets,
    model: ModelBuckets,
    clock: Arc<TestClock>,
    pressure: Pressure,
}

impl Pair {
    async fn apply(&mut self, op: &Op) -> anyhow::Result<()> {
        let now_ns = self.clock.monotonic_ns();
        match op {
            Op::Take(takes) => self.take(takes, now_ns).await?,
            Op::AdvanceNs(ns) => self.clock.advance_ns(*ns),
            Op::WallBackMs(ms) => self.clock.set(self.clock.now().minus_ms(*ms)),
            Op::Reconfigure(rules) => {
                self.model.reconfigure_from_any(rules.clone(), now_ns);
                let rules =
                    rules.iter().enumerate().filter_map(|(id, rule)| Some(policy_rule(id, &(*rule)?)));
                self.store.buckets.reconfigure(&rules.collect::<Vec<_>>()).await?;
            }
            Op::Peek(policy, key) => {
                let name = key.to_string();
                let shown = self.store.buckets.peek(bucket(*policy, &name)).await?;
                let known = self.model.standing((*policy, *key), now_ns);
                ensure!(self.pressure != Pressure::None || shown == known, "{shown:?}, not {known:?}");
            }
            Op::Reset(policy, key) => {
                self.model.reset((*policy, *key));
                self.store.buckets.reset(bucket(*policy, &key.to_string())).await?;
            }
            Op::Sweep => (self.store.sweep)(),
        }
        Ok(())
    }

    async fn take(&mut self, takes: &[(usize, u8)], now_ns: u64) -> anyhow::Result<()> {
        let names: Vec<_> = takes.iter().map(|(_, key)| key.to_string()).collect();
        let asked: Vec<_> = takes.iter().zip(&names).map(|((policy, _), key)| bucket(*policy, key)).collect();
        let taken = self.store.buckets.take(&asked).await?;
        let (could, passes) = (self.model.could_pay(takes, now_ns), self.model.passes(takes, now_ns));
        match self.pressure {
            Pressure::None => {
                ensure!(taken.passed == passes, "passed {}, the model says {passes}", taken.passed)
            }
            Pressure::Evicting => ensure!(passes || !taken.passed, "passed, with tokens that nobody had"),
        }
        // A shadow that lacks tokens because others were given up is not charged: what it would have paid as long as
        // it was a shadow is nobody's loss.
        let charged: Vec<_> =
            taken.standings.iter().map(|standing| taken.passed && !standing.lacked).collect();
        self.model.settle(takes, &charged, now_ns);
        if self.pressure == Pressure::None {
            for ((take, could), standing) in takes.iter().zip(could).zip(taken.standings) {
                ensure!(standing.lacked != could, "{take:?} lacked: {}", standing.lacked);
                let Some(mut known) = self.model.standing(*take, now_ns) else { continue };
                known.lacked = !could;
                ensure!(standing == known, "{take:?} stands at {standing:?}, not {known:?}");
            }
        }
        Ok(())
    }
}

impl ModelBuckets {
    fn reconfigure_from_any(&mut self, rules: Vec<Option<ModelRule>>, now_ns: u64) {
        self.resize(rules.len());
        self.reconfigure(rules, now_ns);
    }
}

fn bucket(policy: usize, key: &str) -> Take<'_> {
    Take { policy: id(policy), key }
}

fn id(policy: usize) -> PolicyId {
    PolicyId(u32::try_from(policy).expect("few policies"))
}

fn policy_rule(policy: usize, rule: &ModelRule) -> PolicyRule {
    let name = PolicyName::new(&format!("policy-{policy}")).expect("a name");
    PolicyRule { id: id(policy), name, rule: rule.bucket_rule() }
}
