mod tls;

use std::path::Path;

use serde_json::json;
use tempfile::{TempDir, tempdir};
use tidegate_testkit::services::{Kafka, KafkaOptions, NoKafka, RabbitMq};

use crate::gateway::{Gateway, eventually, start};

fn configured(bus: &str, when_down: &str) -> TempDir {
    let dir = tempdir().unwrap();
    write(dir.path(), bus, when_down);
    dir
}

fn write(dir: &Path, bus: &str, when_down: &str) {
    let text = format!("[bus]\nwhen_down = \"{when_down}\"\ntransit_ms = 3000\n{bus}");
    std::fs::write(dir.join("tidegate.toml"), text).unwrap();
}

fn on_kafka(kafka: &Kafka) -> String {
    let brokers = kafka.bootstrap();
    format!("kind = \"kafka\"\n[kafka]\nbrokers = [\"{brokers}\"]\npublish_timeout_ms = 2000\n")
}

fn on_rabbitmq(rabbitmq: &RabbitMq) -> String {
    format!("kind = \"rabbitmq\"\n[rabbitmq]\nurl = \"{}\"\npublish_timeout_ms = 2000\n", rabbitmq.url())
}

/// None where it can't be fetched; the bus' own tests have a cluster without one.
fn kafka() -> Option<Kafka> {
    kafka_with(&KafkaOptions::default())
}

fn kafka_with(options: &KafkaOptions) -> Option<Kafka> {
    match Kafka::start_with(options) {
        Ok(kafka) => Some(kafka),
        Err(error) if error.is::<NoKafka>() => {
            eprintln!("left out: on Kafka: {error}");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

fn metric(gateway: &Gateway, sample: &str) -> Option<u64> {
    let text = gateway.get("/metrics").text;
    let line = text.lines().find(|line| line.starts_with(sample))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn status(gateway: &Gateway) -> String {
    gateway.get("/health/ready").json()["bus"]["status"].as_str().unwrap_or_default().to_owned()
}

/// A gateway whose bus is there: it does not wait for that to start.
fn connected(dir: &Path) -> Gateway {
    let gateway = start(dir);
    eventually(|| (status(&gateway) == "ready").then_some(()));
    gateway
}

fn sent(gateway: &Gateway) -> Vec<String> {
    gateway.stdout.all().into_iter().filter(|line| line.contains("SMS SENT")).collect()
}

/// The seed's own flow: a quota, sends up to it, 429 beyond, and everything that was let in comes out of the sender.
fn sends_up_to_its_quota(dir: &Path) {
    let gateway = connected(dir);
    gateway.configure("ann", 3);
    let ids: Vec<_> = (0..3)
        .map(|n| {
            let answer = gateway.send("ann", &format!("hello {n}"));
            assert_eq!((answer.status, answer.json().get("degraded")), (200, None), "{answer:?}");
            answer.json()["id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(gateway.send("ann", "one too many").status, 429);
    for id in &ids {
        let record = gateway.delivered(id);
        assert_eq!(record["attempts"].as_array().unwrap().len(), 1, "{record}");
    }
    let lines = eventually(|| Some(sent(&gateway)).filter(|lines| lines.len() >= 3));
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (n, line) in lines.iter().enumerate() {
        assert!(line.contains("user=ann") && line.contains(&format!("hello {n}")), "{line}");
    }
    assert_eq!(metric(&gateway, "tidegate_bus_up"), Some(1));
    let begun = "tidegate_bus_received_total{queue=\"sms\",result=\"begun\"}";
    // The first one comes over the bus; those of the same recipient may come with the settlement of the one before.
    let received = metric(&gateway, begun);
    assert!(received.is_some_and(|count| (1..=3).contains(&count)), "{received:?}");
    assert!(gateway.stop().success());
}

#[test]
fn messages_go_over_kafka() {
    let Some(kafka) = kafka() else { return };
    sends_up_to_its_quota(configured(&on_kafka(&kafka), "accept").path());
}

#[test]
fn messages_go_over_rabbitmq() {
    sends_up_to_its_quota(configured(&on_rabbitmq(RabbitMq::shared()), "accept").path());
}

#[test]
fn a_bus_that_is_away_is_told_and_its_messages_wait_or_are_refused() {
    let Some(mut kafka) = kafka() else { return };
    let dir = configured(&on_kafka(&kafka), "reject");
    let gateway = connected(dir.path());
    gateway.configure("ann", 100);
    let first = gateway.send("ann", "before").json()["id"].as_str().unwrap().to_owned();
    gateway.delivered(&first);
    kafka.kill().unwrap();
    eventually(|| (status(&gateway) == "away").then_some(()));
    let ready = gateway.get("/health/ready");
    assert_eq!((ready.status, metric(&gateway, "tidegate_bus_up")), (503, Some(0)), "{ready:?}");
    let refused = gateway.send("ann", "refused");
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("bus_unavailable")), "{refused:?}");
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(gateway.get("/api/config/ann").json()["currentCount"], 1, "nothing was charged");
    // A slot without a message needs no bus. One with a message is refused, and takes no place.
    let slots = json!({"configName": "default", "maxPerWindow": 100, "windowSize": "PT1M"});
    assert_eq!(gateway.post("/admin/rate-limit/config", &slots).status, 200);
    let event =
        |id: &str| json!({"eventId": id, "requestedTime": "2099-01-01T00:00:00Z", "message": "hello"});
    for (path, body) in [("", event("refused")), ("/batch", json!({"events": [event("refused")]}))] {
        let refused = gateway.post(&format!("/api/v1/slots{path}"), &body);
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (503, &json!("bus_unavailable")),
            "{refused:?}"
        );
        assert!(refused.header("Retry-After").is_some());
    }
    assert_eq!(gateway.get("/api/v1/slots/refused").status, 404, "nothing was reserved");
    let bare = json!({"eventId": "bare", "requestedTime": "2099-01-01T00:00:00Z"});
    assert_eq!(gateway.post("/api/v1/slots", &bare).status, 200);
    assert!(gateway.stop().success());

    write(dir.path(), &on_kafka(&kafka), "accept");
    let gateway = start(dir.path());
    let ids: Vec<_> = (0..20)
        .map(|n| {
            let answer = gateway.send("ann", &format!("meanwhile {n}"));
            assert_eq!((answer.status, &answer.json()["degraded"]), (200, &json!(true)), "{answer:?}");
            assert_eq!(answer.header("Tidegate-Degraded"), Some("true"));
            answer.json()["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let batch = json!({"messages": [{"recipient": "bob", "body": "one of many"}]});
    let answer = gateway.post("/api/v1/messages/batch", &batch);
    assert_eq!((answer.status, answer.header("Tidegate-Degraded")), (202, Some("true")), "{answer:?}");
    let answer = gateway.post("/api/v1/slots", &event("one"));
    assert_eq!((answer.status, &answer.json()["degraded"]), (200, &json!(true)), "{answer:?}");
    assert_eq!(answer.header("Tidegate-Degraded"), Some("true"));
    let both =
        json!({"events": [event("two"), {"eventId": "three", "requestedTime": "2099-01-01T00:00:00Z"}]});
    let answer = gateway.post("/api/v1/slots/batch", &both);
    let items = answer.json();
    assert_eq!((&items[0]["degraded"], items[1].get("degraded")), (&json!(true), None), "{answer:?}");
    assert_eq!(answer.header("Tidegate-Degraded"), Some("true"));
    let answer = gateway.post("/api/v1/slots", &bare);
    assert_eq!(
        (answer.json().get("degraded"), answer.header("Tidegate-Degraded")),
        (None, None),
        "{answer:?}"
    );
    assert_eq!((gateway.get("/health/ready").status, status(&gateway).as_str()), (200, "away"));
    kafka.restart().unwrap();
    ids.iter().for_each(|id| drop(gateway.delivered(id)));
    let lines = eventually(|| Some(sent(&gateway)).filter(|lines| lines.len() >= 21));
    let sent: Vec<_> = lines.iter().filter_map(|line| line.split("meanwhile ").nth(1)).collect();
    let wanted: Vec<_> = (0..20).map(|n| format!("{n}\"")).collect();
    assert_eq!(sent, wanted, "oldest first, each once");
    eventually(|| (status(&gateway) == "ready").then_some(()));
}

/// On the shared server, with an exchange and queues that nobody else uses.
fn apart(name: &str, bus: &str, when_down: &str) -> TempDir {
    let bus = format!("{bus}{}exchange = \"{name}\"\n", on_rabbitmq(RabbitMq::shared()));
    let queue = format!("[[queues]]\nname = \"sms\"\nchannel = \"log\"\ntopic = \"{name}-outbound\"\n");
    configured(&format!("{bus}{queue}"), when_down)
}

#[test]
fn a_queue_that_the_bus_refuses_is_named_and_its_messages_wait() {
    let dir = apart("refused", "", "reject");
    let gateway = connected(dir.path());
    gateway.configure("ann", 5);
    // A queue without its quorum.
    let quorum = |what: &str| {
        let call = format!("ok = ra:{what}_server(quorum_queues, {{'%2F_refused-outbound', node()}}).");
        RabbitMq::shared().ctl(&["eval", &call]).unwrap();
    };
    quorum("stop");
    let bus = || gateway.get("/health/ready").json()["bus"].clone();
    let first = gateway.send("ann", "first").json();
    let unwell = eventually(|| Some(bus()).filter(|bus| bus["status"] == "refusing"));
    assert_eq!(unwell["refusedQueues"], json!(["sms"]));
    let second = gateway.send("ann", "second");
    assert_eq!(
        (second.status, &second.json()["degraded"]),
        (200, &json!(true)),
        "one bad record shuts nobody out"
    );
    quorum("restart");
    for answer in [first, second.json()] {
        gateway.delivered(answer["id"].as_str().unwrap());
    }
    let well = eventually(|| Some(bus()).filter(|bus| bus["status"] == "ready"));
    assert_eq!(well["refusedQueues"], json!([]));
}

#[test]
fn large_messages_travel_without_their_texts_and_arrive_with_them() {
    let dir = apart("large", "record_bytes_max = 2000\n", "accept");
    let gateway = connected(dir.path());
    gateway.configure("ann", 5);
    let message = "x".repeat(50_000);
    let id = gateway.send("ann", &message).json()["id"].as_str().unwrap().to_owned();
    gateway.delivered(&id);
    assert!(gateway.stdout.wait_for("SMS SENT").contains(&message));
}
