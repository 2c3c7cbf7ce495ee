/// Whose turn it is among the lanes of a queue: the highest, but one of a lower lane for so many of higher ones.
#[derive(Debug, Default, Clone)]
pub struct Turn {
    streak: u32,
    lowest: bool,
}

impl Turn {
    /// Which of so many lanes that have something, counted from the highest. Of two lower lanes the nearer and the lowest
    /// take turns, so that neither starves behind the other.
    pub fn choose(&mut self, lanes: usize, higher_per_lower: u32) -> usize {
        if lanes <= 1 {
            self.streak = 0;
            return 0;
        }
        if self.streak < higher_per_lower {
            self.streak += 1;
            return 0;
        }
        self.streak = 0;
        self.lowest = !self.lowest;
        if self.lowest { 1 } else { lanes - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_lane_has_one_turn_in_eleven_and_the_lower_two_alternate() {
        let mut turn = Turn::default();
        let chosen: Vec<_> = (0..44).map(|_| turn.choose(3, 10)).collect();
        assert_eq!((chosen[10], chosen[21], chosen[32], chosen[43]), (1, 2, 1, 2));
        assert_eq!(chosen.iter().filter(|lane| **lane == 0).count(), 40);
    }

    #[test]
    fn a_lane_alone_forgets_the_streak() {
        let mut turn = Turn::default();
        (0..10).for_each(|_| assert_eq!(turn.choose(2, 10), 0));
        assert_eq!(turn.choose(1, 10), 0);
        (0..10).for_each(|_| assert_eq!(turn.choose(2, 10), 0));
        assert_eq!(turn.choose(2, 10), 1);
    }
}
