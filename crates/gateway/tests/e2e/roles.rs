use serde_json::json;
use tempfile::{TempDir, tempdir};
use tidegate_testkit::services::{Postgres, PostgresOptions};

use crate::client;
use crate::gateway::{Gateway, command, eventually, start_with};

fn configured(server: &Postgres) -> TempDir {
    let dir = tempdir().unwrap();
    let url = server.url("postgres");
    let text = format!(
        "[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"{url}\"\nconnections_max = 6\n\
         [inbox]\nsecrets = [\"sixteen bytes or more\"]\n[[queues]]\nname = \"devices\"\nchannel = \"inbox\"\n"
    );
    std::fs::write(dir.path().join("tidegate.toml"), text).unwrap();
    dir
}

fn server() -> Postgres {
    Postgres::start(PostgresOptions { durable: true, settings: Vec::new() }).unwrap()
}

fn sent(node: &Gateway) -> usize {
    node.stdout.all().iter().filter(|line| line.contains("SMS SENT")).count()
}

#[test]
fn a_gateway_takes_requests_and_a_sender_sends() {
    let server = server();
    let dir = configured(&server);
    let gateway = start_with(dir.path(), &["--role", "gateway"]);
    gateway.configure("ann", 5);
    let answer = gateway.send("ann", "hello");
    assert_eq!(answer.status, 200, "{answer:?}");
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let ready = gateway.get("/health/ready");
    assert_eq!((ready.status, &ready.json()["role"]), (200, &json!("gateway")), "{ready:?}");
    let record = gateway.get(&format!("/api/v1/messages/{id}")).json();
    assert_eq!((&record["status"], record["attempts"].as_array().unwrap().len()), (&json!("pending"), 0));

    let sender = start_with(dir.path(), &["--role", "sender"]);
    assert_eq!(gateway.delivered(&id)["attempts"].as_array().unwrap().len(), 1);
    eventually(|| (sent(&sender) == 1).then_some(()));
    assert_eq!(sent(&gateway), 0);
    assert!(sender.stderr.wait_for("\"listening\"").contains("\"role\":\"sender\""));
    let ready = sender.get("/health/ready");
    assert_eq!((ready.status, &ready.json()["role"]), (200, &json!("sender")), "{ready:?}");
    assert_eq!(sender.get("/health/live").status, 200);
    assert!(sender.get("/metrics").text.contains("tidegate_messages_delivered_total 1\n"));
    for path in ["/", "/api/v1/stats", "/queue/pop", "/nowhere"] {
        let answer = sender.get(path);
        assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("no_api")), "{path}: {answer:?}");
        assert!(answer.header("Retry-After").is_some() && answer.text.contains("gateway"), "{answer:?}");
    }
    assert_eq!(sender.send("ann", "to the wrong one").status, 503);
    assert_eq!(gateway.get("/api/v1/stats").json()["totals"]["admitted"], 1);
}

/// Devices are connected to gateways, so that is where their messages go out.
#[test]
fn an_inbox_is_filled_by_the_gateways() {
    let server = server();
    let dir = configured(&server);
    let sender = start_with(dir.path(), &["--role", "sender"]);
    let gateway = start_with(dir.path(), &["--role", "gateway"]);
    let token = gateway.post("/api/v1/inbox-tokens", &json!({"recipient": "ann"})).json();
    let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
    let message = json!({"queue": "devices", "recipient": "ann", "body": "hello", "ackRequired": true});
    assert_eq!(gateway.post("/api/v1/messages", &message).status, 202);
    let poll = |node: &Gateway| {
        let path = "/inbox/ann/messages?waitSeconds=15";
        client::get(node.address, path, &[("Authorization", &bearer)])
    };
    let read = poll(&gateway).json()["messages"].clone();
    assert_eq!(read[0]["body"], "hello", "{read}");
    assert_eq!(poll(&sender).json()["code"], "no_api");
}

#[test]
fn a_directory_has_no_room_for_roles() {
    let dir = tempdir().unwrap();
    let refused = command(dir.path()).args(["check-config", "--role", "sender"]).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    // On the other ledger it is fine.
    let expected = if crate::ledger::is_embedded() { Some(2) } else { Some(0) };
    assert_eq!(refused.status.code(), expected, "{words}");
    assert!(expected == Some(0) || words.contains("flag --role: server.role: \"sender\" needs"), "{words}");
}
