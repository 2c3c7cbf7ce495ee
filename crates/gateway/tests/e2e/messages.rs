use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{self, Answer, exchange};
use crate::gateway::{Gateway, eventually, start};
use crate::principals::api_key;
use crate::queue::principals;
use crate::slots::fields;

const PATH: &str = "/api/v1/messages";

fn message(recipient: &str, body: &str) -> Value {
    json!({"recipient": recipient, "body": body})
}

fn id(answer: &Answer) -> String {
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

fn record(gateway: &Gateway, id: &str) -> Value {
    gateway.get(&format!("{PATH}/{id}")).json()
}

#[test]
fn a_message_is_accepted_delivered_and_tells_everything_about_itself() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let sent = json!({
        "recipient": "+49 170 1", "body": "hello", "priority": "high", "ttlSeconds": 600,
        "headers": {"X-Trace": "7"}
    });
    let answer = gateway.post(PATH, &sent);
    let accepted = answer.json();
    assert_eq!(
        (answer.status, &accepted["status"], &accepted["queue"]),
        (202, &json!("accepted"), &json!("sms"))
    );
    assert!(accepted["expiresAt"].is_string() && accepted.get("durability").is_none(), "{accepted}");
    let found = gateway.delivered(accepted["id"].as_str().unwrap());
    assert_eq!((&found["sequence"], &found["message"]), (&accepted["sequence"], &json!("hello")));
    assert_eq!((&found["headers"], &found["expiresAt"]), (&json!({"X-Trace": "7"}), &accepted["expiresAt"]));
    assert_eq!((&found["ackRequired"], &found["ackAttempts"]), (&json!(false), &json!(0)));
    gateway.stdout.wait_for("hello");
    let second = gateway.post(PATH, &message("+49 170 1", "again")).json();
    assert!(second["sequence"].as_u64() > accepted["sequence"].as_u64());
}

#[test]
fn every_wrong_field_is_named_and_an_unknown_queue_is_one() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let wrong = json!({
        "queue": "smss", "priority": "urgent", "scheduledAt": "soon", "ttlSeconds": 0, "ackRequired": "yes",
        "headers": {"a b": "x"}, "idempotencyKey": "has space", "colour": "red"
    });
    let answer = gateway.post(PATH, &wrong);
    let named = [
        "ackRequired",
        "body",
        "colour",
        "headers",
        "idempotencyKey",
        "priority",
        "queue",
        "recipient",
        "scheduledAt",
        "ttlSeconds",
    ];
    assert_eq!((answer.status, fields(&answer)), (400, named.map(str::to_owned).to_vec()));
    assert!(answer.text.contains("there is no queue smss"), "{answer:?}");
}

#[test]
fn a_key_in_header_or_body_makes_one_message_of_two_requests() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let send = |key: &str, body: &str| {
        client::post(gateway.address, PATH, &[("Idempotency-Key", key)], &message("ann", body))
    };
    let (first, again, other) = (send("k", "hi"), send("k", "hi"), send("k", "bye"));
    assert_eq!((first.status, again.status, other.status), (202, 202, 409));
    assert_eq!((id(&first), again.header("Idempotent-Replay")), (id(&again), Some("true")));
    let mut in_body = message("ann", "hi");
    in_body["idempotencyKey"] = json!("k");
    assert_eq!(id(&gateway.post(PATH, &in_body)), id(&first));
    gateway.stderr.wait_for(&id(&first));
}

#[test]
fn a_batch_is_all_checked_before_any_is_admitted() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let path = "/api/v1/messages/batch";
    let wrong = json!({"messages": [message("ann", "fine"), {"recipient": "bob"}, 5]});
    assert_eq!(fields(&gateway.post(path, &wrong)), ["messages[1].body", "messages[2]"]);
    assert_eq!(gateway.get(PATH).json()["messages"], json!([]));
    assert_eq!(
        fields(&gateway.post(path, &json!({"messages": vec![message("a", "b"); 1_001]}))),
        ["messages"]
    );
    let many: Vec<_> = (0..1_000).map(|n| message(&format!("r{}", n % 100), &n.to_string())).collect();
    let send =
        || client::post(gateway.address, path, &[("Idempotency-Key", "b1")], &json!({"messages": many}));
    let answer = send();
    assert_eq!((answer.status, &answer.json()["accepted"]), (202, &json!(1_000)), "{answer:?}");
    let results = answer.json()["results"].clone();
    let last = results[999]["id"].as_str().unwrap();
    gateway.delivered(last);
    let again = send().json();
    assert_eq!(
        (&again["results"][7]["status"], &again["results"][7]["id"]),
        (&json!("duplicate"), &results[7]["id"])
    );
}

#[test]
fn messages_are_listed_by_what_they_are_a_page_at_a_time() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    for n in 0..5 {
        let mut later = message("ann", &n.to_string());
        later["scheduledAt"] = json!("2099-01-01T00:00:00Z");
        assert_eq!(gateway.post(PATH, &later).status, 202);
    }
    let sent = id(&gateway.post(PATH, &message("bob", "now")));
    gateway.delivered(&sent);
    let (mut seen, mut path) = (Vec::new(), format!("{PATH}?status=pending&recipient=ann&queue=sms&limit=2"));
    loop {
        let page = gateway.get(&path).json();
        seen.extend(
            page["messages"].as_array().unwrap().iter().map(|m| m["message"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        path = format!("{PATH}?status=pending&recipient=ann&queue=sms&limit=2&cursor={next}");
    }
    assert_eq!(seen, ["0", "1", "2", "3", "4"]);
    let delivered = gateway.get(&format!("{PATH}?status=delivered")).json();
    assert_eq!(delivered["messages"][0]["id"], json!(sent));
    assert_eq!(gateway.get(&format!("{PATH}?to=2020-01-01T00:00:00Z")).json()["messages"], json!([]));
    let wrong = gateway.get(&format!("{PATH}?status=lost&limit=0&cursor=x&colour=red"));
    assert_eq!(
        (wrong.status, fields(&wrong)),
        (400, ["colour", "cursor", "limit", "status"].map(str::to_owned).to_vec())
    );
}

#[test]
fn messages_are_looked_up_by_user_and_by_recipient() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let quota = json!({"userId": 1001, "rateLimit": 9, "timeWindow": 60});
    assert_eq!(gateway.post("/api/config", &quota).status, 200);
    let sent = id(&gateway.post("/api/send", &json!({"userId": 1001, "message": "charged"})));
    let other = id(&gateway.post(PATH, &message("ann", "to ann")));
    let to_user = id(&gateway.post(PATH, &message("1001", "not charged")));
    let found = |query: &str| {
        let page = gateway.get(&format!("{PATH}?{query}")).json();
        assert_eq!(page["next"], Value::Null, "{query}");
        page["messages"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(found("user=1001"), [json!(sent)]);
    assert_eq!(found("recipient=1001"), [json!(sent), json!(to_user)]);
    assert_eq!(found("user=1001&recipient=1001&queue=sms&priority=normal"), [json!(sent)]);
    assert_eq!(found("recipient=ann"), [json!(other)]);
    assert_eq!(found("user=ann"), [] as [Value; 0]);
    assert_eq!(gateway.get("/api/v1/dead-letters?user=1001").json()["deadLetters"], json!([]));
    for user in [json!("1001"), json!(1001)] {
        let requeued = gateway.post("/api/v1/dead-letters/requeue", &json!({"filter": {"user": user}}));
        assert_eq!((requeued.status, &requeued.json()["requeued"]), (200, &json!(0)));
    }
    let wrong = gateway.get(&format!("{PATH}?user="));
    assert_eq!((wrong.status, fields(&wrong)), (400, vec!["user".to_owned()]));
}

#[test]
fn a_waiting_message_is_cancelled_and_a_delivered_one_is_not() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let mut later = message("ann", "later");
    later["scheduledAt"] = json!("2099-01-01T00:00:00Z");
    let waiting = id(&gateway.post(PATH, &later));
    assert_eq!(gateway.delete(&format!("{PATH}/{waiting}")).status, 204);
    assert_eq!(record(&gateway, &waiting)["status"], "deleted");
    assert_eq!(gateway.delete(&format!("{PATH}/{waiting}")).status, 409);
    let sent = id(&gateway.post(PATH, &message("ann", "now")));
    gateway.delivered(&sent);
    let answer = gateway.delete(&format!("{PATH}/{sent}"));
    assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("ended")));
    assert_eq!(gateway.delete(&format!("{PATH}/01981c5e-8a00-7000-8000-00000040d2f1")).status, 404);
    assert_eq!(gateway.delete(&format!("{PATH}/42")).status, 400);
}

#[test]
fn an_accepted_message_is_delivered_when_its_recipient_says_so() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let ids: Vec<_> = ["ann", "bob"]
        .iter()
        .map(|recipient| {
            id(&gateway.post(PATH, &json!({"recipient": recipient, "body": "x", "ackRequired": true})))
        })
        .collect();
    for id in &ids {
        eventually(|| (record(&gateway, id)["ackAttempts"] == 1).then_some(()));
        assert_eq!(record(&gateway, id)["status"], "pending");
    }
    let ack = |body: Value| gateway.post("/api/v1/ack", &body);
    let answer = ack(json!({"id": ids[0]}));
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("delivered")));
    let found = gateway.delivered(&ids[0]);
    assert!(found["deliveredAt"].is_string());
    let stranger = "01981c5e-8a00-7000-8000-00000040d2f1";
    let bulk = ack(json!({"ids": [ids[0], ids[1], stranger]})).json();
    let statuses: Vec<_> =
        bulk["results"].as_array().unwrap().iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!(
        (&bulk["acked"], statuses),
        (&json!(1), vec!["already_delivered", "delivered", "unknown_message"])
    );
    assert_eq!(ack(json!({"id": ids[0]})).status, 200, "acks may be repeated");
    assert_eq!(ack(json!({"id": stranger})).status, 404);
    let mut later = message("ann", "later");
    later["scheduledAt"] = json!("2099-01-01T00:00:00Z");
    let answer = ack(json!({"id": id(&gateway.post(PATH, &later))}));
    assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("not_awaited")));
    assert_eq!(fields(&ack(json!({}))), ["id"]);
}

#[test]
fn a_message_past_its_time_expires_and_is_never_sent() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    // The first one holds up the second.
    let first = json!({"recipient": "ann", "body": "in time", "scheduledAt": "2099-01-01T00:00:00Z"});
    assert_eq!(gateway.post(PATH, &first).status, 202);
    let late = json!({"recipient": "ann", "body": "too late", "ttlSeconds": 1});
    let late = id(&gateway.post(PATH, &late));
    eventually(|| (record(&gateway, &late)["status"] == "expired").then_some(()));
    let metrics = gateway.get("/metrics").text;
    assert!(metrics.contains("tidegate_messages_expired_total 1\n"), "{metrics}");
}

#[test]
fn users_send_cancel_and_ack_and_admins_list() {
    let dir = tempdir().unwrap();
    let (admin, user) = (api_key(dir.path()), api_key(dir.path()));
    principals(dir.path(), &admin.1, &user.1);
    let gateway = start(dir.path());
    let (admin, user) = ([("X-Api-Key", admin.0.as_str())], [("X-Api-Key", user.0.as_str())]);
    let status = |method, path, headers: &[(&str, &str)]| {
        exchange(gateway.address, method, path, headers, "{}").status
    };
    for path in [PATH, "/api/v1/dead-letters"] {
        assert_eq!(
            [status("GET", path, &[]), status("GET", path, &user), status("GET", path, &admin)],
            [401, 403, 200]
        );
    }
    assert_eq!(client::post(gateway.address, PATH, &user, &message("ann", "hi")).status, 202);
    assert_eq!(status("POST", "/api/v1/ack", &user), 400);
    assert_eq!(status("POST", "/api/v1/dead-letters/requeue", &user), 403);
}
