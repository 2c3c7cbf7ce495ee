use tidegate_domain::QueueName;

/// After so many choices that passed over a lower lane, a lower lane has its turn.
const STREAK_MAX: u32 = 10;

/// Whose turn it is among the lanes of a queue. Memory only: a restart forgets it.
#[derive(Debug, Clone)]
pub struct Turn {
    pub queue: QueueName,
    streak: u32,
    lowest: bool,
}

impl Turn {
    pub fn new(queue: QueueName) -> Self {
        Self { queue, streak: 0, lowest: false }
    }

    /// Which of the lanes that have a candidate, counted from the highest. Of two lower lanes the nearer and
    /// the lowest take turns, so that neither starves behind the other.
    pub fn choose(&mut self, lanes: usize) -> usize {
        if lanes == 1 {
            self.streak = 0;
            return 0;
        }
        if self.streak < STREAK_MAX {
            self.streak += 1;
            return 0;
        }
        self.streak = 0;
        self.lowest = !self.lowest;
        if self.lowest { 1 } else { lanes - 1 }
    }
}
