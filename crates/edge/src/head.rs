use std::net::Ipv4Addr;

use axum::extract::Request;
use http::header::{CONTENT_ENCODING, HOST};
use http::{HeaderValue, StatusCode, Version};

use crate::ApiError;

/// Refuses valid heads that are too large, that say two things about their host, or, when the gateway is `open`, that
/// were meant for another host.
pub(crate) fn check(request: &Request, header_bytes_max: usize, open: bool) -> Result<(), ApiError> {
    check_host(request, open)?;
    check_content_encoding(request)?;
    check_size(request, header_bytes_max)
}

fn check_host(request: &Request, open: bool) -> Result<(), ApiError> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(ApiError::bad_request("invalid_host", "more than one Host header"));
    }
    let host = match host {
        Some(host) if is_authority(host.as_bytes()) => host.as_bytes(),
        Some(_) => return Err(ApiError::bad_request("invalid_host", "the Host header is not valid")),
        None if request.version() >= Version::HTTP_11 => {
            return Err(ApiError::bad_request("invalid_host", "the Host header is missing"));
        }
        // HTTP/1.0 needs none, and a browser, which the rule below is about, does not speak it.
        None => return Ok(()),
    };
    // A web page can have its own name resolve to 127.0.0.1 and so reach a gateway that trusts whoever comes
    // from this machine. The name it used gives it away.
    let target = request.uri().authority().map_or(host, |authority| authority.as_str().as_bytes());
    if open && !(is_local(host) && is_local(target)) {
        let message = "without principals the gateway answers to localhost, 127.0.0.1 and [::1] only";
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", message));
    }
    Ok(())
}

/// Bodies are taken as they come: a compressed one would be kept, and sent on, as its bytes.
fn check_content_encoding(request: &Request) -> Result<(), ApiError> {
    let plain = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if request.headers().get_all(CONTENT_ENCODING).iter().all(plain) {
        return Ok(());
    }
    let message = "send the body as it is: content encodings are not supported";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_encoding", message))
}

fn check_size(request: &Request, header_bytes_max: usize) -> Result<(), ApiError> {
    let fields: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if fields + target > header_bytes_max {
        let message = format!("the header is larger than {header_bytes_max} bytes");
        return Err(ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message));
    }
    Ok(())
}

/// A name or address and a port, roughly; no list, no user, no space.
fn is_authority(host: &[u8]) -> bool {
    !host.is_empty() && host.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~%:[]".contains(b))
}

fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some(("::1", port)) if is_port(port) => return true,
            _ => return false,
        },
        None => match host.find(':') {
            Some(colon) if is_port(&host[colon..]) => &host[..colon],
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["localhost", "LocalHost:8080", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:8080"] {
            assert!(is_local(host.as_bytes()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:80:90",
            "10.0.0.1",
            "[::2]",
            "[::1]evil",
            "0.0.0.0",
            "localhost:8080x",
            "127.1",
            "[::1",
            "",
        ] {
            assert!(!is_local(host.as_bytes()), "{host}");
        }
    }
}
