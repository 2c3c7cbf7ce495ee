use hashbrown::HashMap;
use tidegate_domain::{Lane, Order, QueueName, QueueRule, Timestamp};

use super::rows::QueueRow;

const QUEUES_MAX: usize = 4_096;

/// How queues are to be kept, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueRules {
    pub(super) by_name: HashMap<QueueName, QueueRule>,
    pub(super) otherwise: QueueRule,
}

/// The queues there are. A queue comes into being with its first message, or when it is paused before. It is forgotten when
/// it was empty for long enough and the settings don't name it.
///
/// Numbers are not given out again while a message on disk has them: a forgotten queue keeps its number and name there, and
/// gets the same number when it comes back.
#[derive(Debug)]
pub(super) struct QueueBook {
    queues: HashMap<u32, Queue>,
    ids: HashMap<QueueName, u32>,
    rules: QueueRules,
    /// Those that are not on disk yet.
    unsaved: Vec<u32>,
    /// Forgotten ones that changes of the group in the making name.
    recalled: HashMap<QueueName, u32>,
    id_next: u32,
    /// When it was last looked which of them are idle.
    looked: Timestamp,
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
    /// A message has come or gone since the last look at whether it is to be forgotten.
    used: bool,
    idle_since: Timestamp,
}

impl QueueBook {
    pub(super) fn new(rules: QueueRules) -> Self {
        Self {
            queues: HashMap::new(),
            ids: HashMap::new(),
            rules,
            unsaved: Vec::new(),
            recalled: HashMap::new(),
            id_next: 0,
            looked: Timestamp::default(),
        }
    }

    pub(super) fn id(&self, name: &QueueName) -> Option<u32> {
        self.ids.get(name).copied()
    }

    pub(super) fn get(&self, id: u32) -> Option<&Queue> {
        self.queues.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Queue> {
        self.queues.get_mut(&id)
    }

    /// Whether there is such a queue, and it is not paused.
    pub(super) fn hands_out(&self, id: u32) -> bool {
        self.get(id).is_some_and(|queue| !queue.paused)
    }

    /// Whether a newcomer's text is worth keeping in memory.
    pub(super) fn is_soon(&self, id: u32, lane: Lane) -> bool {
        lane == Lane::High || self.get(id).is_none_or(|queue| !queue.backlog)
    }

    pub(super) fn rule(&self, id: u32) -> QueueRule {
        self.get(id).map(|queue| queue.rule).unwrap_or_default()
    }

    pub(super) fn is_strict(&self, id: u32) -> bool {
        self.get(id).is_none_or(|queue| queue.rule.order == Order::Strict)
    }

    pub(super) fn is_configured(&self, name: &QueueName) -> bool {
        self.rules.by_name.contains_key(name)
    }

    /// Whether there is, or could be, a queue of that name. Those of the settings always have a place.
    pub(super) fn has_place_for(&self, name: &QueueName) -> bool {
        self.queues.len() < QUEUES_MAX || self.is_configured(name) || self.ids.contains_key(name)
    }

    pub(super) fn lets_in(&self, name: &QueueName, pending: u64, lane: Lane) -> bool {
        self.rules.by_name.get(name).unwrap_or(&self.rules.otherwise).lets_in(pending, lane)
    }

    /// The disk knows a forgotten queue of that name, by that number.
    pub(super) fn recall(&mut self, name: QueueName, id: u32) {
        self.recalled.insert(name, id);
    }

    /// The name of a forgotten queue that was recalled.
    pub(super) fn recalled(&self, id: u32) -> Option<&QueueName> {
        self.recalled.iter().find(|(_, known)| **known == id).map(|(name, _)| name)
    }

    /// The group in the making is decided.
    pub(super) fn decided(&mut self) {
        if !self.recalled.is_empty() {
            self.recalled = HashMap::new();
        }
    }

    /// Makes a queue, with what is to be changed on disk when that knows it already.
    pub(super) fn add(&mut self, name: QueueName) -> (u32, Option<QueueRow>) {
        if let Some(id) = self.recalled.get(&name).copied() {
            let row = QueueRow { id, name: name.clone(), paused: false, live: true };
            self.put(id, name, false);
            return (id, Some(row));
        }
        let id = self.id_next;
        self.id_next += 1;
        self.unsaved.push(id);
        self.put(id, name, false);
        (id, None)
    }

    /// Takes a queue back: the message that made it was not kept.
    pub(super) fn undo_add(&mut self, id: u32) {
        if let Some(queue) = self.queues.remove(&id) {
            self.ids.remove(&queue.name);
        }
        self.unsaved.retain(|unsaved| *unsaved != id);
    }

    /// False when there is another of that number or name.
    pub(super) fn restore(&mut self, row: QueueRow) -> bool {
        let new = !self.queues.contains_key(&row.id) && !self.ids.contains_key(&row.name);
        self.id_next = self.id_next.max(row.id.saturating_add(1));
        if row.live {
            self.put(row.id, row.name, row.paused);
        }
        new
    }

    /// The queues that are not on disk yet.
    pub(super) fn unsaved(&self) -> impl Iterator<Item = QueueRow> {
        let row = |id: &u32| {
            let queue = self.queues.get(id)?;
            Some(QueueRow { id: *id, name: queue.name.clone(), paused: queue.paused, live: true })
        };
        self.unsaved.iter().filter_map(row)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Queue)> {
        self.queues.iter().map(|(id, queue)| (*id, queue))
    }

    pub(super) fn saved(&mut self) {
        self.unsaved.clear();
    }

    /// A message has come or gone.
    pub(super) fn used(&mut self, id: u32) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.used = true;
        }
    }

    /// A look takes a step for every queue.
    pub(super) fn is_look_due(&self, now: Timestamp) -> bool {
        now.since_ms(self.looked) >= QueueRule::LOOK_MS
    }

    /// Queues that nothing came to or went from for so long, that hold nothing, and that no person or setting keeps. To be
    /// asked now and then: a queue is idle from the first look that finds nothing new.
    pub(super) fn idle(&mut self, after_ms: u64, now: Timestamp, is_empty: impl Fn(u32) -> bool) -> Vec<u32> {
        self.looked = now;
        let mut idle = Vec::new();
        for (id, queue) in &mut self.queues {
            let kept = queue.paused || self.rules.by_name.contains_key(&queue.name) || !is_empty(*id);
            if std::mem::take(&mut queue.used) || kept {
                queue.idle_since = now;
            } else if now.since_ms(queue.idle_since) >= after_ms {
                idle.push(*id);
            }
        }
        idle.sort_unstable();
        idle
    }

    pub(super) fn forget(&mut self, id: u32) -> Option<Queue> {
        let queue = self.queues.remove(&id)?;
        self.ids.remove(&queue.name);
        Some(queue)
    }

    pub(super) fn undo_forget(&mut self, id: u32, queue: Queue) {
        self.ids.insert(queue.name.clone(), id);
        self.queues.insert(id, queue);
    }

    fn put(&mut self, id: u32, name: QueueName, paused: bool) {
        let rule = self.rules.by_name.get(&name).copied().unwrap_or(self.rules.otherwise);
        self.ids.insert(name.clone(), id);
        let queue = Queue {
            name,
            rule,
            paused,
            leased: 0,
            in_transit: 0,
            backlog: false,
            used: true,
            idle_since: Timestamp::default(),
        };
        self.queues.insert(id, queue);
    }
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
