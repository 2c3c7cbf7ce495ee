//! draft-ietf-httpapi-ratelimit-headers-11, apart from everything else: it still moves.

use std::fmt::Write as _;

use http::header::{HeaderMap, HeaderName, HeaderValue};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

/// `RateLimit-Policy: "name";q=100;w=60` and `RateLimit: "name";r=50;t=30`. The name needs no escaping: see
/// `PolicyName`. A window or a time that there is not is left out.
pub(super) fn put(
    headers: &mut HeaderMap,
    name: &str,
    quota: u64,
    window_s: Option<u64>,
    remaining: u64,
    reset_s: Option<u64>,
) {
    let mut set = |header, first: (&str, u64), second: (&str, Option<u64>)| {
        let mut text = format!("\"{name}\";{}={}", first.0, first.1);
        if let Some(value) = second.1 {
            let _ = write!(text, ";{}={value}", second.0);
        }
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(header, value);
        }
    };
    set(POLICY, ("q", quota), ("w", window_s));
    set(STATE, ("r", remaining), ("t", reset_s));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fields_are_structured_strings_with_parameters() {
        let mut headers = HeaderMap::new();
        put(&mut headers, "burst", 100, Some(60), 50, Some(30));
        assert_eq!(headers["ratelimit-policy"], "\"burst\";q=100;w=60");
        assert_eq!(headers["ratelimit"], "\"burst\";r=50;t=30");
        put(&mut headers, "once", 1, None, 0, None);
        assert_eq!(headers["ratelimit-policy"], "\"once\";q=1");
        assert_eq!(headers["ratelimit"], "\"once\";r=0");
    }
}
