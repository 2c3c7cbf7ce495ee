use std::mem::MaybeUninit;

use http::{StatusCode, Uri};
use httparse::{Error, Header, Request, Status};

use crate::ApiError;

/// As many as hyper takes.
const FIELDS_MAX: usize = 100;
/// The longest target that [`Uri`] takes.
const TARGET_BYTES_MAX: usize = 65_534;
/// A longer length fits into no limit, and sums with it would overflow.
const CONTENT_LENGTH_MAX: u64 = u64::MAX >> 1;
/// For the stand-in of a head that is not valid itself.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

/// How long the body is that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
}

/// Where the head ends that begins with `bytes`; none if more has to be read first. The first `scanned` bytes are
/// known to hold no end and no fault.
///
/// A line feed without its carriage return is refused as soon as it comes: some readers take it for the end of a line
/// and others do not, and what they then take for a header is not the same.
pub(super) fn end(bytes: &[u8], scanned: usize) -> Result<Option<usize>, ApiError> {
    for (at, byte) in bytes.iter().enumerate().skip(scanned) {
        if *byte != b'\n' {
            continue;
        }
        match &bytes[..at] {
            [.., b'\r', b'\n', b'\r'] => return Ok(Some(at + 1)),
            [.., b'\r'] => {}
            _ => return Err(invalid("a line of the head ends in LF without CR")),
        }
    }
    Ok(None)
}

/// Checks a whole head as hyper would, which answers what it does not take with an empty body and without an id.
pub(super) fn check(head: &[u8]) -> Result<Framing, ApiError> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut fields) {
        Ok(Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(invalid("the head does not end where its lines end")),
        Err(error) => return Err(fault(error, &request)),
    }
    check_target(request.path.unwrap_or_default())?;
    framing(request.headers, request.version == Some(1))
}

/// Whether more bytes could still make a head of it. Not every program that connects speaks HTTP, and one that does not
/// should hear so at once.
pub(super) fn check_beginning(bytes: &[u8]) -> Result<(), ApiError> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(_) => Ok(()),
        Err(error) => Err(fault(error, &request)),
    }
}

/// A head in the place of one that is not valid: hyper takes it, and its request is answered with the fault. It keeps
/// the method and the target as far as they can be read, for the answer, the log and the policies.
pub(super) fn stand_in(bytes: &[u8]) -> Vec<u8> {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ').map(std::str::from_utf8);
    let (method, target) = match (words.next(), words.next()) {
        (Some(Ok(method)), Some(Ok(target)))
            if METHODS.contains(&method) && target.starts_with('/') && check_target(target).is_ok() =>
        {
            (method, target)
        }
        _ => ("INVALID", "/"),
    };
    format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").into_bytes()
}

pub(super) fn too_large(header_bytes_max: usize) -> ApiError {
    let message = format!("the header is larger than {header_bytes_max} bytes");
    ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message)
}

fn invalid(message: &'static str) -> ApiError {
    ApiError::bad_request("invalid_head", message)
}

fn fault(error: Error, request: &Request<'_, '_>) -> ApiError {
    match error {
        Error::TooManyHeaders => {
            let message = format!("the head has more than {FIELDS_MAX} fields");
            ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message)
        }
        Error::HeaderName => invalid("the name of a header field is not valid"),
        Error::HeaderValue => invalid("the value of a header field is not valid"),
        Error::Version => invalid("the version has to be HTTP/1.1 or HTTP/1.0"),
        Error::Token if request.method.is_none() => invalid("the method is not valid"),
        Error::Token => invalid("the target is not valid"),
        Error::NewLine | Error::Status => invalid("the head is not valid"),
    }
}

fn check_target(target: &str) -> Result<(), ApiError> {
    // Most targets are made of these, and hold nothing that needs a closer look.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~?=&%+:,".contains(&byte);
    if target.len() > TARGET_BYTES_MAX {
        let message = format!("the target is longer than {TARGET_BYTES_MAX} bytes");
        return Err(ApiError::new(StatusCode::URI_TOO_LONG, "target_too_long", message));
    }
    if target.starts_with('/') && target.bytes().all(plain) || target.parse::<Uri>().is_ok() {
        return Ok(());
    }
    Err(invalid("the target is not valid"))
}

/// By the rules of RFC 9112 6.3, as hyper has them, save that `Transfer-Encoding` and `Content-Length` do not go together:
/// a proxy in front could have gone by the other one, and no client has a reason to send both.
fn framing(fields: &[Header<'_>], is_http_11: bool) -> Result<Framing, ApiError> {
    let (mut length, mut chunked) = (None, None);
    for field in fields {
        if field.name.eq_ignore_ascii_case("content-length") {
            let this = content_length(field.value).ok_or_else(invalid_length)?;
            if length.is_some_and(|other| other != this) {
                return Err(invalid_length());
            }
            length = Some(this);
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            let only = chunked.is_none() && field.value.eq_ignore_ascii_case(b"chunked");
            chunked = Some(only && is_http_11);
        }
    }
    match (chunked, length) {
        (Some(true), None) => Ok(Framing::Chunked),
        (Some(true), Some(_)) => {
            let message = "Content-Length does not go with Transfer-Encoding";
            Err(ApiError::bad_request("invalid_content_length", message))
        }
        (Some(false), _) => {
            let message = "the only transfer encoding is chunked, in HTTP/1.1";
            Err(ApiError::bad_request("invalid_transfer_encoding", message))
        }
        (None, length) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = std::str::from_utf8(value).ok()?.parse().ok()?;
    (length <= CONTENT_LENGTH_MAX).then_some(length)
}

fn invalid_length() -> ApiError {
    ApiError::bad_request("invalid_content_length", "Content-Length has to be one number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_from_wherever_the_search_goes_on() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        for scanned in 0..head.len() - 5 {
            assert_eq!(end(head, scanned).unwrap(), Some(head.len() - 4), "{scanned}");
            assert_eq!(end(&head[..scanned], 0).unwrap(), None, "{scanned}");
        }
        for bare in ["\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: a\n\r\n", "GET / HTTP/1.1\r\n\n"] {
            assert!(end(bare.as_bytes(), 0).is_err(), "{bare:?}");
        }
    }

    #[test]
    fn a_stand_in_keeps_what_can_be_read_and_is_always_valid() {
        for (bytes, line) in [
            (&b"POST /a?b HTTP/1.1\nHost: x"[..], "POST /a?b HTTP/1.1"),
            (b"GET /a", "GET /a HTTP/1.1"),
            (b"GET /\xff HTTP/1.1\r\n", "INVALID / HTTP/1.1"),
            (b"CONNECT a:1 HTTP/1.1\r\n", "INVALID / HTTP/1.1"),
            (b"\x16\x03\x01\x02", "INVALID / HTTP/1.1"),
            (b"", "INVALID / HTTP/1.1"),
        ] {
            let head = String::from_utf8(stand_in(bytes)).unwrap();
            assert_eq!(head.lines().next(), Some(line));
            assert_eq!(check(head.as_bytes()).unwrap(), Framing::Length(0));
        }
    }
}
