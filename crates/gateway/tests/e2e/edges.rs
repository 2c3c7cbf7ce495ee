use serde_json::json;
use tempfile::tempdir;

use crate::client;
use crate::gateway::{eventually, start, start_with};

#[test]
fn health_and_metrics_say_how_it_is_going() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    assert_eq!(gateway.get("/health/live").status, 200);
    let ready =
        eventually(|| Some(gateway.get("/health/ready")).filter(|answer| answer.status == 200)).json();
    assert_eq!((&ready["ledger"], &ready["sender"]), (&json!("ready"), &json!("running")));
    gateway.configure("dora", 5);
    let id = gateway.send("dora", "hi").json()["id"].as_str().unwrap().to_owned();
    gateway.delivered(&id);
    let metrics = gateway.get("/metrics").text;
    for line in [
        "tidegate_messages_admitted_total 1",
        "tidegate_messages_delivered_total 1",
        "tidegate_messages_pending 0",
        "tidegate_conservation_balanced 1",
        "tidegate_send_requests_total{outcome=\"accepted\"} 1",
    ] {
        assert!(metrics.lines().any(|given| given == line), "{line}\nnot in\n{metrics}");
    }
    assert_eq!(gateway.get("/").json()["name"], "tidegate");
}

#[test]
fn errors_have_one_shape() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let wrong = [
        client::exchange(gateway.address, "POST", "/api/send", &[], "{"),
        client::exchange(gateway.address, "POST", "/api/send", &[], "[1]"),
        gateway.get("/nowhere"),
        gateway.get("/api/send"),
        gateway.send("nobody", "hi"),
    ];
    for answer in wrong {
        let body = answer.json();
        assert_eq!(body["status"], answer.status, "{body}");
        for member in ["timestamp", "error", "message", "path", "code"] {
            assert!(body[member].is_string(), "{member} in {body}");
        }
        assert!(answer.header("X-Request-Id").is_some());
    }
}

#[test]
fn a_weaker_promise_is_named_in_the_answer_and_in_the_log() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("tidegate.toml"), "[ledger]\nsync = \"off\"\n").unwrap();
    let gateway = start_with(dir.path(), &[]);
    gateway.stderr.wait_for("power cut");
    gateway.configure("dan", 5);
    let answer = gateway.send("dan", "hi");
    assert_eq!(answer.header("Tidegate-Durability"), Some("os-buffer"));
    assert_eq!(answer.json()["durability"], "os-buffer");
}
