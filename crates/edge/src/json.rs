use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::ApiError;

const KEY_CHARS_SHOWN_MAX: usize = 64;

/// What a text may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub depth_max: usize,
    /// A value takes tens of bytes once it is read, and two in the text.
    pub values_max: usize,
}

/// Parses an object, strictly: UTF-8, within the bounds, no key twice (two parsers would pick different values).
pub(crate) fn parse_object(body: &[u8], bounds: Bounds) -> Result<Map<String, Value>, ApiError> {
    match parse(body, bounds)? {
        Value::Object(object) => Ok(object),
        _ => Err(malformed("the body has to be a JSON object")),
    }
}

/// The same for an object, or for an array, which then stands under `array_as`.
pub(crate) fn parse_object_or_array(
    body: &[u8],
    bounds: Bounds,
    array_as: &str,
) -> Result<Map<String, Value>, ApiError> {
    match parse(body, bounds)? {
        Value::Object(object) => Ok(object),
        array @ Value::Array(_) => Ok([(array_as.to_owned(), array)].into_iter().collect()),
        _ => Err(malformed("the body has to be a JSON array or object")),
    }
}

fn parse(body: &[u8], Bounds { depth_max, values_max }: Bounds) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body).map_err(|_| malformed("the body is not valid UTF-8"))?;
    let (depth, values) = measure(text);
    if depth > depth_max {
        let message = format!("the JSON is nested deeper than {depth_max} levels");
        return Err(ApiError::bad_request("json_too_deep", message));
    }
    if values > values_max {
        let message = format!("the JSON holds more than {values_max} values");
        return Err(ApiError::bad_request("json_too_many_values", message));
    }
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    value.map_err(|error| malformed(error.to_string()))
}

fn malformed(message: impl Into<String>) -> ApiError {
    ApiError::bad_request("malformed_json", message)
}

/// The deepest nesting, and no fewer values than there are (an empty array counts as two), found before anything is
/// built from the text. On text that is not JSON they are some numbers; the parser has the last word.
fn measure(text: &str) -> (usize, usize) {
    let (mut depth, mut deepest, mut values) = (0_usize, 0, 1);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b',' => values += 1,
            b'{' | b'[' => {
                values += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    (deepest, values)
}

/// Any JSON value, as `Value` itself is read, except that a repeated key is an error.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                let shown: String = key.chars().take(KEY_CHARS_SHOWN_MAX).collect();
                return Err(A::Error::custom(format_args!("duplicate key `{shown}`")));
            }
            let value = members.next_value_seed(Strict)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { depth_max: 4, values_max: 20 };

    fn code(body: &[u8]) -> (&'static str, String) {
        let error = parse_object(body, BOUNDS).unwrap_err();
        (error.code(), error.message().to_owned())
    }

    #[test]
    fn objects_are_read_as_serde_json_reads_them() {
        let text = r#"{"a":[1,-2,3.5,null,true,"\u00e4\"{["],"b":{"c":18446744073709551615}}"#;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(Value::Object(parse_object(text.as_bytes(), BOUNDS).unwrap()), expected);
    }

    #[test]
    fn an_array_may_stand_for_an_object_with_that_member() {
        let read = |text: &str| parse_object_or_array(text.as_bytes(), BOUNDS, "items").map(Value::Object);
        assert_eq!(read("[1]").unwrap(), serde_json::json!({"items": [1]}));
        assert_eq!(read(r#"{"items":[1]}"#).unwrap(), serde_json::json!({"items": [1]}));
        assert_eq!(read("1").unwrap_err().code(), "malformed_json");
    }

    #[test]
    fn what_is_not_one_object_is_refused_with_its_place() {
        assert_eq!(code(b"[1]").0, "malformed_json");
        assert_eq!(code(b"{} {}").0, "malformed_json");
        assert!(code(b"").1.contains("line 1 column 0"));
        assert!(code(b"{\n\"a\": x}").1.contains("line 2 column 6"));
        assert!(code(b"{\"a\":\"\xff\"}").1.contains("UTF-8"));
        assert!(code(b"{\"a\":\"\\ud800\"}").0 == "malformed_json");
        assert!(code(b"{\"a\":1e999}").0 == "malformed_json");
    }

    #[test]
    fn repeated_keys_are_refused_at_any_depth() {
        let (code, message) = code(br#"{"a":{"b":1,"\u0062":2}}"#);
        assert_eq!(code, "malformed_json");
        assert!(message.starts_with("duplicate key `b` at line 1"), "{message}");
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        assert!(parse_object(br#"{"a":{"b":{"c":{}}}}"#, BOUNDS).is_ok());
        assert_eq!(code(br#"{"a":{"b":{"c":[[]]}}}"#).0, "json_too_deep");
        assert!(parse_object(br#"{"a":"[[[[[\"[[[[[\\"}"#, BOUNDS).is_ok());
        let deep = "[".repeat(1_000_000);
        assert_eq!(code(deep.as_bytes()).0, "json_too_deep");
    }

    #[test]
    fn values_are_bounded_before_any_is_built() {
        assert!(parse_object(format!("{{\"a\":[0{}]}}", ",0".repeat(17)).as_bytes(), BOUNDS).is_ok());
        assert!(parse_object(format!("{{\"a\":\"{}\"}}", ",[{".repeat(50)).as_bytes(), BOUNDS).is_ok());
        for many in [format!("[0{}]", ",0".repeat(30)), format!("[{{}}{}]", ",{}".repeat(30)), ",".repeat(30)]
        {
            assert_eq!(code(many.as_bytes()).0, "json_too_many_values", "{many}");
        }
    }
}
