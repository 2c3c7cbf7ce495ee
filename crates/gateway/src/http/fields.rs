mod optional;

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use tidegate_domain::{Lane, UserId};
use tidegate_edge::{ApiError, Faults};

/// A field's name, and the other spelling under which it is accepted.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    camel: &'static str,
    snake: &'static str,
}

pub const USER_ID: Name = Name::new("userId", "user_id");
pub const RATE_LIMIT: Name = Name::new("rateLimit", "rate_limit");
pub const TIME_WINDOW: Name = Name::new("timeWindow", "time_window");
pub const MESSAGE: Name = Name::new("message", "message");
pub const PRIORITY: Name = Name::new("priority", "priority");
pub const ON_LIMIT: Name = Name::new("onLimit", "on_limit");
pub const CONFIG_NAME: Name = Name::new("configName", "config_name");
pub const REQUESTED_TIME: Name = Name::new("requestedTime", "requested_time");

impl Name {
    pub const fn new(camel: &'static str, snake: &'static str) -> Self {
        Self { camel, snake }
    }

    pub const fn camel(self) -> &'static str {
        self.camel
    }
}

/// Reads a JSON object field by field and keeps every fault, so that one answer names them all, within a bound.
#[derive(Debug)]
pub struct Fields {
    object: Map<String, Value>,
    faults: Faults,
    /// Names of fields that have a fault already and no value.
    spoiled: Vec<String>,
    /// What the header `Tidegate-Priority` says of every message.
    claimed: Option<Lane>,
    /// They came in headers or a query, where a number is a text, too.
    as_texts: bool,
}

impl Fields {
    pub fn new(object: Map<String, Value>) -> Self {
        Self { object, faults: Faults::default(), spoiled: Vec::new(), claimed: None, as_texts: false }
    }

    /// The same of headers and queries.
    pub fn of_texts(object: Map<String, Value>) -> Self {
        Self { as_texts: true, ..Self::new(object) }
    }

    /// An object inside this one.
    pub fn inner(&self, object: Map<String, Value>) -> Self {
        Self { claimed: self.claimed, ..Self::new(object) }
    }

    /// What a header says, or its fault.
    pub fn header<T>(&mut self, name: &'static str, read: Result<Option<T>, &'static str>) -> Option<T> {
        read.unwrap_or_else(|wrong| {
            self.fault_at(name, wrong);
            None
        })
    }

    /// From here on every lane that is read has to be the one that the header `Tidegate-Priority` says.
    pub fn claim(&mut self, claimed: Result<Option<Lane>, &'static str>) {
        self.claimed = self.header("Tidegate-Priority", claimed);
    }

    /// `1001` and `"1001"` are one user.
    pub fn user_id(&mut self, name: Name) -> Option<UserId> {
        let text = match self.required(name)? {
            Value::String(text) => text,
            Value::Number(number) if number.is_u64() => number.to_string(),
            _ => return self.fault(name, "must be a string or a non-negative integer"),
        };
        if !self.as_texts && !text.is_empty() && text.trim().is_empty() {
            return self.fault(name, "must not be blank");
        }
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

    /// A text that says something.
    pub fn text(&mut self, name: Name) -> Option<String> {
        match self.required(name)? {
            Value::String(text) if !text.trim().is_empty() => Some(text),
            Value::String(_) => self.fault(name, "must not be blank"),
            _ => self.fault(name, "must be a string"),
        }
    }

    /// A string that stands for something else.
    pub fn parsed<T, E: Display>(
        &mut self,
        name: Name,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match self.required(name)? {
            Value::String(text) => match parse(&text) {
                Ok(value) => Some(value),
                Err(wrong) => self.fault(name, &wrong.to_string()),
            },
            _ => self.fault(name, "must be a string"),
        }
    }

    /// The same, with a value for when it is not given.
    pub fn parsed_or<T, E: Display>(
        &mut self,
        name: Name,
        default: impl FnOnce() -> T,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if self.has(name) {
            return self.parsed(name, parse);
        }
        // A null is as good as nothing, and not a stranger either.
        self.take(name);
        Some(default())
    }

    /// Whether it is given and not null.
    pub fn has(&self, name: Name) -> bool {
        [name.camel, name.snake]
            .iter()
            .any(|spelling| self.object.get(*spelling).is_some_and(|v| !v.is_null()))
    }

    /// Normal when it is not given.
    pub fn lane(&mut self, name: Name) -> Option<Lane> {
        let lane = match self.take(name) {
            None | Some(Value::Null) => Lane::default(),
            Some(Value::String(text)) => match text.to_ascii_lowercase().parse() {
                Ok(lane) => lane,
                Err(_) => return self.fault(name, LANES),
            },
            Some(_) => return self.fault(name, LANES),
        };
        match self.claimed {
            Some(claimed) if claimed != lane => {
                let (claimed, is) = (claimed.as_str(), lane.as_str());
                self.fault(name, &format!("is {is}, and the header Tidegate-Priority says {claimed}"))
            }
            _ => Some(lane),
        }
    }

    /// Whatever is left was not asked for: a misspelt optional field must not pass silently.
    pub fn finish(mut self) -> Result<(), ApiError> {
        self.refuse_strangers();
        if self.faults.is_empty() { Ok(()) } else { Err(ApiError::invalid_fields(self.faults)) }
    }

    /// Takes over the faults of an object inside this one, and whatever nobody asked it for.
    pub fn absorb(&mut self, mut inner: Self, place: impl Display) {
        inner.refuse_strangers();
        self.faults.append(inner.faults, place);
    }

    pub fn fault_at(&mut self, place: impl Display, message: &str) {
        self.faults.push(place, message);
    }

    fn refuse_strangers(&mut self) {
        for field in self.object.keys() {
            self.faults.push(field, STRANGER);
        }
    }

    pub fn required(&mut self, name: Name) -> Option<Value> {
        match self.take(name) {
            None | Some(Value::Null) if self.is_spoiled(name) => None,
            None | Some(Value::Null) => self.fault(name, "is missing"),
            value => value,
        }
    }

    /// A fault of a field that can't be read any further.
    pub fn spoil(&mut self, name: &str, message: &str) {
        self.object.remove(name);
        if !self.spoiled.iter().any(|known| known == name) {
            self.fault_at(name, message);
            self.spoiled.push(name.to_owned());
        }
    }

    fn is_spoiled(&self, name: Name) -> bool {
        self.spoiled.iter().any(|known| known == name.camel || known == name.snake)
    }

    pub fn take(&mut self, name: Name) -> Option<Value> {
        let camel = self.object.remove(name.camel);
        let snake = self.object.remove(name.snake);
        if camel.is_some() && snake.is_some() {
            let message = format!("is given twice, as {} and as {}", name.camel, name.snake);
            self.fault::<()>(name, &message);
        }
        camel.or(snake)
    }

    pub fn fault<T>(&mut self, name: Name, message: &str) -> Option<T> {
        self.faults.push(name.camel, message);
        None
    }
}

const STRANGER: &str = "is not a field of this request";
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
            assert_eq!((fields.user_id(USER_ID), fields.faults.named().len()), (None, 1));
        }
    }

    #[test]
    fn a_text_for_a_number_is_a_fault_unless_all_is_text() {
        let count = |mut fields: Fields| fields.count(RATE_LIMIT, 1..=10);
        assert_eq!(count(fields(json!({"rateLimit": 5}))), Some(Some(5)));
        assert_eq!(count(fields(json!({"rateLimit": "5"}))), None);
        let Value::Object(texts) = json!({"rateLimit": "5"}) else { panic!("an object") };
        assert_eq!(count(Fields::of_texts(texts)), Some(Some(5)));
    }

    #[test]
    fn every_fault_is_kept_and_so_is_every_stranger() {
        let mut fields =
            fields(json!({"rateLimit": 0, "timeWindow": 1.5, "time_window": 1, "colour": "red"}));
        fields.user_id(USER_ID);
        fields.whole(RATE_LIMIT, 1..=10);
        fields.whole(TIME_WINDOW, 1..=10);
        let faults: Vec<_> =
            fields.faults.named().iter().map(|error| format!("{} {}", error.field, error.message)).collect();
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
