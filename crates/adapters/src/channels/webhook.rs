//! Delivers by POST to a URL, signed in the Standard Webhooks scheme.

mod answer;
mod check;
mod connector;
mod guard;
mod options;
mod request;
mod signature;
mod stream;
mod target;
mod tls;

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tidegate_domain::{Channel, Claim, Clock, Delivery};
use tokio::time::{Instant, timeout_at};

pub use ipnet::IpNet;

use self::answer::Judge;
use self::connector::{Connector, DialError};
use self::guard::Guard;
pub use self::options::{PERMANENT_STATUSES, WebhookError, WebhookOptions};
use self::request::Requests;
pub use self::signature::verify;
use self::target::Target;

/// Shorter than the five seconds after which common servers close: a request on a connection that is just being
/// closed fails and would cost an attempt.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// For the head of an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// POSTs each message's body to one URL.
///
/// 2xx is delivered (accepted, when the recipient has to ack), permanent statuses are refused, everything else is
/// tried later, after `Retry-After` if there is one. Redirects are not followed: they would lead past the guard,
/// and a POST that becomes a GET delivers nothing; since an operator can mend that, they are tried later.
/// An address that may not be dialled is tried later too: names change, dead letters don't come back alone. Where this
/// process has no file or port left to dial with, the attempt was not made at all.
///
/// No proxy of the environment is used. Connections are kept and used again.
pub struct WebhookChannel {
    client: Client<Connector, Full<Bytes>>,
    requests: Requests,
    judge: Judge,
    total_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl WebhookChannel {
    /// Checks the options; connects nowhere.
    pub fn new(options: WebhookOptions, clock: Arc<dyn Clock>) -> Result<Self, WebhookError> {
        for (name, zero) in [
            ("connect_timeout", options.connect_timeout.is_zero()),
            ("total_timeout", options.total_timeout.is_zero()),
        ] {
            if zero {
                return Err(WebhookError::Zero(name));
            }
        }
        let is_failure = |status: &&u16| (300..600).contains(*status);
        if let Some(status) = options.permanent_statuses.iter().find(|status| !is_failure(status)) {
            return Err(WebhookError::Status(*status));
        }
        let guard = Guard::new(options.allow);
        let target = Target::parse(&options.url, &guard, &options.ports)?;
        let tls = target.tls.then(|| tls::connector(&target.host, options.ca_pem.as_deref())).transpose()?;
        let place = (target.host.clone(), target.port);
        let connector = Connector::new(place, tls, guard, options.connect_timeout, options.connections_max);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(options.idle_connections_max)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            // It is among the prepared headers.
            .set_host(false)
            .build(connector);
        let judge =
            Judge { permanent: options.permanent_statuses, response_bytes_max: options.response_bytes_max };
        let requests = Requests::new(&target, &options.headers, &options.secrets)?;
        Ok(Self { client, requests, judge, total_timeout: options.total_timeout, clock })
    }

    /// Posts what is no message, once: whether it arrived, or why not.
    pub async fn notify(&self, id: &str, json: &Bytes) -> Result<(), String> {
        let request = self.requests.notice(id, json, self.clock.now()).map_err(|error| error.to_string())?;
        match self.exchange(request, false).await {
            Delivery::Delivered | Delivery::Accepted => Ok(()),
            Delivery::TryLater { reason, .. }
            | Delivery::NotTried { reason }
            | Delivery::Refused { reason } => Err(reason),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, ack_required: bool) -> Delivery {
        let later = |reason: String| Delivery::TryLater { after_ms: None, reason };
        let deadline = Instant::now() + self.total_timeout;
        match timeout_at(deadline, self.client.request(request)).await {
            Ok(Ok(response)) => self.judge.judge(response, deadline, self.clock.now(), ack_required).await,
            Ok(Err(error)) if is_own_want(&error) => Delivery::NotTried { reason: cause(&error) },
            Ok(Err(error)) => later(cause(&error)),
            Err(_) => later(format!("no answer within {} ms", self.total_timeout.as_millis())),
        }
    }
}

#[async_trait]
impl Channel for WebhookChannel {
    fn name(&self) -> &'static str {
        "webhook"
    }

    async fn deliver(&self, claim: &Claim, body: &Bytes) -> Delivery {
        match self.requests.request(claim, body, self.clock.now()) {
            Ok(request) => self.exchange(request, claim.ack_required).await,
            Err(invalid) => Delivery::Refused { reason: invalid.to_string() },
        }
    }
}

impl fmt::Debug for WebhookChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookChannel")
            .field("requests", &self.requests)
            .field("judge", &self.judge)
            .field("total_timeout", &self.total_timeout)
            .finish_non_exhaustive()
    }
}

/// Whether nothing was sent, for want of something in this process.
fn is_own_want(error: &Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&error| error.source());
    causes.find_map(|cause| cause.downcast_ref::<DialError>()).is_some_and(DialError::is_own_want)
}

/// The client's own words ("client error") say nothing; what lies under them does.
fn cause(error: &Error) -> String {
    let mut cause = String::new();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        next = source.source();
        if !cause.contains(&text) {
            cause.push_str(if cause.is_empty() { "" } else { ": " });
            cause.push_str(&text);
        }
    }
    if cause.is_empty() { error.to_string() } else { cause }
}
