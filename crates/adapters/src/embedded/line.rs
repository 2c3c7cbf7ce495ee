use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use hashbrown::{HashMap, HashTable};
use tidegate_domain::{AttemptResult, Lane, Timestamp};

use super::seqs::Seqs;

mod pickups;
mod pluck;

pub(super) use pickups::First;
pub(super) use pluck::Plucked;

const NONE: u32 = u32::MAX;
/// Room for so many messages is kept when there are none.
const KEPT_MIN: usize = 4_096;

/// A place in the line. Valid until its message leaves.
pub(super) type Slot = u32;

/// Every pending message, in the order in which it may be claimed: chains by recipient, and per queue and
/// lane the heads of the chains by due time.
///
/// A million messages wait here at a time, so an entry is 56 bytes and strings stay on disk. A recipient is
/// known by a keyed hash: two that collide would merely wait for each other.
#[derive(Debug)]
pub(super) struct Line {
    entries: Vec<Entry>,
    entry_free: u32,
    chains: Vec<Chain>,
    chain_free: u32,
    by_recipient: HashTable<u32>,
    by_seq: Seqs,
    hasher: RandomState,
    queues: HashMap<u32, Lanes>,
    /// Messages that expire, by when.
    expiring: BTreeSet<(Timestamp, u64)>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) seq: u64,
    pub(super) due: Timestamp,
    /// `Timestamp::MAX`: never.
    expires: Timestamp,
    pub(super) tries: Tries,
    chain: u32,
    next: u32,
    prev: u32,
    pub(super) body_bytes: u32,
    pub(super) queue: u32,
    pub(super) lane: Lane,
    live: bool,
}

/// What was spent on a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// The number of the last attempt.
    pub(super) last: u32,
    /// Failed ones since it was admitted or requeued.
    pub(super) failures: u16,
    /// Accepted ones since then that still wait for an ack.
    pub(super) acks: u16,
}

impl Tries {
    pub(super) fn failed(self) -> Self {
        Self { last: self.last + 1, failures: self.failures.saturating_add(1), ..self }
    }

    pub(super) fn accepted(self) -> Self {
        Self { last: self.last + 1, acks: self.acks.saturating_add(1), ..self }
    }

    pub(super) fn requeued(self) -> Self {
        Self { last: self.last + 1, failures: 0, acks: 0 }
    }

    pub(super) fn after(self, result: AttemptResult) -> Self {
        match result {
            AttemptResult::Accepted => self.accepted(),
            AttemptResult::Requeued => self.requeued(),
            AttemptResult::Failed | AttemptResult::Delivered => self.failed(),
        }
    }
}

#[derive(Debug)]
struct Chain {
    hash: u64,
    head: Slot,
    tail: Slot,
    waiting: [u32; 3],
    /// The head is leased, so it is not among its lane's heads.
    taken: bool,
}

#[derive(Debug, Default)]
struct Lanes {
    heads: [BTreeSet<(Timestamp, u64, Slot)>; 3],
    depth: [u64; 3],
    turn: Turn,
    /// How often a message has become a head.
    stirs: u64,
}

/// Whose turn it is among a queue's lanes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turn {
    streak: u32,
    lowest: bool,
}

#[derive(Debug)]
pub(super) struct Arrival<'a> {
    pub(super) seq: u64,
    pub(super) queue: u32,
    pub(super) lane: Lane,
    pub(super) due: Timestamp,
    pub(super) recipient: Option<&'a str>,
    pub(super) expires: Option<Timestamp>,
    pub(super) tries: Tries,
    pub(super) body_bytes: u32,
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            entry_free: NONE,
            chains: Vec::new(),
            chain_free: NONE,
            by_recipient: HashTable::new(),
            by_seq: Seqs::default(),
            hasher: RandomState::new(),
            queues: HashMap::new(),
            expiring: BTreeSet::new(),
        }
    }

    /// Gives back the memory of messages that have left, when all of them have. Not while a place is in use.
    pub(super) fn trim(&mut self) {
        if self.by_seq.len() > 0 || self.entries.len() <= KEPT_MIN {
            return;
        }
        (self.entries, self.entry_free) = (Vec::new(), NONE);
        (self.chains, self.chain_free) = (Vec::new(), NONE);
        self.by_recipient = HashTable::new();
        self.by_seq = Seqs::default();
    }

    pub(super) fn len(&self) -> u64 {
        self.by_seq.len() as u64
    }

    /// Pending messages of all queues by lane, each in its own.
    pub(super) fn depth(&self) -> [u64; 3] {
        let add = |sum: [u64; 3], lanes: &Lanes| [0, 1, 2].map(|lane| sum[lane] + lanes.depth[lane]);
        self.queues.values().fold([0; 3], add)
    }

    pub(super) fn depth_of(&self, queue: u32) -> [u64; 3] {
        self.queues.get(&queue).map_or([0; 3], |lanes| lanes.depth)
    }

    /// A queue that is empty goes, with whose turn it was among its lanes.
    pub(super) fn forget(&mut self, queue: u32) {
        self.queues.remove(&queue);
    }

    /// Messages that have expired, soonest first.
    pub(super) fn expired(&self, now: Timestamp) -> impl Iterator<Item = u64> {
        self.expiring.range(..=(now, u64::MAX)).map(|(_, seq)| *seq)
    }

    /// Up to `max` messages of a queue, and where to go on; in no particular order.
    pub(super) fn some_of(
        &self,
        queue: u32,
        from: Slot,
        max: usize,
        bytes_max: u64,
    ) -> (Vec<u64>, Option<Slot>) {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (at, entry) in self.entries.iter().enumerate().skip(from as usize) {
            if found.len() == max || bytes >= bytes_max {
                return (found, Some(slot_of(at)));
            }
            if entry.live && entry.queue == queue {
                bytes += u64::from(entry.body_bytes);
                found.push(entry.seq);
            }
        }
        (found, None)
    }

    pub(super) fn entry(&self, slot: Slot) -> &Entry {
        &self.entries[slot as usize]
    }

    /// Where a pending message stands.
    pub(super) fn find(&self, seq: u64) -> Option<Slot> {
        self.by_seq.get(seq)
    }

    /// The oldest pending message. Walks all of them.
    pub(super) fn seq_min(&self) -> Option<u64> {
        self.entries.iter().filter(|entry| entry.live).map(|entry| entry.seq).min()
    }

    /// When the next head of a queue falls due; it may be due already.
    pub(super) fn next_due(&self, queue: u32) -> Option<Timestamp> {
        let lanes = self.queues.get(&queue)?;
        lanes.heads.iter().filter_map(|heads| heads.first()).map(|head| head.0).min()
    }

    /// The heads of a queue that are due, the higher lanes first.
    pub(super) fn heads(&self, queue: u32, now: Timestamp) -> impl Iterator<Item = &Entry> {
        let lanes = self.queues.get(&queue).into_iter().flat_map(|lanes| &lanes.heads);
        let due = lanes.flat_map(move |heads| heads.iter().take_while(move |head| head.0 <= now));
        due.map(|(_, _, slot)| self.entry(*slot))
    }

    /// Puts a message at the end of its recipient's chain.
    pub(super) fn push(&mut self, arrival: &Arrival<'_>) {
        let slot = self.enter(arrival);
        let Some(recipient) = arrival.recipient else {
            return self.offer(slot);
        };
        let hash = self.hasher.hash_one((arrival.queue, recipient));
        let chains = &self.chains;
        let found = self.by_recipient.find(hash, |&chain| chains[chain as usize].hash == hash).copied();
        match found {
            Some(chain) => self.append(chain, slot, arrival.lane),
            None => {
                let chain = self.new_chain(hash, slot, arrival.lane);
                self.entries[slot as usize].chain = chain;
                self.offer(slot);
            }
        }
    }

    /// Chooses the next claimable message of a queue and takes it from its lane. After so many of higher lanes, one from a
    /// lower lane goes first.
    pub(super) fn take(&mut self, queue: u32, higher_per_lower: u32, now: Timestamp) -> Option<Slot> {
        let lanes = self.queues.get_mut(&queue)?;
        let ready = |lane: &usize| lanes.heads[*lane].first().is_some_and(|head| head.0 <= now);
        let highest = (0..3).find(ready)?;
        let lower = (highest + 1..3).find(ready);
        let lowest = (highest + 1..3).rev().find(ready);
        let chosen = match (lower, lowest) {
            (Some(lower), Some(lowest)) if lanes.turn.streak >= higher_per_lower => {
                lanes.turn.streak = 0;
                lanes.turn.lowest = !lanes.turn.lowest;
                if lanes.turn.lowest { lower } else { lowest }
            }
            (Some(_), _) => {
                lanes.turn.streak += 1;
                highest
            }
            _ => {
                lanes.turn.streak = 0;
                highest
            }
        };
        let (_, _, slot) = lanes.heads[chosen].pop_first()?;
        self.set_taken(slot, true);
        Some(slot)
    }

    /// Takes this very message, if it could be chosen now.
    pub(super) fn take_head(&mut self, slot: Slot, now: Timestamp) -> bool {
        let entry = &self.entries[slot as usize];
        let chain = self.chains.get(entry.chain as usize);
        if chain.is_none_or(|chain| chain.head != slot || chain.taken)
            || entry.due > now
            || entry.expires <= now
        {
            return false;
        }
        let (key, queue) = ((entry.due, entry.seq, slot), entry.queue);
        let lane = self.effective_lane(slot);
        let taken = self.lanes(queue).heads[lane.index()].remove(&key);
        if taken {
            self.set_taken(slot, true);
        }
        taken
    }

    /// The next message of the same recipient.
    pub(super) fn behind(&self, slot: Slot) -> Option<u64> {
        let next = self.entries[slot as usize].next;
        (next != NONE).then(|| self.entries[next as usize].seq)
    }

    /// A taken message is claimable again, when it is due.
    pub(super) fn give_back(&mut self, slot: Slot, due: Timestamp, tries: Tries) {
        let entry = &mut self.entries[slot as usize];
        entry.due = due;
        entry.tries = tries;
        self.set_taken(slot, false);
        self.offer(slot);
    }

    /// A message that nobody has taken leaves, wherever it stands.
    pub(super) fn withdraw(&mut self, slot: Slot) {
        let entry = &self.entries[slot as usize];
        let (chain, lane, prev, next) = (entry.chain, entry.lane, entry.prev, entry.next);
        if chain == NONE || self.chains[chain as usize].head == slot {
            let (key, queue) = ((entry.due, entry.seq, slot), entry.queue);
            let effective = self.effective_lane(slot);
            self.lanes(queue).heads[effective.index()].remove(&key);
            return self.remove(slot);
        }
        self.entries[prev as usize].next = next;
        match next {
            NONE => self.chains[chain as usize].tail = prev,
            next => self.entries[next as usize].prev = prev,
        }
        self.change_chain(chain, |waiting| waiting[lane.index()] -= 1);
        self.free_entry(slot);
    }

    /// A taken message leaves; the next of its recipient steps forward.
    pub(super) fn remove(&mut self, slot: Slot) {
        let (chain, next, lane) = {
            let entry = &self.entries[slot as usize];
            (entry.chain, entry.next, entry.lane)
        };
        self.free_entry(slot);
        if chain == NONE {
            return;
        }
        if next == NONE {
            return self.free_chain(chain);
        }
        let of = &mut self.chains[chain as usize];
        of.waiting[lane.index()] -= 1;
        of.head = next;
        of.taken = false;
        self.entries[next as usize].prev = NONE;
        self.offer(next);
    }

    fn append(&mut self, chain: u32, slot: Slot, lane: Lane) {
        let tail = std::mem::replace(&mut self.chains[chain as usize].tail, slot);
        self.entries[tail as usize].next = slot;
        let entry = &mut self.entries[slot as usize];
        entry.chain = chain;
        entry.prev = tail;
        self.change_chain(chain, |waiting| waiting[lane.index()] += 1);
    }

    /// Whoever joins or leaves a chain may change the lane that it counts as.
    fn change_chain(&mut self, chain: u32, change: impl FnOnce(&mut [u32; 3])) {
        let head = self.chains[chain as usize].head;
        let before = self.effective_lane(head);
        change(&mut self.chains[chain as usize].waiting);
        let after = self.effective_lane(head);
        if before == after || self.chains[chain as usize].taken {
            return;
        }
        let entry = &self.entries[head as usize];
        let key = (entry.due, entry.seq, head);
        let lanes = self.queues.entry(entry.queue).or_default();
        lanes.heads[before.index()].remove(&key);
        lanes.heads[after.index()].insert(key);
    }

    fn offer(&mut self, slot: Slot) {
        let lane = self.effective_lane(slot);
        let entry = &self.entries[slot as usize];
        let lanes = self.queues.entry(entry.queue).or_default();
        lanes.stirs += 1;
        lanes.heads[lane.index()].insert((entry.due, entry.seq, slot));
    }

    fn lanes(&mut self, queue: u32) -> &mut Lanes {
        self.queues.entry(queue).or_default()
    }

    fn effective_lane(&self, slot: Slot) -> Lane {
        let entry = &self.entries[slot as usize];
        if entry.chain == NONE {
            return entry.lane;
        }
        let waiting = &self.chains[entry.chain as usize].waiting;
        Lane::ALL.into_iter().find(|lane| waiting[lane.index()] > 0).unwrap_or(entry.lane)
    }

    fn set_taken(&mut self, slot: Slot, taken: bool) {
        let chain = self.entries[slot as usize].chain;
        if chain != NONE {
            self.chains[chain as usize].taken = taken;
        }
    }

    /// Counts a message in; it stands in no chain and no lane yet.
    fn enter(&mut self, arrival: &Arrival<'_>) -> Slot {
        self.lanes(arrival.queue).depth[arrival.lane.index()] += 1;
        if let Some(expires) = arrival.expires {
            self.expiring.insert((expires, arrival.seq));
        }
        self.new_entry(arrival)
    }

    fn new_entry(&mut self, arrival: &Arrival<'_>) -> Slot {
        let entry = Entry {
            seq: arrival.seq,
            due: arrival.due,
            expires: arrival.expires.unwrap_or(Timestamp::MAX),
            tries: arrival.tries,
            chain: NONE,
            next: NONE,
            prev: NONE,
            body_bytes: arrival.body_bytes,
            queue: arrival.queue,
            lane: arrival.lane,
            live: true,
        };
        let slot = if self.entry_free == NONE {
            self.entries.push(entry);
            slot_of(self.entries.len() - 1)
        } else {
            let slot = self.entry_free;
            self.entry_free = self.entries[slot as usize].next;
            self.entries[slot as usize] = entry;
            slot
        };
        self.by_seq.insert(arrival.seq, slot);
        slot
    }

    fn free_entry(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        self.queues.entry(entry.queue).or_default().depth[entry.lane.index()] -= 1;
        if entry.expires != Timestamp::MAX {
            self.expiring.remove(&(entry.expires, entry.seq));
        }
        self.by_seq.remove(entry.seq);
        entry.live = false;
        entry.next = self.entry_free;
        self.entry_free = slot;
    }

    fn new_chain(&mut self, hash: u64, head: Slot, lane: Lane) -> u32 {
        let mut waiting = [0; 3];
        waiting[lane.index()] = 1;
        let new = Chain { hash, head, tail: head, waiting, taken: false };
        let chain = if self.chain_free == NONE {
            self.chains.push(new);
            slot_of(self.chains.len() - 1)
        } else {
            let chain = self.chain_free;
            self.chain_free = self.chains[chain as usize].head;
            self.chains[chain as usize] = new;
            chain
        };
        let chains = &self.chains;
        self.by_recipient.insert_unique(hash, chain, |&chain| chains[chain as usize].hash);
        chain
    }

    fn free_chain(&mut self, chain: u32) {
        let hash = self.chains[chain as usize].hash;
        if let Ok(found) = self.by_recipient.find_entry(hash, |&other| other == chain) {
            found.remove();
        }
        self.chains[chain as usize].head = self.chain_free;
        self.chain_free = chain;
    }
}

/// The ledger's bound on pending messages lies far below `u32::MAX` and is checked when it is configured.
#[expect(clippy::cast_possible_truncation, reason = "bounded by pending_max")]
fn slot_of(index: usize) -> Slot {
    index as Slot
}
