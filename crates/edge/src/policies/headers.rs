use http::header::{HeaderMap, HeaderName, HeaderValue};
use tidegate_domain::limits::{Policy, Tightest};

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

pub(super) fn put(headers: &mut HeaderMap, style: HeaderStyle, policy: &Policy, tightest: &Tightest) {
    let Some(standing) = tightest.standing else { return };
    let (name, rule) = (&policy.name, &policy.rule);
    let (limit, left) = (u64::from(rule.capacity()), u64::from(standing.remaining));
    let reset = seconds(standing.full_in_ns);
    match style {
        HeaderStyle::Legacy => {
            headers.insert(LIMIT, limit.into());
            headers.insert(REMAINING, left.into());
            headers.insert(RESET, reset.into());
        }
        HeaderStyle::Draft11 => {
            let window = rule.refills().then(|| seconds(rule.full_after_ns()));
            draft11::put(headers, name.as_str(), limit, window, left, Some(reset));
        }
        HeaderStyle::Off => {}
    }
}

pub(super) fn put_degraded(headers: &mut HeaderMap, degraded: bool) {
    if degraded {
        headers.insert(DEGRADED, HeaderValue::from_static("true"));
    }
}

pub(super) fn put_debug(headers: &mut HeaderMap, degraded: bool, tightest: Option<(&Policy, Tightest)>) {
    let degraded = if degraded { "true" } else { "false" };
    headers.insert("x-ratelimit-debug-degraded", HeaderValue::from_static(degraded));
    let Some((policy, tightest)) = tightest else { return };
    if let Ok(name) = HeaderValue::from_str(policy.name.as_str()) {
        headers.insert("x-ratelimit-debug-policy", name);
    }
    headers.insert("x-ratelimit-debug-key-strategy", HeaderValue::from_static(policy.key.as_str()));
    if let Some(standing) = tightest.standing {
        headers.insert("x-ratelimit-debug-tokens", standing.remaining.into());
    }
}

/// Rounded up, so that whoever waits that long is not early.
fn seconds(ns: u64) -> u64 {
    ns.div_ceil(SECOND_NS)
}
