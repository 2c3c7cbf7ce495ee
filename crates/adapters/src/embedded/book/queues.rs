//! Which queues there are.

use tidegate_domain::{QueueCounts, QueueName, Timestamp};

use super::super::queues::Queue;
use super::super::rows::QueueRow;
use super::{Book, Group, Undo};

impl Book {
    /// False when there is no such queue, neither here nor in the settings.
    pub(in crate::embedded) fn pause(&mut self, name: &QueueName, paused: bool, group: &mut Group) -> bool {
        let known = self.queues.id(name).or_else(|| {
            let made = self.queues.is_configured(name) && self.queues.has_place_for(name);
            made.then(|| self.make_queue(name.clone(), group))
        });
        let Some((id, queue)) = known.and_then(|id| Some((id, self.queues.get_mut(id)?))) else {
            return false;
        };
        let before = std::mem::replace(&mut queue.paused, paused);
        group.undo.push(Undo::Paused(id, before));
        group.queues_changed.push(QueueRow { id, name: name.clone(), paused, live: true });
        self.line.stir(id);
        true
    }

    pub(super) fn make_queue(&mut self, name: QueueName, group: &mut Group) -> u32 {
        let (id, changed) = self.queues.add(name);
        group.undo.push(Undo::QueueMade(id));
        group.queues_changed.extend(changed);
        id
    }

    /// Queues that were idle for long enough go. What has ended in them is still found under their names.
    pub(in crate::embedded) fn forget_queues(&mut self, now: Timestamp, group: &mut Group) {
        let line = &self.line;
        let is_empty = |id| line.depth_of(id) == [0; 3];
        for id in self.queues.idle(self.queue_forget_after_ms, now, is_empty) {
            let Some(queue) = self.queues.forget(id) else { continue };
            self.line.forget(id);
            let name = queue.name.clone();
            group.queues_changed.push(QueueRow { id, name, paused: false, live: false });
            group.undo.push(Undo::QueueForgotten(id, Box::new(queue)));
        }
    }

    pub(in crate::embedded) fn queue_counts(&self) -> Vec<QueueCounts> {
        let counts = |(id, queue): (u32, &Queue)| QueueCounts {
            queue: queue.name.clone(),
            paused: queue.paused,
            depth: self.line.depth_of(id),
            leased: queue.leased,
        };
        let mut all: Vec<_> = self.queues.all().map(counts).collect();
        all.sort_by(|a, b| a.queue.cmp(&b.queue));
        all
    }
}
