//! Which messages concern which recipient or charged user (a party of the message), without a row per message: an index
//! with random keys would dirty a page for nearly each of them.
//!
//! Sequence numbers stand in blocks. A block that is being filled is in memory (`Open`), and a start reads it from its
//! messages. When the first message of a later block comes, the block gets its run (`run.rs`), hashes and numbers in the
//! order of the hashes, in the same commit. A look-up (`find.rs`) searches each run, then the open block, and reads the
//! messages that it finds there: two names may share a hash, and a message may be gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tidegate_domain::Timestamp;

use super::super::rows::MessageRow;

mod find;
mod run;
#[cfg(test)]
mod tests;
mod upkeep;
mod upkeep_cost;

pub(super) use find::Candidates;
pub(super) use run::TABLE;
pub(super) use upkeep::{Passing, block_end};
pub use upkeep_cost::{PartyUpkeep, UpkeepRows};

/// Sequence numbers of one block: a place within it takes 16 bits. Tests have small ones, so that they fill some.
pub(super) const BLOCK: u64 = if cfg!(test) { 16 } else { 65_536 };
/// Entries of the open block that share an allocation. A look-up copies fewer than that while it holds the lock; smaller chunks
/// are more allocations.
const CHUNK: usize = if cfg!(test) { 4 } else { 4_096 };

/// Stands for the names of a damaged message, which are not known: every look-up finds it, and reports it.
const ANY: u32 = u32::MAX;

/// A party's hash and the place of its message in the block; ordered by the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u64);

impl Entry {
    fn new(hash: u32, place: u16) -> Self {
        Self(u64::from(hash) << 16 | u64::from(place))
    }

    /// The entries of a message. One is enough for a recipient who is charged.
    fn of<'a>(
        seq: u64,
        recipient: Option<&'a str>,
        user: Option<&'a str>,
    ) -> impl Iterator<Item = Self> + use<'a> {
        let place = u16::try_from(seq % BLOCK).unwrap_or_default();
        let user = user.filter(|user| recipient != Some(user));
        recipient.into_iter().chain(user).map(move |name| Self::new(hash(name), place))
    }

    fn hash(self) -> u32 {
        u32::try_from(self.0 >> 16).unwrap_or_default()
    }

    fn place(self) -> u64 {
        self.0 & 0xffff
    }
}

/// A collision costs a look-up the reading of one message too many.
pub(super) fn hash(name: &str) -> u32 {
    crc32fast::hash(name.as_bytes())
}

/// When the first and the last of some messages were admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    first: Timestamp,
    last: Timestamp,
}

impl Default for Times {
    fn default() -> Self {
        Self { first: Timestamp::from_millis(i64::MAX), last: Timestamp::from_millis(i64::MIN) }
    }
}

impl Times {
    fn add(&mut self, at: Timestamp) {
        (self.first, self.last) = (self.first.min(at), self.last.max(at));
    }

    /// Whether a message of that time may be among them.
    fn overlap(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        from.is_none_or(|from| self.last >= from) && to.is_none_or(|to| self.first < to)
    }
}

/// The block that is being filled.
#[derive(Debug, Clone, Default)]
struct Open {
    block: u64,
    chunks: Vec<Arc<[Entry]>>,
    rest: Vec<Entry>,
    times: Times,
    /// The last message; none yet: zero.
    seq_last: u64,
}

/// Messages of one block.
#[derive(Debug, Default)]
struct Gathered {
    block: u64,
    entries: Vec<Entry>,
    times: Times,
    seq_last: u64,
}

/// What a group of messages changes: in a commit of the store, and in memory once that is done.
#[derive(Debug)]
pub(super) struct Step(Vec<Gathered>);

/// The open block, which the writer fills and look-ups read.
#[derive(Debug, Clone, Default)]
pub(in crate::embedded) struct Parties(Arc<Mutex<Open>>);

impl Parties {
    /// Of messages by ascending numbers.
    pub(super) fn step(messages: &[MessageRow]) -> Step {
        let mut blocks: Vec<Gathered> = Vec::new();
        for message in messages {
            let block = message.seq / BLOCK;
            if blocks.last().is_none_or(|gathered| gathered.block != block) {
                let entries = Vec::with_capacity(messages.len());
                blocks.push(Gathered { block, entries, ..Gathered::default() });
            }
            if let Some(gathered) = blocks.last_mut() {
                gathered.add_message(message);
            }
        }
        Step(blocks)
    }

    /// Writes the runs of blocks that are full with this step.
    pub(super) fn write(&self, db: &Connection, step: &Step) -> rusqlite::Result<()> {
        let Some((_, full)) = step.0.split_last() else { return Ok(()) };
        for gathered in self.closed(step).iter().chain(full.iter().filter(|full| full.block > self.block())) {
            run::write(db, gathered)?;
        }
        Ok(())
    }

    /// The step is on disk. Before its messages are answered: a look-up after that finds them.
    pub(super) fn apply(&self, step: Step) {
        let mut open = self.lock();
        for gathered in step.0 {
            if gathered.block != open.block {
                *open = Open { block: gathered.block, ..Open::default() };
            }
            open.add(gathered);
        }
    }

    /// The open block as it is when this step has filled it; none when there is still room in it.
    fn closed(&self, step: &Step) -> Option<Gathered> {
        let open = self.lock();
        let ends = open.seq_last > 0 && step.0.last().is_some_and(|last| last.block > open.block);
        let mut whole = ends.then(|| open.clone())?.whole();
        // The sorting is the long part, and no look-up has to wait for it.
        drop(open);
        if let Some(gathered) = step.0.first().filter(|first| first.block == whole.block) {
            whole.join(gathered);
        }
        Some(whole)
    }

    fn block(&self) -> u64 {
        self.lock().block
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn add(&mut self, gathered: Gathered) {
        self.times.add(gathered.times.first);
        self.times.add(gathered.times.last);
        self.seq_last = gathered.seq_last;
        self.rest.extend(gathered.entries);
        while self.rest.len() >= CHUNK {
            self.chunks.push(self.rest.drain(..CHUNK).collect());
        }
    }

    fn whole(self) -> Gathered {
        let entries = self.entries().collect();
        let Self { block, times, seq_last, .. } = self;
        Gathered { block, entries, times, seq_last }
    }

    /// The numbers of messages that may be a party's, ascending. A look-up is rare, and reads all entries; were they kept in order,
    /// each admission would pay for it.
    fn seqs(&self, hash: u32) -> Vec<u64> {
        let found = self.entries().filter(|entry| [hash, ANY].contains(&entry.hash()));
        let mut seqs: Vec<u64> = found.map(|entry| self.block * BLOCK + entry.place()).collect();
        // A message may have an entry for its recipient and one for its user.
        seqs.sort_unstable();
        seqs.dedup();
        seqs
    }

    /// In the order of the messages.
    fn entries(&self) -> impl Iterator<Item = Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).chain(&self.rest).copied()
    }
}

impl Gathered {
    /// A message whose names and time are not what was written.
    fn add_damaged(&mut self, seq: u64) {
        self.times =
            Times { first: Timestamp::from_millis(i64::MIN), last: Timestamp::from_millis(i64::MAX) };
        self.seq_last = seq;
        self.entries.push(Entry::new(ANY, u16::try_from(seq % BLOCK).unwrap_or_default()));
    }

    fn add_message(&mut self, message: &MessageRow) {
        let recipient = message.recipient.as_ref().map(|recipient| recipient.as_str());
        let user = message.charge.as_ref().map(|charge| charge.user.as_str());
        self.times.add(message.at);
        self.seq_last = message.seq;
        self.entries.extend(Entry::of(message.seq, recipient, user));
    }

    fn join(&mut self, later: &Self) {
        self.times.add(later.times.first);
        self.times.add(later.times.last);
        self.seq_last = later.seq_last;
        self.entries.extend_from_slice(&later.entries);
    }
}
