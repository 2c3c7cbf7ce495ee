use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::extract::Request;
use http::StatusCode;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use tidegate_domain::Clock;
use tokio::sync::Semaphore;

use crate::policies::peer_client;
use crate::{ApiError, Cidr, tally};

mod credential;
mod principals;
mod secret;
mod throttle;
mod verified;

use credential::Credential;
pub use principals::{Principal, PrincipalSpec, Principals, Role};
use secret::API_KEY_PREFIX;
pub use secret::{hash_password, new_api_key};
use throttle::Throttle;
use verified::Verified;

/// Passwords put through argon2id at once. Each takes a core for some 20 ms and 19 MiB; two leave a small
/// machine room for its actual work.
const VERIFICATIONS_MAX: usize = 2;
/// Requests that may wait for that, before the next one is answered 503.
const LINE_MAX: usize = 128;

/// Probes come from machinery that holds no credentials, and learn nothing but a yes or no.
const PROBES: [&str; 2] = ["/health/live", "/health/ready"];

/// Finds out who sent a request.
#[derive(Debug)]
pub(crate) struct Authenticator {
    principals: Principals,
    trusted_proxies: Vec<Cidr>,
    clock: Arc<dyn Clock>,
    local: Principal,
    verified: Verified,
    throttle: Throttle,
    line: Semaphore,
    verifiers: Arc<Semaphore>,
}

/// What is known about the sender without waiting.
pub(crate) enum Access {
    Public,
    Granted(Principal),
    /// A password that was not seen lately: see [`Authenticator::verify`].
    Unverified(Attempt),
}

/// A user name and a password that still has to be verified.
pub(crate) struct Attempt {
    client: IpAddr,
    user: String,
    password: Vec<u8>,
    digest: secret::Digest,
}

impl Authenticator {
    pub fn new(principals: Principals, trusted_proxies: Vec<Cidr>, clock: Arc<dyn Clock>) -> Self {
        Self {
            principals,
            trusted_proxies,
            clock,
            local: Principal { name: Arc::from("local"), role: Role::Admin },
            verified: Verified::default(),
            throttle: Throttle::default(),
            line: Semaphore::new(LINE_MAX + VERIFICATIONS_MAX),
            verifiers: Arc::new(Semaphore::new(VERIFICATIONS_MAX)),
        }
    }

    pub fn admit(&self, request: &Request) -> Result<Access, ApiError> {
        if self.principals.is_empty() {
            return Ok(Access::Granted(self.local.clone()));
        }
        if self.is_public(request.uri().path()) {
            return Ok(Access::Public);
        }
        // Whom a failure is counted against: behind a proxy, one client's guesses must not lock the others out.
        let client = || peer_client(request, &self.trusted_proxies);
        match credential::of(request.headers())? {
            Credential::None => Err(unauthenticated()),
            // Not a credential at all, but counted: it costs an attacker as little as a wrong key.
            Credential::Garbled => Err(self.failure(client())),
            Credential::ApiKey(key) => {
                let principal = self.principals.by_api_key(&secret::sha256(key));
                principal.cloned().map(Access::Granted).ok_or_else(|| self.failure(client()))
            }
            Credential::Password { user, password } => {
                let digest = self.principals.digest(&user, &password);
                if let Some(principal) = self.recall(&digest) {
                    return Ok(Access::Granted(principal));
                }
                let attempt = Attempt { client: client(), user, password, digest };
                self.check_throttle(&attempt)?;
                Ok(Access::Unverified(attempt))
            }
        }
    }

    /// Whether nothing here depends on who asks: a probe, or a path whose handler checks credentials of its own.
    pub fn is_public(&self, path: &str) -> bool {
        is_probe(path) || self.principals.leave(path)
    }

    /// Puts a password through argon2id, off the async threads, after waiting for its turn.
    pub async fn verify(self: Arc<Self>, attempt: Attempt) -> Result<Principal, ApiError> {
        let busy = || ApiError::unavailable("too many passwords to verify");
        let Ok(_place) = self.line.try_acquire() else {
            tally::refused("password_line_full");
            return Err(busy());
        };
        let turn = self.verifiers.clone().acquire_owned().await.map_err(|_| busy())?;
        // While this one waited, another connection may have brought the same password, or failed too often.
        if let Some(principal) = self.recall(&attempt.digest) {
            return Ok(principal);
        }
        self.check_throttle(&attempt)?;
        let this = self.clone();
        let verification = tokio::task::spawn_blocking(move || {
            // Held to the end of the work, which goes on, and counts, when the client hangs up.
            let _turn = turn;
            this.verify_now(&attempt)
        });
        verification.await.map_err(ApiError::internal)?
    }

    pub fn verifications(&self) -> u64 {
        self.principals.verifications()
    }

    fn verify_now(&self, attempt: &Attempt) -> Result<Principal, ApiError> {
        match self.principals.by_password(&attempt.user, &attempt.password) {
            Some(principal) => {
                self.verified.remember(attempt.digest, principal.clone(), self.clock.now());
                Ok(principal.clone())
            }
            None => {
                self.throttle.count(&self.throttle_keys(attempt), self.clock.now());
                tally::refused("unauthenticated");
                Err(unauthenticated())
            }
        }
    }

    fn recall(&self, digest: &secret::Digest) -> Option<Principal> {
        self.verified.recall(digest, self.clock.now())
    }

    fn check_throttle(&self, attempt: &Attempt) -> Result<(), ApiError> {
        self.throttle.check(&self.throttle_keys(attempt), self.clock.now()).map_err(throttled)
    }

    /// Names come from the client and may be long: the table holds their digest.
    fn throttle_keys(&self, attempt: &Attempt) -> [throttle::Key; 2] {
        [
            throttle::Key::client(attempt.client),
            throttle::Key::User(self.principals.digest(&attempt.user, b"")),
        ]
    }

    /// A failure that needed no verification.
    fn failure(&self, client: IpAddr) -> ApiError {
        let (key, now) = ([throttle::Key::client(client)], self.clock.now());
        if let Err(retry_after_ms) = self.throttle.check(&key, now) {
            return throttled(retry_after_ms);
        }
        self.throttle.count(&key, now);
        tally::refused("unauthenticated");
        unauthenticated()
    }
}

pub(crate) fn is_probe(path: &str) -> bool {
    PROBES.contains(&path)
}

/// The API key that a request brings, whether it is anybody's or not.
pub(crate) fn api_key(headers: &http::HeaderMap) -> Option<&[u8]> {
    match credential::of(headers) {
        Ok(Credential::ApiKey(key)) if !key.is_empty() => Some(key),
        _ => None,
    }
}

/// As the configuration writes hashes of API keys.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    secret::hex(&secret::sha256(bytes))
}

/// A path as it may be logged: people look up an API key's bucket by the key itself.
pub(crate) fn masked(path: &str) -> Cow<'_, str> {
    let is_key =
        |segment: &str| percent_decode_str(segment).take(API_KEY_PREFIX.len()).eq(API_KEY_PREFIX.bytes());
    if !path.split('/').any(is_key) {
        return Cow::Borrowed(path);
    }
    let shown = path.split('/').map(|segment| match is_key(segment) {
        true => format!("{API_KEY_PREFIX}…"),
        false => segment.to_owned(),
    });
    Cow::Owned(shown.collect::<Vec<_>>().join("/"))
}

/// The same for no credential, an unknown user, a wrong password and a wrong key.
fn unauthenticated() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthenticated", "valid credentials are required")
        .header(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"tidegate\", charset=\"UTF-8\""))
}

fn throttled(retry_after_ms: u64) -> ApiError {
    tally::refused("throttled");
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "throttled", "too many failed attempts")
        .retry_after_ms(retry_after_ms)
}

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthenticated)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tidegate_domain::Timestamp;

    use super::*;
    use crate::ClientAddr;

    #[derive(Debug)]
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(0)
        }

        fn monotonic_ns(&self) -> u64 {
            0
        }
    }

    fn ben() -> PrincipalSpec {
        let (_, hash) = new_api_key().unwrap();
        let api_key_hashes = vec![hash];
        PrincipalSpec { name: "ben".into(), role: Role::User, password_hash: None, api_key_hashes }
    }

    #[test]
    fn behind_a_trusted_proxy_each_client_is_throttled_alone() {
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let principals = Principals::new(vec![ben()]).unwrap();
        let authenticator = Authenticator::new(principals, trusted, Arc::new(Still));
        let guess = |peer: &str, client: &str| {
            let request = Request::get("/").header("x-api-key", "wrong").header("x-forwarded-for", client);
            let mut request = request.body(Body::empty()).unwrap();
            request.extensions_mut().insert(ClientAddr(format!("{peer}:1").parse().unwrap()));
            authenticator.admit(&request).err().unwrap().status().as_u16()
        };
        for _ in 0..10 {
            assert_eq!(guess("10.0.0.1", "203.0.113.7"), 401);
        }
        assert_eq!(guess("10.0.0.2", "203.0.113.7"), 429, "through whichever proxy");
        assert_eq!(guess("10.0.0.1", "203.0.113.8"), 401);
        // Nobody else is believed: names of other clients buy no further guesses.
        let strangers = [(); 11].map(|()| guess("198.51.100.1", "203.0.113.9"));
        assert_eq!((strangers[9], strangers[10]), (401, 429));
        assert_eq!(guess("198.51.100.1", "203.0.113.10"), 429);
    }

    #[tokio::test]
    async fn a_password_beyond_the_waiting_line_is_answered_503_unverified() {
        let authenticator =
            Arc::new(Authenticator::new(Principals::new(vec![ben()]).unwrap(), Vec::new(), Arc::new(Still)));
        let request = Request::get("/").header("authorization", "Basic YTpi").body(Body::empty()).unwrap();
        let Ok(Access::Unverified(attempt)) = authenticator.admit(&request) else { panic!() };
        let full = authenticator.line.try_acquire_many(130).unwrap();
        let refusal = authenticator.clone().verify(attempt).await.unwrap_err();
        assert_eq!((refusal.status(), authenticator.verifications()), (StatusCode::SERVICE_UNAVAILABLE, 0));

        drop(full);
        let Ok(Access::Unverified(attempt)) = authenticator.admit(&request) else { panic!() };
        let refusal = authenticator.clone().verify(attempt).await.unwrap_err();
        assert_eq!((refusal.status(), authenticator.verifications()), (StatusCode::UNAUTHORIZED, 1));
    }
}
