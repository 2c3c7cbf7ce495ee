//! Buckets on a Redis that several gateways share.

mod answer;
mod debts;
mod kept;
mod rules;
mod shared;
mod upkeep;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tidegate_domain::limits::{
    BucketCounts, BucketRule, Buckets, BucketsError, Fallen, PolicyId, PolicyRule, Standing, Take, Taken,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::answer::{Answer, peeked};
use self::debts::Debts;
use self::kept::Kept;
use self::shared::{Scripts, Shared, strange};
use crate::Endpoint;
use crate::link::{Link, Words};
use crate::script::Script;
pub use crate::script::Time;

const WORDS: Words =
    Words { away: "Redis is away; policies decide by their fail strategies", there: "Redis is there" };

/// A bucket is carried to the rule in force and asked again. More often only if others change it meanwhile.
const ROUNDS_MAX: usize = 4;

/// The [`Buckets`] of all gateways that name the same Redis and the same prefix.
///
/// **One script call** takes from all buckets of a request, so that nothing comes in between and nobody pays for a
/// denied request. Time is Redis' own.
///
/// **Keys** are `{prefix}:bucket:POLICY:KEY`, with the prefix as their hash tag: in a Redis Cluster they all lie in one
/// slot. A request's policies may go by different keys, an address here and an API key there, and whichever of them
/// was the tag, a script could not reach the other's bucket. The price is that one node of the cluster does all the
/// work of one prefix, some tens of thousands of requests a second; gateways that share no limits can be spread by
/// giving them different prefixes. When the slot moves, the store follows.
///
/// **Rules** are versioned in `{prefix}:rule:POLICY`. The rule that was put in force last, by whichever gateway, is
/// the one whose capacity and rate count for all of them. `{prefix}:rule::changed` says when rules last changed; every
/// gateway looks at it twice a second, and learns earlier when it meets a bucket that was kept under a newer rule, or
/// connects anew. Only a start and a reload put a rule in force; a gateway that connects to an emptied Redis puts back the
/// newest version it knows, under its old number. A reload that Redis could not be told of counts by the moment it was
/// made: one that another gateway made later stays in force. A bucket is brought up to date when it is next used, as if
/// it had been at the moment of the change. A gateway whose reload drops a policy says nothing of it here: which policies
/// there are each gateway reads from its own file, and the levels stay for the others.
///
/// **Time to live**: twice the time to fill, a minute at least (after an idle hour when nothing refills). A bucket that
/// is forgotten was full under the rule it was last used under. A reload that makes a policy slower therefore fills
/// those buckets that nobody uses for that long.
///
/// **Redis away**: see [`Link`]. Starting and reloading do not need it; what was reloaded is put in force there as soon
/// as it is back, before the first take. What callers let pass meanwhile on their own is charged to its buckets, see
/// [`Debts`], before the first take, too.
#[derive(Debug)]
pub struct RedisBuckets {
    shared: Arc<Shared>,
    upkeep: JoinHandle<()>,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub endpoint: Endpoint,
    /// Letters, digits, `.`, `_` and `-`.
    pub prefix: String,
    /// For dialling, TLS and the login together.
    pub connect_timeout: Duration,
    /// What a request waits for Redis, at most.
    pub call_timeout: Duration,
    /// Calls under way at the same time; beyond, they fail at once.
    pub calls_max: usize,
    pub time: Time,
}

impl Options {
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            prefix: "tidegate".to_owned(),
            connect_timeout: Duration::from_millis(500),
            call_timeout: Duration::from_millis(50),
            calls_max: 4_096,
            time: Time::Server,
        }
    }
}

impl RedisBuckets {
    /// Tries to connect once, and goes on trying in the background when that fails.
    pub async fn open(options: Options) -> Self {
        let script = |body| Script::new(&options.time, body);
        let scripts = Scripts {
            take: script(include_str!("buckets/take.lua")),
            carry: script(include_str!("buckets/carry.lua")),
            peek: script(include_str!("buckets/peek.lua")),
            configure: script(include_str!("buckets/configure.lua")),
        };
        let shared = Arc::new(Shared {
            link: Link::new(options.endpoint, options.connect_timeout, options.calls_max, WORDS),
            prefix: options.prefix,
            call_timeout: options.call_timeout,
            scripts,
            rules: ArcSwap::default(),
            wanted: Mutex::default(),
            changed: Mutex::default(),
            debts: Mutex::new(Debts::default()),
            turn: tokio::sync::Mutex::default(),
        });
        shared.first_connection().await;
        let upkeep = tokio::spawn(upkeep::run(shared.clone()));
        Self { shared, upkeep }
    }

    /// The words of a take as they go to Redis, for whoever wants to measure it there. None when there is nothing
    /// to take from.
    pub fn words(&self, takes: &[Take<'_>]) -> Option<Vec<String>> {
        let asked = self.shared.asked(takes);
        let mut words = vec!["EVALSHA".to_owned(), self.shared.scripts.take.hash().to_owned()];
        words.push(asked.len().to_string());
        words.extend(asked.iter().map(|one| one.key.clone()));
        words.extend(asked.iter().flat_map(|one| one.ruled.args.clone()));
        (!asked.is_empty()).then_some(words)
    }
}

impl Drop for RedisBuckets {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}

#[async_trait]
impl Buckets for RedisBuckets {
    async fn take(&self, takes: &[Take<'_>]) -> Result<Taken, BucketsError> {
        let deadline = Instant::now() + self.shared.call_timeout;
        for _ in 0..ROUNDS_MAX {
            let asked = self.shared.asked(takes);
            if asked.is_empty() {
                self.shared.link.check()?;
                return Ok(Taken { passed: true, standings: vec![Standing::UNLIMITED; takes.len()] });
            }
            match self.shared.take_once(&asked, deadline).await? {
                Answer::Stale { now_ns, kept } => self.shared.carry(&asked, &kept, now_ns, deadline).await?,
                Answer::Taken { passed, standings: of_asked } => {
                    let mut standings = vec![Standing::UNLIMITED; takes.len()];
                    for (one, standing) in asked.iter().zip(of_asked) {
                        standings[one.place] = standing;
                    }
                    return Ok(Taken { passed, standings });
                }
            }
        }
        Err(BucketsError::Unavailable("the rules of a policy keep changing".to_owned()))
    }

    async fn peek(&self, bucket: Take<'_>) -> Result<Option<Standing>, BucketsError> {
        let deadline = Instant::now() + self.shared.call_timeout;
        let Some(ruled) = self.shared.rule(bucket.policy) else {
            return Ok(self.shared.link.check().map(|()| None)?);
        };
        let keys = [self.shared.key(&ruled, bucket.key)];
        let peek = async |connection| self.shared.scripts.peek.call(connection, &keys, &[""; 0]).await;
        let (now_ns, bytes) = peeked(self.shared.link.call(deadline, peek).await?).ok_or_else(strange)?;
        let Some(kept) = bytes.first().and_then(|bytes| Kept::read(bytes.as_deref()?)) else {
            return Ok(Some(ruled.rule.standing(0, now_ns)));
        };
        let newer = kept.number > ruled.number();
        let ruled = if newer { self.shared.learn(bucket.policy, deadline).await? } else { Some(ruled) };
        Ok(ruled.map(|ruled| kept::standing(&ruled.rule, ruled.carry(&kept, now_ns), now_ns)))
    }

    async fn reset(&self, bucket: Take<'_>) -> Result<(), BucketsError> {
        let deadline = Instant::now() + self.shared.call_timeout;
        let Some(ruled) = self.shared.rule(bucket.policy) else { return Ok(self.shared.link.check()?) };
        let key = self.shared.key(&ruled, bucket.key);
        let delete = async |mut connection| redis::cmd("DEL").arg(&key).query_async(&mut connection).await;
        Ok(self.shared.link.call(deadline, delete).await?)
    }

    /// `Ok` while Redis is away, too: see [`RedisBuckets`].
    async fn reconfigure(&self, rules: &[PolicyRule]) -> Result<(), BucketsError> {
        let _turn = self.shared.turn.lock().await;
        self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner).replace(rules);
        self.shared.put_in_force().await;
        Ok(())
    }

    fn owe(&self, fallen: &[Fallen<'_>]) {
        self.shared.debts.lock().unwrap_or_else(PoisonError::into_inner).note(fallen, Instant::now());
    }

    fn in_force(&self, policy: PolicyId) -> Option<BucketRule> {
        self.shared.rule(policy).map(|ruled| ruled.rule)
    }

    fn counts(&self) -> BucketCounts {
        let link = &self.shared.link;
        BucketCounts { away: link.is_away(), failures: link.failed_calls(), ..BucketCounts::default() }
    }
}
