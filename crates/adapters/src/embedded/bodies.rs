use std::collections::VecDeque;

use super::rows::MessageRow;
use super::seqs::Seqs;

/// What a message costs beside its texts: its entry, its share of the page that finds it, and what the allocator adds to
/// the body.
const ENTRY_BYTES: usize = size_of::<Option<MessageRow>>() + 2 * size_of::<u32>() + 16;
/// What is left of it when it is settled.
const ORDER_BYTES: usize = size_of::<u64>();
/// Room for so many entries is kept when there are none.
const KEPT_MIN: usize = 1_024;

/// The youngest messages in memory, so that what is claimed soon after its admission needs no read. Bounded
/// in bytes; the oldest go first.
#[derive(Debug)]
pub(super) struct Bodies {
    /// A place that was given up last is taken first: it is still in the processor's cache.
    kept: Vec<Option<MessageRow>>,
    free: Vec<u32>,
    places: Seqs,
    /// Sequence numbers, ascending; some of their messages are settled already.
    order: VecDeque<u64>,
    bytes: usize,
    bytes_max: usize,
}

impl Bodies {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            kept: Vec::new(),
            free: Vec::new(),
            places: Seqs::default(),
            order: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn insert(&mut self, mut message: MessageRow) {
        let seq = message.seq;
        // On disk, and in the table of keys.
        message.idempotency = None;
        self.bytes += ORDER_BYTES + size(&message);
        let place = match self.free.pop() {
            Some(place) => {
                self.kept[place as usize] = Some(message);
                place
            }
            None => {
                self.kept.push(Some(message));
                place_of(self.kept.len() - 1)
            }
        };
        self.places.insert(seq, place);
        self.order.push_back(seq);
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= ORDER_BYTES;
            self.give_up(oldest);
        }
    }

    pub(super) fn get(&self, seq: u64) -> Option<&MessageRow> {
        self.kept[self.places.get(seq)? as usize].as_ref()
    }

    pub(super) fn remove(&mut self, seq: u64) {
        self.give_up(seq);
        while self.order.front().is_some_and(|oldest| self.places.get(*oldest).is_none()) {
            self.order.pop_front();
            self.bytes -= ORDER_BYTES;
        }
    }

    /// Gives back the memory of entries that are gone, when all of them are.
    pub(super) fn trim(&mut self) {
        if self.places.len() == 0 && self.kept.len() > KEPT_MIN {
            *self = Self::new(self.bytes_max);
        }
    }

    fn give_up(&mut self, seq: u64) {
        let Some(place) = self.places.remove(seq) else { return };
        if let Some(message) = self.kept[place as usize].take() {
            self.bytes -= size(&message);
        }
        self.free.push(place);
    }
}

fn size(message: &MessageRow) -> usize {
    ENTRY_BYTES + message.text_bytes()
}

#[expect(clippy::cast_possible_truncation, reason = "each takes ENTRY_BYTES of a bound in bytes")]
fn place_of(index: usize) -> u32 {
    index as u32
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_domain::{Lane, Timestamp};

    use super::*;

    fn message(seq: u64, body_bytes: usize) -> MessageRow {
        MessageRow {
            seq,
            at: Timestamp::from_millis(0),
            queue: 0,
            lane: Lane::Normal,
            due: Timestamp::from_millis(0),
            recipient: None,
            charge: None,
            idempotency: None,
            expires: None,
            headers: tidegate_domain::Headers::default(),
            ack_required: false,
            body: Bytes::from(vec![0; body_bytes]),
        }
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let mut bodies = Bodies::new(3 * (ENTRY_BYTES + ORDER_BYTES + 100));
        for seq in 1..=4 {
            bodies.insert(message(seq, 100));
        }
        assert!(bodies.get(1).is_none());
        assert!((2..=4).all(|seq| bodies.get(seq).is_some()));
    }

    #[test]
    fn settled_ones_give_their_room_back() {
        let mut bodies = Bodies::new(10_000);
        for seq in [1, 5, 9] {
            bodies.insert(message(seq, 100));
        }
        bodies.remove(5);
        assert!(bodies.get(5).is_none() && bodies.get(9).is_some());
        bodies.remove(1);
        bodies.remove(9);
        bodies.remove(9);
        assert_eq!((bodies.bytes, bodies.order.len(), bodies.kept.len()), (0, 0, 3));
        bodies.insert(message(12, 100));
        assert_eq!(bodies.kept.len(), 3);
    }

    #[test]
    fn the_room_of_many_entries_is_given_back_when_all_are_gone() {
        let mut bodies = Bodies::new(usize::MAX);
        let count = 2 * KEPT_MIN as u64;
        (1..=count).for_each(|seq| bodies.insert(message(seq, 0)));
        (1..count).for_each(|seq| bodies.remove(seq));
        bodies.trim();
        assert!(bodies.get(count).is_some() && bodies.kept.capacity() > KEPT_MIN);
        bodies.remove(count);
        bodies.trim();
        assert_eq!((bodies.kept.capacity(), bodies.free.capacity(), bodies.order.capacity()), (0, 0, 0));
        bodies.insert(message(count + 1, 0));
        assert!(bodies.get(count + 1).is_some());
    }

    #[test]
    fn whatever_a_message_brings_along_is_counted() {
        let mut bodies = Bodies::new(10_000);
        let mut loud = message(1, 100);
        loud.headers = tidegate_domain::Headers(vec![("name".into(), "v".repeat(10_000))]);
        let mut addressed = message(2, 0);
        addressed.recipient = Some(tidegate_domain::Recipient::new(&"r".repeat(200)).unwrap());
        bodies.insert(addressed);
        assert_eq!(bodies.bytes, ENTRY_BYTES + ORDER_BYTES + 200);
        bodies.insert(loud);
        assert!(bodies.get(1).is_none() && bodies.get(2).is_none());
        assert_eq!(bodies.bytes, 0);
    }
}
