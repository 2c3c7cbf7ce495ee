use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tidegate_domain::{Delivery, Timestamp};
use tokio::time::{Instant, timeout_at};

/// A provider can ask for a pause, but not for ever.
const RETRY_AFTER_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// For the rest of an answer that has said yes already: read to keep the connection, not to learn anything.
const REST: Duration = Duration::from_millis(500);
const LOCATION_CHARS_MAX: usize = 256;

/// What answers mean.
#[derive(Debug, Clone)]
pub struct Judge {
    pub permanent: Vec<u16>,
    pub response_bytes_max: usize,
}

impl Judge {
    /// The status decides; the text only explains. Reads within the deadline and the bound: an answer that goes
    /// beyond either loses its connection.
    pub async fn judge(
        &self,
        response: Response<Incoming>,
        deadline: Instant,
        now: Timestamp,
        ack_required: bool,
    ) -> Delivery {
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            self.text(body, deadline.min(Instant::now() + REST)).await;
            return if ack_required { Delivery::Accepted } else { Delivery::Delivered };
        }
        let text = self.text(body, deadline).await;
        let reason = reason(head.status, &head.headers, &text, self.response_bytes_max);
        if self.permanent.contains(&head.status.as_u16()) {
            return Delivery::Refused { reason };
        }
        Delivery::TryLater { after_ms: retry_after_ms(&head.headers, now), reason }
    }

    async fn text(&self, mut body: Incoming, deadline: Instant) -> Vec<u8> {
        let mut text = Vec::new();
        if body.is_end_stream() {
            return text;
        }
        let reading = async {
            while let Some(Ok(frame)) = body.frame().await {
                let data: Bytes = frame.into_data().unwrap_or_default();
                let room = self.response_bytes_max - text.len();
                text.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() > room {
                    break;
                }
            }
        };
        // What came until then is worth keeping, whatever ended it.
        let _ = timeout_at(deadline, reading).await;
        text
    }
}

fn reason(status: StatusCode, headers: &HeaderMap, text: &[u8], bytes_max: usize) -> String {
    let mut reason = match status.canonical_reason() {
        Some(phrase) => format!("{} {phrase}", status.as_u16()),
        None => status.as_u16().to_string(),
    };
    if status.is_redirection() {
        reason.push_str(": redirects are not followed");
        if let Some(location) = headers.get(LOCATION) {
            let location = plain(location.as_bytes());
            reason.push_str(", not to ");
            reason.extend(location.chars().take(LOCATION_CHARS_MAX));
        }
    }
    let text = plain(text);
    // Bytes that are no text have grown.
    let text = text[..text.floor_char_boundary(bytes_max)].trim();
    if !text.is_empty() {
        reason.push_str(": ");
        reason.push_str(text);
    }
    reason
}

/// Reasons are shown in lists and logs: no line breaks, no escape sequences.
fn plain(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Seconds, or a date.
fn retry_after_ms(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let ms = if digits {
        // More digits than fit are a long time.
        text.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000)
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        let since_epoch = date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(0).plus_ms(ms).since_ms(now)
    };
    Some(ms.min(RETRY_AFTER_MS_MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// 2015-10-21T07:27:00Z
    const NOW: Timestamp = Timestamp::from_millis(1_445_412_420_000);

    fn after(value: &str) -> Option<u64> {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(value).unwrap())]);
        retry_after_ms(&headers, NOW)
    }

    #[test]
    fn retry_after_is_read_in_both_forms_and_bounded() {
        assert_eq!(after("120"), Some(120_000));
        assert_eq!(after(" 0 "), Some(0));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(60_000));
        assert_eq!(after("Wednesday, 21-Oct-15 07:28:00 GMT"), Some(60_000));
        assert_eq!(after("Wed, 21 Oct 2015 07:00:00 GMT"), Some(0), "the past is now");
        assert_eq!(after("99999999999999999999999"), Some(RETRY_AFTER_MS_MAX));
        assert_eq!(after("Fri, 31 Dec 9999 23:59:59 GMT"), Some(RETRY_AFTER_MS_MAX));
        for nonsense in ["", "soon", "-1", "1.5", "+5", "12 s"] {
            assert_eq!(after(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn reasons_are_one_line_within_a_bound() {
        let headers = HeaderMap::new();
        let text = reason(StatusCode::BAD_GATEWAY, &headers, b" no\r\nluck \x1b[2J\xff ", 64);
        assert_eq!(text, "502 Bad Gateway: no  luck  [2J\u{fffd}");
        let text = reason(StatusCode::BAD_GATEWAY, &headers, &[0xff; 100], 100);
        assert!(text.len() <= 100 + "502 Bad Gateway: ".len(), "{}", text.len());
        let odd = StatusCode::from_u16(599).unwrap();
        assert_eq!(reason(odd, &headers, b"", 100), "599");
    }

    #[test]
    fn a_redirect_says_where_it_would_have_led() {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("http://127.0.0.1/"))]);
        let text = reason(StatusCode::FOUND, &headers, b"", 100);
        assert_eq!(text, "302 Found: redirects are not followed, not to http://127.0.0.1/");
    }
}
