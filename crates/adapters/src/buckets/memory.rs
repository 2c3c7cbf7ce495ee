//! Buckets in this process' memory: fast, bounded, gone with the process.

mod shard;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use smallvec::SmallVec;
use tidegate_domain::Clock;
use tidegate_domain::limits::{
    BucketCounts, BucketRule, Buckets, BucketsError, PolicyId, PolicyRule, Standing, Take, Taken,
};

use self::shard::{Found, Room, Rules, Shard};

/// Policies about one request, as a rule; more of them cost an allocation.
const USUAL: usize = 4;

const BUCKETS_PER_SHARD_MIN: usize = 4;

/// The [`Buckets`] of one process.
///
/// Of a key only a 64-bit hash is kept, under a secret of this process. Should two keys of a policy share it (at a
/// million keys one chance in thirty million), their clients share a bucket: stricter than asked for, never
/// looser.
///
/// The buckets are spread over shards, each behind its lock. A take locks the shards of all its buckets, in
/// ascending order so that two takes never wait for each other, looks at all, and then writes all or none.
#[derive(Debug)]
pub struct MemoryBuckets {
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    shards: Box<[Padded]>,
}

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Buckets kept at the same time. Beyond, those that are full again make room, and if there is none, others
    /// are given up such that nobody gains by it.
    pub buckets_max: usize,
    /// At most: a power of two, and no more than give each shard some buckets to choose from when one has to go.
    pub shards: usize,
}

/// Two locks on one cache line would make two threads wait for each other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// A take on its way: where its bucket is, what it holds, and what would be left.
struct Place {
    hash: u64,
    shard: usize,
    found: Found,
    rule: Option<BucketRule>,
    after: Option<u64>,
}

type Guards<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); USUAL]>;

impl Options {
    pub const fn new(buckets_max: usize) -> Self {
        Self { buckets_max, shards: 64 }
    }
}

impl MemoryBuckets {
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Self {
        let most = options.shards.min(options.buckets_max / BUCKETS_PER_SHARD_MIN).max(1);
        let count = 1 << most.ilog2();
        let room = Arc::new(Room::new(options.buckets_max));
        let shards = (0..count).map(|_| Padded(Mutex::new(Shard::new(room.clone())))).collect();
        Self { clock, hasher: RandomState::new(), shards }
    }

    /// Forgets buckets that are full again. To be called now and then, at least once a minute: then no idle bucket
    /// outlives twice the time it takes to fill (a minute at least; an hour when it never refills).
    pub fn sweep(&self) {
        for shard in &self.shards {
            let now_ns = self.clock.monotonic_ns();
            lock(shard).sweep(now_ns);
        }
    }

    fn take_now(&self, takes: &[Take<'_>]) -> Taken {
        let now_ns = self.clock.monotonic_ns();
        let hashes = self.hashes(takes);
        let mut guards = self.lock_all(&hashes);
        let mut passed = true;
        let mut places: SmallVec<[Place; USUAL]> = SmallVec::with_capacity(takes.len());
        for (take, key_hash) in takes.iter().zip(hashes) {
            let (shard, hash) = (self.shard_of(key_hash), bucket_hash(key_hash, take.policy));
            let kept = guard(&mut guards, shard);
            let (found, rule) = (kept.find(hash, take.policy, now_ns), kept.rule(take.policy));
            let after = rule.and_then(|rule| rule.take(found.state, now_ns));
            passed &= after.is_some() || rule.is_none_or(|rule| rule.shadow());
            places.push(Place { hash, shard, found, rule, after });
        }
        // What is there is written first: a newcomer may move the others.
        for known in [true, false] {
            for (take, place) in takes.iter().zip(&mut places) {
                let Some(rule) = place.rule.filter(|_| place.found.at.is_some() == known) else { continue };
                let kept = guard(&mut guards, place.shard);
                match place.after.filter(|_| passed) {
                    Some(after) => {
                        kept.put(place.hash, take.policy, place.found.at, after, now_ns);
                        place.found.state = after;
                    }
                    None => kept.touch(take.policy, &rule, &mut place.found, now_ns),
                }
            }
        }
        drop(guards);
        Taken { passed, standings: places.iter().map(|place| place.standing(now_ns)).collect() }
    }

    /// In ascending order, each once.
    fn lock_all(&self, hashes: &[u64]) -> Guards<'_> {
        let mut wanted: SmallVec<[usize; USUAL]> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.into_iter().map(|shard| (shard, lock(&self.shards[shard]))).collect()
    }

    fn with<T>(&self, bucket: &Take<'_>, act: impl FnOnce(&mut Shard, u64, u64) -> T) -> T {
        let key_hash = self.hash(bucket.key);
        let mut shard = lock(&self.shards[self.shard_of(key_hash)]);
        act(&mut shard, bucket_hash(key_hash, bucket.policy), self.clock.monotonic_ns())
    }

    /// Of the keys alone: policies by the same key, as most are, then share a shard and a lock.
    fn hashes(&self, takes: &[Take<'_>]) -> SmallVec<[u64; USUAL]> {
        let mut hashes: SmallVec<[u64; USUAL]> = SmallVec::with_capacity(takes.len());
        for (place, take) in takes.iter().enumerate() {
            let before = place.checked_sub(1).filter(|before| takes[*before].key == take.key);
            hashes.push(before.map_or_else(|| self.hash(take.key), |before| hashes[before]));
        }
        hashes
    }

    fn hash(&self, key: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish()
    }

    /// By bits that the tables inside do not look at first.
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }
}

impl Place {
    fn standing(&self, now_ns: u64) -> Standing {
        self.rule.map_or(Standing::UNLIMITED, |rule| Standing {
            lacked: self.after.is_none(),
            ..rule.standing(self.found.state, now_ns)
        })
    }
}

#[async_trait]
impl Buckets for MemoryBuckets {
    async fn take(&self, takes: &[Take<'_>]) -> Result<Taken, BucketsError> {
        Ok(self.take_now(takes))
    }

    async fn peek(&self, bucket: Take<'_>) -> Result<Option<Standing>, BucketsError> {
        Ok(self.with(&bucket, |shard, hash, now_ns| {
            let state = shard.find(hash, bucket.policy, now_ns).state;
            shard.rule(bucket.policy).map(|rule| rule.standing(state, now_ns))
        }))
    }

    async fn reset(&self, bucket: Take<'_>) -> Result<(), BucketsError> {
        self.with(&bucket, |shard, hash, now_ns| shard.fill(hash, bucket.policy, now_ns));
        Ok(())
    }

    async fn reconfigure(&self, rules: &[PolicyRule]) -> Result<(), BucketsError> {
        let ids = rules.iter().map(|rule| rule.id.0 as usize + 1).max().unwrap_or(0);
        let mut by_id = vec![None; ids];
        for rule in rules {
            by_id[rule.id.0 as usize] = Some(rule.rule);
        }
        let by_id = Rules::from(by_id);
        // One shard after the other: no request waits for more than one of them to be rewritten.
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.reconfigure(by_id.clone(), self.clock.monotonic_ns());
        }
        Ok(())
    }

    fn follow(&self, bucket: Take<'_>, standing: &Standing) {
        let lack = standing.lack();
        if lack.owed > 0 {
            self.with(&bucket, |shard, hash, now_ns| shard.lower(hash, bucket.policy, lack, now_ns));
        }
    }

    fn counts(&self) -> BucketCounts {
        let mut counts = BucketCounts { buckets: Some(0), ..BucketCounts::default() };
        for shard in &self.shards {
            let shard = lock(shard);
            counts.buckets = counts.buckets.map(|sum| sum + shard.len() as u64);
            counts.forced_evictions += shard.forced_evictions;
        }
        counts
    }
}

/// Spreads the buckets of one key over the slots of its shard. The policy is compared beside it, so this need not
/// keep policies apart.
fn bucket_hash(key_hash: u64, policy: PolicyId) -> u64 {
    key_hash.wrapping_add(u64::from(policy.0).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A panic with a lock held leaves a shard whose buckets are each valid: there is nothing half-written.
fn lock(shard: &Padded) -> MutexGuard<'_, Shard> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn guard<'a>(guards: &'a mut Guards<'_>, shard: usize) -> &'a mut Shard {
    let place = guards.iter().position(|(number, _)| *number == shard).unwrap_or(0);
    &mut guards[place].1
}
