use tidegate_domain::limits::{BucketRule, Standing};

/// Of a token: then all rates of a tenth per second are a whole number of them per nanosecond.
const UNITS: u128 = 10_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const IDLE_S: u64 = 3_600;

/// A policy's rule as a textbook has it: tokens that drip in at a rate, up to a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelRule {
    pub capacity: u32,
    /// Tenths of a token per second; zero never refills.
    pub rate_tenths: u32,
    pub cost: u32,
    pub shadow: bool,
}

/// Every bucket ever touched, in a list: nothing is forgotten, nothing is fast.
#[derive(Debug, Default)]
pub struct ModelBuckets {
    pub rules: Vec<Option<ModelRule>>,
    /// What buckets are kept under: of a policy that went, in a shared store, the rule that it had last.
    kept_under: Vec<Option<ModelRule>>,
    is_shared: bool,
    buckets: Vec<Bucket>,
}

#[derive(Debug, Clone)]
struct Bucket {
    policy: usize,
    key: u8,
    level: u128,
    /// When the level was right.
    at_ns: u64,
    /// The last attempt, in whole seconds.
    touched_s: u64,
}

impl ModelRule {
    /// As a store takes it.
    pub fn bucket_rule(&self) -> BucketRule {
        let refill_per_second = f64::from(self.rate_tenths) / 10.0;
        BucketRule::new(self.capacity, refill_per_second, self.cost, self.shadow).expect("a rule")
    }

    fn full(&self) -> u128 {
        u128::from(self.capacity) * UNITS
    }

    fn price(&self) -> u128 {
        u128::from(self.cost) * UNITS
    }
}

impl ModelBuckets {
    pub fn new(is_shared: bool) -> Self {
        Self { is_shared, ..Self::default() }
    }

    pub fn resize(&mut self, policies: usize) {
        self.rules.resize(policies, None);
        self.kept_under.resize(policies, None);
    }

    /// Whether each take's bucket could pay.
    pub fn could_pay(&mut self, takes: &[(usize, u8)], now_ns: u64) -> Vec<bool> {
        let could = |take: &(usize, u8)| {
            let Some(rule) = self.rules[take.0] else { return true };
            self.bucket(*take, now_ns).level >= rule.price()
        };
        takes.iter().map(could).collect()
    }

    /// Whether a request passes, as far as the model knows.
    pub fn passes(&mut self, takes: &[(usize, u8)], now_ns: u64) -> bool {
        let could = self.could_pay(takes, now_ns);
        let shadow = |take: &(usize, u8)| self.rules[take.0].is_some_and(|rule| rule.shadow);
        takes.iter().zip(could).all(|(take, could)| could || shadow(take))
    }

    /// What a request does to its buckets, given which of them were charged.
    pub fn settle(&mut self, takes: &[(usize, u8)], charged: &[bool], now_ns: u64) {
        for (take, charged) in takes.iter().zip(charged) {
            let Some(rule) = self.rules[take.0] else { continue };
            let bucket = self.bucket(*take, now_ns);
            bucket.touched_s = now_ns / SECOND_NS;
            if *charged {
                bucket.level = bucket.level.checked_sub(rule.price()).unwrap_or(bucket.level);
            }
        }
    }

    pub fn standing(&mut self, take: (usize, u8), now_ns: u64) -> Option<Standing> {
        let rule = self.rules[take.0]?;
        let bucket = self.bucket(take, now_ns);
        let lacked = bucket.level < rule.price();
        let wait = |wanted: u128| {
            let missing = wanted.saturating_sub(bucket.level);
            match (missing, u128::from(rule.rate_tenths)) {
                (0, _) => 0,
                (_, 0) => (bucket.touched_s + IDLE_S + 1) * SECOND_NS - now_ns,
                (missing, rate) => u64::try_from(missing.div_ceil(rate)).expect("years"),
            }
        };
        let remaining = u32::try_from(bucket.level / UNITS).expect("a capacity");
        Some(Standing {
            rule: Some(rule.bucket_rule()),
            lacked,
            remaining,
            full_in_ns: wait(rule.full()),
            retry_after_ns: wait(rule.price()),
        })
    }

    /// Nothing happens to a bucket whose policy has gone.
    pub fn reset(&mut self, take: (usize, u8)) {
        if self.rules[take.0].is_some() {
            self.forget(take);
        }
    }

    fn forget(&mut self, take: (usize, u8)) {
        self.buckets.retain(|bucket| (bucket.policy, bucket.key) != take);
    }

    /// Tokens stay as far as they fit, to the nanosecond of the new rate; a full bucket stays full.
    pub fn reconfigure(&mut self, rules: Vec<Option<ModelRule>>, now_ns: u64) {
        let gone = |last: Option<ModelRule>| last.filter(|_| self.is_shared);
        let kept_under: Vec<_> =
            rules.iter().zip(&self.kept_under).map(|(rule, last)| rule.or(gone(*last))).collect();
        let old_buckets = self.buckets.clone();
        for old in old_buckets {
            let take = (old.policy, old.key);
            let bucket = self.bucket_or_none(take, now_ns).cloned();
            let (Some(bucket), Some(was), Some(is)) =
                (bucket, self.kept_under[old.policy], kept_under[old.policy])
            else {
                self.forget(take);
                continue;
            };
            if (was.capacity, was.rate_tenths) == (is.capacity, is.rate_tenths) {
                continue;
            }
            if bucket.level == was.full() {
                self.forget(take);
                continue;
            }
            let grain = match (was.rate_tenths, is.rate_tenths) {
                (0, _) | (_, 0) => UNITS,
                (_, rate) => rate.into(),
            };
            let level = (bucket.level / grain * grain).min(is.full());
            let place = self.bucket_or_none(take, now_ns).expect("it was there");
            (place.level, place.touched_s) = (level, now_ns / SECOND_NS);
        }
        (self.rules, self.kept_under) = (rules, kept_under);
    }

    fn bucket(&mut self, take: (usize, u8), now_ns: u64) -> &mut Bucket {
        if self.bucket_or_none(take, now_ns).is_none() {
            let level = self.rules[take.0].map_or(0, |rule| rule.full());
            let (policy, key) = take;
            self.buckets.push(Bucket { policy, key, level, at_ns: now_ns, touched_s: now_ns / SECOND_NS });
        }
        self.bucket_or_none(take, now_ns).expect("it was put there")
    }

    /// Brought up to date.
    fn bucket_or_none(&mut self, take: (usize, u8), now_ns: u64) -> Option<&mut Bucket> {
        let rule = self.kept_under[take.0]?;
        let bucket = self.buckets.iter_mut().find(|bucket| (bucket.policy, bucket.key) == take)?;
        let dripped = u128::from(now_ns - bucket.at_ns) * u128::from(rule.rate_tenths);
        bucket.level = (bucket.level + dripped).min(rule.full());
        bucket.at_ns = now_ns;
        if rule.rate_tenths == 0 && now_ns / SECOND_NS - bucket.touched_s > IDLE_S {
            bucket.level = rule.full();
        }
        Some(bucket)
    }
}
