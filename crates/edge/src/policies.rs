use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use tidegate_domain::limits::{
    Asked, BucketRule, KeyStrategy, Policies, Policy, Snapshot, Tightest, Verdict,
};

use crate::{ApiError, Principal};

mod client_ip;
mod draft11;
mod headers;
mod keys;

pub use client_ip::Cidr;
pub(crate) use client_ip::peer_client;
pub use headers::HeaderStyle;

use headers::Told;
use keys::Caller;

/// What a request says of the priority of all messages that it brings, before its body is read.
pub const PRIORITY: HeaderName = HeaderName::from_static("tidegate-priority");
const DEBUG: HeaderName = HeaderName::from_static("debug");
const CLIENT: HeaderName = HeaderName::from_static("client");
const MS_NS: u64 = 1_000_000;

/// Puts the policies in front of every route: after the sender is known, before the body is read.
#[derive(Debug)]
pub struct PolicyGate {
    policies: Arc<Policies>,
    options: GateOptions,
}

#[derive(Debug, Clone)]
pub struct GateOptions {
    /// Who may say, in `X-Forwarded-For`, on whose behalf a request comes.
    pub trusted_proxies: Vec<Cidr>,
    /// Addresses of one IPv6 network of this length are one client.
    pub ipv6_prefix: u8,
    pub headers: HeaderStyle,
    /// Paths whose POSTs may claim a priority for all that they bring, in the header [`PRIORITY`]. Their handlers hold
    /// them to it.
    pub prioritized: fn(&str) -> bool,
}

/// The policies about a request, each with the key whose bucket it draws from.
pub(crate) struct Question {
    in_force: Snapshot,
    /// By place in `in_force`.
    asked: Vec<(usize, String)>,
    /// It claims a high priority where it may.
    urgent: bool,
    debug: bool,
}

/// What a response is to say about the policies, whatever has become of them by then.
pub(crate) struct Signature {
    told: Option<Told>,
    degraded: bool,
    debug: HeaderMap,
}

impl GateOptions {
    /// The key of a policy's bucket, from how a person names its client. The error says what the policy expects.
    pub fn key_named(&self, policy: &Policy, text: &str) -> Result<String, &'static str> {
        keys::named(policy, text, self)
    }
}

impl PolicyGate {
    pub fn new(policies: Arc<Policies>, options: GateOptions) -> Self {
        Self { policies, options }
    }

    pub(crate) fn trusted_proxies(&self) -> &[Cidr] {
        &self.options.trusted_proxies
    }

    /// None when no policy is about the request; an error when one asks for a key that the request lacks.
    pub(crate) fn ask(
        &self,
        request: &Request,
        principal: Option<&Principal>,
    ) -> Result<Option<Question>, ApiError> {
        self.ask_those(request, principal, |_| true)
    }

    /// The same of a request that is refused before anything is known about it but its address. It counts there: else
    /// guessing credentials and sending nonsense would be free. No priority exempts it: it brings no message.
    pub(crate) fn ask_by_address(&self, request: &Request) -> Option<Question> {
        let by_address = |policy: &Policy| matches!(policy.key, KeyStrategy::Ip);
        // An address is never missing.
        let question = self.ask_those(request, None, by_address).unwrap_or_default();
        question.map(|question| Question { urgent: false, ..question })
    }

    fn ask_those(
        &self,
        request: &Request,
        principal: Option<&Principal>,
        which: fn(&Policy) -> bool,
    ) -> Result<Option<Question>, ApiError> {
        let in_force = self.policies.in_force();
        let (method, path) = (request.method().as_str(), &*decoded(request.uri().path()));
        let mut caller = Caller::new(request, principal, &self.options);
        let mut asked = Vec::new();
        for (place, known) in in_force.iter().enumerate() {
            if which(&known.policy) && known.policy.is_about(method, path) {
                asked.push((place, caller.key(&known.policy)?));
            }
        }
        let debug = !asked.is_empty() && wants_debug(request.headers());
        // By the path as it came: no route takes it otherwise encoded.
        let urgent = (self.options.prioritized)(request.uri().path())
            && method == "POST"
            && claims_high(request.headers());
        Ok((!asked.is_empty()).then(|| Question { in_force, asked, urgent, debug }))
    }

    /// Whether the request may pass, or the answer it gets instead.
    pub(crate) async fn decide(&self, question: Question) -> Result<Signature, Response> {
        let policy = |place: usize| &*question.in_force[place];
        let asked = question.asked.iter().map(|(place, key)| {
            let policy = policy(*place);
            Asked { policy, key, exempt: question.urgent && policy.policy.exempts_high }
        });
        let asked: Vec<_> = asked.collect();
        let verdict = self.policies.decide(&asked).await;
        let tightest = verdict.tightest.map(|tightest| (&asked[tightest.place].policy.policy, tightest));
        let style = self.options.headers;
        let signature = Signature {
            told: tightest.and_then(|(policy, tightest)| {
                let told = Told::new(style, &policy.name, &tightest.rule, tightest.standing?)?;
                Some(if verdict.passed { told } else { told.denied(tightest.retry_after_ns) })
            }),
            degraded: verdict.degraded,
            debug: if question.debug { headers::debug(verdict.degraded, tightest) } else { HeaderMap::new() },
        };
        match tightest {
            Some((policy, tightest)) if !verdict.passed => {
                let mut response = refusal(policy, &verdict, &tightest);
                self.sign(Some(signature), &mut response);
                Err(response)
            }
            _ => Ok(signature),
        }
    }

    /// Says in a response how its policies stand. A handler that has spoken of a limit of its own, such as a
    /// user's quota, is closer to the caller: its words stay, in the configured form.
    pub(crate) fn sign(&self, signature: Option<Signature>, response: &mut Response) {
        let headers = response.headers_mut();
        let own = headers::restyle(headers, self.options.headers);
        let Some(signature) = signature else { return };
        if let Some(told) = signature.told.filter(|_| !own) {
            told.put(headers);
        }
        headers::put_degraded(headers, signature.degraded);
        headers.extend(signature.debug);
    }
}

/// A path by what its handler will read in it: `/%61` is `/a`. An encoded slash parts no segments, so it stays.
fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let kept = path.replace("%2F", "%252F").replace("%2f", "%252f");
    match percent_decode_str(&kept).decode_utf8() {
        Ok(text) => Cow::Owned(text.into_owned()),
        // No handler takes it.
        Err(_) => Cow::Borrowed(path),
    }
}

fn refusal(policy: &Policy, verdict: &Verdict, tightest: &Tightest) -> Response {
    let name = &policy.name;
    let message = match (verdict.degraded, tightest.standing) {
        (true, None) => format!("the policy {name} could not be checked, and closes when it can't"),
        (true, Some(_)) => {
            let capacity = tightest.rule.capacity();
            format!(
                "too many requests: while its store is away, the policy {name} holds {capacity} tokens here"
            )
        }
        (false, _) => {
            let (capacity, refill) = (tightest.rule.capacity(), refill_per_second(policy, &tightest.rule));
            format!(
                "too many requests: the policy {name} holds {capacity} tokens and refills {refill} per second"
            )
        }
    };
    let mut error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message)
        .retry_after_ms(tightest.retry_after_ns.div_ceil(MS_NS))
        .with("policy", policy.name.as_str().into());
    if verdict.degraded {
        error = error.with("degraded", true.into());
    }
    error.into_response()
}

/// As it was configured, or nearly so where the rule is another gateway's.
fn refill_per_second(policy: &Policy, rule: &BucketRule) -> f64 {
    if rule.ns_per_token() == policy.rule.ns_per_token() {
        policy.refill_per_second
    } else {
        rule.refill_per_second()
    }
}

/// Said once, in so many words.
fn claims_high(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(PRIORITY).iter();
    let first = values.next().map(|value| value.as_bytes().trim_ascii());
    values.next().is_none() && first.is_some_and(|value| value.eq_ignore_ascii_case(b"high"))
}

/// Inner workings are shown only to who asks for them and says who asks.
fn wants_debug(headers: &HeaderMap) -> bool {
    let is = |name: &HeaderName, fits: fn(&[u8]) -> bool| {
        headers.get(name).is_some_and(|value| fits(value.as_bytes()))
    };
    is(&DEBUG, |value| value.eq_ignore_ascii_case(b"true"))
        && is(&CLIENT, |value| !value.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests;
