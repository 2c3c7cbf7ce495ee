use std::collections::{BTreeMap, VecDeque};

use tidegate_bus::Lanes;
use tidegate_domain::{Claim, Lane};

/// A full lane is not read from; Kafka keeps what follows.
const LANE_RECORDS_MAX: usize = 256;
const LANE_BYTES_MAX: usize = 8 * 1_024 * 1_024;

/// What was read of the partitions that are ours, and not yet given out; and how far each may be committed.
#[derive(Debug, Default)]
pub struct Shelf {
    lanes: Lanes<Item>,
    bytes: [usize; 3],
    places: BTreeMap<Place, Progress>,
}

/// A partition of a lane's topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub lane: Lane,
    pub partition: i32,
}

#[derive(Debug)]
struct Item {
    place: Place,
    claim: Claim,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Progress {
    /// Offsets of what lies here, oldest first.
    waiting: VecDeque<i64>,
    /// One more than the last offset that was read.
    read: Option<i64>,
    /// Up to here, not included; at first where we were let in.
    committed: Option<i64>,
}

impl Progress {
    /// Everything below was given out, or is not worth it.
    fn position(&self) -> Option<i64> {
        self.waiting.front().copied().or(self.read)
    }
}

impl Shelf {
    pub fn assign(&mut self, place: Place) {
        self.revoke(place);
        self.places.insert(place, Progress::default());
    }

    /// Whoever reads that partition next reads it from where we committed it.
    pub fn revoke(&mut self, place: Place) {
        if self.places.remove(&place).is_some() {
            let bytes = &mut self.bytes;
            self.lanes.retain(|item| {
                let stays = item.place != place;
                bytes[item.place.lane.index()] -= if stays { 0 } else { item.bytes };
                stays
            });
        }
    }

    pub fn has_room(&self, lane: Lane) -> bool {
        self.lanes.len(lane) < LANE_RECORDS_MAX && self.bytes[lane.index()] < LANE_BYTES_MAX
    }

    /// A record that was read; none when it makes no sense. What is not ours any more is left to its new owner.
    pub fn put(&mut self, place: Place, offset: i64, claim: Option<Claim>, bytes: usize) {
        let Some(progress) = self.places.get_mut(&place) else { return };
        progress.committed.get_or_insert(offset);
        progress.read = Some(offset + 1);
        if let Some(claim) = claim {
            progress.waiting.push_back(offset);
            self.bytes[place.lane.index()] += bytes;
            self.lanes.push(place.lane, Item { place, claim, bytes });
        }
    }

    pub fn take(&mut self, max: usize) -> Vec<Claim> {
        let items = self.lanes.take(max);
        for item in &items {
            self.bytes[item.place.lane.index()] -= item.bytes;
            if let Some(progress) = self.places.get_mut(&item.place) {
                progress.waiting.pop_front();
            }
        }
        items.into_iter().map(|item| item.claim).collect()
    }

    /// What may be committed and is not.
    pub fn uncommitted(&self) -> Vec<(Place, i64)> {
        let news = |(place, progress): (&Place, &Progress)| {
            let position = progress.position().filter(|position| progress.committed < Some(*position))?;
            Some((*place, position))
        };
        self.places.iter().filter_map(news).collect()
    }

    pub fn committed(&mut self, positions: &[(Place, i64)]) {
        for (place, position) in positions {
            if let Some(progress) = self.places.get_mut(place) {
                progress.committed = progress.committed.max(Some(*position));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::bus::claim;

    use super::*;

    const NORMAL: Place = Place { lane: Lane::Normal, partition: 3 };
    const HIGH: Place = Place { lane: Lane::High, partition: 3 };

    fn shelf() -> Shelf {
        let mut shelf = Shelf::default();
        [NORMAL, HIGH].into_iter().for_each(|place| shelf.assign(place));
        shelf
    }

    fn put(shelf: &mut Shelf, place: Place, offset: i64) {
        shelf.put(place, offset, Some(claim(u64::try_from(offset).unwrap(), "a")), 100);
    }

    #[test]
    fn what_only_lies_there_is_not_committed() {
        let mut shelf = shelf();
        (10..14).for_each(|offset| put(&mut shelf, NORMAL, offset));
        assert_eq!(shelf.uncommitted(), []);
        assert_eq!(shelf.take(2).len(), 2);
        assert_eq!(shelf.uncommitted(), [(NORMAL, 12)]);
        shelf.committed(&[(NORMAL, 12)]);
        assert_eq!(shelf.uncommitted(), []);
        assert_eq!(shelf.take(9).len(), 2);
        assert_eq!(shelf.uncommitted(), [(NORMAL, 14)]);
    }

    #[test]
    fn what_makes_no_sense_is_committed_with_what_is_before_it() {
        let mut shelf = shelf();
        shelf.put(NORMAL, 0, None, 9);
        assert_eq!(shelf.uncommitted(), [(NORMAL, 1)]);
        put(&mut shelf, NORMAL, 1);
        shelf.put(NORMAL, 2, None, 9);
        assert_eq!(shelf.uncommitted(), [(NORMAL, 1)]);
        shelf.take(1);
        assert_eq!(shelf.uncommitted(), [(NORMAL, 3)]);
    }

    #[test]
    fn what_is_not_ours_any_more_is_neither_given_out_nor_committed() {
        let mut shelf = shelf();
        put(&mut shelf, NORMAL, 5);
        put(&mut shelf, HIGH, 7);
        shelf.take(1);
        shelf.revoke(HIGH);
        shelf.revoke(NORMAL);
        put(&mut shelf, NORMAL, 6);
        assert_eq!(shelf.take(9), []);
        assert_eq!(shelf.uncommitted(), []);
        assert_eq!(shelf.bytes, [0; 3]);
    }

    #[test]
    fn a_lane_has_room_for_so_many_records_and_bytes() {
        let mut shelf = shelf();
        let mut offset = 0;
        while shelf.has_room(Lane::Normal) {
            put(&mut shelf, NORMAL, offset);
            offset += 1;
        }
        assert_eq!(offset, 256);
        assert!(shelf.has_room(Lane::High));
        shelf.put(HIGH, 0, Some(claim(1, "a")), LANE_BYTES_MAX);
        assert!(!shelf.has_room(Lane::High));
        shelf.take(1);
        assert!(shelf.has_room(Lane::High));
    }
}
