use std::fmt;
use std::sync::Arc;

use super::bucket::BucketRule;
use super::pattern::PathPattern;
use crate::InvalidName;

/// One rule about requests: which ones it is about, whose bucket they draw from, and how much.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub name: PolicyName,
    pub pattern: PathPattern,
    /// Upper case; all methods when there are none.
    pub methods: Option<Vec<String>>,
    pub key: KeyStrategy,
    /// As configured, for people; the rule is what decides.
    pub refill_per_second: f64,
    pub rule: BucketRule,
    pub fail: FailStrategy,
    /// Whether requests that bring messages of the high lane pass when the bucket lacks tokens.
    pub exempts_high: bool,
}

/// Letters, digits, `.`, `_` and `-`: fit for a header, a metric's label, a path and a store's key as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName(Arc<str>);

/// Whose bucket a request draws from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyStrategy {
    ApiKey {
        missing: MissingKey,
    },
    Ip,
    Principal,
    Header {
        /// Lower case.
        name: String,
        missing: MissingKey,
    },
}

/// What becomes of a request without the key that its policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingKey {
    /// All of them share one bucket.
    #[default]
    Anonymous,
    Refuse,
}

/// What happens while the store of the buckets can't be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailStrategy {
    #[default]
    Open,
    Closed,
    /// A bucket of this process alone decides, by this rule: a share of the policy's own.
    FallBack(BucketRule),
}

impl Policy {
    pub fn is_about(&self, method: &str, path: &str) -> bool {
        // A HEAD is a GET whose answer nobody reads: it costs the same.
        let fits = |known: &String| known == method || method == "HEAD" && known == "GET";
        let method_fits = self.methods.as_ref().is_none_or(|methods| methods.iter().any(fits));
        method_fits && self.pattern.matches(path)
    }
}

impl PolicyName {
    pub const BYTES_MAX: usize = 64;

    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=Self::BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) {
            Ok(Self(name.into()))
        } else {
            Err(InvalidName("must be 1 to 64 letters, digits, '.', '_' or '-'"))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeyStrategy {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::ApiKey { .. } => "API_KEY",
            Self::Ip => "IP",
            Self::Principal => "PRINCIPAL",
            Self::Header { .. } => "HEADER",
        }
    }
}

impl FailStrategy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "FAIL_OPEN",
            Self::Closed => "FAIL_CLOSED",
            Self::FallBack(_) => "FALL_BACK",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_about_its_methods_and_paths() {
        let mut policy = Policy {
            name: PolicyName::new("writes").unwrap(),
            pattern: PathPattern::new("/api/**").unwrap(),
            methods: None,
            key: KeyStrategy::Ip,
            refill_per_second: 1.0,
            rule: BucketRule::new(1, 1.0, 1, false).unwrap(),
            fail: FailStrategy::Open,
            exempts_high: false,
        };
        assert!(policy.is_about("GET", "/api/send") && !policy.is_about("GET", "/metrics"));
        policy.methods = Some(vec!["POST".into(), "PUT".into()]);
        assert!(policy.is_about("PUT", "/api/send") && !policy.is_about("GET", "/api/send"));
        policy.methods = Some(vec!["GET".into()]);
        assert!(policy.is_about("HEAD", "/api/send") && !policy.is_about("POST", "/api/send"));
    }

    #[test]
    fn names_fit_everywhere_they_go() {
        for name in ["", "a b", "a/b", "ü", "a\"", "a:b", &"x".repeat(65)] {
            assert!(PolicyName::new(name).is_err(), "{name}");
        }
        assert_eq!(PolicyName::new("per-key.v2_x").unwrap().to_string(), "per-key.v2_x");
    }
}
