use http::HeaderMap;
use tidegate_domain::Lane;
use tidegate_edge::PRIORITY;

/// The paths whose POSTs bring messages.
const PATHS: [&str; 5] =
    ["/api/send", "/api/v1/messages", "/api/v1/messages/batch", "/queue/push", "/queue/batch/push"];

/// Whether a POST there may say in a header what priority its messages have. Policies are asked before the body is read,
/// and may exempt it for that; so the handler has to hold it to its word.
pub fn is_claimed_on(path: &str) -> bool {
    PATHS.contains(&path)
}

/// The priority that a request claims for all its messages, if it does.
pub fn claimed(headers: &HeaderMap) -> Result<Option<Lane>, &'static str> {
    let mut values = headers.get_all(PRIORITY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let lane = value.to_str().ok().and_then(|text| text.trim().to_ascii_lowercase().parse().ok());
    match (lane, values.next()) {
        (Some(lane), None) => Ok(Some(lane)),
        _ => Err("must be high, normal or low, once"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;
    use crate::http::fields::{self, Fields};

    #[test]
    fn a_request_is_held_to_the_priority_that_it_claims() {
        let faults = |values: &[&'static str], lane: &str| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PRIORITY, value.parse().unwrap());
            }
            let mut fields = Fields::new(Map::new());
            fields.claim(claimed(&headers));
            let mut inner = fields.inner([("priority".to_owned(), Value::from(lane))].into_iter().collect());
            inner.lane(fields::PRIORITY);
            fields.absorb(inner, "messages[0]");
            let named = fields.finish().map_err(|error| error.fields()[0].field.clone());
            named.err().unwrap_or_default()
        };
        assert_eq!([faults(&[], "low"), faults(&[" HIGH "], "high")], ["", ""]);
        assert_eq!(faults(&["high"], "low"), "messages[0].priority");
        for wrong in [&["urgent"][..], &["high", "high"], &[""]] {
            assert_eq!(faults(wrong, "high"), "Tidegate-Priority", "{wrong:?}");
        }
    }
}
