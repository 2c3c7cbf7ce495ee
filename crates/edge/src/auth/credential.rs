use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::ApiError;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What a request brings to prove who sent it.
pub(super) enum Credential<'a> {
    None,
    /// Something that is neither Basic nor Bearer, or not decodable.
    Garbled,
    ApiKey(&'a [u8]),
    Password {
        user: String,
        password: Vec<u8>,
    },
}

/// At most one: with two, whoever reads the request next might pick the other.
pub(super) fn of(headers: &HeaderMap) -> Result<Credential<'_>, ApiError> {
    match (single(headers, &AUTHORIZATION)?, single(headers, &X_API_KEY)?) {
        (None, None) => Ok(Credential::None),
        (None, Some(key)) => Ok(Credential::ApiKey(key.as_bytes())),
        (Some(value), None) => Ok(authorization(value.as_bytes())),
        (Some(_), Some(_)) => Err(ambiguous("Authorization and X-Api-Key together")),
    }
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ApiError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(ambiguous("a credential header stands twice")),
    }
}

fn ambiguous(message: &'static str) -> ApiError {
    ApiError::bad_request("ambiguous_credentials", message)
}

fn authorization(value: &[u8]) -> Credential<'_> {
    let Some(space) = value.iter().position(|b| *b == b' ') else { return Credential::Garbled };
    let (scheme, rest) = (&value[..space], value[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        Credential::ApiKey(rest)
    } else if scheme.eq_ignore_ascii_case(b"basic") {
        basic(rest).unwrap_or(Credential::Garbled)
    } else {
        Credential::Garbled
    }
}

fn basic(encoded: &[u8]) -> Option<Credential<'static>> {
    let mut decoded = STANDARD.decode(encoded).ok()?;
    let colon = decoded.iter().position(|b| *b == b':')?;
    let password = decoded.split_off(colon + 1);
    decoded.truncate(colon);
    let user = String::from_utf8(decoded).ok()?;
    Some(Credential::Password { user, password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_splits_at_the_first_colon() {
        let value = format!("bAsIc {}", STANDARD.encode("anna:a:b"));
        let Credential::Password { user, password } = authorization(value.as_bytes()) else { panic!() };
        assert_eq!((user.as_str(), password.as_slice()), ("anna", &b"a:b"[..]));
    }

    #[test]
    fn anything_else_is_garbled() {
        for value in ["", "Basic", "Basic !!!", "Basic YW5uYQ==", "Digest x", "Basic /zphYmM="] {
            assert!(matches!(authorization(value.as_bytes()), Credential::Garbled), "{value}");
        }
    }
}
