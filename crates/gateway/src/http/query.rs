use http::Uri;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use tidegate_edge::{ApiError, FieldError};

use super::fields::Fields;

/// The parameters of a query, to be read like the fields of a body.
///
/// A `+` is a plus: an offset such as `+02:00` is what callers paste here, and a space can be written `%20`.
pub fn fields(uri: &Uri) -> Result<Fields, ApiError> {
    let mut parameters = Map::new();
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Ok(name), Ok(value)) =
            (percent_decode_str(name).decode_utf8(), percent_decode_str(value).decode_utf8())
        else {
            return Err(wrong(name, "is not UTF-8"));
        };
        if parameters.insert(name.clone().into_owned(), Value::from(value)).is_some() {
            return Err(wrong(&name, "is given more than once"));
        }
    }
    Ok(Fields::of_texts(parameters))
}

fn wrong(name: &str, message: &str) -> ApiError {
    ApiError::invalid_fields(vec![FieldError::new(name, message)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::fields::Name;

    const AT: Name = Name::new("requestedTime", "requested_time");

    fn text(query: &str) -> Result<Option<String>, ApiError> {
        let uri: Uri = format!("/x?{query}").parse().unwrap();
        let mut fields = fields(&uri)?;
        let text = fields.parsed(AT, |text| Ok::<_, String>(text.to_owned()));
        fields.finish().map(|()| text)
    }

    #[test]
    fn parameters_are_decoded_and_a_plus_stays() {
        let found = text("requestedTime=2025-06-01T12:00:00+02:00&").unwrap();
        assert_eq!(found.as_deref(), Some("2025-06-01T12:00:00+02:00"));
        assert_eq!(text("requested_time=a%20%26b").unwrap().as_deref(), Some("a &b"));
        for wrong in
            ["requestedTime=1&requestedTime=2", "requestedTime=%ff", "requestedTime=1&colour=red", ""]
        {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }
}
