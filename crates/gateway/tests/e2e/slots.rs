use std::collections::BTreeMap;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{self, Answer};
use crate::gateway::{Gateway, start, start_with};

/// As the documents of the first callers have it.
const CONFIG: &str = r#"{
    "configName": "default",
    "maxPerWindow": 100,
    "windowSize": "PT4S"
  }"#;
const EVENT: &str = r#"{
    "eventId": "pay-123",
    "configName": "default",
    "requestedTime": "2025-06-01T12:00:00Z"
  }"#;

fn configured(dir: &std::path::Path, config: &Value) -> Gateway {
    let gateway = start(dir);
    let answer = gateway.post("/admin/rate-limit/config", config);
    assert_eq!(answer.status, 200, "{answer:?}");
    gateway
}

fn per_window(max: u32) -> Value {
    json!({"configName": "default", "maxPerWindow": max, "windowSize": "PT4S"})
}

fn slot(gateway: &Gateway, event: &str, requested: &str) -> Answer {
    gateway.post("/api/v1/slots", &json!({"eventId": event, "requestedTime": requested}))
}

fn ms(time: &Value) -> i64 {
    let text = time.as_str().unwrap_or_else(|| panic!("a time: {time}"));
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

const NOON: &str = "2025-06-01T12:00:00Z";

#[test]
fn the_first_callers_requests_work_word_for_word() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let post = |path, body| client::exchange(gateway.address, "POST", path, &[], body);
    let config = post("/admin/rate-limit/config", CONFIG);
    assert_eq!((config.status, &config.json()["version"]), (200, &json!(1)), "{config:?}");
    let answer = post("/api/v1/slots", EVENT);
    let given = answer.json();
    assert_eq!((answer.status, &given["eventId"]), (200, &json!("pay-123")), "{answer:?}");
    let (noon, scheduled) = (ms(&json!(NOON)), ms(&given["scheduledTime"]));
    assert!((noon..noon + 4_000).contains(&scheduled), "{given}");
    assert_eq!(given["delayMs"], scheduled - noon);
    assert_eq!(given["windowStart"], "2025-06-01T12:00:00.000Z");
    assert_eq!((&given["configName"], given.get("messageId")), (&json!("default"), None));

    let again = post("/api/v1/slots", EVENT);
    assert_eq!((again.status, again.json()), (200, given.clone()));
    assert_eq!(again.header("Idempotent-Replay"), Some("true"));
    assert_eq!(gateway.get("/api/v1/slots/pay-123").json(), given);
    assert_eq!(gateway.get("/admin/rate-limit/config?name=default").json()["maxPerWindow"], 100);
    assert_eq!(post("/admin/rate-limit/cache/flush", "").json(), json!({"flushed": true}));
}

#[test]
fn windows_fill_in_order_and_a_batch_is_answered_in_order() {
    let dir = tempdir().unwrap();
    let gateway = configured(dir.path(), &per_window(3));
    let events: Vec<_> = (0..8)
        .map(|n| json!({"eventId": format!("e{}", n % 7), "requestedTime": NOON}))
        .chain([json!({"eventId": "other", "configName": "other", "requestedTime": NOON})])
        .collect();
    let answer = gateway.post("/api/v1/slots/batch", &json!({"events": events}));
    let results = answer.json();
    let results = results.as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_str().unwrap()).collect();
    let expected = [vec!["assigned"; 7], vec!["existing", "unknown_config"]].concat();
    assert_eq!((answer.status, statuses), (200, expected));
    let ids: Vec<_> = results.iter().map(|result| result["eventId"].as_str().unwrap()).collect();
    assert_eq!(ids, ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e0", "other"]);
    assert_eq!(results[0]["scheduledTime"], results[7]["scheduledTime"]);
    let noon = ms(&json!(NOON));
    let mut windows = BTreeMap::new();
    for result in &results[..7] {
        let (scheduled, delay) = (ms(&result["scheduledTime"]), result["delayMs"].as_i64().unwrap());
        assert_eq!(scheduled - noon, delay);
        *windows.entry(delay / 4_000).or_insert(0) += 1;
    }
    assert_eq!(windows, BTreeMap::from([(0, 3), (1, 3), (2, 1)]));
    let metrics = gateway.get("/metrics").text;
    assert!(metrics.contains("tidegate_slots_total{outcome=\"assigned\"} 7\n"), "{metrics}");
}

#[test]
fn every_wrong_field_of_a_slot_is_named_and_nothing_is_assigned() {
    let dir = tempdir().unwrap();
    let gateway = configured(dir.path(), &per_window(1));
    let wrong = json!({
        "eventId": "forecast", "configName": "a/b", "requestedTime": "2025-06-01T12:00:00",
        "message": {"queue": "a b", "priority": "urgent", "colour": "red"}, "size": 1
    });
    let answer = gateway.post("/api/v1/slots", &wrong);
    let named = [
        "configName",
        "eventId",
        "message.body",
        "message.colour",
        "message.priority",
        "message.queue",
        "message.recipient",
        "requestedTime",
        "size",
    ];
    assert_eq!((answer.status, fields(&answer)), (400, named.map(str::to_owned).to_vec()));
    assert!(answer.text.contains("has no offset"), "{answer:?}");

    let good = json!({"eventId": "good", "requestedTime": NOON});
    let batch = json!({"events": [good, {"eventId": 5, "requestedTime": NOON}, 7, {"eventId": "c"}]});
    let answer = gateway.post("/api/v1/slots/batch", &batch);
    assert_eq!(answer.status, 400);
    assert_eq!(fields(&answer), ["events[1].eventId", "events[2]", "events[3].requestedTime"]);
    assert_eq!(gateway.get("/api/v1/slots/good").status, 404);
    for wrong in [json!({}), json!({"events": []}), json!({"events": vec![good; 1_001]})] {
        assert_eq!(fields(&gateway.post("/api/v1/slots/batch", &wrong)), ["events"]);
    }
}

#[test]
fn unknown_and_exhausted_configurations_say_so() {
    let dir = tempdir().unwrap();
    let config =
        json!({"configName": "default", "maxPerWindow": 1, "windowSize": "PT4S", "headroomWindows": 1});
    let gateway = configured(dir.path(), &config);
    let other = json!({"eventId": "a", "configName": "other", "requestedTime": NOON});
    let answer = gateway.post("/api/v1/slots", &other);
    assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("unknown_config")));
    assert_eq!(slot(&gateway, "a", NOON).status, 200);
    assert_eq!(slot(&gateway, "b", NOON).status, 200);
    let answer = slot(&gateway, "c", NOON);
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("no_capacity")), "{answer:?}");
    assert!(answer.header("Retry-After").is_some());
    gateway.stderr.wait_for("no window has room");
    let forecast = gateway.get(&format!("/api/v1/slots/forecast?config=default&requestedTime={NOON}"));
    assert_eq!((forecast.status, &forecast.json()["code"]), (503, &json!("no_capacity")));
    assert_eq!(gateway.get("/api/v1/slots/c").status, 404);
}

#[test]
fn a_forecast_takes_nothing() {
    let dir = tempdir().unwrap();
    let gateway = configured(dir.path(), &per_window(1));
    for _ in 0..3 {
        let path = "/api/v1/slots/forecast?config=default&requestedTime=2025-06-01T14:00:00+02:00";
        let forecast = gateway.get(path).json();
        assert_eq!(forecast["windowStart"], "2025-06-01T12:00:00.000Z", "{forecast}");
        assert!(forecast["delayMs"].as_u64().unwrap() < 4_000);
    }
    assert!(slot(&gateway, "a", NOON).json()["delayMs"].as_u64().unwrap() < 4_000);
    let next = gateway.get(&format!("/api/v1/slots/forecast?requestedTime={NOON}")).json();
    assert_eq!(next["windowStart"], "2025-06-01T12:00:04.000Z");
    let wrong = gateway.get("/api/v1/slots/forecast?config=default&when=now");
    assert_eq!((wrong.status, fields(&wrong)), (400, vec!["requestedTime".to_owned(), "when".to_owned()]));
}

#[test]
fn a_slot_given_back_takes_its_message_with_it_and_a_used_one_stays() {
    let dir = tempdir().unwrap();
    let gateway = configured(dir.path(), &per_window(1));
    let later = json!({
        "eventId": "later", "requestedTime": "2099-01-01T00:00:00Z",
        "message": {"recipient": "ann", "body": "happy new year", "priority": "high"}
    });
    let answer = gateway.post("/api/v1/slots", &later).json();
    let path = format!("/api/v1/messages/{}", answer["messageId"].as_str().unwrap());
    let record = gateway.get(&path).json();
    assert_eq!((&record["status"], &record["dueAt"]), (&json!("pending"), &answer["scheduledTime"]));
    assert_eq!((&record["recipient"], &record["priority"]), (&json!("ann"), &json!("high")));
    let released = gateway.delete("/api/v1/slots/later");
    assert_eq!((released.status, released.json()), (200, answer));
    assert_eq!(gateway.get(&path).json()["status"], "deleted");
    assert_eq!(gateway.delete("/api/v1/slots/later").status, 404);

    let past = json!({"eventId": "past", "requestedTime": NOON, "message": "at once"});
    let answer = gateway.post("/api/v1/slots", &past).json();
    gateway.delivered(answer["messageId"].as_str().unwrap());
    gateway.stdout.wait_for("at once");
    let used = gateway.delete("/api/v1/slots/past");
    assert_eq!((used.status, &used.json()["code"]), (409, &json!("slot_used")));
    let metrics = gateway.get("/metrics").text;
    for line in ["tidegate_messages_deleted_total 1", "tidegate_conservation_balanced 1"] {
        assert!(metrics.lines().any(|given| given == line), "{line}\nnot in\n{metrics}");
    }
}

#[test]
fn a_kill_loses_no_slot() {
    let dir = tempdir().unwrap();
    let gateway = configured(dir.path(), &per_window(2));
    let before: Vec<_> = (0..5).map(|n| slot(&gateway, &n.to_string(), NOON).json()).collect();
    gateway.delete("/api/v1/slots/1");
    gateway.signal("-KILL");
    gateway.wait();
    let gateway = start_with(dir.path(), &[]);
    for n in [0, 2, 3, 4] {
        assert_eq!(gateway.get(&format!("/api/v1/slots/{n}")).json(), before[n]);
    }
    assert_eq!(gateway.get("/api/v1/slots/1").status, 404);
    assert_eq!(slot(&gateway, "new", NOON).json()["windowStart"], before[1]["windowStart"]);
}

pub fn fields(answer: &Answer) -> Vec<String> {
    let body = answer.json();
    let fields = body["fields"].as_array().unwrap_or_else(|| panic!("{body}"));
    let mut names: Vec<_> = fields.iter().map(|field| field["field"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn an_event_keeps_the_message_it_was_first_given_and_another_is_refused() {
    let dir = tempdir().unwrap();
    let gateway = configured(dir.path(), &per_window(3));
    let ask = |event: &str, message: &Value| {
        let body = json!({"eventId": event, "requestedTime": NOON, "message": message});
        gateway.post("/api/v1/slots", &body)
    };
    let first = ask("a", &json!("hello"));
    assert_eq!((first.status, ask("a", &json!("hello")).json()), (200, first.json()));
    assert_eq!(ask("a", &Value::Null).json(), first.json());
    let other = ask("a", &json!("goodbye"));
    assert_eq!((other.status, &other.json()["code"]), (409, &json!("message_conflict")));
    assert_eq!(other.json()["messageId"], first.json()["messageId"]);

    assert_eq!(slot(&gateway, "b", NOON).status, 200);
    assert_eq!(ask("b", &json!("too late")).status, 409);
    let events = [json!({"eventId": "b", "requestedTime": NOON, "message": "too late"})];
    let results = gateway.post("/api/v1/slots/batch", &json!({"events": events})).json();
    assert_eq!(results, json!([{"eventId": "b", "status": "message_conflict"}]));

    let lost = ask("c", &json!({"recipient": null, "body": "x", "queue": "smss"}));
    assert_eq!((lost.status, &lost.json()["fields"][0]["field"]), (400, &json!("message.queue")), "{lost:?}");
}
