//! Fields that need not be there, and those that arrive as text because they came in a header or a query.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::{Fields, Name};

impl Fields {
    pub fn put(&mut self, name: Name, value: Value) {
        self.object.insert(name.camel.to_owned(), value);
    }

    /// The same of what may be there already, which is a fault.
    pub fn put_once(&mut self, name: &str, value: Value) {
        if self.object.insert(name.to_owned(), value).is_some() {
            self.spoil(name, "is given more than once");
        } else if self.spoiled.iter().any(|known| known == name) {
            self.object.remove(name);
        }
    }

    /// A whole number; its text where everything is text. `Some(None)` when it is not given.
    pub fn count(&mut self, name: Name, range: RangeInclusive<u64>) -> Option<Option<u64>> {
        let number = match self.take(name) {
            None | Some(Value::Null) => return Some(None),
            Some(Value::String(text)) if self.as_texts => text.parse().ok(),
            Some(value) => value.as_u64(),
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(Some(number)),
            None => {
                let what = format!("must be a whole number from {} to {}", range.start(), range.end());
                self.fault(name, &what)
            }
        }
    }

    pub fn optional<T, E: Display>(
        &mut self,
        name: Name,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<Option<T>> {
        self.parsed_or(name, || None, |text| parse(text).map(Some))
    }

    /// False when it is not given.
    pub fn truth(&mut self, name: Name) -> Option<bool> {
        match self.take(name) {
            None | Some(Value::Null) => Some(false),
            Some(Value::Bool(truth)) => Some(truth),
            Some(_) => self.fault(name, "must be true or false"),
        }
    }

    /// 1 to `max` things in an array.
    pub fn items(&mut self, name: Name, max: usize) -> Option<Vec<Value>> {
        match self.required(name)? {
            Value::Array(items) if (1..=max).contains(&items.len()) => Some(items),
            _ => self.fault(name, &format!("must be an array of 1 to {max} items")),
        }
    }
}
