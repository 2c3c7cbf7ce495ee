/// The window sizes that a slot configuration has had. A new size begins a new generation. A slot's generation tells where
/// the window began that it was assigned in.
#[derive(Debug, Clone, Default)]
pub struct Generations {
    /// By generation: its first version and its window size.
    sizes: Vec<(u32, u64)>,
    versions: u32,
}

impl Generations {
    /// The next version.
    pub fn add(&mut self, window_ms: u64) {
        self.versions += 1;
        if self.sizes.last().is_none_or(|(_, size)| *size != window_ms) {
            self.sizes.push((self.versions, window_ms));
        }
    }

    pub fn versions(&self) -> u32 {
        self.versions
    }

    /// The one that new slots belong to.
    pub fn current(&self) -> u32 {
        u32::try_from(self.sizes.len()).unwrap_or(u32::MAX)
    }

    pub fn of_version(&self, version: u32) -> Option<u32> {
        let known = (1..=self.versions).contains(&version);
        known.then(|| u32::try_from(self.sizes.partition_point(|(first, _)| *first <= version)).ok())?
    }

    pub fn first_version(&self, generation: u32) -> Option<u32> {
        self.size(generation).map(|(first, _)| first)
    }

    pub fn window_ms(&self, generation: u32) -> Option<u64> {
        self.size(generation).map(|(_, window_ms)| window_ms)
    }

    fn size(&self, generation: u32) -> Option<(u32, u64)> {
        self.sizes.get(usize::try_from(generation).ok()?.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_ends_with_its_window_size() {
        let mut generations = Generations::default();
        [4, 4, 60, 60, 4].into_iter().for_each(|window_ms| generations.add(window_ms));
        let of_version: Vec<_> = (0..=6).map(|version| generations.of_version(version)).collect();
        assert_eq!(of_version, [None, Some(1), Some(1), Some(2), Some(2), Some(3), None]);
        let first: Vec<_> = (0..=4).map(|generation| generations.first_version(generation)).collect();
        assert_eq!(first, [None, Some(1), Some(3), Some(5), None]);
        assert_eq!((generations.current(), generations.window_ms(2)), (3, Some(60)));
    }
}
