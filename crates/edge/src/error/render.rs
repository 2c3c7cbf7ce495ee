use axum::body::{Body, HttpBody};
use axum::response::Response;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use tidegate_domain::Timestamp;

use super::{ApiError, Parts, take_carried};

/// Gives an error response its body, whoever made it: an [`ApiError`], or axum with its empty 404 and 405
/// and its plain-text rejections. Headers already there, such as `Allow`, stay.
pub(crate) fn render(response: &mut Response, path: &str, now: Timestamp) {
    match take_carried(response.extensions_mut()) {
        Some(parts) => {
            log_cause(&parts);
            fill(response, &parts, path, now);
        }
        None if is_foreign_error(response) => {
            let error = foreign(response.status());
            fill(response, &error.0, path, now);
        }
        None => {}
    }
}

/// A failure is logged once, here: it is the first place that knows that nobody handled it.
fn log_cause(parts: &Parts) {
    let (status, code) = (parts.status.as_u16(), parts.code);
    match &parts.cause {
        Some(cause) if parts.status.is_server_error() => {
            tracing::error!(status, code, cause, "request failed");
        }
        Some(cause) => tracing::debug!(status, code, cause, "request refused"),
        None => {}
    }
}

fn fill(response: &mut Response, parts: &Parts, path: &str, now: Timestamp) {
    let headers = response.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = parts.retry_after_s() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    *response.body_mut() = Body::from(text(parts, path, now));
}

/// For an answer that is written without a response.
pub(crate) fn body(error: &ApiError, path: &str, now: Timestamp) -> String {
    text(&error.0, path, now)
}

/// Written by hand to keep the members in the order that people read them in.
fn text(parts: &Parts, path: &str, now: Timestamp) -> String {
    let mut out = String::with_capacity(256);
    out.push_str("{\"timestamp\":");
    push_str(&mut out, &iso8601(now));
    out.push_str(",\"status\":");
    out.push_str(parts.status.as_str());
    out.push_str(",\"error\":");
    push_str(&mut out, parts.status.canonical_reason().unwrap_or("Error"));
    out.push_str(",\"message\":");
    push_str(&mut out, &parts.message);
    out.push_str(",\"path\":");
    push_str(&mut out, path);
    out.push_str(",\"code\":");
    push_str(&mut out, parts.code);
    if !parts.faults.is_empty() {
        let fields =
            parts.faults.named().iter().map(|f| serde_json::json!({"field": f.field, "message": f.message}));
        out.push_str(",\"fields\":");
        out.push_str(&Value::Array(fields.collect()).to_string());
        if parts.faults.omitted() > 0 {
            out.push_str(",\"fieldsOmitted\":");
            out.push_str(&parts.faults.omitted().to_string());
        }
    }
    if let Some(ms) = parts.retry_after_ms {
        out.push_str(",\"retryAfterMs\":");
        out.push_str(&ms.to_string());
    }
    for (key, value) in &parts.extra {
        out.push(',');
        push_str(&mut out, key);
        out.push(':');
        out.push_str(&value.to_string());
    }
    out.push('}');
    out
}

fn push_str(out: &mut String, text: &str) {
    out.push_str(&Value::from(text).to_string());
}

fn iso8601(now: Timestamp) -> String {
    let timestamp = jiff::Timestamp::from_millisecond(now.millis()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{timestamp:.3}")
}

/// An error that did not come from an [`ApiError`] and is not JSON that a handler wrote on purpose.
fn is_foreign_error(response: &Response) -> bool {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return false;
    }
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    !is_json || response.body().is_end_stream()
}

fn foreign(status: StatusCode) -> ApiError {
    let (code, message) = match status {
        StatusCode::NOT_FOUND => ("not_found", "no such resource"),
        StatusCode::METHOD_NOT_ALLOWED => ("method_not_allowed", "this resource does not take this method"),
        StatusCode::PAYLOAD_TOO_LARGE => ("body_too_large", "the body is too large"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("unsupported_media_type", "this media type is not supported"),
        status if status.is_server_error() => ("internal", "internal error"),
        _ => ("invalid_request", "the request is not valid"),
    };
    ApiError::new(status, code, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldError;

    #[test]
    fn the_body_names_everything_in_order_and_stays_valid_json() {
        let error = ApiError::invalid_fields(vec![FieldError::new("userId", "is \"missing\"")])
            .retry_after_ms(1_500)
            .with("quota", "1001".into())
            .caused_by("the secret cause");
        let text = body(&error, "/api/\"send", Timestamp::from_millis(1_700_000_000_007));
        assert_eq!(
            text,
            "{\"timestamp\":\"2023-11-14T22:13:20.007Z\",\"status\":400,\"error\":\"Bad Request\",\
             \"message\":\"the request has invalid fields: userId is \\\"missing\\\"\",\"path\":\"/api/\\\"send\",\
             \"code\":\"invalid_request\",\"fields\":[{\"field\":\"userId\",\"message\":\"is \\\"missing\\\"\"}],\
             \"retryAfterMs\":1500,\"quota\":\"1001\"}"
        );
        serde_json::from_str::<Value>(&text).unwrap();
    }

    #[test]
    fn faults_that_are_not_named_are_counted_in_the_body() {
        let error = ApiError::invalid_fields(vec![FieldError::new("a", "is wrong"); 103]);
        let body: Value = serde_json::from_str(&body(&error, "/", Timestamp::from_millis(0))).unwrap();
        assert_eq!((body["fields"].as_array().map(Vec::len), &body["fieldsOmitted"]), (Some(100), &3.into()));
    }
}
