use std::collections::{BTreeMap, BTreeSet};

use tidegate_domain::{MessageId, QueueName, QueueRule, Timestamp};

use super::rules::Rules;

/// Which queues have been empty and unused for how long.
#[derive(Debug, Default)]
pub struct Idle {
    /// What was pending at the last look.
    pending: BTreeSet<(QueueName, MessageId)>,
    /// Queues that a message has come to or gone from since the last sweep.
    used: BTreeSet<QueueName>,
    since: BTreeMap<QueueName, Timestamp>,
    forgotten: BTreeSet<QueueName>,
    looked: Option<Timestamp>,
}

impl Idle {
    /// How long a queue has been idle is not remembered.
    pub fn restart(&mut self) {
        self.since.clear();
        self.looked = None;
    }
}

impl Rules {
    /// Every queue there is, in order.
    pub(super) fn queue_names(&self) -> BTreeSet<QueueName> {
        let all = self.rows.iter().map(|row| &row.record.queue).chain(&self.met);
        all.filter(|name| !self.idle.forgotten.contains(*name)).cloned().collect()
    }

    pub(super) fn note_use(&mut self) {
        let pending = self.rows.iter().filter(|row| row.is_pending());
        let pending: BTreeSet<_> = pending.map(|row| (row.record.queue.clone(), row.record.id)).collect();
        for (queue, _) in pending.symmetric_difference(&self.idle.pending) {
            self.idle.used.insert(queue.clone());
            self.idle.forgotten.remove(queue);
        }
        self.idle.pending = pending;
    }

    pub(super) fn forget_queues(&mut self, now: Timestamp, after_ms: u64) {
        if self.idle.looked.is_some_and(|looked| now.since_ms(looked) < QueueRule::LOOK_MS) {
            return;
        }
        self.idle.looked = Some(now);
        self.note_use();
        for name in self.queue_names() {
            let kept = self.paused.contains(&name)
                || self.queue_rules.iter().any(|(named, _)| *named == name)
                || self.idle.pending.iter().any(|(queue, _)| *queue == name);
            let used = self.idle.used.remove(&name);
            match self.idle.since.get(&name) {
                Some(since) if !kept && !used => {
                    if now.since_ms(*since) >= after_ms {
                        self.turns.retain(|turn| turn.queue != name);
                        self.idle.since.remove(&name);
                        self.idle.forgotten.insert(name);
                    }
                }
                _ => drop(self.idle.since.insert(name, now)),
            }
        }
    }
}
