//! Taking messages out of the line before it is certain that they stay out.

use tidegate_domain::{Lane, Timestamp};

use super::{Arrival, Line, NONE, Slot, Tries, Turn};

/// A message that has left the line, with all that it takes to put it back.
#[derive(Debug)]
pub(in crate::embedded) struct Plucked {
    seq: u64,
    queue: u32,
    lane: Lane,
    due: Timestamp,
    expires: Timestamp,
    tries: Tries,
    body_bytes: u32,
    /// Its chain's, if it stood in one.
    hash: Option<u64>,
}

impl Line {
    /// A taken message leaves; the next of its recipient steps forward and may be taken too.
    pub(in crate::embedded) fn pluck(&mut self, slot: Slot) -> Plucked {
        let entry = &self.entries[slot as usize];
        let chain = self.chains.get(entry.chain as usize).filter(|_| entry.chain != NONE);
        let plucked = Plucked {
            seq: entry.seq,
            queue: entry.queue,
            lane: entry.lane,
            due: entry.due,
            expires: entry.expires,
            tries: entry.tries,
            body_bytes: entry.body_bytes,
            hash: chain.map(|chain| chain.hash),
        };
        self.remove(slot);
        plucked
    }

    /// Undoes a pluck: the message is the head of its chain again, and claimable. The last plucked goes first.
    pub(in crate::embedded) fn put_back(&mut self, plucked: &Plucked) {
        let slot = self.enter(&Arrival {
            seq: plucked.seq,
            queue: plucked.queue,
            lane: plucked.lane,
            due: plucked.due,
            recipient: None,
            expires: Some(plucked.expires).filter(|expires| *expires != Timestamp::MAX),
            tries: plucked.tries,
            body_bytes: plucked.body_bytes,
        });
        if let Some(hash) = plucked.hash {
            let chains = &self.chains;
            let found = self.by_recipient.find(hash, |&chain| chains[chain as usize].hash == hash).copied();
            let chain = match found {
                Some(chain) => self.prepend(chain, slot),
                None => self.new_chain(hash, slot, plucked.lane),
            };
            self.entries[slot as usize].chain = chain;
        }
        self.offer(slot);
    }

    pub(in crate::embedded) fn turn(&self, queue: u32) -> Turn {
        self.queues.get(&queue).map(|lanes| lanes.turn).unwrap_or_default()
    }

    pub(in crate::embedded) fn set_turn(&mut self, queue: u32, turn: Turn) {
        if let Some(lanes) = self.queues.get_mut(&queue) {
            lanes.turn = turn;
        }
    }

    /// Puts a message before the head of a chain, which nobody has taken.
    fn prepend(&mut self, chain: u32, slot: Slot) -> u32 {
        let head = self.chains[chain as usize].head;
        let effective = self.effective_lane(head);
        let behind = &mut self.entries[head as usize];
        behind.prev = slot;
        let (key, queue) = ((behind.due, behind.seq, head), behind.queue);
        self.lanes(queue).heads[effective.index()].remove(&key);
        let entry = &mut self.entries[slot as usize];
        entry.next = head;
        let lane = entry.lane;
        let of = &mut self.chains[chain as usize];
        of.head = slot;
        of.waiting[lane.index()] += 1;
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    /// Three chains and two messages for themselves, in all lanes; one of a chain is not due, and some expire.
    fn line() -> Line {
        let mut line = Line::new();
        let all = [
            (Some("ann"), Lane::Low, 5),
            (None, Lane::Normal, 5),
            (Some("bob"), Lane::Normal, 4),
            (Some("ann"), Lane::High, 6),
            (Some("ann"), Lane::Normal, 3),
            (Some("cyd"), Lane::Low, 9),
            (Some("bob"), Lane::Low, 2_000),
            (None, Lane::High, 8),
            (Some("cyd"), Lane::Low, 1),
        ];
        for (seq, (recipient, lane, due)) in (1..).zip(all) {
            let due = Timestamp::from_millis(due);
            let expires = (seq % 2 == 0).then_some(NOW.plus_ms(seq));
            let (tries, body_bytes) = (Tries::default(), 0);
            line.push(&Arrival { seq, queue: 0, lane, due, recipient, expires, tries, body_bytes });
        }
        line
    }

    fn taken(line: &mut Line, max: usize) -> Vec<(u64, Plucked)> {
        let mut all = Vec::new();
        while all.len() < max
            && let Some(slot) = line.take(0, 10, NOW)
        {
            all.push((line.entry(slot).seq, line.pluck(slot)));
        }
        all
    }

    fn order(plucked: &[(u64, Plucked)]) -> Vec<u64> {
        plucked.iter().map(|(seq, _)| *seq).collect()
    }

    #[test]
    fn put_back_they_stand_where_they_stood() {
        let expected = order(&taken(&mut line(), usize::MAX));
        assert_eq!(expected.len(), 8);
        for count in 0..=expected.len() {
            let mut line = line();
            let (depth, turn) = (line.depth(), line.turn(0));
            let plucked = taken(&mut line, count);
            assert_eq!(order(&plucked), expected[..count]);
            plucked.iter().rev().for_each(|(_, plucked)| line.put_back(plucked));
            line.set_turn(0, turn);
            assert_eq!((line.depth(), line.len()), (depth, 9));
            assert_eq!(line.expired(Timestamp::MAX).collect::<Vec<_>>(), [2, 4, 6, 8]);
            assert_eq!(order(&taken(&mut line, usize::MAX)), expected, "after {count} put back");
        }
    }
}
