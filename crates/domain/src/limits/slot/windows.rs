use std::collections::BTreeMap;

/// How many slots each window holds, and where the full ones lie: runs of them, so that the first open window
/// is found in logarithmic time however many are full.
///
/// Counts don't depend on the configuration under which they came about: with a larger maximum a full window
/// opens again, with a smaller one it is full, and nothing is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    counts: BTreeMap<i64, u32>,
    /// Full windows as runs: first → one past the last. Never adjacent, never overlapping.
    full: BTreeMap<i64, i64>,
    max: u32,
}

impl Windows {
    pub fn new(max: u32) -> Self {
        Self { counts: BTreeMap::new(), full: BTreeMap::new(), max }
    }

    pub fn count(&self, window: i64) -> u32 {
        self.counts.get(&window).copied().unwrap_or(0)
    }

    /// The first window at or after this one that is not full.
    pub fn first_open(&self, from: i64) -> i64 {
        match self.full.range(..=from).next_back() {
            Some((_, &end)) if end > from => end,
            _ => from,
        }
    }

    pub fn add(&mut self, window: i64) {
        let count = self.counts.entry(window).or_insert(0);
        *count += 1;
        if *count == self.max {
            self.close(window);
        }
    }

    /// Gives one place back; a window that holds none stays as it is.
    pub fn remove(&mut self, window: i64) {
        let Some(count) = self.counts.get_mut(&window) else { return };
        let was_full = *count >= self.max;
        *count -= 1;
        let (left, is_full) = (*count, *count >= self.max);
        if left == 0 {
            self.counts.remove(&window);
        }
        if was_full && !is_full {
            self.open(window);
        }
    }

    /// The last window that holds anything.
    pub fn last(&self) -> Option<i64> {
        self.counts.last_key_value().map(|(window, _)| *window)
    }

    pub fn set_max(&mut self, max: u32) {
        self.max = max;
        self.full.clear();
        let full: Vec<i64> =
            self.counts.iter().filter(|(_, count)| **count >= max).map(|(w, _)| *w).collect();
        for window in full {
            self.close(window);
        }
    }

    fn close(&mut self, window: i64) {
        let mut run = (window, window + 1);
        if let Some((&start, &end)) = self.full.range(..window).next_back()
            && end == window
        {
            run.0 = start;
        }
        if let Some(end) = self.full.remove(&(window + 1)) {
            run.1 = end;
        }
        self.full.insert(run.0, run.1);
    }

    fn open(&mut self, window: i64) {
        let Some((&start, &end)) = self.full.range(..=window).next_back() else { return };
        if end <= window {
            return;
        }
        self.full.remove(&start);
        if start < window {
            self.full.insert(start, window);
        }
        if window + 1 < end {
            self.full.insert(window + 1, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_maximum_closes_and_a_larger_one_opens_again() {
        let mut windows = Windows::new(3);
        for window in [5, 5, 6, 6, 6] {
            windows.add(window);
        }
        assert_eq!(windows.first_open(5), 5);
        windows.set_max(2);
        assert_eq!(windows.first_open(5), 7);
        windows.set_max(4);
        assert_eq!(windows.first_open(5), 5);
    }

    #[test]
    fn over_a_lowered_maximum_one_place_back_opens_nothing() {
        let mut windows = Windows::new(3);
        for _ in 0..3 {
            windows.add(1);
        }
        windows.set_max(1);
        windows.remove(1);
        assert_eq!(windows.first_open(1), 2);
        windows.remove(1);
        assert_eq!(windows.first_open(1), 2);
        windows.remove(1);
        assert_eq!(windows.first_open(1), 1);
        windows.remove(1);
        assert_eq!(windows, Windows::new(1));
    }
}
