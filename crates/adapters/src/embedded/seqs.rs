use hashbrown::HashMap;

/// Sequence numbers of one page.
const PAGE: usize = 64;
const NONE: u32 = u32::MAX;

/// Where the message of a sequence number is kept, for very many of them.
///
/// What is admitted together is settled together, so neighbours share a page: a plain hash table would send every
/// one of them to another corner of memory. The worst that a single number costs is a page of its own, 300 bytes.
#[derive(Debug, Default)]
pub(super) struct Seqs {
    pages: HashMap<u64, Page>,
    len: usize,
}

#[derive(Debug)]
struct Page {
    places: Box<[u32; PAGE]>,
    used: usize,
}

impl Seqs {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, seq: u64) -> Option<u32> {
        let (page, within) = page_of(seq);
        let place = self.pages.get(&page)?.places[within];
        (place != NONE).then_some(place)
    }

    /// The number must not be there, and `u32::MAX` is no place.
    pub(super) fn insert(&mut self, seq: u64, place: u32) {
        let (page, within) = page_of(seq);
        let page = self.pages.entry(page).or_insert_with(|| Page { places: Box::new([NONE; PAGE]), used: 0 });
        page.places[within] = place;
        page.used += 1;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, seq: u64) -> Option<u32> {
        let (number, within) = page_of(seq);
        let page = self.pages.get_mut(&number)?;
        let place = std::mem::replace(&mut page.places[within], NONE);
        if place == NONE {
            return None;
        }
        page.used -= 1;
        if page.used == 0 {
            self.pages.remove(&number);
        }
        self.len -= 1;
        Some(place)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than PAGE")]
fn page_of(seq: u64) -> (u64, usize) {
    (seq / PAGE as u64, (seq % PAGE as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_and_go_and_leave_no_pages() {
        let mut seqs = Seqs::default();
        let all: Vec<u64> = (0..1_000).chain((5_000..9_000_000).step_by(99_991)).collect();
        for (place, seq) in all.iter().enumerate() {
            seqs.insert(*seq, u32::try_from(place).unwrap());
        }
        assert_eq!(seqs.len(), all.len());
        for (place, seq) in all.iter().enumerate().step_by(2) {
            assert_eq!(seqs.remove(*seq), u32::try_from(place).ok());
            assert_eq!((seqs.remove(*seq), seqs.get(*seq)), (None, None));
        }
        for (place, seq) in all.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(seqs.get(*seq), u32::try_from(place).ok());
            seqs.remove(*seq);
        }
        assert_eq!((seqs.len(), seqs.pages.len(), seqs.get(4_000)), (0, 0, None));
    }
}
