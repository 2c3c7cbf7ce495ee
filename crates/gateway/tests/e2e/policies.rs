use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::tempdir;

use crate::client::{self, Answer};
use crate::gateway::{Gateway, start};
use crate::principals::api_key;

/// A policy that refills next to nothing while a test runs, with more of it in `more`.
pub fn policy(name: &str, pattern: &str, capacity: u32, more: &str) -> String {
    let key = if more.contains("keyStrategy") { "" } else { "keyStrategy = \"IP\"\n" };
    format!(
        "[[policies]]\nname = \"{name}\"\npathPattern = \"{pattern}\"\n{key}capacity = {capacity}\n\
         refillTokensPerSecond = 0.001\n{more}\n"
    )
}

pub fn configure(dir: &Path, config: &str) {
    std::fs::write(dir.join("tidegate.toml"), config).unwrap();
}

fn ask(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Answer {
    client::get(gateway.address, path, headers)
}

fn limits(answer: &Answer) -> [Option<&str>; 3] {
    ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"].map(|name| answer.header(name))
}

#[test]
fn the_tightest_policy_is_told_and_then_says_no() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &(policy("wide", "/**", 50, "") + &policy("tight", "/nowh?re/**", 2, "")));
    let gateway = start(dir.path());
    // Unknown routes too: scanning for routes is what a limit is for.
    let first = ask(&gateway, "/nowhere", &[]);
    assert_eq!((first.status, limits(&first)), (404, [Some("2"), Some("1"), Some("1000")]));
    assert_eq!(ask(&gateway, "/nowhere/else", &[]).status, 404);
    let denied = ask(&gateway, "/nowhere", &[]);
    let body = denied.json();
    assert_eq!(
        (denied.status, &body["code"], &body["policy"]),
        (429, &json!("rate_limited"), &json!("tight"))
    );
    assert_eq!((limits(&denied)[0], limits(&denied)[1]), (Some("2"), Some("0")));
    let retry_ms = body["retryAfterMs"].as_u64().unwrap();
    assert!((990_000..=1_000_000).contains(&retry_ms), "{retry_ms}");
    assert_eq!(denied.header("Retry-After").unwrap(), retry_ms.div_ceil(1_000).to_string());
    assert_eq!(limits(&denied)[2], denied.header("Retry-After"), "two names of one wait");
    assert!(body.get("degraded").is_none() && denied.header("Tidegate-Degraded").is_none());
    // The denial spent nothing from the other one: 50 less two that passed and this one.
    assert_eq!(ask(&gateway, "/", &[]).header("RateLimit-Remaining"), Some("47"));
}

/// Guessing keys, scanning for routes and sending nonsense is what a limit by address is for: whatever a request ends
/// with, it counts.
#[test]
fn policies_by_address_count_requests_that_get_no_further() {
    let dir = tempdir().unwrap();
    let principal = format!(
        "[[principals]]\nname = \"app\"\nrole = \"USER\"\napi_key_hashes = [\"{}\"]\n",
        api_key(dir.path()).1
    );
    let keyed = policy("keyed", "/**", 1, "keyStrategy = \"API_KEY\"\nmissingKey = \"refuse\"");
    configure(dir.path(), &(principal + &policy("all", "/**", 7, "") + &keyed));
    let gateway = start(dir.path());
    let host = gateway.address.to_string();
    for (headers, status, left) in [
        (vec![], 401, "6"),
        (vec![("X-Api-Key", "wrong")], 401, "5"),
        (vec![("X-Api-Key", "one"), ("Authorization", "Bearer two")], 400, "4"),
        (vec![("Host", host.as_str())], 400, "3"),
        (vec![("Origin", "https://evil.example")], 403, "2"),
        (vec![("Content-Encoding", "gzip")], 415, "1"),
    ] {
        let answer = ask(&gateway, "/nowhere", &headers);
        assert_eq!((answer.status, limits(&answer)[1]), (status, Some(left)), "{headers:?} {answer:?}");
    }
    // A head that can not be read, too.
    for status in ["HTTP/1.1 400", "HTTP/1.1 429"] {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /nowhere HTTP/1.1\n\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(std::str::from_utf8(&answer), Ok(status));
    }
    let denied = ask(&gateway, "/nowhere", &[]);
    assert_eq!((denied.status, &denied.json()["policy"]), (429, &json!("all")), "{denied:?}");
    assert_eq!(limits(&denied)[2], denied.header("Retry-After"));
    assert_eq!(gateway.get("/health/live").status, 200, "probes are not counted");
}

#[test]
fn no_policy_makes_a_gateway_look_ill_to_its_probes() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("all", "/**", 1, ""));
    let gateway = start(dir.path());
    assert_eq!([ask(&gateway, "/", &[]).status, ask(&gateway, "/", &[]).status], [200, 429]);
    for path in ["/health/live", "/health/ready"] {
        let answer = ask(&gateway, path, &[]);
        // Ready it may not be yet.
        assert!(answer.status != 429 && limits(&answer) == [None; 3], "{answer:?}");
    }
    assert_eq!(ask(&gateway, "/metrics", &[]).status, 429, "no probe");
}

#[test]
fn a_denied_request_is_answered_before_its_body_comes() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("writes", "/api/**", 1, "methods = [\"POST\"]"));
    let gateway = start(dir.path());
    assert_eq!(gateway.post("/api/send", &json!({})).status, 400);
    assert_eq!(gateway.get("/api/config/alice").status, 404, "another method");
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST /api/send HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
        gateway.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 429");
}

#[test]
fn a_shadow_counts_and_is_not_seen() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("trial", "/nowhere", 1, "shadow = true"));
    let gateway = start(dir.path());
    for _ in 0..3 {
        let answer = ask(&gateway, "/nowhere", &[]);
        assert_eq!((answer.status, limits(&answer)), (404, [None; 3]));
    }
    let metrics = gateway.get("/metrics").text;
    for line in [
        "tidegate_policy_total{policy=\"trial\",outcome=\"allowed\"} 1",
        "tidegate_policy_total{policy=\"trial\",outcome=\"denied\"} 0",
        "tidegate_policy_total{policy=\"trial\",outcome=\"degraded\"} 0",
        "tidegate_policy_total{policy=\"trial\",outcome=\"shadow_denied\"} 2",
        "tidegate_policy_buckets 1",
        "tidegate_policy_forced_evictions_total 0",
    ] {
        assert!(metrics.lines().any(|given| given == line), "{line}\nnot in\n{metrics}");
    }
}

#[test]
fn who_brings_no_key_shares_a_bucket_or_is_refused() {
    let dir = tempdir().unwrap();
    let api_key = policy("keyed", "/a", 1, "keyStrategy = \"API_KEY\"");
    let refusing = policy("strict", "/b", 1, "keyStrategy = \"API_KEY\"\nmissingKey = \"refuse\"");
    let header =
        policy("tenant", "/c", 1, "keyStrategy = \"HEADER\"\nheader = \"X-Tenant\"\nmissingKey = \"refuse\"");
    configure(dir.path(), &(api_key + &refusing + &header));
    let gateway = start(dir.path());
    let key = |key: &'static str| [("X-Api-Key", key)];
    assert_eq!(ask(&gateway, "/a", &[]).status, 404);
    assert_eq!(ask(&gateway, "/a", &[]).status, 429, "all without a key share one");
    assert_eq!(ask(&gateway, "/a", &key("one")).status, 404);
    assert_eq!(ask(&gateway, "/a", &[("Authorization", "Bearer one")]).status, 429, "the same key");
    assert_eq!(ask(&gateway, "/a", &key("two")).status, 404);
    let refused = ask(&gateway, "/b", &[]);
    assert_eq!((refused.status, &refused.json()["policy"]), (401, &json!("strict")));
    assert!(refused.header("WWW-Authenticate").is_some());
    assert_eq!(ask(&gateway, "/b", &key("one")).status, 404);
    let refused = ask(&gateway, "/c", &[]);
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("missing_key")));
    assert_eq!(ask(&gateway, "/c", &[("X-Tenant", "acme")]).status, 404);
    assert_eq!(ask(&gateway, "/c", &[("X-Tenant", "acme")]).status, 429);
    assert_eq!(ask(&gateway, "/c", &[("X-Tenant", "a"), ("X-Tenant", "b")]).status, 400);
}

/// A client could otherwise use up the bucket of all who bring no header, and hide among them.
#[test]
fn a_key_that_says_anonymous_is_a_key() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("tenant", "/a", 1, "keyStrategy = \"HEADER\"\nheader = \"X-Tenant\""));
    let gateway = start(dir.path());
    for (tenant, status) in [
        ("anonymous", 404),
        ("anonymous", 429),
        ("=anonymous", 404),
        ("=anonymous", 429),
        ("==anonymous", 404),
        ("", 404),
        ("", 429),
    ] {
        assert_eq!(ask(&gateway, "/a", &[("X-Tenant", tenant)]).status, status, "{tenant}");
    }
    let bucket =
        |key: &str| gateway.get(&format!("/admin/policies/tenant/keys/{key}")).json()["tokens"].clone();
    assert_eq!(gateway.delete("/admin/policies/tenant/keys/anonymous").status, 200);
    assert_eq!((bucket("anonymous"), bucket("=anonymous")), (json!(1), json!(0)), "as the list shows them");
}

#[test]
fn clients_behind_a_trusted_proxy_are_told_apart_and_others_can_not_pretend() {
    let dir = tempdir().unwrap();
    let one = policy("per-ip", "/nowhere", 1, "");
    configure(dir.path(), &format!("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n{one}"));
    let gateway = start(dir.path());
    let from = |client: &str| ask(&gateway, "/nowhere", &[("X-Forwarded-For", client)]).status;
    for (client, status) in [
        ("203.0.113.1", 404),
        ("203.0.113.1", 429),
        ("203.0.113.2", 404),
        // What the client made up stands to the left of what the proxy saw.
        ("198.51.100.9, 203.0.113.2", 429),
        ("203.0.113.3, 127.0.0.9", 404),
        ("203.0.113.3", 429),
        ("2001:db8:0:1::1", 404),
        ("2001:db8:0:1:ffff::2", 429),
        ("2001:db8:0:2::1", 404),
        ("::ffff:203.0.113.1", 429),
        // Unreadable: the proxy itself is all that is known.
        ("nonsense", 404),
        ("203.0.113.77, nonsense", 429),
    ] {
        assert_eq!(from(client), status, "{client}");
    }
    let dir = tempdir().unwrap();
    configure(dir.path(), &one);
    let gateway = start(dir.path());
    let from = |client: &str| ask(&gateway, "/nowhere", &[("X-Forwarded-For", client)]).status;
    assert_eq!((from("203.0.113.1"), from("203.0.113.2")), (404, 429), "no proxy is trusted");
}

#[test]
fn inner_workings_are_shown_to_who_asks_and_says_who() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("per-ip", "/nowhere", 9, ""));
    let gateway = start(dir.path());
    let debug = |headers: &[(&str, &str)]| {
        let answer = ask(&gateway, "/nowhere", headers);
        ["Policy", "Key-Strategy", "Tokens", "Degraded"]
            .map(|name| answer.header(&format!("X-RateLimit-Debug-{name}")).map(str::to_owned))
    };
    for headers in [
        &[][..],
        &[("Debug", "true")],
        &[("Client", "me")],
        &[("Debug", "true"), ("Client", " ")],
        &[("Debug", "1"), ("Client", "me")],
    ] {
        assert_eq!(debug(headers), [None, None, None, None], "{headers:?}");
    }
    let shown = debug(&[("Debug", "true"), ("Client", "me")]);
    assert_eq!(
        shown.each_ref().map(Option::as_deref),
        [Some("per-ip"), Some("IP"), Some("3"), Some("false")]
    );
}

#[test]
fn limits_are_told_in_one_form_and_a_quota_is_closer_than_a_policy() {
    let send = |style: &str| {
        let dir = tempdir().unwrap();
        let config = format!("[limits]\nrate_limit_headers = \"{style}\"\n{}", policy("all", "/**", 100, ""));
        configure(dir.path(), &config);
        let gateway = start(dir.path());
        gateway.configure("alice", 5);
        (gateway.send("alice", "hi"), ask(&gateway, "/nowhere", &[]))
    };
    let (quota, policy) = send("legacy");
    assert_eq!((limits(&quota)[0], limits(&quota)[1]), (Some("5"), Some("4")));
    assert_eq!((limits(&policy)[0], limits(&policy)[1]), (Some("100"), Some("97")));
    let (quota, policy) = send("draft-11");
    for answer in [&quota, &policy] {
        assert_eq!(limits(answer), [None; 3]);
    }
    assert_eq!(quota.header("RateLimit-Policy"), Some("\"quota\";q=5"));
    assert!(quota.header("RateLimit").unwrap().starts_with("\"quota\";r=4;t="), "{quota:?}");
    assert_eq!(policy.header("RateLimit-Policy"), Some("\"all\";q=100;w=100000"));
    assert!(policy.header("RateLimit").unwrap().starts_with("\"all\";r=97;t="), "{policy:?}");
    for answer in <[Answer; 2]>::from(send("off")) {
        assert!(!answer.headers.iter().any(|(name, _)| name.to_ascii_lowercase().starts_with("ratelimit")));
    }
}
