use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tidegate_testkit::HANG;

use crate::client::{self, Answer, exchange};
use crate::gateway::{Gateway, start};
use crate::principals::api_key;

pub const CONFIG: &str = "
[inbox]
secrets = [\"sixteen bytes or more\"]

[[queues]]
name = \"devices\"
channel = \"inbox\"
";

/// A gateway with an inbox and an admin, and the admin's key.
fn inbox() -> (TempDir, Gateway, String) {
    let (dir, key) = configured("");
    let gateway = start(dir.path());
    (dir, gateway, key)
}

/// A directory with an inbox and an admin, and the admin's key.
pub fn configured(extra: &str) -> (TempDir, String) {
    let dir = tempdir().unwrap();
    let (key, hash) = api_key(dir.path());
    // Longer than HANG: a stop that waits for the drain timeout fails the test.
    let server = "[server]\ndrain_timeout_ms = 3600000\nbody_bytes_max = 33554432\n";
    let admin = format!("[[principals]]\nname = \"ops\"\nrole = \"ADMIN\"\napi_key_hashes = [\"{hash}\"]\n");
    std::fs::write(dir.path().join("tidegate.toml"), format!("{server}{CONFIG}{extra}{admin}")).unwrap();
    (dir, key)
}

pub fn admin(gateway: &Gateway, key: &str, path: &str, body: &Value) -> Answer {
    client::post(gateway.address, path, &[("X-Api-Key", key)], body)
}

pub fn token(gateway: &Gateway, key: &str, recipient: &str) -> String {
    let answer = admin(gateway, key, "/api/v1/inbox-tokens", &json!({"recipient": recipient}));
    answer.json()["token"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

fn send(gateway: &Gateway, key: &str, recipient: &str, body: &str) -> String {
    let message = json!({"queue": "devices", "recipient": recipient, "body": body, "ackRequired": true});
    let answer = admin(gateway, key, "/api/v1/messages", &message);
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

fn poll(gateway: &Gateway, recipient: &str, token: &str) -> Value {
    let headers = [("Authorization", format!("Bearer {token}"))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let answer =
        client::get(gateway.address, &format!("/inbox/{recipient}/messages?waitSeconds=20"), &headers);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["messages"].clone()
}

pub fn status_of(gateway: &Gateway, key: &str, id: &str) -> Value {
    let path = format!("/api/v1/messages/{id}");
    client::get(gateway.address, &path, &[("X-Api-Key", key)]).json()["status"].clone()
}

#[test]
fn a_device_reads_its_messages_in_order_and_acks_them() {
    let (_dir, gateway, key) = inbox();
    let token = token(&gateway, &key, "ann");
    let (first, second) = (send(&gateway, &key, "ann", "one"), send(&gateway, &key, "ann", "two"));
    let away =
        client::get(gateway.address, &format!("/api/v1/messages/{first}"), &[("X-Api-Key", &key)]).json();
    assert_eq!((&away["status"], &away["attempts"]), (&json!("pending"), &json!([])), "nobody listens yet");
    let found = poll(&gateway, "ann", &token);
    assert_eq!((&found[0]["id"], &found[0]["body"]), (&json!(first), &json!("one")));
    assert_eq!(found.as_array().unwrap().len(), 1, "the second waits for the first one's ack");
    assert_eq!(poll(&gateway, "ann", &token)[0]["id"], json!(first), "again, until it is acked");
    let path = format!("/inbox/ann/ack?token={token}");
    let acked = client::post(gateway.address, &path, &[], &json!({"id": first}));
    assert_eq!((acked.status, &acked.json()["status"]), (200, &json!("delivered")), "{acked:?}");
    assert_eq!(status_of(&gateway, &key, &first), "delivered");
    assert_eq!(poll(&gateway, "ann", &token)[0]["id"], json!(second));
}

#[test]
fn only_the_recipients_token_opens_an_inbox() {
    let (_dir, gateway, key) = inbox();
    let (ann, bob) = (token(&gateway, &key, "ann"), token(&gateway, &key, "bob"));
    let id = send(&gateway, &key, "ann", "private");
    poll(&gateway, "ann", &ann);
    for path in ["/inbox/ann/messages", "/inbox/ann/events"] {
        for query in ["", "?token=x", &format!("?token={bob}")] {
            let answer = client::get(gateway.address, &format!("{path}{query}"), &[]);
            assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("invalid_token")));
            // What it wants is a token; a login would have a browser ask its user for a password.
            assert_eq!(answer.header("WWW-Authenticate"), Some("Bearer realm=\"tidegate\""));
        }
        for method in ["HEAD", "POST"] {
            let answer = exchange(gateway.address, method, path, &[], "");
            assert_eq!((answer.status, answer.header("Allow")), (405, Some("GET")), "{method} {path}");
        }
        assert_eq!(
            client::get(gateway.address, path, &[("X-Api-Key", &key)]).status,
            401,
            "not even an admin"
        );
    }
    let stolen =
        client::post(gateway.address, &format!("/inbox/bob/ack?token={bob}"), &[], &json!({"id": id}));
    assert_eq!((stolen.status, &stolen.json()["code"]), (404, &json!("unknown_message")));
    assert_eq!(status_of(&gateway, &key, &id), "pending");
    let open = exchange(gateway.address, "POST", "/api/v1/inbox-tokens", &[], "{\"recipient\":\"ann\"}");
    assert_eq!(open.status, 401);
    assert!(!gateway.stderr.all().iter().any(|line| line.contains(&bob)), "no tokens in logs");
}

#[test]
fn a_device_that_listens_gets_events_until_the_gateway_stops() {
    let (_dir, gateway, key) = inbox();
    let token = token(&gateway, &key, "ann");
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    let head = format!("GET /inbox/ann/events?token={token} HTTP/1.1\r\nHost: {}\r\n\r\n", gateway.address);
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut wait_for =
        |start: &str| lines.find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start}"));
    assert!(wait_for("HTTP/1.1").contains("200"));
    assert!(wait_for("content-type:").contains("text/event-stream"));
    wait_for(": here");
    let id = send(&gateway, &key, "ann", "line\nbreak");
    assert_eq!(wait_for("id: "), format!("id: {id}"));
    let data: Value = serde_json::from_str(wait_for("data: ").trim_start_matches("data: ")).unwrap();
    assert_eq!((&data["id"], &data["body"]), (&json!(id), &json!("line\nbreak")));
    assert_eq!(gateway.stop().code(), Some(0));
    assert!(lines.last().is_some(), "the stream ends");
}

#[test]
fn without_an_inbox_there_is_none() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    assert_eq!(gateway.get("/inbox/ann/messages?token=x").json()["code"], "no_inbox");
    assert_eq!(gateway.post("/api/v1/inbox-tokens", &json!({"recipient": "ann"})).status, 404);
}
