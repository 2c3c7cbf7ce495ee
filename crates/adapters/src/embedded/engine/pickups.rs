use tidegate_domain::{PickUp, QueueName};

use super::super::store::StoreError;
use super::{Claimed, Engine, with_text};

impl Engine {
    /// Texts that are not in memory are read by those who asked; what other recipients will want is not foreseen.
    pub(in crate::embedded) fn pick_up(&mut self, request: &PickUp) -> Result<Claimed, StoreError> {
        let now = self.clock.now();
        self.end_leases(now)?;
        self.expire_messages(now)?;
        let leased = self.book.pick_up(request, now);
        let rows = leased.into_iter().map(|leased| with_text(&self.book, leased)).collect();
        Ok(Claimed { rows, upcoming: Vec::new() })
    }

    pub(in crate::embedded) fn stirs(&self, queue: &QueueName) -> u64 {
        self.book.stirs(queue)
    }
}
