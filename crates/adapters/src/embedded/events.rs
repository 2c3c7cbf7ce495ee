use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use tidegate_domain::EventId;

use super::slots::Held;

/// An event by two keyed hashes of its id, drawn anew in every process: 16 bytes, however long the id.
pub(super) type EventKey = u128;

/// The slots of events, in one growing list with an index of four bytes each: growing moves no slot, so that the
/// half millionth costs what the first did.
#[derive(Debug)]
pub(super) struct Events {
    entries: Vec<(EventKey, Held)>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hashers: [RandomState; 2],
}

impl Events {
    pub(super) fn new() -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Self { entries: Vec::new(), free: Vec::new(), index: HashTable::new(), hashers }
    }

    pub(super) fn key(&self, event: &EventId) -> EventKey {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(event.as_str()));
        u128::from(high) << 64 | u128::from(low)
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn get(&self, key: EventKey) -> Option<Held> {
        let entries = &self.entries;
        let place = self.index.find(low(key), |&place| entries[place as usize].0 == key)?;
        Some(entries[*place as usize].1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EventKey, &Held)> {
        self.index.iter().map(|&place| {
            let (key, held) = &self.entries[place as usize];
            (*key, held)
        })
    }

    /// The key must not be there.
    pub(super) fn insert(&mut self, key: EventKey, held: Held) {
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = (key, held);
                place
            }
            None => {
                self.entries.push((key, held));
                place_of(self.entries.len() - 1)
            }
        };
        let entries = &self.entries;
        self.index.insert_unique(low(key), place, |&place| low(entries[place as usize].0));
    }

    pub(super) fn remove(&mut self, key: EventKey) -> Option<Held> {
        let entries = &self.entries;
        let found = self.index.find_entry(low(key), |&place| entries[place as usize].0 == key).ok()?;
        let (place, _) = found.remove();
        self.free.push(place);
        Some(self.entries[place as usize].1)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower hash")]
fn low(key: EventKey) -> u64 {
    key as u64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "bounded by slots_max, which is checked when it is configured"
)]
fn place_of(index: usize) -> u32 {
    index as u32
}

#[cfg(test)]
mod tests {
    use tidegate_domain::Timestamp;

    use super::*;

    fn held(seq: u64) -> Held {
        let at = Timestamp::from_millis(0);
        Held { seq, window: 0, requested: at, scheduled: at, created: at, message: 0, version: 1, config: 0 }
    }

    #[test]
    fn events_come_and_go_and_their_places_are_used_again() {
        let mut events = Events::new();
        let keys: Vec<_> = (0..1_000).map(|n| events.key(&EventId::new(&format!("e{n}")).unwrap())).collect();
        for (n, key) in keys.iter().enumerate() {
            events.insert(*key, held(n as u64));
        }
        for key in keys.iter().step_by(2) {
            assert!(events.remove(*key).is_some() && events.remove(*key).is_none());
        }
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(events.get(*key).map(|held| held.seq), (n % 2 == 1).then_some(n as u64));
        }
        for key in keys.iter().step_by(2) {
            events.insert(*key, held(7));
        }
        assert_eq!((events.len(), events.entries.len()), (1_000, 1_000));
    }
}
