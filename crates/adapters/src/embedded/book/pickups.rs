//! What is leased to recipients that are here just now.

use tidegate_domain::{PickUp, QueueName, Timestamp};

use super::super::line::First;
use super::{Book, Leased};

impl Book {
    pub(in crate::embedded) fn pick_up(&mut self, request: &PickUp, now: Timestamp) -> Vec<Leased> {
        let queue = self.queues.id(&request.queue);
        let Some(queue) = queue.filter(|queue| self.queues.hands_out(*queue)) else {
            return Vec::new();
        };
        let first =
            |recipient: &tidegate_domain::Recipient| self.line.first_of(queue, recipient.as_str(), now);
        let mut firsts: Vec<First> = request.recipients.iter().filter_map(first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        let (mut leased, mut bytes) = (Vec::new(), 0);
        for First { slot, .. } in firsts.into_iter().take(request.max) {
            bytes += self.line.entry(slot).body_bytes as usize;
            if bytes > self.batch_bytes_max && !leased.is_empty() {
                break;
            }
            if self.line.take_head(slot, now) {
                leased.push(self.lease_taken(slot, queue, request.lease_ms, false, now));
            }
        }
        leased
    }

    /// A queue that there is not yet has not stirred.
    pub(in crate::embedded) fn stirs(&self, queue: &QueueName) -> u64 {
        self.queues.id(queue).map_or(0, |queue| self.line.stirs(queue))
    }
}
