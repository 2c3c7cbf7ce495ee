//! The audit lines: who changed what, and who tried to get in.

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::client::exchange;
use crate::gateway::{Gateway, start};
use crate::policies::policy;
use crate::principals::api_key;

const CONFIG: &str = "
[log]
level = \"warn,tidegate::audit=info,tidegate::announcement=info\"

[inbox]
secrets = [\"sixteen bytes or more\"]

[[queues]]
name = \"devices\"
channel = \"inbox\"

[[queues]]
name = \"jobs\"
mode = \"reserve\"
attempts_max = 1
";

/// A gateway whose admin `ops` has the key.
fn gateway() -> (TempDir, Gateway, String) {
    let dir = tempdir().unwrap();
    let (key, hash) = api_key(dir.path());
    let admin = format!("[[principals]]\nname = \"ops\"\nrole = \"ADMIN\"\napi_key_hashes = [\"{hash}\"]\n");
    let limit = policy("wide", "/**", 100, "");
    std::fs::write(dir.path().join("tidegate.toml"), format!("{CONFIG}{admin}{limit}")).unwrap();
    let gateway = start(dir.path());
    (dir, gateway, key)
}

fn audited(gateway: &Gateway, request_id: &str) -> Value {
    let line = gateway.stderr.wait_for(&format!("\"request_id\":\"{request_id}\""));
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["target"], &line["level"]), (&json!("tidegate::audit"), &json!("INFO")), "{line}");
    line
}

/// Also where nothing else is logged at that level: the id stands in the line itself.
#[test]
fn every_change_by_an_admin_is_logged_with_principal_and_request_id() {
    let (_dir, gateway, key) = gateway();
    let ask = |method: &str, path: &str, group: &str, body: &Value, id: &str| {
        let headers = [("X-Api-Key", key.as_str()), ("consumerGroup", group), ("X-Request-Id", id)];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        exchange(gateway.address, method, path, &headers, &body)
    };
    let dead = |body: &str| {
        ask("POST", "/queue/push", "jobs", &json!(body), "push");
        let popped = ask("GET", "/queue/pop", "jobs", &Value::Null, "pop").json();
        let nack = json!({"receipt": popped["receipt"], "reason": "no ink"});
        assert_eq!(ask("POST", "/queue/nack", "", &nack, "nack").json()["status"], "dead");
        popped["id"].as_str().unwrap().to_owned()
    };
    let (first, second, third) = (dead("hush"), dead("hush"), dead("hush"));
    let pushed = ask("POST", "/queue/push", "jobs", &json!("hush"), "push").json();
    let waiting = pushed["id"].as_str().unwrap();
    let letter = |id: &str, more: &str| format!("/api/v1/dead-letters/{id}{more}");
    let quota = json!({"userId": "alice", "rateLimit": 5, "timeWindow": 1});
    let slots = json!({"maxPerWindow": 1, "windowSize": "PT4S"});
    let edit = json!({"body": "hush"});
    for (number, (method, path, body, action, subject)) in [
        ("POST", "/api/config", quota, "quota set", "alice, 5 in 1 min"),
        ("DELETE", "/api/config/alice", Value::Null, "quota deleted", "alice"),
        ("POST", "/admin/rate-limit/config", slots, "slot configuration set", "default, version 1"),
        ("POST", "/admin/policies/reload", Value::Null, "policies reloaded", "1 in force"),
        ("DELETE", "/admin/policies/wide/keys/127.0.0.1", Value::Null, "bucket filled", "wide 127.0.0.1"),
        ("POST", "/api/v1/inbox-tokens", json!({"recipient": "ann"}), "inbox token issued", "ann"),
        ("DELETE", &letter(&first, ""), Value::Null, "dead letter removed", &first),
        ("POST", &letter(&second, "/requeue"), edit, "dead letter edited and requeued", &second),
        (
            "POST",
            "/api/v1/dead-letters/requeue",
            json!({"ids": [third]}),
            "dead letters requeued",
            "1 messages",
        ),
        ("DELETE", &format!("/api/v1/messages/{waiting}"), Value::Null, "message cancelled", waiting),
        ("POST", "/queue/pause", Value::Null, "queue paused", "jobs"),
        ("POST", "/queue/resume", Value::Null, "queue resumed", "jobs"),
        ("POST", "/queue/purge", Value::Null, "queue purged", "jobs, 2 messages"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("audit-{number}");
        let answer = ask(method, path, "jobs", &body, &id);
        assert!(matches!(answer.status, 200 | 204), "{path} {answer:?}");
        let line = audited(&gateway, &id);
        assert_eq!((&line["principal"], &line["message"]), (&json!("ops"), &json!(action)), "{line}");
        assert_eq!(line["subject"], subject, "{line}");
    }
    let logged = gateway.stderr.all().join("\n");
    assert!(!logged.contains("hush") && !logged.contains(&key), "{logged}");
}

#[test]
fn failed_logins_are_logged_with_name_client_and_request_id() {
    let (_dir, gateway, _) = gateway();
    for (id, name, value, expected) in [
        // anna:hush-hush
        ("basic", "Authorization", "Basic YW5uYTpodXNoLWh1c2g=", "anna"),
        ("key", "X-Api-Key", "hush-hush", ""),
    ] {
        let headers = [(name, value), ("X-Request-Id", id)];
        assert_eq!(exchange(gateway.address, "GET", "/", &headers, "").status, 401);
        let line = audited(&gateway, id);
        assert_eq!(
            (&line["message"], &line["principal"]),
            (&json!("login failed"), &json!(expected)),
            "{line}"
        );
        assert_eq!(line["client"], "127.0.0.1", "{line}");
    }
    assert!(!gateway.stderr.all().join("\n").contains("hush-hush"));
}

/// Names come from callers: one must not be able to look like another line, or like another name.
#[test]
fn what_a_name_hides_is_escaped() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let quota = json!({"userId": "al\u{202e}ice\u{2028}", "rateLimit": 5, "timeWindow": 1});
    assert_eq!(gateway.post("/api/config", &quota).status, 200);
    let line = gateway.stderr.wait_for("quota set");
    assert!(line.contains("\"al\\u202eice\\u2028, 5 in 1 min\""), "{line}");
}
