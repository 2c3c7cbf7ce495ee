//! Nodes whose clocks are minutes apart.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidegate_testkit::HANG;
use tidegate_testkit::cluster::{Cluster, ClusterOptions, ClusterVerdict, Node, Traffic};

const SKEWS_S: [i64; 5] = [300, -300, 0, 300, -300];
/// Far below the skew, and far above what a busy machine takes for a request.
const ABOUT: SignedDuration = SignedDuration::from_secs(30);

#[test]
fn clocks_five_minutes_apart_change_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let mut options = ClusterOptions::new(env!("CARGO_BIN_EXE_tidegate"));
        options.clock_skews = SKEWS_S.to_vec();
        // Nothing here waits for a lease to end, and nothing may be repeated because an answer was slow.
        options.lease_ms = 20_000;
        let cluster = Cluster::start(options).await.unwrap();
        for (node, skew) in cluster.nodes().zip(SKEWS_S) {
            assert!(is_about(wall_clock(node), seconds_from_now(skew)), "the skew of {} is real", node.name);
        }
        let traffic = Traffic::start(&cluster).await.unwrap();
        traffic.progress(&cluster, 50).await.unwrap();
        for gateway in 0..cluster.gateways.len() {
            delays_and_expiry(&cluster, gateway).await;
            what_is_told(&cluster, gateway).await;
        }
        let (notes, mut totals) = traffic.finish(&cluster).await.unwrap();
        // Without the messages of the tests above: two delivered and one expired at each gateway.
        for (word, count) in [("admitted", 3), ("delivered", 2)] {
            totals[word] = json!(totals[word].as_u64().unwrap() - count * cluster.gateways.len() as u64);
        }
        let mut provider = cluster.provider.journal();
        provider.attempts.retain(|tried| !tried.message.starts_with("clock"));
        let verdict = ClusterVerdict::new(&notes, &provider, &totals, 0);
        eprintln!("{verdict}");
        verdict.check().unwrap();
    });
}

async fn delays_and_expiry(cluster: &Cluster, gateway: usize) {
    let post = async |extra: Value| {
        let mut message = json!({"queue": "sms", "recipient": format!("clock {gateway}"), "body": "clock"});
        message.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let reply = cluster.post(gateway, "/api/v1/messages", &message).await.unwrap();
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.body["id"].as_str().unwrap().to_owned()
    };
    let lives = post(json!({"ttlSeconds": 60})).await;
    let delayed = post(json!({"delaySeconds": 1})).await;
    // No consumer pulls it.
    let pulled = json!([{"consumerGroup": "clock", "content": "clock", "ttlSeconds": 1}]);
    let pushed = cluster.post(gateway, "/queue/batch/push", &pulled).await.unwrap().body;
    let expires = pushed["results"][0]["id"].as_str().unwrap().to_owned();
    let record = ended(cluster, &lives).await;
    assert_eq!(record["status"], "delivered", "{record}");
    assert!(is_about(at(&record["expiresAt"]), at(&record["admittedAt"]) + SignedDuration::from_secs(60)));
    let record = ended(cluster, &delayed).await;
    assert_eq!(record["status"], "delivered", "{record}");
    assert!(at(&record["deliveredAt"]) >= at(&record["dueAt"]), "{record}");
    assert!(is_about(at(&record["dueAt"]), at(&record["admittedAt"])), "{record}");
    assert_eq!(ended(cluster, &expires).await["status"], "expired");
}

async fn what_is_told(cluster: &Cluster, gateway: usize) {
    let quota = cluster.get(gateway, "/api/config/u0.0").await.unwrap().body;
    let window = SignedDuration::from_mins(quota["timeWindow"].as_i64().unwrap());
    assert!(is_about(at(&quota["resetAt"]), at(&quota["lastRefreshTime"]) + window), "{quota}");
    assert_ne!(quota["currentCount"], 0, "{quota}");
    let error = cluster.get(gateway, "/nowhere").await.unwrap().body;
    assert!(is_about(at(&error["timestamp"]), Timestamp::now()), "{error}");
}

async fn ended(cluster: &Cluster, id: &str) -> Value {
    let begun = Instant::now();
    loop {
        let record = cluster.get(0, &format!("/api/v1/messages/{id}")).await.unwrap().body;
        if record["status"] != "pending" {
            return record;
        }
        assert!(begun.elapsed() < HANG, "{record}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a node's own machine would say, as its log does.
fn wall_clock(node: &Node) -> Timestamp {
    let line: Value = serde_json::from_str(node.log().lines().last().unwrap()).unwrap();
    at(&line["timestamp"])
}

fn at(text: &Value) -> Timestamp {
    text.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text} is no time"))
}

fn seconds_from_now(seconds: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(seconds)
}

fn is_about(one: Timestamp, other: Timestamp) -> bool {
    one.duration_since(other).abs() < ABOUT
}
