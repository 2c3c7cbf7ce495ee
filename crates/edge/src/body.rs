use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use http_body::Frame;
use serde_json::{Map, Value};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::bodies::BodyShare;
use crate::{ApiError, Limits, json, tally};

const BODIES_FULL_RETRY_MS: u64 = 1_000;

/// Reads a JSON object, within the limits.
pub async fn read_json(request: Request, limits: &Limits) -> Result<Map<String, Value>, ApiError> {
    let body = read_json_body(request, limits).await?;
    json::parse_object(body.bytes(), limits.json_bounds())
}

/// Reads a JSON object where there need not be any: an empty body is none, whatever type it claims to have. So is one
/// without a type; it is read to its end all the same, or the connection could not go on.
pub async fn read_optional_json(
    request: Request,
    limits: &Limits,
) -> Result<Option<Map<String, Value>>, ApiError> {
    let (typed, json) = (request.headers().contains_key(CONTENT_TYPE), is_json(request.headers()));
    let body = read_body(request, limits).await?;
    match (body.is_empty() || !typed, json) {
        (true, _) => Ok(None),
        (false, true) => json::parse_object(&body, limits.json_bounds()).map(Some),
        (false, false) => Err(not_json()),
    }
}

/// Reads a JSON object, or an array, which then stands under `array_as`.
pub async fn read_json_or_array(
    request: Request,
    limits: &Limits,
    array_as: &str,
) -> Result<Map<String, Value>, ApiError> {
    let body = read_json_body(request, limits).await?;
    json::parse_object_or_array(body.bytes(), limits.json_bounds(), array_as)
}

async fn read_json_body(request: Request, limits: &Limits) -> Result<Arrived, ApiError> {
    if !is_json(request.headers()) {
        return Err(not_json());
    }
    arrive(request, limits).await
}

/// Reads the body, within the limits, into memory of its own. What arrives in one piece is a slice of the connection's
/// read buffer: a body that is kept would keep that buffer, which is hundreds of times as large as a small body.
pub async fn read_body(request: Request, limits: &Limits) -> Result<Bytes, ApiError> {
    Ok(match arrive(request, limits).await? {
        Arrived::InOnePiece(slice) => Bytes::copy_from_slice(&slice),
        // Of a declared length: it fills its memory.
        Arrived::InPieces(whole) if whole.capacity() == whole.len() => whole.freeze(),
        Arrived::InPieces(whole) => Bytes::copy_from_slice(&whole),
    })
}

/// A body as it came.
enum Arrived {
    InOnePiece(Bytes),
    InPieces(BytesMut),
}

impl Arrived {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::InOnePiece(slice) => slice,
            Self::InPieces(whole) => whole,
        }
    }
}

/// A length that is declared too large is refused before anything is read. What comes in several pieces is counted with
/// all other bodies that are held; a piece alone lies in the connection's read buffer.
async fn arrive(mut request: Request, limits: &Limits) -> Result<Arrived, ApiError> {
    let share = request.extensions_mut().remove::<BodyShare>();
    let mut body = request.into_body();
    let max = limits.body_bytes_max;
    if usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX) > max {
        return Err(too_large(max));
    }
    let mut reading = Reading::new(limits.body_timeout);
    let declared = usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(0);
    let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
    while !body.is_end_stream() {
        let Some(frame) = reading.next(&mut body).await? else { break };
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + whole.len() + data.len() > max {
            return Err(too_large(max));
        }
        // Most bodies arrive in one piece.
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            let bytes = first.len() + whole.len() + data.len();
            if share.as_ref().is_some_and(|share| !share.grow(bytes, max)) {
                return Err(bodies_full());
            }
            if whole.is_empty() {
                whole = BytesMut::with_capacity(declared);
            }
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { Arrived::InOnePiece(first) } else { Arrived::InPieces(whole) })
}

/// The deadline of one body, with a timer only when there is something to wait for.
struct Reading {
    deadline: Instant,
    pendings: u32,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Reading {
    fn new(timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout, pendings: 0, sleep: None }
    }

    async fn next(&mut self, body: &mut Body) -> Result<Option<Frame<Bytes>>, ApiError> {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame.transpose().map_err(broken));
            }
            self.pendings += 1;
            if self.pendings == 1 {
                // hyper fetches the body from its buffer only after it was asked once, and polls us again right
                // after; a timer for that would be one per request. Waking ourselves costs nothing then, and
                // keeps this true for other bodies.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(self.deadline)));
            sleep.as_mut().poll(cx).map(|()| Err(timed_out()))
        })
        .await
    }
}

/// `application/json`, alone or with `charset=utf-8`.
fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let Ok(value) = value.to_str() else { return false };
    let (media_type, parameters) = value.split_once(';').unwrap_or((value, ""));
    media_type.trim().eq_ignore_ascii_case("application/json")
        && parameters.split(';').map(str::trim).filter(|parameter| !parameter.is_empty()).all(is_charset_utf8)
}

fn is_charset_utf8(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, value)| {
        name.eq_ignore_ascii_case("charset") && value.trim_matches('"').eq_ignore_ascii_case("utf-8")
    })
}

fn not_json() -> ApiError {
    let message = "the body has to be application/json";
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
}

fn too_large(max: usize) -> ApiError {
    let message = format!("the body is larger than {max} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

fn bodies_full() -> ApiError {
    tally::refused("bodies_full");
    let message = "too many bytes of request bodies are held, in all or from this address";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "bodies_full", message)
        .retry_after_ms(BODIES_FULL_RETRY_MS)
}

fn timed_out() -> ApiError {
    tally::refused("body_timeout");
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body took too long to arrive")
}

/// The client went away or broke the chunked coding; if it can still read, it is told so.
fn broken(error: axum::Error) -> ApiError {
    ApiError::bad_request("body_broken", "the body could not be read to its end").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_in_utf8_is_taken_for_json() {
        let is =
            |value: &'static str| is_json(&[(CONTENT_TYPE, value.parse().unwrap())].into_iter().collect());
        assert!(
            is("application/json")
                && is("Application/JSON; charset=UTF-8")
                && is("application/json;charset=\"utf-8\";")
        );
        assert!(
            !is("text/plain")
                && !is("application/jsonp")
                && !is("application/json; charset=latin1")
                && !is("")
        );
        assert!(!is_json(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn a_body_does_not_keep_the_buffer_that_it_came_in() {
        let second = Duration::from_secs(60);
        let limits = Limits {
            connections_max: 1,
            connections_per_client_percent: 100,
            first_byte_timeout: second,
            header_timeout: second,
            body_timeout: second,
            idle_timeout: second,
            write_timeout: second,
            header_bytes_max: 1_000,
            body_bytes_max: 1_000,
            bodies_bytes_max: 1 << 20,
            bodies_per_client_percent: 100,
            json_depth_max: 1,
            drain_timeout: second,
        };
        let buffer = Bytes::from(vec![b'x'; 8_192]);
        let request = Request::new(Body::from(buffer.slice(..16)));
        let body = read_body(request, &limits).await.unwrap();
        assert_eq!(body, "x".repeat(16));
        assert!(buffer.is_unique(), "the body is a slice of the buffer");
    }
}
