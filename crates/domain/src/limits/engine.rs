use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::bucket::{BucketRule, Lack, Standing};
use super::buckets::{Buckets, BucketsError, Fallen, PolicyId, PolicyRule, Take, Taken};
use super::policy::{FailStrategy, Policy, PolicyName};
use super::tally::Tally;

/// How long a caller is sent away when a policy that fails closed could not be asked.
const STORE_RETRY_NS: u64 = 1_000_000_000;

/// The policies in force, and the decision about a request.
#[derive(Debug)]
pub struct Policies {
    buckets: Arc<dyn Buckets>,
    /// For policies that fall back.
    local: Option<Arc<dyn Buckets>>,
    in_force: ArcSwap<Vec<Arc<InForce>>>,
    /// What outlives a reload, by name: names are few, and an id must never change its meaning.
    known: Mutex<HashMap<PolicyName, (PolicyId, Arc<Tally>)>>,
}

/// The policies in force at a moment. Cheap to take and to give back, whatever other threads do; not to be kept for
/// long.
#[derive(Debug)]
pub struct Snapshot(Guard<Arc<Vec<Arc<InForce>>>>);

/// A policy with what is counted about it.
#[derive(Debug)]
pub struct InForce {
    pub id: PolicyId,
    pub policy: Policy,
    pub tally: Arc<Tally>,
}

/// A policy that is about the request, and the key whose bucket it draws from.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub policy: &'a InForce,
    pub key: &'a str,
    /// The policy lets this request pass whatever the bucket holds, and takes from it what is there.
    pub exempt: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Verdict {
    pub passed: bool,
    /// The store could not be asked; the fail strategies decided.
    pub degraded: bool,
    /// The policy that said no, or of those that passed the one that will first.
    pub tightest: Option<Tightest>,
}

/// Names its policy by its place among those that were asked: a handle would have all threads count it up and
/// down with every request.
#[derive(Debug, Clone, Copy)]
pub struct Tightest {
    pub place: usize,
    /// What decided: the policy's rule, a newer one that the store knows of, or the share while the store is away.
    pub rule: BucketRule,
    /// None when the store could not be asked.
    pub standing: Option<Standing>,
    /// Zero when the request passed.
    pub retry_after_ns: u64,
}

impl Policies {
    /// None in force yet.
    pub fn new(buckets: Arc<dyn Buckets>) -> Self {
        Self { buckets, local: None, in_force: ArcSwap::default(), known: Mutex::default() }
    }

    /// The store of this process that decides for policies that fall back. Without one, they close.
    #[must_use]
    pub fn falling_back_on(self, local: Arc<dyn Buckets>) -> Self {
        Self { local: Some(local), ..self }
    }

    pub fn buckets(&self) -> &Arc<dyn Buckets> {
        &self.buckets
    }

    pub fn in_force(&self) -> Snapshot {
        Snapshot(self.in_force.load())
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<InForce>> {
        self.in_force().iter().find(|known| known.policy.name.as_str() == name).cloned()
    }

    /// Puts these in force instead; counts and bucket levels of names that stay are kept. A request that was
    /// matched before draws from the store as it is by then. One call at a time.
    pub async fn replace(&self, policies: Vec<Policy>) -> Result<(), BucketsError> {
        let new: Vec<_> = policies.into_iter().map(|policy| Arc::new(self.identify(policy))).collect();
        let rule = |known: &InForce, rule| PolicyRule { id: known.id, name: known.policy.name.clone(), rule };
        let rules: Vec<_> = new.iter().map(|known| rule(known, known.policy.rule)).collect();
        self.buckets.reconfigure(&rules).await?;
        if let Some(local) = &self.local {
            let shares = new.iter().filter_map(|known| Some(rule(known, share(&known.policy)?)));
            local.reconfigure(&shares.collect::<Vec<_>>()).await?;
        }
        self.in_force.store(Arc::new(new));
        Ok(())
    }

    /// All that asked are taken from, or none is. Those that exempt the request are taken from when the others let it
    /// pass, and have no say.
    pub async fn decide(&self, asked: &[Asked<'_>]) -> Verdict {
        if asked.iter().all(|asked| !asked.exempt) {
            return self.decide_bound(asked).await;
        }
        let bound = asked.iter().copied().enumerate().filter(|(_, asked)| !asked.exempt);
        let (places, bound): (Vec<_>, Vec<_>) = bound.unzip();
        let mut verdict = Verdict { passed: true, degraded: false, tightest: None };
        if !bound.is_empty() {
            verdict = self.decide_bound(&bound).await;
        }
        if let Some(tightest) = &mut verdict.tightest {
            tightest.place = places[tightest.place];
        }
        if verdict.passed {
            for exempt in asked.iter().filter(|asked| asked.exempt) {
                verdict.degraded |= !self.take_what_is_there(exempt).await;
            }
        }
        verdict
    }

    /// False when the store could not be asked.
    async fn take_what_is_there(&self, asked: &Asked<'_>) -> bool {
        let (tally, take) = (&asked.policy.tally, Take { policy: asked.policy.id, key: asked.key });
        match self.buckets.take(&[take]).await {
            Ok(taken) => {
                self.remember(std::slice::from_ref(asked), &taken);
                match taken.standings.first().is_some_and(|standing| standing.lacked) {
                    true => tally.exempted(),
                    false => tally.allowed(),
                }
                true
            }
            Err(BucketsError::Unavailable(_)) => {
                tally.degraded();
                tally.exempted();
                false
            }
        }
    }

    async fn decide_bound(&self, asked: &[Asked<'_>]) -> Verdict {
        let takes: Vec<_> =
            asked.iter().map(|asked| Take { policy: asked.policy.id, key: asked.key }).collect();
        match self.buckets.take(&takes).await {
            Ok(taken) => {
                self.remember(asked, &taken);
                verdict(asked.iter().map(|asked| (asked, &asked.policy.policy.rule)), &taken)
            }
            Err(BucketsError::Unavailable(_)) => self.decide_without_store(asked).await,
        }
    }

    /// Fills a bucket, here and where it falls back to.
    pub async fn reset(&self, bucket: Take<'_>) -> Result<(), BucketsError> {
        self.buckets.reset(bucket).await?;
        match &self.local {
            Some(local) => local.reset(bucket).await,
            None => Ok(()),
        }
    }

    /// Should the store go away, the fallback bucket starts from what was last seen there: an outage is not a second
    /// helping.
    fn remember(&self, asked: &[Asked<'_>], taken: &Taken) {
        let Some(local) = &self.local else { return };
        for (asked, standing) in asked.iter().zip(&taken.standings) {
            if share(&asked.policy.policy).is_some() {
                local.follow(Take { policy: asked.policy.id, key: asked.key }, standing);
            }
        }
    }

    /// What was decided without the store is told to it, to be charged there.
    fn owe(&self, falling: &[(&Asked<'_>, BucketRule)], taken: &Taken) {
        let fallen = falling.iter().zip(&taken.standings).map(|((asked, rule), standing)| {
            let took = taken.passed && !standing.lacked;
            let (tokens, after) = (if took { rule.cost() } else { 0 }, standing.lack());
            let before = Lack { owed: after.owed.saturating_sub(rule.tokens_owed(tokens)), ..after };
            Fallen { take: Take { policy: asked.policy.id, key: asked.key }, tokens, before }
        });
        self.buckets.owe(&fallen.collect::<Vec<_>>());
    }

    /// Each policy's strategy; of those that fall back, all are taken from or none is.
    async fn decide_without_store(&self, asked: &[Asked<'_>]) -> Verdict {
        for asked in asked {
            asked.policy.tally.degraded();
        }
        let denies = |asked: &Asked<'_>| !asked.policy.policy.rule.shadow();
        let closes = |asked: &Asked<'_>| denies(asked) && asked.policy.policy.fail == FailStrategy::Closed;
        if let Some(place) = asked.iter().position(closes) {
            return closed(asked, place);
        }
        let (places, falling): (Vec<_>, Vec<_>) = asked
            .iter()
            .enumerate()
            .filter_map(|(place, asked)| Some((place, (asked, share(&asked.policy.policy)?))))
            .unzip();
        let takes: Vec<_> =
            falling.iter().map(|(asked, _)| Take { policy: asked.policy.id, key: asked.key }).collect();
        let taken = match &self.local {
            _ if takes.is_empty() => return Verdict { passed: true, degraded: true, tightest: None },
            Some(local) => local.take(&takes).await.ok(),
            None => None,
        };
        match taken {
            Some(taken) => {
                self.owe(&falling, &taken);
                let mut verdict = verdict(falling.iter().map(|(asked, rule)| (*asked, rule)), &taken);
                verdict.degraded = true;
                if let Some(tightest) = &mut verdict.tightest {
                    tightest.place = places[tightest.place];
                }
                verdict
            }
            None => match places.into_iter().find(|place| denies(&asked[*place])) {
                Some(place) => closed(asked, place),
                None => Verdict { passed: true, degraded: true, tightest: None },
            },
        }
    }

    fn identify(&self, policy: Policy) -> InForce {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let next = PolicyId(u32::try_from(known.len()).unwrap_or(u32::MAX));
        let (id, tally) = known.entry(policy.name.clone()).or_insert_with(|| (next, Arc::default()));
        InForce { id: *id, policy, tally: tally.clone() }
    }
}

impl Deref for Snapshot {
    type Target = [Arc<InForce>];

    fn deref(&self) -> &[Arc<InForce>] {
        &self.0
    }
}

/// Each with the rule that it was asked by. What it stands by counts more: another gateway may have been reloaded.
fn verdict<'a>(asked: impl Iterator<Item = (&'a Asked<'a>, &'a BucketRule)>, taken: &Taken) -> Verdict {
    let mut tightest: Option<(usize, &BucketRule, &Standing)> = None;
    for (place, ((asked, rule), standing)) in asked.zip(&taken.standings).enumerate() {
        let (rule, tally) = (standing.rule.as_ref().unwrap_or(rule), &asked.policy.tally);
        if standing.lacked {
            tally.denied(asked.key, rule.shadow());
        } else if taken.passed {
            tally.allowed();
        }
        // A shadow is not to be seen from outside; and only who lacked tokens said no.
        let speaks = !rule.shadow() && standing.lacked != taken.passed;
        if speaks && tightest.is_none_or(|(_, other, known)| rank(rule, standing) > rank(other, known)) {
            tightest = Some((place, rule, standing));
        }
    }
    let tightest = tightest.map(|(place, rule, standing)| Tightest {
        place,
        rule: *rule,
        standing: Some(*standing),
        retry_after_ns: if taken.passed { 0 } else { standing.retry_after_ns },
    });
    Verdict { passed: taken.passed, degraded: false, tightest }
}

/// Higher for who makes the caller wait longer, or leaves fewer requests.
fn rank(rule: &BucketRule, standing: &Standing) -> (u64, Reverse<u32>, u64) {
    let requests_left = standing.remaining / rule.cost();
    (standing.retry_after_ns, Reverse(requests_left), standing.full_in_ns)
}

/// The local rule of a policy that falls back.
fn share(policy: &Policy) -> Option<BucketRule> {
    match policy.fail {
        FailStrategy::FallBack(share) => Some(share),
        FailStrategy::Open | FailStrategy::Closed => None,
    }
}

/// The policy at `place` says no, for want of anything to ask.
fn closed(asked: &[Asked<'_>], place: usize) -> Verdict {
    let rule = asked[place].policy.policy.rule;
    let tightest = Tightest { place, rule, standing: None, retry_after_ns: STORE_RETRY_NS };
    Verdict { passed: false, degraded: true, tightest: Some(tightest) }
}

#[cfg(test)]
mod tests;
