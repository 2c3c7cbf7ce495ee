use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use tidegate_domain::{Lane, UserId};
use tidegate_edge::{ApiError, FieldError};

/// A field's name, and the other spelling under which it is accepted.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    camel: &'static str,
    snake: &'static str,
}

pub const USER_ID: Name = Name { camel: "userId", snake: "user_id" };
pub const RATE_LIMIT: Name = Name { camel: "rateLimit", snake: "rate_limit" };
pub const TIME_WINDOW: Name = Name { camel: "timeWindow", snake: "time_window" };
pub const MESSAGE: Name = Name { camel: "message", snake: "message" };
pub const PRIORITY: Name = Name { camel: "priority", snake: "priority" };

/// Reads a JSON object field by field and keeps every fault, so that one answer names them all.
#[derive(Debug)]
pub struct Fields {
    object: Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Fields {
    pub fn new(object: Map<String, Value>) -> Self {
        Self { object, errors: Vec::new() }
    }

    /// `1001` and `"1001"` are one user.
    pub fn user_id(&mut self, name: Name) -> Option<UserId> {
        let text = match self.required(name)? {
            Value::String(text) => text,
            Value::Number(number) if number.is_u64() => number.to_string(),
            _ => return self.fault(name, "must be a string or a non-negative integer"),
        };
        UserId::new(&text).or_else(|wrong| self.fault(name, wrong.0).ok_or(())).ok()
    }

    pub fn whole(&mut self, name: Name, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.required(name)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None => {
                let what = format!("must be a whole number from {} to {}", range.start(), range.end());
                self.fault(name, &what)
            }
        }
    }

    pub fn text(&mut self, name: Name) -> Option<String> {
        match self.required(name)? {
            Value::String(text) if !text.is_empty() => Some(text),
            _ => self.fault(name, "must be a non-empty string"),
        }
    }

    /// Normal when it is not given.
    pub fn lane(&mut self, name: Name) -> Option<Lane> {
        match self.take(name) {
            None | Some(Value::Null) => Some(Lane::default()),
            Some(Value::String(text)) => {
                text.to_ascii_lowercase().parse().or_else(|_| self.fault(name, LANES).ok_or(())).ok()
            }
            Some(_) => self.fault(name, LANES),
        }
    }

    /// Whatever is left was not asked for: a misspelt optional field must not pass silently.
    pub fn finish(mut self) -> Result<(), ApiError> {
        for (field, _) in std::mem::take(&mut self.object) {
            self.errors.push(FieldError::new(field, "is not a field of this request"));
        }
        if self.errors.is_empty() { Ok(()) } else { Err(ApiError::invalid_fields(self.errors)) }
    }

    fn required(&mut self, name: Name) -> Option<Value> {
        match self.take(name) {
            None | Some(Value::Null) => self.fault(name, "is missing"),
            value => value,
        }
    }

    fn take(&mut self, name: Name) -> Option<Value> {
        let camel = self.object.remove(name.camel);
        let snake = self.object.remove(name.snake);
        if camel.is_some() && snake.is_some() {
            let message = format!("is given twice, as {} and as {}", name.camel, name.snake);
            self.fault::<()>(name, &message);
        }
        camel.or(snake)
    }

    fn fault<T>(&mut self, name: Name, message: &str) -> Option<T> {
        self.errors.push(FieldError::new(name.camel, message));
        None
    }
}

const LANES: &str = "must be \"high\", \"normal\" or \"low\"";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        let Value::Object(object) = value else { panic!("an object") };
        Fields::new(object)
    }

    #[test]
    fn a_number_and_its_text_are_one_user() {
        let number = fields(json!({"userId": 1001})).user_id(USER_ID);
        let text = fields(json!({"user_id": "1001"})).user_id(USER_ID);
        assert_eq!(number, text);
        for wrong in [json!(-1), json!(1.5), json!(true), json!(""), json!("a\nb"), json!([1]), json!(1e30)] {
            let mut fields = fields(json!({ "userId": wrong }));
            assert_eq!((fields.user_id(USER_ID), fields.errors.len()), (None, 1));
        }
    }

    #[test]
    fn every_fault_is_kept_and_so_is_every_stranger() {
        let mut fields =
            fields(json!({"rateLimit": 0, "timeWindow": 1.5, "time_window": 1, "colour": "red"}));
        fields.user_id(USER_ID);
        fields.whole(RATE_LIMIT, 1..=10);
        fields.whole(TIME_WINDOW, 1..=10);
        let faults: Vec<_> =
            fields.errors.iter().map(|error| format!("{} {}", error.field, error.message)).collect();
        assert_eq!(
            faults,
            [
                "userId is missing",
                "rateLimit must be a whole number from 1 to 10",
                "timeWindow is given twice, as timeWindow and as time_window",
                "timeWindow must be a whole number from 1 to 10",
            ]
        );
        let named = |fields: Fields| fields.finish().unwrap_err().fields().len();
        assert_eq!(named(fields), 5);
        assert_eq!(named(self::fields(json!({"colour": "red"}))), 1);
    }
}
