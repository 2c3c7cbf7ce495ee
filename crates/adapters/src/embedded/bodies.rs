use std::collections::VecDeque;

use super::rows::MessageRow;

/// What an entry costs beside its body.
const ENTRY_BYTES: usize = 160;

/// The youngest messages in memory, so that what is claimed soon after its admission needs no read. Bounded
/// in bytes; the oldest go first.
#[derive(Debug)]
pub(super) struct Bodies {
    /// By ascending sequence number. `None`: already settled.
    kept: VecDeque<(u64, Option<MessageRow>)>,
    bytes: usize,
    bytes_max: usize,
}

impl Bodies {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(super) fn insert(&mut self, message: MessageRow) {
        self.bytes += ENTRY_BYTES + message.body.len();
        self.kept.push_back((message.seq, Some(message)));
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.kept.pop_front() else { return };
            self.bytes -= size(oldest.as_ref());
        }
    }

    pub(super) fn get(&self, seq: u64) -> Option<&MessageRow> {
        self.kept.get(self.index(seq)?)?.1.as_ref()
    }

    pub(super) fn remove(&mut self, seq: u64) {
        let Some(index) = self.index(seq) else { return };
        if let Some((_, kept)) = self.kept.get_mut(index)
            && let Some(message) = kept.take()
        {
            self.bytes -= message.body.len();
        }
        while self.kept.front().is_some_and(|(_, kept)| kept.is_none()) {
            self.kept.pop_front();
            self.bytes -= ENTRY_BYTES;
        }
    }

    fn index(&self, seq: u64) -> Option<usize> {
        self.kept.binary_search_by_key(&seq, |(seq, _)| *seq).ok()
    }
}

fn size(kept: Option<&MessageRow>) -> usize {
    ENTRY_BYTES + kept.map_or(0, |message| message.body.len())
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
        let mut bodies = Bodies::new(3 * (ENTRY_BYTES + 100));
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
        assert_eq!((bodies.bytes, bodies.kept.len()), (0, 0));
    }
}
