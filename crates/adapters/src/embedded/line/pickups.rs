//! The first messages of certain recipients.

use std::hash::BuildHasher as _;

use tidegate_domain::{Lane, Timestamp};

use super::{Line, Slot};

/// In the order in which they are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::embedded) struct First {
    lane: Lane,
    due: Timestamp,
    seq: u64,
    pub(in crate::embedded) slot: Slot,
}

impl Line {
    /// The first message of a recipient's chain, if it could be chosen now. Of two recipients whose hashes collide either
    /// may be the other's: those who hand it out look at the name on it.
    pub(in crate::embedded) fn first_of(&self, queue: u32, recipient: &str, now: Timestamp) -> Option<First> {
        let hash = self.hasher.hash_one((queue, recipient));
        let chain = self.by_recipient.find(hash, |&chain| self.chains[chain as usize].hash == hash)?;
        let chain = &self.chains[*chain as usize];
        let head = self.entry(chain.head);
        let claimable = !chain.taken && head.due <= now && head.expires > now;
        let lane = || self.effective_lane(chain.head);
        claimable.then(|| First { lane: lane(), due: head.due, seq: head.seq, slot: chain.head })
    }

    /// How often a message of the queue has become a head.
    pub(in crate::embedded) fn stirs(&self, queue: u32) -> u64 {
        self.queues.get(&queue).map_or(0, |lanes| lanes.stirs)
    }

    pub(in crate::embedded) fn stir(&mut self, queue: u32) {
        if let Some(lanes) = self.queues.get_mut(&queue) {
            lanes.stirs += 1;
        }
    }
}
