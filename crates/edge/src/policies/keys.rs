use axum::extract::Request;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use tidegate_domain::limits::{KeyStrategy, MissingKey, Policy};

use super::GateOptions;
use super::client_ip::{bucket_key, peer_client};
use crate::auth::{api_key, sha256_hex};
use crate::{ApiError, Principal};

/// The bucket of all who bring no key.
const ANONYMOUS: &str = "anonymous";
/// In front of the hash of a longer key.
const HASHED: &str = "sha256:";
/// In front of a key that says one of the above: such a key is a client's own all the same.
const LITERAL: char = '=';
/// Longer keys are known by their hash.
const KEY_BYTES_MAX: usize = 128;

/// Who sent a request, by every name that a policy may ask for; each is worked out once. Keys are copies of their
/// own: shared ones would have all threads count the same handles.
pub(super) struct Caller<'a> {
    request: &'a Request,
    principal: Option<&'a Principal>,
    options: &'a GateOptions,
    ip: Option<String>,
    api_key: Option<Option<String>>,
}

impl<'a> Caller<'a> {
    pub fn new(request: &'a Request, principal: Option<&'a Principal>, options: &'a GateOptions) -> Self {
        Self { request, principal, options, ip: None, api_key: None }
    }

    pub fn key(&mut self, policy: &Policy) -> Result<String, ApiError> {
        let (key, missing) = match &policy.key {
            KeyStrategy::Ip => return Ok(self.ip()),
            KeyStrategy::Principal => {
                (self.principal.map(|principal| literal(&principal.name)), MissingKey::Anonymous)
            }
            KeyStrategy::ApiKey { missing } => (self.api_key(), *missing),
            KeyStrategy::Header { name, missing } => (header(self.request.headers(), name), *missing),
        };
        match key {
            Some(key) => Ok(key),
            // A shadow denies nobody.
            None if missing == MissingKey::Refuse && !policy.rule.shadow() => Err(refused(policy)),
            None => Ok(ANONYMOUS.to_owned()),
        }
    }

    fn ip(&mut self) -> String {
        let found = || {
            let ip = peer_client(self.request, &self.options.trusted_proxies);
            bucket_key(ip, self.options.ipv6_prefix)
        };
        self.ip.get_or_insert_with(found).clone()
    }

    /// By its SHA-256, as in the configuration: keys are secrets, and these names are shown to admins.
    fn api_key(&mut self) -> Option<String> {
        let found = || api_key(self.request.headers()).map(sha256_hex);
        self.api_key.get_or_insert_with(found).clone()
    }
}

/// The key under which a policy has somebody's bucket, from how a person names them: any address of a network, an
/// API key or its SHA-256, others as [`literal`] writes them. The error says what the policy expects.
pub(super) fn named(policy: &Policy, text: &str, options: &GateOptions) -> Result<String, &'static str> {
    match &policy.key {
        KeyStrategy::Ip => match text.split('/').next().unwrap_or(text).parse() {
            Ok(ip) => Ok(bucket_key(ip, options.ipv6_prefix)),
            Err(_) => Err("must be an address: this policy has a bucket for each"),
        },
        KeyStrategy::ApiKey { .. } if text != ANONYMOUS && !is_sha256(text) => {
            Ok(sha256_hex(text.as_bytes()))
        }
        KeyStrategy::Header { .. } if text.len() > KEY_BYTES_MAX => Ok(hashed(text.as_bytes())),
        KeyStrategy::ApiKey { .. } | KeyStrategy::Header { .. } | KeyStrategy::Principal => {
            Ok(text.to_owned())
        }
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn hashed(key: &[u8]) -> String {
    format!("{HASHED}{}", sha256_hex(key))
}

/// A key as its client wrote it, such that it can't be taken for the bucket of those without one, nor for a hash.
fn literal(key: &str) -> String {
    match key == ANONYMOUS || key.starts_with(HASHED) || key.starts_with(LITERAL) {
        true => format!("{LITERAL}{key}"),
        false => key.to_owned(),
    }
}

/// Given twice is as good as not given: nobody can tell whose it is.
fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    match value.as_bytes().trim_ascii() {
        [] => None,
        key if key.len() > KEY_BYTES_MAX => Some(hashed(key)),
        key => Some(literal(&String::from_utf8_lossy(key))),
    }
}

fn refused(policy: &Policy) -> ApiError {
    let error = match &policy.key {
        KeyStrategy::Header { name, .. } => ApiError::bad_request(
            "missing_key",
            format!("the header {name} is missing, empty or given twice"),
        ),
        _ => ApiError::new(StatusCode::UNAUTHORIZED, "missing_key", "an API key is required")
            .header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tidegate\"")),
    };
    error.with("policy", policy.name.as_str().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_key_only_when_it_is_one_value() {
        let mut headers = HeaderMap::new();
        assert_eq!(header(&headers, "x-tenant"), None);
        headers.insert("x-tenant", HeaderValue::from_static(" acme "));
        assert_eq!(header(&headers, "x-tenant").as_deref(), Some("acme"));
        headers.append("x-tenant", HeaderValue::from_static("other"));
        assert_eq!(header(&headers, "x-tenant"), None);
        headers.insert("x-tenant", HeaderValue::from_static(""));
        assert_eq!(header(&headers, "x-tenant"), None);
        headers.insert("x-tenant", HeaderValue::from_str(&"x".repeat(5_000)).unwrap());
        assert_eq!(header(&headers, "x-tenant").map(|key| key.len()), Some(71));
        for (value, key) in [
            ("anonymous", "=anonymous"),
            ("=anonymous", "==anonymous"),
            ("sha256:ab", "=sha256:ab"),
            ("anonymous2", "anonymous2"),
        ] {
            headers.insert("x-tenant", HeaderValue::from_static(value));
            assert_eq!(header(&headers, "x-tenant").as_deref(), Some(key));
        }
    }
}
