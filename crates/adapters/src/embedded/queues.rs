use hashbrown::HashMap;
use tidegate_domain::{Lane, Order, QueueName, QueueRule};

use super::rows::QueueRow;

const QUEUES_MAX: usize = 4_096;

/// How queues are to be kept, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueRules {
    pub(super) by_name: HashMap<QueueName, QueueRule>,
    pub(super) otherwise: QueueRule,
}

/// The queues there are. A queue comes into being with its first message, or when it is paused before, and stays.
#[derive(Debug)]
pub(super) struct QueueBook {
    queues: Vec<Queue>,
    ids: HashMap<QueueName, u16>,
    rules: QueueRules,
    /// How many of them are on disk as they are here.
    saved: usize,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) name: QueueName,
    pub(super) rule: QueueRule,
    pub(super) paused: bool,
    pub(super) leased: u64,
    /// Of the leased ones: on their way to a sender.
    pub(super) in_transit: usize,
    /// So many wait whose texts are on disk only that those of newcomers would be gone from memory too by their
    /// turn. They are left out of it, and read when their turn comes.
    pub(super) backlog: bool,
}

impl QueueBook {
    pub(super) fn new(rules: QueueRules) -> Self {
        Self { queues: Vec::new(), ids: HashMap::new(), rules, saved: 0 }
    }

    pub(super) fn id(&self, name: &QueueName) -> Option<u16> {
        self.ids.get(name).copied()
    }

    pub(super) fn get(&self, id: u16) -> Option<&Queue> {
        self.queues.get(usize::from(id))
    }

    pub(super) fn get_mut(&mut self, id: u16) -> Option<&mut Queue> {
        self.queues.get_mut(usize::from(id))
    }

    /// Whether there is such a queue, and it is not paused.
    pub(super) fn hands_out(&self, id: u16) -> bool {
        self.get(id).is_some_and(|queue| !queue.paused)
    }

    /// Whether a newcomer's text is worth keeping in memory.
    pub(super) fn is_soon(&self, id: u16, lane: Lane) -> bool {
        lane == Lane::High || self.get(id).is_none_or(|queue| !queue.backlog)
    }

    pub(super) fn rule(&self, id: u16) -> QueueRule {
        self.get(id).map(|queue| queue.rule).unwrap_or_default()
    }

    pub(super) fn is_strict(&self, id: u16) -> bool {
        self.get(id).is_none_or(|queue| queue.rule.order == Order::Strict)
    }

    pub(super) fn is_configured(&self, name: &QueueName) -> bool {
        self.rules.by_name.contains_key(name)
    }

    /// Whether there is, or could be, a queue of that name. Those of the settings always have a place.
    pub(super) fn has_place_for(&self, name: &QueueName) -> bool {
        let configured = self.is_configured(name) && self.queues.len() < usize::from(u16::MAX);
        self.queues.len() < QUEUES_MAX || configured || self.ids.contains_key(name)
    }

    pub(super) fn lets_in(&self, name: &QueueName, pending: u64, lane: Lane) -> bool {
        self.rules.by_name.get(name).unwrap_or(&self.rules.otherwise).lets_in(pending, lane)
    }

    pub(super) fn add(&mut self, name: QueueName) -> u16 {
        self.push(name, false)
    }

    /// Takes back the newest one: the message that made it was not kept.
    pub(super) fn undo_add(&mut self) {
        if let Some(queue) = self.queues.pop() {
            self.ids.remove(&queue.name);
        }
    }

    pub(super) fn restore(&mut self, row: QueueRow) -> bool {
        let id = self.push(row.name, row.paused);
        self.saved = self.queues.len();
        id == row.id
    }

    /// The queues that are not on disk yet.
    pub(super) fn unsaved(&self) -> impl Iterator<Item = QueueRow> {
        let row = |(id, queue): (usize, &Queue)| QueueRow {
            id: queue_id(id),
            name: queue.name.clone(),
            paused: queue.paused,
        };
        self.queues.iter().enumerate().skip(self.saved).map(row)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u16, &Queue)> {
        self.queues.iter().enumerate().map(|(id, queue)| (queue_id(id), queue))
    }

    pub(super) fn saved(&mut self) {
        self.saved = self.queues.len();
    }

    fn push(&mut self, name: QueueName, paused: bool) -> u16 {
        let id = queue_id(self.queues.len());
        let rule = self.rules.by_name.get(&name).copied().unwrap_or(self.rules.otherwise);
        self.ids.insert(name.clone(), id);
        self.queues.push(Queue { name, rule, paused, leased: 0, in_transit: 0, backlog: false });
        id
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bounded by has_place_for")]
fn queue_id(index: usize) -> u16 {
    index as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_the_settings_have_a_place_whatever_others_there_are() {
        let name = |text: &str| QueueName::new(text).unwrap();
        let by_name = [(name("sms"), QueueRule::default())].into_iter().collect();
        let mut book = QueueBook::new(QueueRules { by_name, otherwise: QueueRule::default() });
        for n in 0..QUEUES_MAX {
            assert!(book.has_place_for(&name(&format!("q{n}"))));
            book.add(name(&format!("q{n}")));
        }
        assert!(!book.has_place_for(&name("one-too-many")));
        assert!(book.has_place_for(&name("q7")) && book.has_place_for(&name("sms")));
    }
}
