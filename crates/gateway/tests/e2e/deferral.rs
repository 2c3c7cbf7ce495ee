use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client;
use crate::gateway::{Gateway, start};
use crate::slots::fields;

fn defer(gateway: &Gateway, user: &str, message: &str) -> client::Answer {
    gateway.post("/api/send", &json!({"userId": user, "message": message, "onLimit": "defer"}))
}

#[test]
fn over_the_quota_a_message_may_wait_for_the_next_window() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("ann", 1);
    let quota = gateway.get("/api/config/ann").json();
    let now = defer(&gateway, "ann", "now");
    assert_eq!((now.status, &now.json()["status"]), (200, &json!("accepted")));
    assert_eq!(now.json().get("scheduledAt"), None);
    let mut due = Vec::new();
    for n in 0..2 {
        let answer = defer(&gateway, "ann", &n.to_string());
        let body = answer.json();
        assert_eq!((answer.status, &body["status"]), (202, &json!("deferred")), "{answer:?}");
        assert_eq!((&body["remaining"], &body["resetAt"]), (&json!(0), &quota["resetAt"]));
        assert_eq!(answer.header("RateLimit-Remaining"), Some("0"));
        assert!(answer.header("RateLimit-Reset").is_some());
        let record = gateway.get(&format!("/api/v1/messages/{}", body["id"].as_str().unwrap())).json();
        assert_eq!((&record["status"], &record["dueAt"]), (&json!("pending"), &body["scheduledAt"]));
        due.push(body["scheduledAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap());
    }
    assert_eq!(
        due[0].to_string(),
        quota["resetAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().to_string()
    );
    assert_eq!(due[1].duration_since(due[0]), jiff::SignedDuration::from_hours(1));
    let denied = gateway.send("ann", "not now");
    assert_eq!((denied.status, &denied.json()["remaining"]), (429, &json!(0)));
    assert_eq!(denied.json()["resetAt"], quota["resetAt"]);
}

#[test]
fn a_repeated_deferral_is_answered_as_the_first_was() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("ann", 1);
    gateway.send("ann", "now");
    let send = |on_limit: &str| {
        let body = json!({"user_id": "ann", "message": "later", "on_limit": on_limit});
        client::post(gateway.address, "/api/send", &[("Idempotency-Key", "k")], &body)
    };
    let (first, again) = (send("defer"), send("defer"));
    assert_eq!((first.status, again.status), (202, 202));
    assert_eq!(first.json(), again.json());
    assert_eq!(send("reject").status, 409, "another request");
}

#[test]
fn past_the_horizon_it_is_429() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("tidegate.toml"), "[quotas]\ndefer_horizon_ms = 3600000\n").unwrap();
    let gateway = start(dir.path());
    gateway.configure("ann", 1);
    let statuses: Vec<_> = (0..3).map(|n| defer(&gateway, "ann", &n.to_string()).status).collect();
    assert_eq!(statuses, [200, 202, 429]);
    let wrong = gateway.post("/api/send", &json!({"userId": "ann", "message": "a", "onLimit": "later"}));
    assert_eq!((wrong.status, fields(&wrong)), (400, vec!["onLimit".to_owned()]));
}

#[test]
fn quotas_are_listed_in_pages_and_deleted() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    for user in ["carl", "ann", "bob"] {
        gateway.configure(user, 7);
    }
    gateway.send("bob", "hi");
    let page = |query: &str| gateway.get(&format!("/api/config{query}")).json();
    let users = |page: &Value| -> Vec<String> {
        let quotas = page["quotas"].as_array().unwrap();
        quotas.iter().map(|quota| quota["userId"].as_str().unwrap().to_owned()).collect()
    };
    let first = page("?limit=2");
    assert_eq!((users(&first), &first["next"]), (vec!["ann".to_owned(), "bob".to_owned()], &json!("bob")));
    assert_eq!((&first["quotas"][1]["remaining"], &first["quotas"][1]["rateLimit"]), (&json!(6), &json!(7)));
    let rest = page("?after=bob&limit=2");
    assert_eq!((users(&rest), &rest["next"]), (vec!["carl".to_owned()], &Value::Null));
    let all = page("?limit=3");
    assert_eq!((users(&all).len(), &all["next"]), (3, &Value::Null), "full, and the last");
    assert_eq!(users(&page("")).len(), 3);
    let wrong = gateway.get("/api/config?limit=1001&page=2");
    assert_eq!((wrong.status, fields(&wrong)), (400, vec!["limit".to_owned(), "page".to_owned()]));

    let deleted = gateway.delete("/api/config/bob");
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    let gone = gateway.delete("/api/config/bob");
    assert_eq!((gone.status, &gone.json()["code"]), (404, &json!("unknown_user")));
    assert_eq!(gateway.send("bob", "hi").status, 404);
    assert_eq!(users(&page("?limit=1000")), ["ann", "carl"]);
}

/// Otherwise an admin who deletes a quota and sets it again fills the later windows twice.
#[test]
fn a_quota_set_again_still_counts_what_was_deferred_before() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("ann", 1);
    for n in 0..3 {
        assert!(defer(&gateway, "ann", &n.to_string()).status < 300);
    }
    assert_eq!(gateway.delete("/api/config/ann").status, 204);
    assert_eq!([gateway.get("/api/config/ann").status, gateway.delete("/api/config/ann").status], [404; 2]);
    assert_eq!(gateway.get("/api/config").json()["quotas"], json!([]));
    assert_eq!(gateway.send("ann", "unknown").status, 404);
    gateway.configure("ann", 1);
    // One of them goes out within the window that has just begun, the other one within the next.
    let full = gateway.send("ann", "too many");
    assert_eq!((full.status, &full.json()["remaining"]), (429, &json!(0)), "{full:?}");
    let at = |text: &Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let later = defer(&gateway, "ann", "later").json();
    let since_next = at(&later["scheduledAt"]).duration_since(at(&full.json()["resetAt"]));
    assert_eq!(since_next, jiff::SignedDuration::from_hours(1), "{later}");
}
