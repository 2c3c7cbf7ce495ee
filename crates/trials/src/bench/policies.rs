use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tidegate_adapters::SystemClock;
use tidegate_adapters::buckets::memory::{MemoryBuckets, Options};
use tidegate_domain::limits::{
    Asked, BucketRule, FailStrategy, KeyStrategy, PathPattern, Policies, Policy, PolicyId, PolicyName, Take,
};
use tidegate_testkit::buckets::at_once;

use super::memory::resident_bytes;
use super::{Scale, median};
use crate::figure::Figure;

const KEYS: usize = 100_000;
const POLICIES: usize = 3;
const BYTES_PER_BUCKET_MAX: f64 = 128.0;

#[derive(Debug, clap::Args)]
pub struct MemoryArgs {
    #[arg(long)]
    buckets: usize,
}

/// One request with three matching policies, from the match to the count, against three checks by `governor`.
pub(super) fn in_process(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let keys: Arc<[Arc<str>]> = (0..KEYS).map(key).collect();
    let ours = Ours::new(&keys)?;
    let theirs = Theirs::new(&keys);
    let mut figures = Vec::new();
    for threads in [1, 2] {
        let (mut our_ns, mut their_ns) = (Vec::new(), Vec::new());
        for _ in 0..scale.rounds {
            their_ns.push(time(threads, scale.policy_requests, &keys, |key| theirs.check(key)));
            our_ns.push(time(threads, scale.policy_requests, &keys, |key| ours.check(key)));
        }
        let (our_ns, their_ns) = (median(our_ns), median(their_ns));
        println!(
            "{POLICIES} policies, {KEYS} keys, {threads} threads: {our_ns:.0} ns a request, governor {their_ns:.0} ns"
        );
        let plural = if threads == 1 { "thread" } else { "threads" };
        let name = format!("policies_vs_governor_{threads}_{plural}");
        figures.push(Figure::head_room(&name, our_ns, 2.0 * their_ns));
    }
    Ok(figures)
}

/// In a process of its own: memory that something else has left behind would make it look smaller.
pub(super) fn memory(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let own = std::env::current_exe()?;
    let output =
        Command::new(own).args(["bucket-memory", "--buckets", &scale.waiting.to_string()]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let bytes: f64 = text.trim().parse().with_context(|| format!("bucket-memory said {text:?}"))?;
    println!("{} buckets with keys of 24 bytes: {bytes:.0} bytes resident each", scale.waiting);
    Ok(vec![Figure::head_room("bucket_memory_head_room", bytes, BYTES_PER_BUCKET_MAX)])
}

/// Prints the resident bytes per bucket.
pub fn print_memory(args: &MemoryArgs) -> anyhow::Result<()> {
    let (store, before) = (store(args.buckets * 2)?, resident_bytes()?);
    for number in 0..args.buckets {
        let taken = at_once(store.buckets().take(&[Take { policy: PolicyId(0), key: &key(number) }]))?;
        anyhow::ensure!(taken.passed, "a fresh bucket denied");
    }
    let grown = resident_bytes()?.saturating_sub(before);
    anyhow::ensure!(store.buckets().counts().buckets == Some(args.buckets as u64), "buckets were lost");
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let each = grown as f64 / args.buckets as f64;
    println!("{each}");
    Ok(())
}

/// 24 bytes.
fn key(number: usize) -> Arc<str> {
    format!("client-{number:017}").into()
}

/// Policies whose buckets do not run dry here.
fn store(buckets_max: usize) -> anyhow::Result<Policies> {
    let store = MemoryBuckets::new(Options::new(buckets_max), Arc::new(SystemClock::new()));
    let engine = Policies::new(Arc::new(store));
    let policy = |number: usize| {
        anyhow::Ok(Policy {
            name: PolicyName::new(&format!("policy-{number}"))?,
            pattern: PathPattern::new(["/**", "/api/**", "/api/send"][number])?,
            methods: None,
            key: KeyStrategy::Principal,
            refill_per_second: 1_000.0,
            rule: BucketRule::new(1_000_000, 1_000.0, 1, false)?,
            fail: FailStrategy::Open,
            exempts_high: false,
        })
    };
    at_once(engine.replace((0..POLICIES).map(policy).collect::<Result<_, _>>()?))?;
    Ok(engine)
}

struct Ours(Policies);

impl Ours {
    fn new(keys: &[Arc<str>]) -> anyhow::Result<Self> {
        let ours = Self(store(KEYS * POLICIES * 2)?);
        anyhow::ensure!(keys.iter().all(|key| ours.check(key)), "a policy denied");
        Ok(ours)
    }

    fn check(&self, key: &Arc<str>) -> bool {
        let in_force = self.0.in_force();
        let about = in_force.iter().filter(|known| known.policy.is_about("POST", "/api/send"));
        let asked: Vec<_> = about.map(|policy| Asked { policy, key, exempt: false }).collect();
        at_once(self.0.decide(&asked)).passed && asked.len() == POLICIES
    }
}

struct Theirs([DefaultKeyedRateLimiter<Arc<str>>; POLICIES]);

impl Theirs {
    fn new(keys: &[Arc<str>]) -> Self {
        let burst = NonZeroU32::new(1_000_000).unwrap_or(NonZeroU32::MIN);
        let rate = NonZeroU32::new(1_000).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(rate).allow_burst(burst);
        let theirs = Self([0; POLICIES].map(|_| RateLimiter::keyed(quota)));
        for key in keys {
            theirs.check(key);
        }
        theirs
    }

    fn check(&self, key: &Arc<str>) -> bool {
        self.0.iter().all(|limiter| limiter.check_key(key).is_ok())
    }
}

/// Nanoseconds per request and thread, over keys in no order that a cache could foresee.
fn time(threads: usize, requests: usize, keys: &[Arc<str>], check: impl Fn(&Arc<str>) -> bool + Sync) -> f64 {
    let start = Barrier::new(threads);
    let run = |seed: usize| {
        let mut place = seed * 7_919;
        start.wait();
        let begun = Instant::now();
        for _ in 0..requests {
            place = (place.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)) % (1 << 32);
            black_box(check(&keys[(place >> 8) % keys.len()]));
        }
        begun.elapsed()
    };
    let slowest = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|seed| scope.spawn(move || run(seed))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).max()
    });
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let requests = requests as f64;
    slowest.map_or(f64::NAN, |slowest| slowest.as_secs_f64() * 1e9 / requests)
}
