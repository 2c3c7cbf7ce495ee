use std::borrow::Cow;

use http::Uri;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::fields::Fields;

/// The parameters of a query, to be read like the fields of a body, with what is wrong about them.
///
/// A `+` is a space, as forms and most libraries write it, save in the offset of an instant such as
/// `2025-06-01T12:00:00+02:00`, which is what callers paste here.
pub fn fields(uri: &Uri) -> Fields {
    let mut fields = Fields::of_texts(Map::new());
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = spaced(name);
        let name = percent_decode_str(&name).decode_utf8_lossy();
        match percent_decode_str(&spaced(value)).decode_utf8() {
            Ok(value) => fields.put_once(&name, Value::from(value)),
            Err(_) => fields.spoil(&name, "is not UTF-8"),
        }
    }
    fields
}

fn spaced(text: &str) -> Cow<'_, str> {
    match text.rsplit_once('+') {
        None => Cow::Borrowed(text),
        Some((local, offset)) if is_local_time(local) && is_offset(offset) => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.replace('+', " ")),
    }
}

fn is_local_time(text: &str) -> bool {
    text.bytes().take(4).all(|byte| byte.is_ascii_digit())
        && text.as_bytes().get(10).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'T'))
}

fn is_offset(text: &str) -> bool {
    text.len() >= 2 && text.replace("%3A", ":").bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
}

#[cfg(test)]
mod tests {
    use tidegate_edge::ApiError;

    use super::*;
    use crate::http::fields::Name;

    const AT: Name = Name::new("requestedTime", "requested_time");

    fn text(query: &str) -> Result<Option<String>, ApiError> {
        let uri: Uri = format!("/x?{query}").parse().unwrap();
        let mut fields = fields(&uri);
        let text = fields.parsed(AT, |text| Ok::<_, String>(text.to_owned()));
        fields.finish().map(|()| text)
    }

    #[test]
    fn parameters_are_decoded_and_a_plus_is_a_space_save_in_an_offset() {
        let found = text("requestedTime=2025-06-01T12:00:00+02:00&").unwrap();
        assert_eq!(found.as_deref(), Some("2025-06-01T12:00:00+02:00"));
        assert_eq!(text("requested_time=u+x%2By+01").unwrap().as_deref(), Some("u x+y 01"));
        assert_eq!(text("requested_time=a%20%26b").unwrap().as_deref(), Some("a &b"));
        for wrong in
            ["requestedTime=1&requestedTime=2", "requestedTime=%ff", "requestedTime=1&colour=red", ""]
        {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_wrong_parameter_is_named() {
        let uri: Uri =
            "/x?requestedTime=%ff&colour=red&size=1&size=2&size=3&priority=urgent".parse().unwrap();
        let mut fields = fields(&uri);
        fields.parsed(AT, |text| Ok::<_, String>(text.to_owned()));
        fields.lane(crate::http::fields::PRIORITY);
        let error = fields.finish().unwrap_err();
        let named: Vec<_> = error.fields().iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(named, ["requestedTime", "size", "priority", "colour"]);
    }
}
