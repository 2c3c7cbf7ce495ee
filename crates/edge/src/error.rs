use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::header::{HeaderName, HeaderValue};
use http::{Extensions, StatusCode};
use serde_json::Value;

mod faults;
pub(crate) mod render;

pub use self::faults::{Faults, FieldError};

/// What a message says about wrong fields; more of them are listed beside it.
const FAULTS_TOLD_MAX: usize = 5;
const FIELD_CHARS_MAX: usize = 64;
const FAULT_CHARS_MAX: usize = 200;

/// The one error of the HTTP edge. What the client may know (status, `code`, message, fields) is kept
/// apart from the inner cause, which is logged and never sent.
///
/// As a response it has no body yet: the body names the path and the time, so [`crate::Edge::wrap`]
/// writes it on the way out, and logs the cause there, once.
#[derive(Clone, Debug)]
pub struct ApiError(Box<Parts>);

#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub faults: Faults,
    pub retry_after_ms: Option<u64>,
    pub extra: Vec<(Cow<'static, str>, Value)>,
    pub cause: Option<String>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Parts {
    /// Rounded up, so that a client that waits that long is not early.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after_ms.map(|ms| ms.div_ceil(1_000).max(1))
    }
}

/// How an error travels from its handler to the renderer.
#[derive(Clone)]
struct Carried(Arc<Parts>);

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            status,
            code,
            message: message.into(),
            faults: Faults::default(),
            retry_after_ms: None,
            extra: Vec::new(),
            cause: None,
            header: None,
        }))
    }

    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 400 that names the wrong fields, as many as [`Faults`] holds, and the first few in its message too.
    pub fn invalid_fields(faults: impl Into<Faults>) -> Self {
        let faults = faults.into();
        let mut error = Self::bad_request("invalid_request", told(&faults));
        error.0.faults = faults;
        error
    }

    pub fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// 503, worth another try in a second.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after_ms(1_000)
    }

    /// 500 that tells the client nothing and the log everything.
    pub fn internal(cause: impl fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "internal error").caused_by(cause)
    }

    /// Sets the `Retry-After` header and `retryAfterMs`.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.0.retry_after_ms = Some(ms);
        self
    }

    /// Adds a member to the body, such as the quota that said no.
    #[must_use]
    pub fn with(mut self, key: impl Into<Cow<'static, str>>, value: Value) -> Self {
        self.0.extra.push((key.into(), value));
        self
    }

    #[must_use]
    pub fn caused_by(mut self, cause: impl fmt::Display) -> Self {
        self.0.cause = Some(cause.to_string());
        self
    }

    /// The answer carries it too, such as a challenge. There is one at most.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        self.0.retry_after_s()
    }

    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    pub fn code(&self) -> &'static str {
        self.0.code
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn fields(&self) -> &[FieldError] {
        self.0.faults.named()
    }
}

/// In words, for who reads the message alone. Names may be the caller's own, so each is cut short.
fn told(faults: &Faults) -> String {
    let mut text = "the request has invalid fields".to_owned();
    for (place, FieldError { field, message }) in faults.named().iter().take(FAULTS_TOLD_MAX).enumerate() {
        text.push_str(if place == 0 { ": " } else { "; " });
        text.extend(field.chars().take(FIELD_CHARS_MAX));
        text.push(' ');
        text.extend(message.chars().take(FAULT_CHARS_MAX));
    }
    if let Some(more @ 1..) = (faults.named().len() + faults.omitted()).checked_sub(FAULTS_TOLD_MAX) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.0.status.as_u16(), self.0.code, self.0.message)
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(mut self) -> Response {
        let mut response = self.0.status.into_response();
        if let Some((name, value)) = self.0.header.take() {
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().insert(Carried(Arc::new(*self.0)));
        response
    }
}

/// The error that a handler left in its response, if any.
pub(crate) fn take_carried(extensions: &mut Extensions) -> Option<Arc<Parts>> {
    extensions.remove::<Carried>().map(|carried| carried.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_the_first_faults_and_how_many_more_there_are() {
        let faults = |count| ApiError::invalid_fields(vec![FieldError::new("a", "is missing"); count]);
        assert_eq!(faults(2).message(), "the request has invalid fields: a is missing; a is missing");
        assert!(faults(5).message().ends_with("a is missing"));
        assert!(faults(7).message().ends_with("; a is missing; and 2 more"));
        assert_eq!(faults(7).fields().len(), 7);
        assert!(faults(107).message().ends_with("; a is missing; and 102 more"));
        assert_eq!(faults(107).fields().len(), 100);
    }

    #[test]
    fn a_message_does_not_grow_with_what_callers_write() {
        let long = FieldError::new("ü".repeat(100_000), "x".repeat(100_000));
        assert!(ApiError::invalid_fields(vec![long; 100]).message().len() < 2_000);
    }
}
