use http::HeaderMap;
use tidegate_domain::{IdempotencyKey, MessageId, Timestamp};
use tidegate_edge::ApiError;

use super::answer::iso;

const HEADER: &str = "idempotency-key";
pub const REPLAY: &str = "idempotent-replay";

/// The header's key: at most one, 1 to 255 visible characters.
pub fn header_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(wrong("the header Idempotency-Key is given more than once"));
    }
    match value.to_str().ok().and_then(|text| checked(text).ok()) {
        Some(key) => Ok(Some(key)),
        None => Err(wrong("the header Idempotency-Key must be 1 to 255 visible ASCII characters")),
    }
}

/// The same rule for a key in a body.
pub fn checked(text: &str) -> Result<&str, &'static str> {
    let fits = (1..=IdempotencyKey::TEXT_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text) } else { Err("must be 1 to 255 visible ASCII characters") }
}

/// Every duplicate is told: which message it repeats, and when that came.
pub fn note_duplicate(id: MessageId, at: Timestamp) {
    metrics::counter!("tidegate_duplicates_total").increment(1);
    tracing::info!(message_id = %id, first_at = iso(at), "duplicate request: its idempotency key was used before");
}

fn wrong(message: &'static str) -> ApiError {
    ApiError::bad_request("invalid_idempotency_key", message)
}
