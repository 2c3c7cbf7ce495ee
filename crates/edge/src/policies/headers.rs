use http::header::{HeaderMap, HeaderName, HeaderValue};
use tidegate_domain::limits::{BucketRule, Policy, PolicyName, Standing, Tightest};

use super::draft11;

pub(super) const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const DEGRADED: HeaderName = HeaderName::from_static("tidegate-degraded");

const SECOND_NS: u64 = 1_000_000_000;

/// In which form limits are told. Never in two: clients that know one stumble over the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderStyle {
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`.
    Legacy,
    /// `RateLimit-Policy` and `RateLimit`, as in draft-ietf-httpapi-ratelimit-headers-11.
    Draft11,
    Off,
}

/// How a policy stands, kept until the response is there.
pub(super) struct Told {
    limit: u64,
    remaining: u64,
    reset_s: u64,
    /// In draft-11 a limit has a name and a window.
    draft: Option<(PolicyName, Option<u64>)>,
}

/// Brings what a handler said about a limit of its own into the form; true when it said something.
pub(super) fn restyle(headers: &mut HeaderMap, style: HeaderStyle) -> bool {
    if !headers.contains_key(LIMIT) {
        return false;
    }
    if style != HeaderStyle::Legacy {
        let said = [LIMIT, REMAINING, RESET].map(|name| headers.remove(name));
        let number = |value: &Option<HeaderValue>| value.as_ref()?.to_str().ok()?.parse().ok();
        if let (HeaderStyle::Draft11, [Some(limit), Some(left), reset]) = (style, said.each_ref().map(number))
        {
            draft11::put(headers, "quota", limit, None, left, reset);
        }
    }
    true
}

impl Told {
    /// None when nothing is to be told.
    pub fn new(style: HeaderStyle, name: &PolicyName, rule: &BucketRule, standing: Standing) -> Option<Self> {
        let draft = match style {
            HeaderStyle::Legacy => None,
            HeaderStyle::Draft11 => {
                Some((name.clone(), rule.refills().then(|| seconds(rule.full_after_ns()))))
            }
            HeaderStyle::Off => return None,
        };
        let (limit, remaining) = (rule.capacity().into(), standing.remaining.into());
        Some(Self { limit, remaining, reset_s: seconds(standing.full_in_ns), draft })
    }

    /// Of a denial: the reset is when the next request can pass, as `Retry-After` says. When the bucket is full again is
    /// of no use to a client that waits, and two times in one answer are one too many.
    pub fn denied(self, retry_after_ns: u64) -> Self {
        Self { reset_s: seconds(retry_after_ns).max(1), ..self }
    }

    pub fn put(self, headers: &mut HeaderMap) {
        if let Some((name, window_s)) = self.draft {
            draft11::put(headers, name.as_str(), self.limit, window_s, self.remaining, Some(self.reset_s));
        } else {
            headers.insert(LIMIT, self.limit.into());
            headers.insert(REMAINING, self.remaining.into());
            headers.insert(RESET, self.reset_s.into());
        }
    }
}

pub(super) fn put_degraded(headers: &mut HeaderMap, degraded: bool) {
    if degraded {
        headers.insert(DEGRADED, HeaderValue::from_static("true"));
    }
}

pub(super) fn debug(degraded: bool, tightest: Option<(&Policy, Tightest)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let degraded = if degraded { "true" } else { "false" };
    headers.insert("x-ratelimit-debug-degraded", HeaderValue::from_static(degraded));
    let Some((policy, tightest)) = tightest else { return headers };
    if let Ok(name) = HeaderValue::from_str(policy.name.as_str()) {
        headers.insert("x-ratelimit-debug-policy", name);
    }
    headers.insert("x-ratelimit-debug-key-strategy", HeaderValue::from_static(policy.key.as_str()));
    if let Some(standing) = tightest.standing {
        headers.insert("x-ratelimit-debug-tokens", standing.remaining.into());
    }
    headers
}

/// Rounded up, so that a client that waits that long is not early.
fn seconds(ns: u64) -> u64 {
    ns.div_ceil(SECOND_NS)
}
