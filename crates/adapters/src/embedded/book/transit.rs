//! Messages on their way to a sender: leased, and no attempt begun.

use tidegate_domain::{Begun, Extension, QueueName, Timestamp};

use super::{Book, Leased};

impl Book {
    /// Leases up to `max` messages of a queue, in transit, as long as there is room there.
    pub(in crate::embedded) fn dispatch(
        &mut self,
        queue: &QueueName,
        max: usize,
        lease_ms: u64,
        in_transit_max: usize,
        now: Timestamp,
    ) -> Vec<Leased> {
        let max = max.min(self.room_in_transit(queue, in_transit_max));
        self.lease(queue, max, lease_ms, true, now)
    }

    /// How many more of a queue's messages may be in transit.
    pub(in crate::embedded) fn room_in_transit(&self, queue: &QueueName, in_transit_max: usize) -> usize {
        let queue = self.queues.id(queue).and_then(|id| self.queues.get(id));
        in_transit_max.saturating_sub(queue.map_or(0, |queue| queue.in_transit))
    }

    /// Needs no disk: a crash voids leases anyway, and what they would have spent.
    pub(in crate::embedded) fn begin_attempt(&mut self, extension: &Extension, now: Timestamp) -> Begun {
        let seq = extension.id.seq();
        let current = self.current_lease(extension.id, extension.token, now);
        if !current.is_some_and(|lease| lease.in_transit) {
            return Begun::LostLease;
        }
        let (token, until) = (self.take_token(), now.plus_ms(extension.lease_ms));
        let Some(lease) = self.leases.get_mut(&seq) else { return Begun::LostLease };
        lease.token = token;
        lease.in_transit = false;
        let before = std::mem::replace(&mut lease.until, until);
        let slot = lease.slot;
        self.leases_by_end.remove(&(before, seq));
        self.leases_by_end.insert((until, seq));
        let queue = self.line.entry(slot).queue;
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.in_transit -= 1;
        }
        Begun::Begun { token, lease_until: until }
    }
}
