//! A caller's trace context travels with its messages.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{exchange, post};
use crate::gateway::{Gateway, eventually, start};
use crate::sink::Sink;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn kept(gateway: &Gateway, id: &Value) -> Value {
    let record = gateway.get(&format!("/api/v1/messages/{}", id.as_str().unwrap())).json();
    record["headers"]["traceparent"].clone()
}

#[test]
fn every_attempt_belongs_to_the_callers_trace() {
    let sink = Sink::start(500);
    let dir = tempdir().unwrap();
    let config = format!(
        "[webhook]\nurl = \"http://{}/\"\nallow = [\"127.0.0.0/8\"]\n[sender]\nretry_base_ms = 10\nretry_max_ms = 50\n\
         attempts_max = 1000\n[breaker]\nfailure_percent = 100\n\
         [[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\n",
        sink.address
    );
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let message = json!({"queue": "hooks", "recipient": "ann", "body": "hello"});
    let answer = post(gateway.address, "/api/v1/messages", &[("Traceparent", TRACE)], &message);
    eventually(|| (sink.heads().len() >= 2).then_some(()));
    sink.answer(200);
    gateway.delivered(answer.json()["id"].as_str().unwrap());
    for head in sink.heads() {
        assert!(head.contains(&format!("\ntraceparent: {TRACE}\r\n")), "{head}");
    }
}

#[test]
fn a_trace_is_kept_on_every_way_in_and_changes_nothing_else() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("ann", 5);
    let slots = json!({"configName": "default", "maxPerWindow": 10, "windowSize": "PT1S"});
    assert_eq!(gateway.post("/admin/rate-limit/config", &slots).status, 200);
    let traced =
        |path: &str, trace: &str, body: &Value| post(gateway.address, path, &[("traceparent", trace)], body);
    let later = "2099-01-01T00:00:00Z";
    let one = json!({"recipient": "ann", "body": "x", "scheduledAt": later});
    let event = |id: &str| json!({"eventId": id, "requestedTime": later, "message": "x"});
    let text = json!({"content": "x", "consumerGroup": "jobs"});
    for (path, body, id) in [
        ("/api/send", json!({"userId": "ann", "message": "x"}), "/id"),
        ("/api/v1/messages", one.clone(), "/id"),
        ("/api/v1/messages/batch", json!([one]), "/results/0/id"),
        ("/queue/batch/push", json!([text]), "/results/0/id"),
        ("/api/v1/slots", event("a"), "/messageId"),
        ("/api/v1/slots/batch", json!({"events": [event("b")]}), "/0/messageId"),
    ] {
        let answer = traced(path, TRACE, &body);
        let id = answer.json().pointer(id).cloned().unwrap_or_else(|| panic!("{answer:?}"));
        assert_eq!(kept(&gateway, &id), TRACE, "{path}");
    }
    let headers = [("consumerGroup", "jobs"), ("traceparent", TRACE)];
    let pushed = exchange(gateway.address, "POST", "/queue/push", &headers, "x").json();
    assert_eq!(kept(&gateway, &pushed["id"]), TRACE);
    // One that makes no sense is as good as none, and a message's own counts more.
    for wrong in ["", "nonsense", &TRACE.replace("00f067aa0ba902b7", "0000000000000000")] {
        let answer = traced("/api/v1/messages", wrong, &one);
        assert_eq!((answer.status, kept(&gateway, &answer.json()["id"])), (202, Value::Null), "{wrong}");
    }
    let mut own = one.clone();
    own["headers"] = json!({"traceparent": OTHER});
    assert_eq!(kept(&gateway, &traced("/api/v1/messages", TRACE, &own).json()["id"]), OTHER);
    // A repetition has a trace of its own, and is a repetition all the same.
    let mut keyed = one.clone();
    keyed["idempotencyKey"] = json!("k");
    let first = traced("/api/v1/messages", TRACE, &keyed).json();
    let again = traced("/api/v1/messages", OTHER, &keyed);
    assert_eq!((again.status, &again.json()["id"]), (202, &first["id"]), "{again:?}");
    assert_eq!(kept(&gateway, &first["id"]), TRACE);
    let headers = [("traceparent", TRACE), ("Idempotency-Key", "k2")];
    let sent = post(gateway.address, "/api/send", &headers, &json!({"userId": "ann", "message": "y"}));
    assert_eq!(kept(&gateway, &sent.json()["id"]), TRACE, "a key leaves the trace its place");
}
