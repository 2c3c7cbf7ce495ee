use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use tidegate_domain::limits::{BucketRule, Debt, Lack, PolicyId};

/// Slots looked at to make room for one bucket.
const SCAN_MAX: usize = 64;

/// By policy id; none for policies that are no longer in force.
pub type Rules = Arc<[Option<BucketRule>]>;

/// Some of the buckets, behind one lock.
#[derive(Debug)]
pub struct Shard {
    table: HashTable<Entry>,
    rules: Rules,
    /// By policy id: the emptiest bucket that was given up. Whoever has no bucket here starts from that, until it
    /// has refilled, since it may be who was given up.
    floors: Vec<u64>,
    room: Arc<Room>,
    /// Where the search for room goes on.
    cursor: usize,
    pub forced_evictions: u64,
}

/// How many buckets all shards together hold, and may hold. One number for all: were each shard given its part, a shard
/// that has more than its share of the keys would give buckets up while others have room.
#[derive(Debug)]
pub struct Room {
    kept: AtomicUsize,
    max: usize,
}

/// 24 bytes, and no text.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    state: u64,
    policy: PolicyId,
}

/// A bucket's state, and its slot if it has one.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub at: Option<usize>,
    pub state: u64,
}

impl Room {
    pub fn new(max: usize) -> Self {
        Self { kept: AtomicUsize::new(0), max }
    }

    fn take(&self) -> bool {
        let one_more = |kept: usize| (kept < self.max).then_some(kept + 1);
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn give_back(&self, count: usize) {
        self.kept.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Shard {
    pub fn new(room: Arc<Room>) -> Self {
        let rules = Rules::from([]);
        Self { table: HashTable::new(), rules, floors: Vec::new(), room, cursor: 0, forced_evictions: 0 }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn rule(&self, policy: PolicyId) -> Option<BucketRule> {
        self.rules.get(policy.0 as usize).copied().flatten()
    }

    pub fn find(&self, hash: u64, policy: PolicyId, now_ns: u64) -> Found {
        let at = self.table.find_bucket_index(hash, |entry| (entry.hash, entry.policy) == (hash, policy));
        let kept = at.and_then(|at| self.table.get_bucket(at)).map(|entry| entry.state);
        Found { at, state: kept.unwrap_or_else(|| self.floor(policy, now_ns)) }
    }

    /// Writes a state to its slot, or makes one. Slots found before a new one was made may have moved.
    pub fn put(&mut self, hash: u64, policy: PolicyId, at: Option<usize>, state: u64, now_ns: u64) {
        if let Some(entry) = at.and_then(|at| self.table.get_bucket_mut(at)) {
            entry.state = state;
            return;
        }
        if !self.room.take() && !self.make_room(now_ns) {
            return self.give_up(policy, state, now_ns);
        }
        self.table.insert_unique(hash, Entry { hash, state, policy }, |entry| entry.hash);
    }

    /// Notes an attempt that took nothing.
    pub fn touch(&mut self, policy: PolicyId, rule: &BucketRule, found: &mut Found, now_ns: u64) {
        let touched = rule.touch(found.state, now_ns);
        if touched == found.state {
            return;
        }
        found.state = touched;
        match found.at.and_then(|at| self.table.get_bucket_mut(at)) {
            Some(entry) => entry.state = touched,
            // It stands at the floor, as everyone does who was given up: then the floor is what was hammered at.
            None => self.raise_floor(policy, rule, touched, now_ns),
        }
    }

    pub fn fill(&mut self, hash: u64, policy: PolicyId, now_ns: u64) {
        let at = self.find(hash, policy, now_ns).at;
        if self.floor(policy, now_ns) != 0 {
            // Forgotten, it would start from the floor.
            self.put(hash, policy, at, 0, now_ns);
        } else if at.and_then(|at| self.remove(at)).is_some() {
            self.room.give_back(1);
        }
    }

    /// To what it would hold if it lacked that much; never more than it holds.
    pub fn lower(&mut self, hash: u64, policy: PolicyId, lack: Lack, now_ns: u64) {
        let Some(rule) = self.rule(policy) else { return };
        let found = self.find(hash, policy, now_ns);
        let state = rule.state(Debt { owed: rule.owing(lack), at_ns: now_ns });
        let state = rule.emptier(found.state, state, now_ns);
        if state != found.state {
            self.put(hash, policy, found.at, state, now_ns);
        }
    }

    pub fn sweep(&mut self, now_ns: u64) {
        let rules = self.rules.clone();
        self.retain(|entry| !is_full(&rules, entry, now_ns));
        if self.table.len() < self.table.capacity() / 4 {
            self.table.shrink_to(self.table.len() * 2, |entry| entry.hash);
        }
    }

    pub fn reconfigure(&mut self, new: Rules, now_ns: u64) {
        let old = std::mem::replace(&mut self.rules, new.clone());
        let carry = |id: usize, state: u64| {
            let (old, new) = (old.get(id).copied().flatten()?, new.get(id).copied().flatten()?);
            Some(new.carry(&old, state, now_ns))
        };
        self.retain(|entry| match carry(entry.policy.0 as usize, entry.state) {
            Some(state) => {
                entry.state = state;
                true
            }
            None => false,
        });
        for (id, floor) in self.floors.iter_mut().enumerate() {
            *floor = carry(id, *floor).unwrap_or(0);
        }
    }

    /// What a bucket that is not kept holds: zero (full), unless one like it was given up before it was full.
    fn floor(&self, policy: PolicyId, now_ns: u64) -> u64 {
        let floor = self.floors.get(policy.0 as usize).copied().unwrap_or(0);
        let full = floor == 0 || self.rule(policy).is_none_or(|rule| rule.is_full(floor, now_ns));
        if full { 0 } else { floor }
    }

    /// Removes one bucket to make room for another. The scan goes on where the last one stopped. The first full bucket
    /// goes, because a full bucket means the same as no bucket; without one, the bucket closest to being full goes. False
    /// when this shard has no bucket.
    fn make_room(&mut self, now_ns: u64) -> bool {
        let slots = self.table.num_buckets();
        let mut least: Option<(u64, usize)> = None;
        for seen in 0..slots {
            if seen >= SCAN_MAX && least.is_some() {
                break;
            }
            self.cursor = if self.cursor + 1 < slots { self.cursor + 1 } else { 0 };
            let Some(entry) = self.table.get_bucket(self.cursor) else { continue };
            if is_full(&self.rules, entry, now_ns) {
                return self.remove(self.cursor).is_some();
            }
            let rule = self.rule(entry.policy);
            let full_in_ns = rule.map_or(0, |rule| rule.standing(entry.state, now_ns).full_in_ns);
            if least.is_none_or(|(other, _)| full_in_ns < other) {
                least = Some((full_in_ns, self.cursor));
            }
        }
        let Some(entry) = least.and_then(|(_, at)| self.remove(at)) else { return false };
        self.give_up(entry.policy, entry.state, now_ns);
        true
    }

    /// A bucket is not kept, though it is not full.
    fn give_up(&mut self, policy: PolicyId, state: u64, now_ns: u64) {
        self.forced_evictions += 1;
        if let Some(rule) = self.rule(policy) {
            self.raise_floor(policy, &rule, state, now_ns);
        }
    }

    fn retain(&mut self, keep: impl FnMut(&mut Entry) -> bool) {
        let before = self.table.len();
        self.table.retain(keep);
        self.room.give_back(before - self.table.len());
    }

    fn raise_floor(&mut self, policy: PolicyId, rule: &BucketRule, state: u64, now_ns: u64) {
        let id = policy.0 as usize;
        if self.floors.len() <= id {
            self.floors.resize(id + 1, 0);
        }
        self.floors[id] = rule.emptier(self.floors[id], state, now_ns);
    }

    fn remove(&mut self, at: usize) -> Option<Entry> {
        self.table.get_bucket_entry(at).ok().map(|entry| entry.remove().0)
    }
}

fn is_full(rules: &Rules, entry: &Entry, now_ns: u64) -> bool {
    let rule = rules.get(entry.policy.0 as usize).copied().flatten();
    rule.is_none_or(|rule| rule.is_full(entry.state, now_ns))
}
