use axum::extract::Request;
use http::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, StatusCode};

use crate::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what a page of another site has its visitor's browser ask for. The page needs no answer to do harm: an
/// image with the right address pops a message. An open gateway would take it for somebody on this machine, and
/// one with principals for whoever's password the browser remembers.
///
/// Callers that are no browsers send neither header.
pub(crate) fn check(request: &Request) -> Result<(), ApiError> {
    if is_own(request.headers()) {
        return Ok(());
    }
    let message = "pages of other sites may not use this gateway (see Sec-Fetch-Site or Origin); ask it from a program, or from a page that has its very address";
    Err(ApiError::new(StatusCode::FORBIDDEN, "cross_site", message))
}

fn is_own(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter().peekable();
    if sites.peek().is_some() {
        // No page can write this header, so it counts more than an origin, whose host a proxy may have replaced.
        return sites.all(|site| {
            [&b"same-origin"[..], b"none"].iter().any(|own| site.as_bytes().eq_ignore_ascii_case(own))
        });
    }
    headers.get_all(ORIGIN).iter().all(|origin| names_host(origin, headers.get(HOST)))
}

/// Whether an origin is what a page of this very host and port has. Where TLS ends before the gateway, it is `https`.
fn names_host(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_ascii_lowercase);
    let (Some(origin), Some(host)) = (text(origin), host.and_then(text)) else { return false };
    let Some((scheme, named)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let without = |authority: &str| authority.strip_suffix(default_port).unwrap_or(authority).to_owned();
    without(named) == without(&host)
}
