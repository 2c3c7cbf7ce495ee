use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Value;

use super::layers::Layers;
use super::problem::{Origin, Problem, choose};

/// Takes typed values out of the layers and keeps every problem on the way. A value with a problem comes back
/// as some value in range: it is never used, because problems end the start.
#[derive(Debug)]
pub struct Reader<'a> {
    layers: &'a Layers,
    pub problems: Vec<Problem>,
    /// What looks odd, and is no reason not to start.
    pub warnings: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub fn new(layers: &'a Layers) -> Self {
        Self { layers, problems: layers.problems.clone(), warnings: layers.warnings.clone() }
    }

    pub fn number(&mut self, key: &str, range: RangeInclusive<u64>) -> u64 {
        let Some(Value::Integer(number)) = self.layers.entries.get(key).map(|entry| &entry.value) else {
            self.problem(key, "is missing from the defaults");
            return *range.start();
        };
        match u64::try_from(*number).ok().filter(|number| range.contains(number)) {
            Some(number) => number,
            None => {
                let what = format!("{number} is out of range");
                let fix = format!("choose {} to {}", range.start(), range.end());
                self.problems.push(Problem::new(&self.origin(key), key, what).fix(fix));
                *range.start()
            }
        }
    }

    pub fn size(&mut self, key: &str, range: RangeInclusive<u64>) -> usize {
        usize::try_from(self.number(key, range)).unwrap_or(usize::MAX)
    }

    pub fn millis(&mut self, key: &str, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.number(key, range))
    }

    pub fn text(&mut self, key: &str) -> &'a str {
        match self.layers.entries.get(key).map(|entry| &entry.value) {
            Some(Value::String(text)) => text,
            _ => {
                self.problem(key, "is missing from the defaults");
                ""
            }
        }
    }

    pub fn texts(&mut self, key: &str) -> Vec<&'a str> {
        let items = self.layers.entries.get(key).and_then(|entry| entry.value.as_array());
        let texts: Option<Vec<_>> = items.and_then(|items| items.iter().map(Value::as_str).collect());
        texts.unwrap_or_else(|| {
            let fix = "put each item in quotes, such as [\"a\", \"b\"]";
            self.problem_with_fix(key, "must be a list of texts in quotes", fix);
            Vec::new()
        })
    }

    pub fn one_of<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(key);
        let found = choices.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            self.problem_with_fix(key, format!("{text:?} is not known"), choose(text, &names));
        }
        found.map(|(_, value)| *value)
    }

    /// Whether these settings mean something, so that it can be said whether they fit together.
    pub fn are_sound(&self, keys: [&str; 2]) -> bool {
        !self.problems.iter().any(|problem| keys.contains(&problem.key.as_str()))
    }

    pub fn origin(&self, key: &str) -> Origin {
        self.layers.entries.get(key).map_or(Origin::Default, |entry| entry.origin.clone())
    }

    pub fn problem(&mut self, key: &str, what: impl Into<String>) {
        let problem = Problem::new(&self.origin(key), key, what);
        self.problems.push(problem);
    }

    pub fn problem_with_fix(&mut self, key: &str, what: impl Into<String>, fix: impl Into<String>) {
        let problem = Problem::new(&self.origin(key), key, what).fix(fix);
        self.problems.push(problem);
    }
    pub fn warning(&mut self, key: &str, what: impl Into<String>, fix: impl Into<String>) {
        let warning = Problem::new(&self.origin(key), key, what).fix(fix);
        self.warnings.push(warning);
    }
}
