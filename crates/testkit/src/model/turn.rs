use tidegate_domain::QueueName;

/// Whose turn it is among the lanes of a queue. Memory only: a restart forgets it.
#[derive(Debug, Clone)]
pub struct Turn {
    pub queue: QueueName,
    /// After so many choices that passed over a lower lane, a lower lane has its turn.
    higher_per_lower: u32,
    streak: u32,
    lowest: bool,
}

impl Turn {
    pub fn new(queue: QueueName, higher_per_lower: u32) -> Self {
        Self { queue, higher_per_lower, streak: 0, lowest: false }
    }

    /// Which of the lanes that have a candidate, counted from the highest. Of two lower lanes the nearer and
    /// the lowest take turns, so that neither starves behind the other.
    pub fn choose(&mut self, lanes: usize) -> usize {
        if lanes == 1 {
            self.streak = 0;
            return 0;
        }
        if self.streak < self.higher_per_lower {
            self.streak += 1;
            return 0;
        }
        self.streak = 0;
        self.lowest = !self.lowest;
        if self.lowest { 1 } else { lanes - 1 }
    }
}
