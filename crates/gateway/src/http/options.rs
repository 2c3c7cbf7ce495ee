use axum::extract::Request;
use http::HeaderMap;
use serde_json::Value;

use super::fields::{Fields, Name};
use super::query;

/// What a request asks for beside its body: in headers, as the first callers do it, or in the query.
///
/// Only headers that are known by name are read; in the query, a stranger is a fault like in a body.
pub fn fields(request: &Request, names: &[Name]) -> Fields {
    let mut fields = query::fields(request.uri());
    for name in names {
        read_header(&mut fields, request.headers(), *name);
    }
    fields
}

fn read_header(fields: &mut Fields, headers: &HeaderMap, name: Name) {
    let mut values = headers.get_all(name.camel()).iter();
    let Some(value) = values.next() else { return };
    if values.next().is_some() || fields.has(name) {
        fields.take(name);
        fields.spoil(name.camel(), "is given more than once");
        return;
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => fields.put(name, Value::from(text.trim())),
        Err(_) => fields.spoil(name.camel(), "is not UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tidegate_edge::ApiError;

    use super::*;

    const GROUP: Name = Name::new("consumerGroup", "consumer_group");

    fn group(request: http::request::Builder) -> Result<Option<String>, ApiError> {
        let mut fields = fields(&request.body(Body::empty()).unwrap(), &[GROUP]);
        let text = fields.parsed(GROUP, |text| Ok::<_, String>(text.to_owned()));
        fields.finish().map(|()| text)
    }

    #[test]
    fn a_header_in_any_case_and_a_parameter_are_the_same() {
        for request in [
            Request::get("/x").header("consumerGroup", " jobs "),
            Request::get("/x").header("CONSUMERGROUP", "jobs").header("colour", "red"),
            Request::get("/x?consumerGroup=jobs"),
        ] {
            assert_eq!(group(request).unwrap().as_deref(), Some("jobs"));
        }
        for wrong in [
            Request::get("/x"),
            Request::get("/x?consumerGroup=a").header("consumerGroup", "b"),
            Request::get("/x").header("consumerGroup", "a").header("consumerGroup", "b"),
            Request::get("/x?colour=red").header("consumerGroup", "a"),
            Request::get("/x").header("consumerGroup", b"\xff".as_slice()),
        ] {
            assert!(group(wrong).is_err());
        }
    }
}
