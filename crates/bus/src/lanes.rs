use std::collections::VecDeque;

use tidegate_domain::{Lane, QueueRule, Turn};

/// What a consumer has received and not yet given out, by lane. Bounded by whoever fills it: see [`len`](Lanes::len).
#[derive(Debug)]
pub struct Lanes<T> {
    waiting: [VecDeque<T>; 3],
    turn: Turn,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self { waiting: Default::default(), turn: Turn::default() }
    }
}

impl<T> Lanes<T> {
    pub fn push(&mut self, lane: Lane, item: T) {
        self.waiting[lane.index()].push_back(item);
    }

    pub fn len(&self, lane: Lane) -> usize {
        self.waiting[lane.index()].len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Up to so many: the higher lanes first, but one of a lower lane for every ten of higher ones.
    pub fn take(&mut self, max: usize) -> Vec<T> {
        std::iter::from_fn(|| self.next()).take(max).collect()
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.waiting.iter_mut().for_each(|lane| lane.retain(&mut keep));
    }

    pub fn clear(&mut self) {
        self.waiting.iter_mut().for_each(VecDeque::clear);
    }

    fn next(&mut self) -> Option<T> {
        let mut lanes: Vec<_> = self.waiting.iter_mut().filter(|lane| !lane.is_empty()).collect();
        let place = self.turn.choose(lanes.len(), QueueRule::HIGHER_PER_LOWER);
        lanes.get_mut(place)?.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_lane_comes_after_every_ten_of_a_higher_one() {
        let mut lanes = Lanes::default();
        (0..30).for_each(|n| lanes.push(Lane::High, n));
        (100..103).for_each(|n| lanes.push(Lane::Low, n));
        let taken = lanes.take(22);
        assert_eq!((taken[10], taken[21]), (100, 101));
        lanes.retain(|n| *n != 102);
        assert_eq!(lanes.take(99).len(), 10);
        assert!(lanes.is_empty());
        assert!(lanes.take(1).is_empty());
    }
}
