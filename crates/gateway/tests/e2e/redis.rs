mod fallback;
mod quotas;
mod tls;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::{TempDir, tempdir};
use tidegate_testkit::services::{Redis, RedisOptions};

use crate::client::Answer;
use crate::gateway::{Gateway, command, eventually, start};
use crate::policies::{configure, policy};

/// Nobody waits that long. A Redis that does not answer costs a request one deadline.
const NOT_LONG: Duration = Duration::from_secs(10);

/// The machine is busy with other tests, and a Redis that is well must not seem away: it has five seconds for an answer,
/// or one where it is stalled on purpose.
fn deadlines(call_ms: u32) -> String {
    format!("call_timeout_ms = {call_ms}\nconnect_timeout_ms = 5000\n")
}

/// A gateway on this Redis, with one policy for each strategy.
fn gateway(url: &str) -> (TempDir, Gateway) {
    gateway_with(&config(url))
}

fn gateway_with(config: &str) -> (TempDir, Gateway) {
    let dir = tempdir().unwrap();
    configure(dir.path(), config);
    let gateway = start(dir.path());
    (dir, gateway)
}

fn config(url: &str) -> String {
    let falls = "failStrategy = \"FALL_BACK\"\nfallBackShare = 0.5";
    format!("[limits]\nstore = \"redis\"\n[redis]\nurl = \"{url}\"\n{}", deadlines(5000))
        + &policy("opens", "/open", 4, "")
        + &policy("closes", "/closed", 4, "failStrategy = \"FAIL_CLOSED\"")
        + &policy("falls", "/back", 4, falls)
}

fn ask(gateway: &Gateway, path: &str) -> Answer {
    let begun = Instant::now();
    let answer = gateway.get(path);
    assert!(begun.elapsed() < NOT_LONG, "{path}: {:?}", begun.elapsed());
    answer
}

/// Status, and whether the answer says `degraded`.
fn outcome(gateway: &Gateway, path: &str) -> (u16, bool) {
    let answer = ask(gateway, path);
    (answer.status, answer.header("Tidegate-Degraded").is_some())
}

/// Asks until the gateway has noticed, one way or the other.
fn wait_until_degraded(gateway: &Gateway, degraded: bool) {
    eventually(|| {
        ask(gateway, "/open");
        let state = if degraded { "degraded" } else { "ready" };
        (ask(gateway, "/health/ready").json()["policies"] == state).then_some(())
    });
}

fn decided_by_strategies(gateway: &Gateway) {
    for _ in 0..10 {
        assert_eq!(outcome(gateway, "/open"), (404, true));
        assert_eq!(outcome(gateway, "/closed"), (429, true));
    }
    let ready = ask(gateway, "/health/ready");
    assert_eq!((ready.status, &ready.json()["policies"]), (200, &json!("degraded")));
    let metrics = ask(gateway, "/metrics").text;
    assert!(metrics.contains("\ntidegate_policy_store_up 0\n"), "{metrics}");
    assert!(!metrics.contains("\ntidegate_policy_store_failures_total 0\n"), "{metrics}");
    assert!(
        !metrics.contains("tidegate_policy_total{policy=\"opens\",outcome=\"degraded\"} 0\n"),
        "{metrics}"
    );
}

#[test]
fn two_gateways_share_one_bucket() {
    let redis = Redis::start().unwrap();
    let ((_one_dir, one), (_two_dir, two)) = (gateway(&redis.url()), gateway(&redis.url()));
    assert_eq!(outcome(&one, "/closed"), (404, false));
    assert_eq!(outcome(&two, "/closed"), (404, false));
    assert_eq!(ask(&one, "/closed").header("RateLimit-Remaining"), Some("1"));
    assert_eq!(ask(&two, "/closed").header("RateLimit-Remaining"), Some("0"));
    assert_eq!((outcome(&one, "/closed"), outcome(&two, "/closed")), ((429, false), (429, false)));
    let key = one.get("/admin/policies/closes/keys/127.0.0.1");
    assert_eq!((key.status, &key.json()["tokens"]), (200, &json!(0)));
    assert_eq!(two.delete("/admin/policies/closes/keys/127.0.0.1").status, 200);
    assert_eq!(outcome(&one, "/closed"), (404, false));
}

#[test]
fn a_gateway_that_was_not_reloaded_tells_the_limit_in_force() {
    let redis = Redis::start().unwrap();
    let ((one_dir, one), (_two_dir, two)) = (gateway(&redis.url()), gateway(&redis.url()));
    configure(one_dir.path(), &config(&redis.url()).replace("capacity = 4", "capacity = 2"));
    assert_eq!(one.post("/admin/policies/reload", &json!({})).status, 200);
    assert_eq!(outcome(&one, "/closed"), (404, false));
    let told = ask(&two, "/closed");
    assert_eq!((told.header("RateLimit-Limit"), told.header("RateLimit-Remaining")), (Some("2"), Some("0")));
    let denied = ask(&two, "/closed");
    assert_eq!(denied.status, 429);
    assert!(denied.text.contains("holds 2 tokens and refills 0.001 per second"), "{}", denied.text);
    let key = two.get("/admin/policies/closes/keys/127.0.0.1").json();
    assert_eq!((&key["tokens"], &key["capacity"]), (&json!(0), &json!(2)));
    let listed = two.get("/admin/policies").json();
    let closes = listed["policies"].as_array().unwrap().iter().find(|one| one["name"] == "closes").unwrap();
    assert_eq!((&closes["capacity"], &closes["refillTokensPerSecond"]), (&json!(2), &json!(0.001)));
}

/// It meets no bucket of the other's: it has never been asked anything.
#[test]
fn a_reload_reaches_a_gateway_that_was_never_asked() {
    let redis = Redis::start().unwrap();
    let ((one_dir, one), (_two_dir, two)) = (gateway(&redis.url()), gateway(&redis.url()));
    let capacity_at_two = || two.get("/admin/policies/closes/keys/127.0.0.1").json()["capacity"].clone();
    assert_eq!(capacity_at_two(), json!(4));
    configure(one_dir.path(), &config(&redis.url()).replace("capacity = 4", "capacity = 2"));
    assert_eq!(one.post("/admin/policies/reload", &json!({})).status, 200);
    eventually(|| (capacity_at_two() == json!(2)).then_some(()));
    for status in [404, 404, 429] {
        assert_eq!(outcome(&two, "/closed"), (status, false));
    }
}

#[test]
fn a_killed_redis_leaves_the_strategies_to_decide_until_it_is_back() {
    let mut redis = Redis::start().unwrap();
    let (_dir, gateway) = gateway(&redis.url());
    assert_eq!(outcome(&gateway, "/back"), (404, false));
    redis.kill().unwrap();
    wait_until_degraded(&gateway, true);
    decided_by_strategies(&gateway);
    // Half of the three that are left of four: one, and a half.
    let first = ask(&gateway, "/back");
    assert_eq!((first.status, first.header("RateLimit-Limit")), (404, Some("2")));
    assert_eq!((outcome(&gateway, "/back"), outcome(&gateway, "/back")), ((429, true), (429, true)));
    let denied = ask(&gateway, "/back").json();
    assert_eq!((&denied["policy"], &denied["degraded"]), (&json!("falls"), &json!(true)));

    redis.restart().unwrap();
    wait_until_degraded(&gateway, false);
    assert_eq!(outcome(&gateway, "/back"), (404, false));
    for status in [404, 404, 404, 404, 429] {
        assert_eq!(outcome(&gateway, "/closed"), (status, false));
    }
    assert!(ask(&gateway, "/metrics").text.contains("\ntidegate_policy_store_up 1\n"));
}

#[test]
fn a_stalled_redis_makes_nobody_wait_for_seconds() {
    let redis = Redis::start().unwrap();
    let impatient = config(&redis.url()).replace(&deadlines(5000), &deadlines(1000));
    let (_dir, gateway) = gateway_with(&impatient);
    wait_until_degraded(&gateway, false);
    assert_eq!(outcome(&gateway, "/closed"), (404, false));
    redis.stop().unwrap();
    wait_until_degraded(&gateway, true);
    decided_by_strategies(&gateway);
    redis.resume().unwrap();
    wait_until_degraded(&gateway, false);
    assert_eq!(outcome(&gateway, "/closed"), (404, false));
}

#[test]
fn an_emptied_redis_has_full_buckets_and_is_not_away() {
    let redis = Redis::start().unwrap();
    let (_dir, gateway) = gateway(&redis.url());
    let all =
        || [404, 404, 404, 404, 429].map(|status| assert_eq!(outcome(&gateway, "/closed"), (status, false)));
    all();
    redis.ask(&["FLUSHALL"]).unwrap();
    all();
}

#[test]
fn a_gateway_starts_and_reloads_without_redis() {
    let mut redis = Redis::start().unwrap();
    redis.kill().unwrap();
    let (dir, gateway) = gateway(&redis.url());
    decided_by_strategies(&gateway);
    configure(dir.path(), &config(&redis.url()).replace("capacity = 4", "capacity = 2"));
    assert_eq!(gateway.post("/admin/policies/reload", &json!({})).status, 200);
    redis.restart().unwrap();
    wait_until_degraded(&gateway, false);
    for status in [404, 404, 429] {
        assert_eq!(outcome(&gateway, "/closed"), (status, false));
    }
}

#[test]
fn the_password_is_in_no_log_and_no_answer() {
    let options = RedisOptions { password: Some("open-sesame".to_owned()), ..RedisOptions::default() };
    let mut redis = Redis::start_with(options).unwrap();
    let (dir, gateway) = gateway(&redis.url());
    assert_eq!(outcome(&gateway, "/closed"), (404, false));
    redis.kill().unwrap();
    wait_until_degraded(&gateway, true);
    gateway.stderr.wait_for("Redis is away");
    assert!(!gateway.stderr.all().iter().any(|line| line.contains("sesame")), "{:#?}", gateway.stderr.all());
    let said = check_config(dir.path());
    assert!(said.contains("redis.url = (hidden)") && !said.contains("sesame"), "{said}");
    configure(dir.path(), &config("redis://:open-sesame@host:port/"));
    let said = check_config(dir.path());
    assert!(said.contains("redis.url: is not the URL of a Redis") && !said.contains("sesame"), "{said}");
}

fn check_config(dir: &Path) -> String {
    let output = command(dir).arg("check-config").output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}
