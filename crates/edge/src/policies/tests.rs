use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use tidegate_domain::limits::{
    BucketCounts, BucketRule, Buckets, BucketsError, FailStrategy, KeyStrategy, MissingKey, PathPattern,
    Policy, PolicyName, PolicyRule, Standing, Take, Taken,
};
use tidegate_domain::{Clock, Timestamp};
use tower::ServiceExt as _;

use super::*;
use crate::{ClientAddr, Edge, Limits, Principals};

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

/// A local store whose buckets are drained.
#[derive(Debug)]
struct Drained;

#[async_trait]
impl Buckets for Drained {
    async fn take(&self, _: &[Take<'_>]) -> Result<Taken, BucketsError> {
        let (full_in_ns, retry_after_ns) = (9_000_000_000, 3_000_000_000);
        let standing = Standing { rule: None, lacked: true, remaining: 0, full_in_ns, retry_after_ns };
        Ok(Taken { passed: false, standings: vec![standing] })
    }
    async fn peek(&self, _: Take<'_>) -> Result<Option<Standing>, BucketsError> {
        Ok(None)
    }
    async fn reset(&self, _: Take<'_>) -> Result<(), BucketsError> {
        Ok(())
    }
    async fn reconfigure(&self, _: &[PolicyRule]) -> Result<(), BucketsError> {
        Ok(())
    }
    fn counts(&self) -> BucketCounts {
        BucketCounts::default()
    }
}

/// A store that nobody reaches.
#[derive(Debug)]
struct Away;

#[async_trait]
impl Buckets for Away {
    async fn take(&self, _: &[Take<'_>]) -> Result<Taken, BucketsError> {
        Err(BucketsError::Unavailable("connection refused".to_owned()))
    }
    async fn peek(&self, _: Take<'_>) -> Result<Option<Standing>, BucketsError> {
        Err(BucketsError::Unavailable("connection refused".to_owned()))
    }
    async fn reset(&self, _: Take<'_>) -> Result<(), BucketsError> {
        Err(BucketsError::Unavailable("connection refused".to_owned()))
    }
    async fn reconfigure(&self, _: &[PolicyRule]) -> Result<(), BucketsError> {
        Ok(())
    }
    fn counts(&self) -> BucketCounts {
        BucketCounts::default()
    }
}

fn policy(fail: FailStrategy) -> Policy {
    Policy {
        name: PolicyName::new("all").unwrap(),
        pattern: PathPattern::new("/**").unwrap(),
        methods: None,
        key: KeyStrategy::Ip,
        refill_per_second: 1.0,
        rule: BucketRule::new(10, 1.0, 1, false).unwrap(),
        fail,
        exempts_high: false,
    }
}

async fn ask(fail: FailStrategy) -> (Response, String) {
    ask_for("/", fail).await
}

async fn ask_for(path: &str, fail: FailStrategy) -> (Response, String) {
    let policies = Arc::new(Policies::new(Arc::new(Away)).falling_back_on(Arc::new(Drained)));
    policies.replace(vec![policy(fail)]).await.unwrap();
    let options = GateOptions {
        trusted_proxies: Vec::new(),
        ipv6_prefix: 64,
        headers: HeaderStyle::Legacy,
        prioritized: |_| false,
    };
    let second = Duration::from_secs(1);
    let limits = Limits {
        connections_max: 1,
        connections_per_client_percent: 100,
        first_byte_timeout: second,
        header_timeout: second,
        body_timeout: second,
        idle_timeout: second,
        write_timeout: second,
        header_bytes_max: 8_192,
        body_bytes_max: 8_192,
        bodies_bytes_max: 1 << 20,
        bodies_per_client_percent: 100,
        json_depth_max: 8,
        drain_timeout: second,
    };
    let gate = PolicyGate::new(policies, options);
    let edge = Edge::with_policies(limits, Principals::none(), Arc::new(Still), true, Some(gate));
    let hello = || get(|| async { "hello" });
    let app = edge.wrap(Router::new().route("/", hello()).route("/health/{probe}", hello()));
    let mut request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ClientAddr(SocketAddr::from(([127, 0, 0, 1], 9))));
    let mut response = app.oneshot(request).await.unwrap();
    let body = to_bytes(std::mem::take(response.body_mut()), 4_096).await.unwrap();
    (response, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn without_the_store_an_open_policy_lets_pass_and_says_so() {
    let (response, body) = ask(FailStrategy::Open).await;
    assert_eq!((response.status(), body.as_str()), (StatusCode::OK, "hello"));
    assert_eq!(response.headers()["tidegate-degraded"], "true");
    assert!(!response.headers().contains_key("ratelimit-limit"), "nothing is known about the bucket");
}

#[tokio::test]
async fn without_the_store_a_closed_policy_refuses_and_says_so() {
    let (response, body) = ask(FailStrategy::Closed).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["tidegate-degraded"], "true");
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(body.contains("\"policy\":\"all\",\"degraded\":true"), "{body}");
    assert!(!body.contains("connection refused"), "{body}");
}

#[tokio::test]
async fn without_the_store_a_policy_that_falls_back_tells_its_share() {
    let share = BucketRule::new(3, 0.3, 1, false).unwrap();
    let (response, body) = ask(FailStrategy::FallBack(share)).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["tidegate-degraded"], "true");
    for (name, value) in [
        ("retry-after", "3"),
        ("ratelimit-limit", "3"),
        ("ratelimit-remaining", "0"),
        ("ratelimit-reset", "3"),
    ] {
        assert_eq!(response.headers()[name], value, "{name}");
    }
    assert!(body.contains("\"degraded\":true") && body.contains("holds 3 tokens here"), "{body}");
}

#[test]
fn clients_are_found_by_what_people_call_them() {
    let options = GateOptions {
        trusted_proxies: Vec::new(),
        ipv6_prefix: 64,
        headers: HeaderStyle::Off,
        prioritized: |_| false,
    };
    let key = |strategy: KeyStrategy, text: &str| {
        options.key_named(&Policy { key: strategy, ..policy(FailStrategy::Open) }, text)
    };
    for (text, expected) in [
        ("2001:db8:1:9::1", "2001:db8:1:9::/64"),
        ("2001:db8:1:9::/64", "2001:db8:1:9::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
    ] {
        assert_eq!(key(KeyStrategy::Ip, text).as_deref(), Ok(expected));
    }
    assert!(key(KeyStrategy::Ip, "zzz").is_err());
    let hash = crate::auth::sha256_hex(b"secret");
    let by_key = || KeyStrategy::ApiKey { missing: MissingKey::Anonymous };
    assert_eq!((key(by_key(), "secret"), key(by_key(), &hash)), (Ok(hash.clone()), Ok(hash.clone())));
    assert_eq!(key(by_key(), "anonymous").as_deref(), Ok("anonymous"));
    assert_eq!(key(KeyStrategy::Principal, "ann").as_deref(), Ok("ann"));
}

/// Whoever probes takes a 429 for a gateway that is ill, and restarts it.
#[tokio::test]
async fn probes_are_answered_whatever_the_policies_say() {
    for (path, status) in
        [("/health/live", 200), ("/health/ready", 200), ("/health/other", 429), ("/health/live/", 429)]
    {
        let (response, _) = ask_for(path, FailStrategy::Closed).await;
        assert_eq!(response.status().as_u16(), status, "{path}");
    }
}
