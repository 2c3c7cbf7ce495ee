use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::Request;
use http::StatusCode;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use tidegate_domain::Clock;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::network::ClientNetwork;
use crate::policies::peer_client;
use crate::request_id::RequestId;
use crate::{ApiError, Cidr, tally};

mod credential;
mod line;
mod principals;
mod secret;
mod throttle;
mod verified;
mod verifier;

use credential::Credential;
pub use principals::{Principal, PrincipalSpec, Principals, Role};
use secret::API_KEY_PREFIX;
pub use secret::{check_password_hash, hash_password, new_api_key};
use verifier::Verifier;

/// How long the answer to a client that is locked out is held back, and how many are: a client that asks again and
/// again on each of its connections must not keep the gateway busy with refusals.
const HOLD: Duration = Duration::from_secs(1);
const HELD_MAX: usize = 1_024;

/// Probes come from machinery that holds no credentials, and learn nothing but a yes or no.
const PROBES: [&str; 2] = ["/health/live", "/health/ready"];

/// Finds out who sent a request.
#[derive(Debug)]
pub(crate) struct Authenticator {
    verifier: Arc<Verifier>,
    trusted_proxies: Vec<Cidr>,
    local: Principal,
    held: Semaphore,
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
    /// Whom a failure is counted against.
    client: ClientNetwork,
    user: String,
    password: Vec<u8>,
    digest: secret::Digest,
    request_id: Option<RequestId>,
}

impl Authenticator {
    pub fn new(principals: Principals, trusted_proxies: Vec<Cidr>, clock: Arc<dyn Clock>) -> Self {
        Self {
            verifier: Arc::new(Verifier::new(principals, clock)),
            trusted_proxies,
            local: Principal { name: Arc::from("local"), role: Role::Admin },
            held: Semaphore::new(HELD_MAX),
        }
    }

    pub fn admit(&self, request: &Request) -> Result<Access, ApiError> {
        let principals = self.principals();
        if principals.is_empty() {
            return Ok(Access::Granted(self.local.clone()));
        }
        if self.is_public(request.uri().path()) {
            return Ok(Access::Public);
        }
        match credential::of(request.headers())? {
            Credential::None => Err(unauthenticated()),
            // Not a credential at all, but counted: it costs an attacker as little as a wrong key.
            Credential::Garbled => Err(self.failure(request)),
            Credential::ApiKey(key) => {
                let principal = principals.by_api_key(&secret::sha256(key));
                principal.cloned().map(Access::Granted).ok_or_else(|| self.failure(request))
            }
            Credential::Password { user, password } => {
                let digest = principals.digest(&user, &password);
                if let Some(principal) = self.verifier.recall(&digest) {
                    return Ok(Access::Granted(principal));
                }
                let attempt = self.attempt(request, user, password, digest);
                self.check_throttle(&attempt)?;
                Ok(Access::Unverified(attempt))
            }
        }
    }

    /// Whether nothing here depends on who asks: a probe, or a path whose handler checks credentials of its own.
    pub fn is_public(&self, path: &str) -> bool {
        is_probe(path) || self.principals().leave(path)
    }

    /// Puts a password through argon2id, off the async threads, after waiting for its turn.
    pub async fn verify(&self, attempt: Attempt) -> Result<Principal, ApiError> {
        self.verifier.verify(attempt).await
    }

    /// Waits before a refusal is sent, if it is one of those that are repeated in vain.
    pub async fn hold(&self, refusal: &ApiError) {
        let repeated =
            matches!(refusal.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if let (true, Ok(_place)) = (repeated, self.held.try_acquire()) {
            sleep(HOLD).await;
        }
    }

    pub fn is_trusted_proxy(&self, ip: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(ip))
    }

    /// Who sent a request, as far as trusted proxies tell.
    pub fn client_of(&self, request: &Request) -> IpAddr {
        peer_client(request, &self.trusted_proxies)
    }

    pub fn verifications(&self) -> u64 {
        self.principals().verifications()
    }

    fn principals(&self) -> &Principals {
        &self.verifier.principals
    }

    fn attempt(&self, request: &Request, user: String, password: Vec<u8>, digest: secret::Digest) -> Attempt {
        // Behind a proxy, one client's guesses must not lock the others out.
        let client = ClientNetwork::of(self.client_of(request));
        Attempt { client, user, password, digest, request_id: request.extensions().get().cloned() }
    }

    fn check_throttle(&self, attempt: &Attempt) -> Result<(), ApiError> {
        self.verifier.throttle.check(attempt.client, self.verifier.now()).map_err(throttled)
    }

    /// A failure that needed no verification.
    fn failure(&self, request: &Request) -> ApiError {
        let attempt = self.attempt(request, String::new(), Vec::new(), [0; 32]);
        if let Err(error) = self.check_throttle(&attempt) {
            return error;
        }
        self.verifier.count_failure(&attempt);
        unauthenticated()
    }
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        self.verifier.close();
    }
}

/// Never the password.
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("client", &self.client)
            .field("user", &self.user)
            .finish_non_exhaustive()
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

/// A path as it may be logged: people look up an API key's bucket by the key itself, and some put an inbox's token where
/// its recipient belongs.
pub(crate) fn masked(path: &str) -> Cow<'_, str> {
    let is_key =
        |segment: &str| percent_decode_str(segment).take(API_KEY_PREFIX.len()).eq(API_KEY_PREFIX.bytes());
    let is_token = |segment: &str| {
        segment.len() >= TOKEN_CHARS
            && percent_decode_str(segment).count() == TOKEN_CHARS
            && percent_decode_str(segment).all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if !path.split('/').any(|segment| is_key(segment) || is_token(segment)) {
        return Cow::Borrowed(path);
    }
    let shown = path.split('/').map(|segment| match (is_key(segment), is_token(segment)) {
        (true, _) => format!("{API_KEY_PREFIX}…"),
        (false, true) => "…".to_owned(),
        (false, false) => segment.to_owned(),
    });
    Cow::Owned(shown.collect::<Vec<_>>().join("/"))
}

/// 32 bytes in base64url, as tokens of inboxes are written.
const TOKEN_CHARS: usize = 43;

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
    fn secrets_in_a_path_are_masked() {
        let token = "aB3-_".repeat(9)[..TOKEN_CHARS].to_owned();
        assert_eq!(masked(&format!("/inbox/{token}/messages")), "/inbox/…/messages");
        assert_eq!(masked(&format!("/inbox/%61{}/messages", &token[1..])), "/inbox/…/messages");
        assert_eq!(masked("/admin/policies/p/keys/tg_secret"), "/admin/policies/p/keys/tg_…");
        for plain in [format!("/inbox/{token}x/messages"), "/inbox/ann/messages".to_owned()] {
            assert_eq!(masked(&plain), plain);
        }
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
}
