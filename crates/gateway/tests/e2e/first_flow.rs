use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client;
use crate::gateway::{Gateway, start};

#[test]
fn a_message_goes_all_the_way() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());

    let answer = gateway.post("/api/config", &json!({"user_id": 1001, "rate_limit": 2, "time_window": 60}));
    let quota = answer.json();
    assert_eq!(answer.status, 200);
    assert_eq!(
        (&quota["userId"], &quota["rateLimit"], &quota["timeWindow"]),
        (&json!("1001"), &json!(2), &json!(60))
    );
    assert_eq!(quota["currentCount"], 0);
    assert!(quota["lastRefreshTime"].as_str().unwrap().ends_with('Z'));

    let answer =
        gateway.post("/api/send", &json!({"userId": "1001", "message": "hello\nyou", "priority": "high"}));
    let sent = answer.json();
    assert_eq!((answer.status, &sent["status"], &sent["remaining"]), (200, &json!("accepted"), &json!(1)));
    assert_eq!(
        (answer.header("RateLimit-Limit"), answer.header("RateLimit-Remaining")),
        (Some("2"), Some("1"))
    );
    let reset: u64 = answer.header("RateLimit-Reset").unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&reset), "{reset}");
    assert_eq!(answer.header("Tidegate-Durability"), None);

    let id = sent["id"].as_str().unwrap();
    let line = gateway.stdout.wait_for("SMS SENT");
    assert!(line.contains(id) && line.contains("1001") && line.contains("hello"), "{line}");
    let record = gateway.delivered(id);
    assert_eq!((&record["message"], &record["priority"]), (&json!("hello\nyou"), &json!("high")));
    assert_eq!((&record["queue"], &record["attempts"][0]["result"]), (&json!("sms"), &json!("delivered")));
    assert!(record["deliveredAt"].is_string());

    let shown = gateway.get("/api/config/1001").json();
    assert_eq!((&shown["currentCount"], &shown["remaining"]), (&json!(1), &json!(1)));
    assert!(!gateway.stderr.all().iter().any(|line| line.contains("hello")), "no bodies in logs");
}

#[test]
fn past_the_limit_it_is_429_with_when_to_come_back() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("bob", 1);
    assert_eq!(gateway.send("bob", "one").status, 200);
    let answer = gateway.send("bob", "two");
    let body = answer.json();
    assert_eq!((answer.status, &body["code"]), (429, &json!("quota_exceeded")));
    assert_eq!(body["quota"]["userId"], "bob");
    let retry_after: u64 = answer.header("Retry-After").unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&retry_after), "{retry_after}");
    assert!(body["retryAfterMs"].as_u64().unwrap() <= 3_600_000);
    assert_eq!(answer.header("RateLimit-Remaining"), Some("0"));
    // Configuring again opens a new window.
    gateway.configure("bob", 1);
    assert_eq!(gateway.send("bob", "three").status, 200);
}

#[test]
fn every_wrong_field_is_named() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let answer = gateway.post("/api/config", &json!({"rateLimit": 0, "timeWindow": "5", "colour": "red"}));
    assert_eq!(answer.status, 400);
    assert_eq!(fields(&answer.json()), ["colour", "rateLimit", "timeWindow", "userId"]);
    let answer = gateway.post("/api/send", &json!({"userId": -1, "message": "", "priority": "urgent"}));
    assert_eq!(answer.status, 400);
    assert_eq!(fields(&answer.json()), ["message", "priority", "userId"]);
    let both = json!({"userId": "a", "user_id": "a", "rateLimit": 1, "timeWindow": 525_601});
    assert_eq!(fields(&gateway.post("/api/config", &both).json()), ["timeWindow", "userId"]);
}

#[test]
fn unknown_users_and_messages_are_404() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let answer = gateway.send("nobody", "hi");
    assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("unknown_user")));
    assert_eq!(gateway.get("/api/config/nobody").status, 404);
    assert_eq!(gateway.get("/api/v1/messages/01981c5e-8a00-7000-8000-00000040d2f1").status, 404);
    assert_eq!(gateway.get("/api/v1/messages/42").status, 400);
}

#[test]
fn of_many_for_the_last_slot_exactly_one_passes() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("eve", 1);
    let address = gateway.address;
    let senders: Vec<_> = (0..32)
        .map(|n| {
            let body = json!({"userId": "eve", "message": n.to_string()});
            std::thread::spawn(move || client::post(address, "/api/send", &[], &body).status)
        })
        .collect();
    let mut statuses: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (200, &[429; 31][..]));
}

#[test]
fn one_key_is_one_message() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("carol", 5);
    let send = |key: &str, message: &str| keyed(&gateway, &[("Idempotency-Key", key)], message);
    let first = send("k-1", "hi");
    let again = send("k-1", "hi");
    assert_eq!((first.status, again.status), (200, 200));
    assert_eq!(first.json()["id"], again.json()["id"]);
    assert_eq!((first.header("Idempotent-Replay"), again.header("Idempotent-Replay")), (None, Some("true")));
    assert_eq!(again.json()["remaining"], 4);
    let other = send("k-1", "bye");
    assert_eq!((other.status, &other.json()["code"]), (409, &json!("idempotency_conflict")));
    assert_ne!(send("k-2", "hi").json()["id"], first.json()["id"]);
    assert_eq!(gateway.get("/api/config/carol").json()["currentCount"], 2);

    assert_eq!(send("has space", "hi").status, 400);
    assert_eq!(send(&"x".repeat(256), "hi").status, 400);
    let twice = keyed(&gateway, &[("Idempotency-Key", "a"), ("Idempotency-Key", "b")], "hi");
    assert_eq!(twice.status, 400);
}

fn keyed(gateway: &Gateway, headers: &[(&str, &str)], message: &str) -> client::Answer {
    client::post(gateway.address, "/api/send", headers, &json!({"userId": "carol", "message": message}))
}

fn fields(body: &Value) -> Vec<String> {
    let fields = body["fields"].as_array().unwrap_or_else(|| panic!("{body}"));
    let mut names: Vec<_> = fields.iter().map(|field| field["field"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}
