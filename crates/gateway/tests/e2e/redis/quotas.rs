//! The quota accelerator: real Redis, real PostgreSQL, real gateways.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tidegate_testkit::services::{FaultyProxy, Postgres, PostgresOptions, Redis, RedisOptions};

use super::{NOT_LONG, check_config, deadlines, gateway_with};
use crate::client::{self, Answer};
use crate::gateway::{Gateway, eventually};
use crate::policies::configure;

const DOWN: &str = "REDIS DOWN — Falling back to Postgres";
const THERE: &str = "Redis is there; it answers for quotas that are used up";

fn postgres() -> Postgres {
    Postgres::start(PostgresOptions { durable: true, settings: Vec::new() }).unwrap()
}

fn config(postgres: &str, redis: &str) -> String {
    format!(
        "[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"{postgres}\"\nconnections_max = 6\n\
         [quotas]\naccelerator = \"redis\"\n[redis]\nurl = \"{redis}\"\n{}",
        deadlines(5000)
    )
}

fn gateway(postgres: &str, redis: &str) -> (TempDir, Gateway) {
    gateway_with(&config(postgres, redis))
}

/// Answered in a moment, whatever is broken behind the gateway.
fn send(gateway: &Gateway, user: &str) -> Answer {
    let begun = Instant::now();
    let answer = gateway.send(user, "hello");
    assert!(begun.elapsed() < NOT_LONG, "{:?}: {answer:?}", begun.elapsed());
    answer
}

fn results(gateway: &Gateway, result: &str) -> u64 {
    let name = format!("tidegate_quota_cache_total{{result=\"{result}\"}} ");
    let metrics = gateway.get("/metrics").text;
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |count| count.parse().unwrap())
}

/// Sends until Redis is the one who says no.
fn use_up(gateway: &Gateway, user: &str, limit: usize) {
    let before = results(gateway, "denied");
    let mut passed = 0;
    eventually(|| {
        passed += usize::from(send(gateway, user).status == 200);
        (results(gateway, "denied") > before).then_some(())
    });
    assert_eq!(passed, limit);
}

fn is_degraded(gateway: &Gateway) -> bool {
    let ready = gateway.get("/health/ready");
    assert_eq!(ready.status, 200, "{ready:?}");
    ready.json()["quotaAccelerator"] == "degraded"
}

fn lines_with(gateway: &Gateway, part: &str) -> usize {
    gateway.stderr.all().iter().filter(|line| line.contains(part)).count()
}

/// A denial without what depends on the moment.
fn shape(answer: &Answer) -> (u16, Value, Vec<(String, String)>) {
    let mut body = answer.json();
    for moment in ["timestamp", "retryAfterMs"] {
        assert!(body.as_object_mut().unwrap().remove(moment).is_some(), "{moment}: {answer:?}");
    }
    let moments = ["date", "x-request-id", "retry-after", "ratelimit-reset", "content-length"];
    let names = answer.headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
    (answer.status, body, names.filter(|(name, _)| !moments.contains(&name.as_str())).collect())
}

#[test]
fn a_denial_is_the_same_without_postgres_and_is_counted() {
    let (redis, mut postgres) = (Redis::start().unwrap(), postgres());
    let url = postgres.url("postgres");
    let (_dir, gateway) = gateway(&url, &redis.url());
    gateway.configure("ann", 3);
    gateway.configure("bob", 3);
    use_up(&gateway, "ann", 3);
    // With a key it is the ledger who says it.
    let body = json!({"userId": "ann", "message": "hello"});
    let by_ledger = client::post(gateway.address, "/api/send", &[("Idempotency-Key", "k")], &body);
    let before = results(&gateway, "denied");
    let by_redis = send(&gateway, "ann");
    assert_eq!(shape(&by_redis), shape(&by_ledger));
    for header in ["Retry-After", "RateLimit-Reset", "RateLimit-Limit", "RateLimit-Remaining"] {
        let both =
            [&by_redis, &by_ledger].map(|answer| answer.header(header).unwrap().parse::<u64>().unwrap());
        assert!(both[0].abs_diff(both[1]) <= NOT_LONG.as_secs(), "{header}: {both:?}");
    }
    postgres.kill().unwrap();
    let denied_without = |times: u64| {
        for _ in 0..times {
            assert_eq!(shape(&send(&gateway, "ann")), shape(&by_ledger));
        }
    };
    denied_without(5);
    eventually(|| (gateway.get("/health/ready").status == 503).then_some(()));
    denied_without(5);
    let other = send(&gateway, "bob");
    assert_eq!((other.status, other.header("Retry-After").is_some()), (503, true), "{other:?}");
    postgres.restart().unwrap();
    eventually(|| (gateway.get("/health/ready").status == 200).then_some(()));
    assert_eq!(results(&gateway, "denied"), before + 11);
    eventually(|| (send(&gateway, "bob").status == 200).then_some(()));
}

#[test]
fn a_stalled_postgres_keeps_no_denial_waiting() {
    let (redis, postgres) = (Redis::start().unwrap(), postgres());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let proxy = runtime.block_on(FaultyProxy::start(postgres.address)).unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address);
    let (_dir, gateway) = gateway(&url, &redis.url());
    gateway.configure("ann", 2);
    use_up(&gateway, "ann", 2);
    proxy.stall();
    for _ in 0..10 {
        assert_eq!(send(&gateway, "ann").status, 429);
    }
    proxy.heal();
}

#[test]
fn the_hash_is_there_for_the_rest_of_the_window_and_gone_with_a_change() {
    let (redis, postgres) = (Redis::start().unwrap(), postgres());
    let (_dir, gateway) = gateway(&postgres.url("postgres"), &redis.url());
    gateway.configure("1001", 2);
    let read = |field: &str| redis.ask(&["HGET", "RateLimiterCache:1001", field]).unwrap();
    assert_eq!(read("rateLimit"), "$-1\r\n", "a change is no reason to write");
    use_up(&gateway, "1001", 2);
    assert_eq!(
        (read("rateLimit"), read("currentCount")),
        ("$1\r\n2\r\n".to_owned(), "$1\r\n2\r\n".to_owned())
    );
    let ttl = redis.ask(&["PTTL", "RateLimiterCache:1001"]).unwrap();
    let ttl: i64 = ttl.trim_start_matches(':').trim().parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&ttl), "{ttl}");
    gateway.configure("1001", 3);
    assert_eq!(read("rateLimit"), "$-1\r\n");
    use_up(&gateway, "1001", 3);
    assert_eq!(gateway.delete("/api/config/1001").status, 204);
    assert_eq!((read("rateLimit").as_str(), send(&gateway, "1001").status), ("$-1\r\n", 404));
    assert_eq!(results(&gateway, "down"), 0);
}

#[test]
fn repetitions_and_deferrals_go_past_a_denial() {
    let (redis, postgres) = (Redis::start().unwrap(), postgres());
    let (_dir, gateway) = gateway(&postgres.url("postgres"), &redis.url());
    gateway.configure("ann", 2);
    let body = json!({"userId": "ann", "message": "hello"});
    let keyed = || client::post(gateway.address, "/api/send", &[("Idempotency-Key", "k")], &body);
    let first = keyed();
    assert_eq!(first.status, 200, "{first:?}");
    use_up(&gateway, "ann", 1);
    let again = keyed();
    assert_eq!((again.status, &again.json()["id"]), (200, &first.json()["id"]), "{again:?}");
    let deferred = gateway.post("/api/send", &json!({"userId": "ann", "message": "x", "onLimit": "defer"}));
    assert_eq!((deferred.status, &deferred.json()["status"]), (202, &json!("deferred")), "{deferred:?}");
    assert_eq!(send(&gateway, "ann").status, 429);
}

#[test]
fn without_redis_postgres_decides_and_the_log_says_so_once() {
    let (mut redis, postgres) = (Redis::start().unwrap(), postgres());
    let (_dir, gateway) = gateway(&postgres.url("postgres"), &redis.url());
    gateway.configure("ann", 6);
    assert!(!is_degraded(&gateway));
    for outage in 1..=2 {
        assert_eq!(send(&gateway, "ann").status, 200);
        redis.kill().unwrap();
        eventually(|| {
            send(&gateway, "nobody");
            is_degraded(&gateway).then_some(())
        });
        gateway.stderr.wait_for(DOWN);
        assert_eq!(send(&gateway, "ann").status, 200);
        assert!(results(&gateway, "down") > 0);
        assert!(gateway.get("/metrics").text.contains("\ntidegate_quota_cache_up 0\n"));
        redis.restart().unwrap();
        eventually(|| (!is_degraded(&gateway)).then_some(()));
        eventually(|| (lines_with(&gateway, THERE) == 1 + outage).then_some(()));
        assert_eq!(lines_with(&gateway, DOWN), outage, "{:#?}", gateway.stderr.all());
    }
    use_up(&gateway, "ann", 2);
}

#[test]
fn a_stalled_redis_costs_a_few_deadlines_and_then_nothing() {
    let (redis, postgres) = (Redis::start().unwrap(), postgres());
    let patient = config(&postgres.url("postgres"), &redis.url());
    let (_dir, gateway) = gateway_with(&patient.replace(&deadlines(5000), &deadlines(1000)));
    gateway.configure("ann", 1_000);
    assert_eq!(send(&gateway, "ann").status, 200);
    redis.stop().unwrap();
    eventually(|| {
        assert_eq!(send(&gateway, "ann").status, 200);
        is_degraded(&gateway).then_some(())
    });
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(send(&gateway, "ann").status, 200);
    }
    assert!(begun.elapsed() < NOT_LONG, "twenty took {:?}", begun.elapsed());
    redis.resume().unwrap();
    eventually(|| (!is_degraded(&gateway)).then_some(()));
}

#[test]
fn a_gateway_starts_without_redis_and_finds_it_later() {
    let (mut redis, postgres) = (Redis::start().unwrap(), postgres());
    redis.kill().unwrap();
    let (_dir, gateway) = gateway(&postgres.url("postgres"), &redis.url());
    gateway.configure("ann", 2);
    assert_eq!((send(&gateway, "ann").status, is_degraded(&gateway)), (200, true));
    assert_eq!(lines_with(&gateway, DOWN), 1);
    redis.restart().unwrap();
    eventually(|| (!is_degraded(&gateway)).then_some(()));
    use_up(&gateway, "ann", 1);
}

#[test]
fn a_quota_changed_while_redis_is_away_counts_when_it_is_back() {
    let mut redis = Redis::start_with(RedisOptions { append_only: true, ..RedisOptions::default() }).unwrap();
    let postgres = postgres();
    let (_one, one) = gateway(&postgres.url("postgres"), &redis.url());
    one.configure("ann", 2);
    use_up(&one, "ann", 2);
    redis.kill().unwrap();
    one.configure("ann", 4);
    redis.restart().unwrap();
    // The old window is on Redis' disk; nobody is denied by it.
    let mut passed = 0;
    eventually(|| {
        let status = send(&one, "ann").status;
        assert!(status == 200 || passed == 4, "{status} after {passed}");
        passed += u32::from(status == 200);
        (!is_degraded(&one) && passed == 4).then_some(())
    });
    use_up(&one, "ann", 0);
}

/// The bound after a FLUSHALL, a kill or a failover to an empty replica: nothing beyond the limit.
#[test]
fn no_window_holds_more_than_its_limit_whatever_becomes_of_redis() {
    const LIMIT: u32 = 300;
    let (mut redis, postgres) = (Redis::start().unwrap(), postgres());
    let (_one, one) = gateway(&postgres.url("postgres"), &redis.url());
    let (_other, other) = gateway(&postgres.url("postgres"), &redis.url());
    one.configure("ann", LIMIT);
    let (passed, denied, over) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for n in 0..8 {
            let gateway = if n % 2 == 0 { &one } else { &other };
            let (passed, denied, over) = (&passed, &denied, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    match send(gateway, "ann").status {
                        200 => passed.fetch_add(1, Ordering::Relaxed),
                        429 => denied.fetch_add(1, Ordering::Relaxed),
                        status => panic!("{status}"),
                    };
                }
            });
        }
        let until =
            |part: u32| eventually(|| (passed.load(Ordering::Relaxed) >= LIMIT * part / 10).then_some(()));
        for part in [1, 2, 3] {
            until(part);
            redis.ask(&["FLUSHALL"]).unwrap();
        }
        until(5);
        redis.kill().unwrap();
        until(6);
        redis.restart().unwrap();
        until(10);
        // Once more when it is full.
        for fault in 0..4 {
            let before = denied.load(Ordering::Relaxed);
            eventually(|| (denied.load(Ordering::Relaxed) > before + 50).then_some(()));
            match fault {
                0 => drop(redis.ask(&["FLUSHALL"]).unwrap()),
                1 => redis.kill().unwrap(),
                _ if fault == 2 => redis.restart().unwrap(),
                _ => {}
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(passed.load(Ordering::Relaxed), LIMIT);
    let kept = postgres.sql("postgres", "SELECT count(*) FROM tidegate.message").unwrap();
    assert_eq!(kept.trim(), LIMIT.to_string());
    for gateway in [&one, &other] {
        assert!(results(gateway, "hit") > 0 && results(gateway, "denied") > 0);
    }
}

#[test]
fn the_embedded_ledger_needs_no_accelerator_and_check_config_says_so() {
    let dir = tempdir().unwrap();
    configure(dir.path(), "[quotas]\naccelerator = \"redis\"\n");
    let said = check_config(dir.path());
    assert!(said.contains("quotas.accelerator: is for ledger.kind = \"postgres\""), "{said}");
    configure(dir.path(), &config("postgres://db/t", "redis://:open-sesame@host:port/"));
    let said = check_config(dir.path());
    assert!(said.contains("redis.url: is not the URL of a Redis") && !said.contains("sesame"), "{said}");
}
