use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use rusqlite::Connection;

use super::store::read::{self, StoredMessage};

const TEXTS_MAX: usize = 1_024;
const BYTES_MAX: usize = 8 << 20;

/// Texts of a backlog, read from disk while those before them are being delivered.
///
/// They serve first attempts only: a text changes when a dead letter is edited and requeued, and that one has had its
/// attempts.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    texts: Mutex<HashMap<u64, StoredMessage>>,
    reading: AtomicBool,
    /// What is being read may have been deleted meanwhile.
    outdated: AtomicBool,
}

impl Ahead {
    pub(super) fn take(&self, seqs: impl Iterator<Item = u64>) -> HashMap<u64, StoredMessage> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.is_empty() {
            return HashMap::new();
        }
        seqs.filter_map(|seq| texts.remove_entry(&seq)).collect()
    }

    /// What is worth being read now, if anything: half of the upcoming must be missing, and nobody else reading.
    /// Whoever gets something calls [`Ahead::put`].
    pub(super) fn wanted(&self, mut upcoming: Vec<u64>) -> Option<Vec<u64>> {
        let count = upcoming.len();
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        upcoming.retain(|seq| !texts.contains_key(seq));
        drop(texts);
        upcoming.sort_unstable();
        let worthwhile = !upcoming.is_empty() && upcoming.len() * 2 >= count;
        (worthwhile && !self.reading.swap(true, Ordering::Relaxed)).then_some(upcoming)
    }

    /// Keeps nothing of deleted messages. Which ones there were is not worth the look.
    pub(super) fn forget(&self) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.clear();
        self.outdated.store(self.reading.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) fn put(&self, mut found: Vec<StoredMessage>) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if self.outdated.swap(false, Ordering::Relaxed) {
            found.clear();
        }
        let kept: usize = texts.values().map(size).sum();
        let more: usize = found.iter().map(size).sum();
        // What is left over was withdrawn, or is served by somebody else.
        if texts.len() + found.len() > TEXTS_MAX || kept + more > BYTES_MAX {
            texts.clear();
        }
        let mut room = BYTES_MAX.saturating_sub(texts.values().map(size).sum());
        for stored in found.into_iter().take(TEXTS_MAX) {
            let Some(left) = room.checked_sub(size(&stored)) else { break };
            room = left;
            texts.insert(stored.row.seq, stored);
        }
        drop(texts);
        self.reading.store(false, Ordering::Relaxed);
    }
}

/// Reads as many as may be kept.
pub(super) fn read(db: &Connection, seqs: &[u64]) -> rusqlite::Result<Vec<StoredMessage>> {
    read::messages_within(db, seqs, BYTES_MAX)
}

fn size(stored: &StoredMessage) -> usize {
    stored.row.text_bytes()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_domain::{Lane, Timestamp};

    use super::super::rows::MessageRow;
    use super::*;

    fn stored(seq: u64, body_bytes: usize) -> StoredMessage {
        let row = MessageRow {
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
        };
        StoredMessage { row, head_sound: true, body_sound: true }
    }

    #[test]
    fn a_text_is_read_once_and_served_once() {
        let ahead = Ahead::default();
        assert_eq!(ahead.wanted(vec![3, 1, 2]), Some(vec![1, 2, 3]));
        assert_eq!(ahead.wanted(vec![1, 2, 3]), None, "somebody is reading");
        ahead.put(vec![stored(1, 9), stored(2, 9)]);
        assert_eq!(ahead.wanted(vec![1, 2, 3]), None, "most of it is there");
        assert_eq!(ahead.take([2, 7].into_iter()).len(), 1);
        assert_eq!(ahead.take([2, 7].into_iter()).len(), 0);
        assert_eq!(ahead.wanted(vec![1, 2, 3]), Some(vec![2, 3]));
    }

    #[test]
    fn texts_are_bounded_in_number_and_in_bytes() {
        let ahead = Ahead::default();
        for first in (0..10_000).step_by(300) {
            ahead.put((first..first + 300).map(|seq| stored(seq, 0)).collect());
            assert!(ahead.texts.lock().unwrap().len() <= TEXTS_MAX);
        }
        let ahead = Ahead::default();
        ahead.put((0..10).map(|seq| stored(seq, BYTES_MAX / 4)).collect());
        assert_eq!(ahead.take(0..10).len(), 4);
    }

    #[test]
    fn texts_that_nobody_came_for_make_room() {
        let ahead = Ahead::default();
        ahead.put((0..4).map(|seq| stored(seq, BYTES_MAX / 4)).collect());
        ahead.put(vec![stored(100, 9), stored(101, 9)]);
        assert_eq!(ahead.take(100..102).len(), 2);
    }

    #[test]
    fn what_is_read_while_something_is_deleted_is_not_kept() {
        let ahead = Ahead::default();
        ahead.put(vec![stored(1, 9)]);
        assert!(ahead.wanted(vec![2]).is_some());
        ahead.forget();
        ahead.put(vec![stored(2, 9)]);
        assert!(ahead.take(1..3).is_empty());
        assert!(ahead.wanted(vec![3]).is_some());
        ahead.put(vec![stored(3, 9)]);
        assert_eq!(ahead.take(1..4).len(), 1);
    }

    #[test]
    fn headers_count_as_well_as_bodies() {
        let ahead = Ahead::default();
        let mut loud = stored(1, 0);
        loud.row.headers = tidegate_domain::Headers(vec![("name".into(), "v".repeat(BYTES_MAX))]);
        ahead.put(vec![loud]);
        assert!(ahead.take(1..2).is_empty());
    }
}
