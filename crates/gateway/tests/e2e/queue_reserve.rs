use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::gateway::{Gateway, eventually, start};
use crate::queue::{pop, push};
use crate::slots::fields;

const CONFIG: &str = "
[[queues]]
name = \"jobs\"
mode = \"reserve\"
attempts_max = 2
lease_ms = 2000

[[queues]]
name = \"strict\"
mode = \"reserve\"
attempts_max = 2
lease_ms = 600000

[[queues]]
name = \"slow\"
mode = \"reserve\"
lease_ms = 600000
";

fn reserving() -> (TempDir, Gateway) {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("tidegate.toml"), CONFIG).unwrap();
    let gateway = start(dir.path());
    (dir, gateway)
}

fn receipt(popped: &Value) -> &str {
    popped["receipt"].as_str().unwrap_or_else(|| panic!("{popped}"))
}

#[test]
fn a_reserved_message_is_hidden_until_it_is_acked_or_comes_back() {
    let (_dir, gateway) = reserving();
    push(&gateway, "slow", "a", &[]);
    let popped = pop(&gateway, "slow", &[]).json();
    assert_eq!((&popped["content"], &popped["attempt"]), (&json!("a"), &json!(1)));
    assert!(popped["leaseUntil"].as_str().unwrap() > popped["createdAt"].as_str().unwrap());
    assert_eq!(pop(&gateway, "slow", &[]).status, 404);
    let acked = gateway.post("/queue/ack", &json!({"receipt": receipt(&popped)}));
    assert_eq!((acked.status, acked.json()), (200, json!({"id": popped["id"], "status": "acked"})));
    let again = gateway.post("/queue/ack", &json!({"receipt": receipt(&popped)}));
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("lease_lost")));
    assert_eq!(pop(&gateway, "slow", &[]).status, 404);
}

#[test]
fn a_lease_that_ends_gives_the_message_back_and_fences_its_holder_off() {
    let (_dir, gateway) = reserving();
    push(&gateway, "jobs", "a", &[]);
    let first = pop(&gateway, "jobs", &[]).json();
    let second = pop(&gateway, "jobs", &[("waitSeconds", "20")]).json();
    assert_eq!((&second["id"], &second["attempt"]), (&first["id"], &json!(2)));
    let extended = gateway.post("/queue/extend", &json!({"receipt": receipt(&second), "seconds": 600}));
    assert_eq!((extended.status, &extended.json()["status"]), (200, &json!("extended")));
    assert!(extended.json()["leaseUntil"].as_str() > second["leaseUntil"].as_str());
    for path in ["/queue/ack", "/queue/nack"] {
        assert_eq!(gateway.post(path, &json!({"receipt": receipt(&first)})).status, 409);
    }
    assert_eq!(gateway.post("/queue/extend", &json!({"receipt": receipt(&first), "seconds": 5})).status, 409);
    assert_eq!(gateway.post("/queue/ack", &json!({"receipt": receipt(&second)})).status, 200);
}

#[test]
fn nacks_end_in_a_dead_letter_and_so_do_leases_that_nobody_settles() {
    let (_dir, gateway) = reserving();
    let id = push(&gateway, "strict", "a", &[]).json()["id"].as_str().unwrap().to_owned();
    let nack = |popped: &Value| {
        let body = json!({"receipt": receipt(popped), "reason": "no ink", "delaySeconds": 0});
        gateway.post("/queue/nack", &body).json()
    };
    assert_eq!(nack(&pop(&gateway, "strict", &[]).json())["status"], "requeued");
    assert_eq!(nack(&pop(&gateway, "strict", &[]).json())["status"], "dead");
    let record = gateway.get(&format!("/api/v1/messages/{id}")).json();
    assert_eq!((&record["status"], record["attempts"].as_array().unwrap().len()), (&json!("dead"), 2));
    assert_eq!(record["reason"], "gave up after 2 attempts: no ink");
    let stats = gateway.get("/api/v1/stats").json();
    let strict = stats["queues"].as_array().unwrap().iter().find(|queue| queue["queue"] == "strict").unwrap();
    assert_eq!((&strict["retried"], &strict["dead"]), (&json!(1), &json!(1)));

    let id = push(&gateway, "jobs", "b", &[]).json()["id"].as_str().unwrap().to_owned();
    assert_eq!(pop(&gateway, "jobs", &[]).json()["attempt"], 1);
    assert_eq!(pop(&gateway, "jobs", &[("waitSeconds", "20")]).json()["attempt"], 2);
    // No consumer asks for it again.
    let record = eventually(|| {
        let record = gateway.get(&format!("/api/v1/messages/{id}")).json();
        (record["status"] == "dead").then_some(record)
    });
    assert_eq!(record["reason"], "gave up after 2 attempts: the last lease ended unsettled");
    let results = [0, 1].map(|n| record["attempts"][n]["result"].clone());
    assert_eq!((results, &record["retryCount"]), ([json!("interrupted"), json!("failed")], &json!(1)));
    assert_eq!(pop(&gateway, "jobs", &[]).status, 404, "never a third time");
    assert_eq!(gateway.post(&format!("/api/v1/dead-letters/{id}/requeue"), &json!({})).status, 200);
    assert_eq!(pop(&gateway, "jobs", &[]).json()["attempt"], 4, "the requeue is the third entry");
}

#[test]
fn many_are_acked_at_once_each_with_its_result() {
    let (_dir, gateway) = reserving();
    for n in 0..3 {
        push(&gateway, "slow", &n.to_string(), &[]);
    }
    let popped = pop(&gateway, "slow", &[("max", "10")]).json();
    let receipts: Vec<_> = popped.as_array().unwrap().iter().map(receipt).collect();
    assert_eq!(receipts.len(), 3);
    gateway.post("/queue/ack", &json!({"receipt": receipts[1]}));
    let answer = gateway.post("/queue/ack", &json!({ "receipts": receipts }));
    let results = answer.json()["results"].clone();
    let statuses: Vec<_> =
        results.as_array().unwrap().iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!((answer.status, statuses), (200, vec!["acked", "lease_lost", "acked"]));
    let wrong = gateway.post("/queue/ack", &json!({"receipts": [receipts[0], "x", 5]}));
    assert_eq!((wrong.status, fields(&wrong)), (400, vec!["receipts[1]".into(), "receipts[2]".into()]));
    assert_eq!(fields(&gateway.post("/queue/ack", &json!({"receipt": "x"}))), ["receipt"]);
    assert_eq!(fields(&gateway.post("/queue/nack", &json!({}))), ["receipt"]);
    let wrong = gateway.post("/queue/extend", &json!({"receipt": receipts[0], "seconds": 0}));
    assert_eq!(fields(&wrong), ["seconds"]);
}

#[test]
fn a_kill_voids_leases_and_loses_nothing() {
    let (dir, gateway) = reserving();
    push(&gateway, "slow", "a", &[]);
    let before = pop(&gateway, "slow", &[]).json();
    gateway.signal("-KILL");
    gateway.wait();
    let gateway = start(dir.path());
    assert_eq!(gateway.post("/queue/ack", &json!({"receipt": receipt(&before)})).status, 409);
    let after = pop(&gateway, "slow", &[]).json();
    assert_eq!((&after["id"], &after["content"]), (&before["id"], &json!("a")));
    assert_eq!(gateway.post("/queue/ack", &json!({"receipt": receipt(&after)})).status, 200);
}

#[test]
fn a_pushed_queue_can_not_be_pulled_from() {
    let (_dir, gateway) = reserving();
    let answer = pop(&gateway, "sms", &[]);
    assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("queue_is_pushed")));
    assert_eq!(push(&gateway, "sms", "over the log", &[("recipient", "ann")]).status, 200);
    gateway.stdout.wait_for("over the log");
}
