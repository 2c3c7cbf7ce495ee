use axum::body::Body;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::SignedDuration;
use serde::Serialize;
use tidegate_domain::limits::Quota;
use tidegate_domain::{Durability, Timestamp};
use tidegate_edge::ApiError;

use super::times::EPOCH;

pub const DURABILITY: &str = "tidegate-durability";

pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, ApiError> {
    let bytes = serde_json::to_vec(value).map_err(ApiError::internal)?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Milliseconds in which the calendar repeats itself: 400 years.
const CYCLE_MS: i64 = 146_097 * 86_400_000;

/// RFC 3339 in UTC with milliseconds.
pub fn iso(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.millis()) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => far_iso(at.millis()),
    }
}

/// Beyond what the calendar at hand knows. From the year 10000 on ISO-8601 writes six digits and a sign: a slot that is
/// asked for at the end of 9999 may land there.
fn far_iso(ms: i64) -> String {
    let within = SignedDuration::from_millis(ms.rem_euclid(CYCLE_MS));
    let Ok(at) = EPOCH.checked_add(within) else { return ms.to_string() };
    let year = i64::from(at.year()) + 400 * ms.div_euclid(CYCLE_MS);
    let rest = at.strftime("-%m-%dT%H:%M:%S.%3fZ");
    if (0..=9_999).contains(&year) { format!("{year:04}{rest}") } else { format!("{year:+07}{rest}") }
}

/// Seconds for a header: rounded up, so that whoever waits that long is not early.
pub fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1_000)
}

pub fn put_rate_limit(headers: &mut HeaderMap, quota: &Quota, now: Timestamp) {
    headers.insert("ratelimit-limit", quota.limit.into());
    headers.insert("ratelimit-remaining", quota.remaining(now).into());
    headers.insert("ratelimit-reset", seconds(quota.resets_in_ms(now)).into());
}

/// A promise weaker than the contract's is named in every answer that makes it.
pub fn weaker_durability(durability: Durability) -> Option<&'static str> {
    match durability {
        Durability::Fsync => None,
        Durability::OsBuffer => Some("os-buffer"),
    }
}

pub fn put_durability(headers: &mut HeaderMap, durability: Durability) {
    if let Some(name) = weaker_durability(durability) {
        headers.insert(DURABILITY, HeaderValue::from_static(name));
    }
}

/// A GET that takes something: a HEAD would take it too, and show nothing of it.
pub fn get_only<H, T, S>(handler: H) -> MethodRouter<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    get(handler).head(not_allowed).fallback(not_allowed)
}

/// axum would allow HEAD wherever there is a GET.
async fn not_allowed() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_milliseconds() {
        assert_eq!(iso(Timestamp::from_millis(1_763_244_000_050)), "2025-11-15T22:00:00.050Z");
        assert_eq!(iso(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(Timestamp::from_millis(253_402_300_799_999)), "9999-12-31T23:59:59.999Z");
        assert_eq!(iso(Timestamp::from_millis(253_402_300_800_001)), "+010000-01-01T00:00:00.001Z");
    }

    #[test]
    fn whoever_waits_the_seconds_of_a_header_is_not_early() {
        assert_eq!([seconds(0), seconds(1), seconds(1_000), seconds(1_001)], [0, 1, 1, 2]);
    }
}
