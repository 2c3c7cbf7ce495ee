use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tidegate_domain::limits::{BucketsError, Debt, PolicyId, PolicyRule, Take};
use tokio::time::Instant;

use super::answer::Answer;
use super::debts::Debts;
use super::kept::Kept;
use super::rules::Ruled;
use crate::link::Link;
use crate::script::Script;

/// Longer keys are kept by their hash.
const KEY_BYTES_MAX: usize = 64;

/// What requests and the upkeep share.
#[derive(Debug)]
pub struct Shared {
    pub link: Link,
    pub prefix: String,
    pub call_timeout: Duration,
    pub scripts: Scripts,
    /// By policy id, those that Redis knows of; none for policies that are not in force.
    pub rules: ArcSwap<Vec<Option<Arc<Ruled>>>>,
    pub wanted: Mutex<Wanted>,
    /// When rules last changed, as far as it is known here, in Redis' own words.
    pub changed: Mutex<String>,
    /// What is to be charged as soon as it can be.
    pub debts: Mutex<Debts>,
    /// Rules are put in force by one at a time.
    pub turn: tokio::sync::Mutex<()>,
}

/// What is to be in force, as soon as Redis can be told.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub rules: Vec<PolicyRule>,
    /// Redis has been told. From then on it is Redis that tells: another gateway may have been reloaded since.
    pub told: bool,
    /// When it was decided on; none at the first try to tell.
    pub since: Option<Instant>,
}

#[derive(Debug)]
pub struct Scripts {
    pub take: Script,
    pub carry: Script,
    pub peek: Script,
    pub configure: Script,
}

/// A take that Redis has to be asked about.
pub struct Asked {
    pub place: usize,
    pub policy: PolicyId,
    pub ruled: Arc<Ruled>,
    pub key: String,
}

impl Shared {
    pub fn rule(&self, policy: PolicyId) -> Option<Arc<Ruled>> {
        self.rules.load().get(policy.0 as usize).cloned().flatten()
    }

    pub fn key(&self, ruled: &Ruled, key: &str) -> String {
        let (prefix, name) = (&self.prefix, ruled.policy.name.as_str());
        if key.len() <= KEY_BYTES_MAX {
            return format!("{{{prefix}}}:bucket:{name}:{key}");
        }
        let hash = Sha256::digest(key);
        let mut text = format!("{{{prefix}}}:bucket:{name}:sha256:");
        hash.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        text
    }

    pub fn asked(&self, takes: &[Take<'_>]) -> Vec<Asked> {
        let one = |(place, take): (usize, &Take<'_>)| {
            let ruled = self.rule(take.policy)?;
            let key = self.key(&ruled, take.key);
            Some(Asked { place, policy: take.policy, ruled, key })
        };
        takes.iter().enumerate().filter_map(one).collect()
    }

    pub async fn take_once(&self, asked: &[Asked], deadline: Instant) -> Result<Answer, BucketsError> {
        let keys: Vec<_> = asked.iter().map(|one| one.key.as_str()).collect();
        let args: Vec<_> = asked.iter().flat_map(|one| &one.ruled.args).collect();
        let take = async |connection| self.scripts.take.call(connection, &keys, &args).await;
        let answer = self.link.call(deadline, take).await?;
        Answer::read(answer, asked.iter().map(|one| &one.ruled.rule)).ok_or_else(strange)
    }

    /// Brings buckets that were kept under another version to the one in force.
    pub async fn carry(
        &self,
        asked: &[Asked],
        kept: &[(usize, Vec<u8>)],
        now_ns: u64,
        deadline: Instant,
    ) -> Result<(), BucketsError> {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (place, bytes) in kept {
            let one = asked.get(*place).ok_or_else(strange)?;
            let ruled = match Kept::read(bytes) {
                Some(kept) if kept.number > one.ruled.number() => self.learn(one.policy, deadline).await?,
                _ => Some(one.ruled.clone()),
            };
            let Some(ruled) = ruled else { continue };
            keys.push(one.key.as_str());
            args.push(bytes.clone());
            args.push(carried(&ruled, bytes, now_ns));
            args.push(ruled.ttl_ms.to_string().into_bytes());
        }
        let carry = async |connection| self.scripts.carry.call(connection, &keys, &args).await;
        Ok(self.link.call(deadline, carry).await.map(drop)?)
    }
}

impl Wanted {
    /// To be told now. When this fails, the later call says since when.
    pub fn wanted_now(&mut self) -> Self {
        let now = self.clone();
        self.since = self.since.or_else(|| Some(Instant::now()));
        now
    }

    pub fn replace(&mut self, rules: &[PolicyRule]) {
        self.rules = rules.to_vec();
        (self.told, self.since) = (false, None);
    }
}

/// Empty when the bucket is full. What can't be read is somebody else's, or damaged: nobody gains by it.
fn carried(ruled: &Ruled, bytes: &[u8], now_ns: u64) -> Vec<u8> {
    let empty = Debt { owed: ruled.rule.owed_max(), at_ns: now_ns };
    let debt = Kept::read(bytes).map_or(empty, |kept| ruled.carry(&kept, now_ns));
    if debt.owed == 0 { Vec::new() } else { ruled.keep(debt) }
}

pub fn strange() -> BucketsError {
    BucketsError::Unavailable("Redis gave an answer that no script of ours gives".to_owned())
}
