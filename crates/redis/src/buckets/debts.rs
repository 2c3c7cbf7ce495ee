//! What gateways let pass on their own while Redis was away, to be charged when it is back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

use redis::aio::MultiplexedConnection;
use tidegate_domain::limits::{BucketRule, Debt, Fallen, Lack, PolicyId};
use tokio::time::{Instant, timeout};

use super::answer::{peeked, replaced};
use super::kept::Kept;
use super::rules::Ruled;
use super::shared::Shared;
use super::upkeep::{PATIENCE, STRANGE};
use crate::link::describe;

/// Buckets that are remembered, some 200 bytes each. What further ones let pass is not charged.
const DEBTS_MAX: usize = 100_000;
/// Buckets in one call.
const BATCH: usize = 256;
/// A bucket that others use at the same moment is looked at again.
const ROUNDS_MAX: usize = 8;

/// Buckets that were fallen back from, by policy and key.
#[derive(Debug, Default)]
pub struct Debts(HashMap<(PolicyId, String), Owing>);

#[derive(Debug, Clone, Copy)]
struct Owing {
    /// What was known of the bucket before, and when. A Redis that was emptied meanwhile knows less.
    known: Lack,
    at: Instant,
    /// Let pass since.
    tokens: u32,
}

/// A bucket that has to be charged.
struct Charged {
    id: (PolicyId, String),
    owing: Owing,
    key: String,
    ruled: Arc<Ruled>,
}

impl Debts {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn note(&mut self, fallen: &[Fallen<'_>], now: Instant) {
        for one in fallen {
            // Full before, and nothing taken: there is nothing to charge.
            if one.tokens == 0 && one.before.owed == 0 {
                continue;
            }
            let id = (one.take.policy, one.take.key.to_owned());
            let owing = Owing { known: one.before, at: now, tokens: one.tokens };
            self.put(id, owing);
        }
    }

    fn put(&mut self, id: (PolicyId, String), owing: Owing) {
        let full = self.0.len() >= DEBTS_MAX;
        match self.0.entry(id) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                // What is known of the bucket is that of the beginning.
                let first = if owing.at < known.at { owing } else { *known };
                let tokens = known.tokens.saturating_add(owing.tokens);
                *known = Owing { tokens, ..first };
            }
            Entry::Vacant(room) if !full => {
                room.insert(owing);
            }
            Entry::Vacant(_) => {}
        }
    }
}

impl Owing {
    /// What the bucket owes after this, by what it owes by itself.
    fn charge(&self, rule: &BucketRule, owed: u64) -> u64 {
        let passed_ns = u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let known = rule.owing(self.known);
        let known = if rule.refills() { known.saturating_sub(passed_ns) } else { known };
        owed.max(known).saturating_add(rule.tokens_owed(self.tokens)).min(rule.owed_max())
    }
}

impl Shared {
    /// All that is owed. What can't be charged is owed on.
    pub async fn charge_debts(&self, connection: MultiplexedConnection) -> Result<(), String> {
        let owed = std::mem::take(&mut *self.debts.lock().unwrap_or_else(PoisonError::into_inner));
        let mut left: Vec<_> = owed
            .0
            .into_iter()
            .filter_map(|(id, owing)| {
                // Of a policy that a reload here has dropped, the rule is not known here any more.
                let ruled = self.rule(id.0)?;
                let key = self.key(&ruled, &id.1);
                Some(Charged { id, owing, key, ruled })
            })
            .collect();
        let mut result = Ok(());
        for _ in 0..ROUNDS_MAX {
            let mut again = Vec::new();
            while !left.is_empty() && result.is_ok() {
                let batch = left.split_off(left.len().saturating_sub(BATCH));
                match self.charge(&connection, &batch).await {
                    Ok(done) => {
                        let missed = batch.into_iter().zip(done).filter(|(_, done)| !done);
                        again.extend(missed.map(|(charged, _)| charged));
                    }
                    Err(why) => {
                        again.extend(batch);
                        result = Err(why);
                    }
                }
            }
            left.append(&mut again);
            if left.is_empty() || result.is_err() {
                break;
            }
        }
        let mut debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        left.into_iter().for_each(|charged| debts.put(charged.id, charged.owing));
        result
    }

    /// Which of them were charged; the others were used by another gateway at the same moment.
    async fn charge(
        &self,
        connection: &MultiplexedConnection,
        batch: &[Charged],
    ) -> Result<Vec<bool>, String> {
        let keys: Vec<_> = batch.iter().map(|charged| charged.key.as_str()).collect();
        let peeking = self.scripts.peek.call(connection.clone(), &keys, &[""; 0]);
        let (now_ns, kept) = peeked(in_time(peeking).await?).ok_or(STRANGE)?;
        let mut args = Vec::with_capacity(3 * batch.len());
        for (charged, bytes) in batch.iter().zip(kept) {
            let (ruled, rule) = (&charged.ruled, &charged.ruled.rule);
            let debt = bytes.as_deref().and_then(Kept::read).map(|kept| ruled.carry(&kept, now_ns));
            // Time that was set back has not passed.
            let state = debt.map_or(0, |debt| rule.state(Debt { at_ns: debt.at_ns.min(now_ns), ..debt }));
            let owed = charged.owing.charge(rule, rule.debt(state, now_ns).owed);
            args.push(bytes.unwrap_or_default());
            args.push(if owed == 0 { Vec::new() } else { ruled.keep(Debt { owed, at_ns: now_ns }) });
            args.push(ruled.ttl_ms.to_string().into_bytes());
        }
        let carrying = self.scripts.carry.call(connection.clone(), &keys, &args);
        Ok(replaced(in_time(carrying).await?).ok_or(STRANGE)?)
    }
}

async fn in_time<T>(asking: impl Future<Output = redis::RedisResult<T>>) -> Result<T, String> {
    match timeout(PATIENCE, asking).await {
        Ok(answered) => answered.map_err(|error| describe(&error)),
        Err(_) => Err("it does not answer in time".to_owned()),
    }
}
