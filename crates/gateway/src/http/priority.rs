use http::HeaderMap;
use tidegate_domain::{Admission, Lane};
use tidegate_edge::{ApiError, FieldError, PRIORITY};

/// The paths whose POSTs bring messages.
const PATHS: [&str; 5] =
    ["/api/send", "/api/v1/messages", "/api/v1/messages/batch", "/queue/push", "/queue/batch/push"];

/// Whether a POST there may say in a header what priority its messages have. Policies are asked before the body is read,
/// and may exempt it for that; so the handler has to hold it to its word.
pub fn is_claimed_on(path: &str) -> bool {
    PATHS.contains(&path)
}

/// The priority that a request claims for its messages, if it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim(Option<Lane>);

impl Claim {
    pub fn of_request(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut values = headers.get_all(PRIORITY).iter();
        let Some(value) = values.next() else { return Ok(Self(None)) };
        let lane = value.to_str().ok().and_then(|text| text.trim().to_ascii_lowercase().parse().ok());
        match (lane, values.next()) {
            (Some(lane), None) => Ok(Self(Some(lane))),
            _ => Err(fault("must be high, normal or low, once")),
        }
    }

    /// Every message has the priority that was claimed for it.
    pub fn check<'a>(self, messages: impl IntoIterator<Item = &'a Admission>) -> Result<(), ApiError> {
        let Some(claimed) = self.0 else { return Ok(()) };
        match messages.into_iter().find(|message| message.lane != claimed) {
            None => Ok(()),
            Some(other) => {
                let (claimed, is) = (claimed.as_str(), other.lane.as_str());
                Err(fault(&format!("says {claimed}, and the priority of a message is {is}")))
            }
        }
    }
}

fn fault(what: &str) -> ApiError {
    ApiError::invalid_fields(vec![FieldError::new("Tidegate-Priority", what)])
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_domain::QueueName;

    use super::*;

    #[test]
    fn a_request_is_held_to_the_priority_that_it_claims() {
        let message = |lane| Admission { lane, ..Admission::new(QueueName::new("q").unwrap(), Bytes::new()) };
        let claim = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PRIORITY, value.parse().unwrap());
            }
            Claim::of_request(&headers)
        };
        assert!(claim(&[]).unwrap().check([&message(Lane::Low), &message(Lane::High)]).is_ok());
        let high = claim(&[" HIGH "]).unwrap();
        assert!(high.check([&message(Lane::High)]).is_ok());
        assert_eq!(high.check([&message(Lane::High), &message(Lane::Low)]).unwrap_err().status(), 400);
        for wrong in [&["urgent"][..], &["high", "high"], &[""]] {
            assert_eq!(claim(wrong).unwrap_err().status(), 400, "{wrong:?}");
        }
    }
}
