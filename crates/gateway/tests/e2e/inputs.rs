//! What callers write: amounts, texts and instants at the edges of what is allowed.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{self, Answer, exchange};
use crate::gateway::{Gateway, start};
use crate::queue::{pop, push};
use crate::slots::fields;

const LAST: &str = "9999-12-31T23:59:59Z";

fn configured(config: &str) -> (tempfile::TempDir, Gateway) {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    (dir, gateway)
}

fn slot_config(gateway: &Gateway, more: &Value) -> Answer {
    let mut config = json!({"configName": "default", "maxPerWindow": 4, "windowSize": "PT4S"});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    gateway.post("/admin/rate-limit/config", &config)
}

#[test]
fn a_blank_text_is_no_message() {
    let (_dir, gateway) = configured("");
    gateway.configure("ann", 5);
    assert_eq!(slot_config(&gateway, &json!({})).status, 200);
    for blank in ["", " ", "\t\r\n ", "\u{2003}"] {
        assert_eq!(fields(&gateway.send("ann", blank)), ["message"], "{blank:?}");
        let message = json!({"recipient": "ann", "body": blank});
        assert_eq!(fields(&gateway.post("/api/v1/messages", &message)), ["body"]);
        let event = json!({"eventId": "e", "requestedTime": LAST, "message": blank});
        assert_eq!(fields(&gateway.post("/api/v1/slots", &event)), ["message"]);
        let event = json!({"eventId": "e", "requestedTime": LAST, "message": message});
        assert_eq!(fields(&gateway.post("/api/v1/slots", &event)), ["message.body"]);
        let batch = json!([{"content": blank}]);
        let headers = [("consumerGroup", "jobs")];
        let answer = exchange(gateway.address, "POST", "/queue/batch/push", &headers, &batch.to_string());
        assert_eq!(fields(&answer), ["messages[0].content"]);
    }
    assert_eq!(gateway.get("/api/config/ann").json()["currentCount"], 0, "nothing was charged");
}

#[test]
fn a_text_is_no_number_in_json() {
    let (_dir, gateway) = configured("");
    let message = json!({"recipient": "ann", "body": "x", "delaySeconds": "5", "ttlSeconds": "9"});
    assert_eq!(fields(&gateway.post("/api/v1/messages", &message)), ["delaySeconds", "ttlSeconds"]);
    let batch = json!({"messages": [message]});
    let places = ["messages[0].delaySeconds", "messages[0].ttlSeconds"];
    assert_eq!(fields(&gateway.post("/api/v1/messages/batch", &batch)), places);
    let batch = json!([{"content": "x", "consumerGroup": "jobs", "delaySeconds": "5", "ttlSeconds": "9"}]);
    assert_eq!(fields(&gateway.post("/queue/batch/push", &batch)), places);
    let quota = json!({"userId": "ann", "rateLimit": "5", "timeWindow": "1"});
    assert_eq!(fields(&gateway.post("/api/config", &quota)), ["rateLimit", "timeWindow"]);
    let texts = json!({"maxPerWindow": "4", "headroomWindows": "7"});
    assert_eq!(fields(&slot_config(&gateway, &texts)), ["headroomWindows", "maxPerWindow"]);
    let requeue = json!({"filter": {}, "ratePerSecond": "5"});
    assert_eq!(fields(&gateway.post("/api/v1/dead-letters/requeue", &requeue)), ["ratePerSecond"]);
    let extend = json!({"receipt": "x", "seconds": "5"});
    assert_eq!(fields(&gateway.post("/queue/extend", &extend)), ["receipt", "seconds"]);
    let nack = json!({"receipt": "x", "delaySeconds": "5"});
    assert_eq!(fields(&gateway.post("/queue/nack", &nack)), ["delaySeconds", "receipt"]);
    // Where everything is a text, so is a number.
    assert_eq!(push(&gateway, "jobs", "x", &[("delaySeconds", "5"), ("ttlSeconds", "9")]).status, 200);
    assert_eq!(gateway.get("/api/v1/messages?limit=5").status, 200);
}

#[test]
fn the_end_of_the_year_9999_is_an_instant_like_any_other() {
    let (dir, gateway) = configured("[[queues]]\nname = \"mail\"\nchannel = \"log\"\n");
    let blackouts = json!({"blackouts": [{"from": "9999-12-31T23:59:50Z", "to": LAST}]});
    let config = slot_config(&gateway, &blackouts);
    assert_eq!(config.json()["blackouts"][0]["to"], "9999-12-31T23:59:59.000Z", "{config:?}");
    assert_eq!(slot_config(&gateway, &json!({})).status, 200);
    let message = json!({"recipient": "ann", "body": "never", "queue": "mail", "scheduledAt": LAST});
    let never = gateway.post("/api/v1/messages", &message);
    assert_eq!(
        (never.status, &never.json()["scheduledAt"]),
        (202, &json!("9999-12-31T23:59:59.000Z")),
        "{never:?}"
    );
    assert_eq!(push(&gateway, "jobs", "never", &[("scheduledAt", LAST)]).status, 200);
    let event = |id: &str| json!({"eventId": id, "requestedTime": LAST, "message": "never"});
    let slots: Vec<_> = ["a", "b"].map(|id| gateway.post("/api/v1/slots", &event(id))).into();
    // A quarter of the last window is left, and one of its four places. Then it is the year 10000, of which no call takes an
    // instant.
    let first = slots[0].json()["scheduledTime"].as_str().unwrap().to_owned();
    assert!(first.starts_with("9999-12-31T23:59:59."), "{slots:?}");
    assert_eq!((slots[1].status, &slots[1].json()["code"]), (503, &json!("no_capacity")), "{slots:?}");
    let forecast = gateway.get(&format!("/api/v1/slots/forecast?requestedTime={LAST}"));
    assert_eq!(forecast.status, 503, "{forecast:?}");
    let listed = |query: &str| {
        gateway.get(&format!("/api/v1/messages?{query}")).json()["messages"].as_array().unwrap().len()
    };
    assert_eq!((listed(&format!("to={LAST}")), listed(&format!("from={LAST}"))), (3, 0));
    let filter = json!({"filter": {"from": LAST, "to": LAST}});
    assert_eq!(gateway.post("/api/v1/dead-letters/requeue", &filter).status, 200);
    let beyond = json!({"recipient": "ann", "body": "x", "scheduledAt": "9999-12-31T23:59:59-01:00"});
    assert_eq!(fields(&gateway.post("/api/v1/messages", &beyond)), ["scheduledAt"]);
    gateway.signal("-KILL");
    gateway.wait();
    let gateway = start(dir.path());
    let id = never.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(gateway.get(&format!("/api/v1/messages/{id}")).json()["dueAt"], "9999-12-31T23:59:59.000Z");
    assert_eq!(pop(&gateway, "jobs", &[]).status, 404);
}

#[test]
fn a_message_that_would_expire_before_it_is_due_is_400() {
    let config = "[[queues]]\nname = \"mail\"\nchannel = \"log\"\nretention_minutes = 1\n\
                  [[queues]]\nname = \"jobs\"\nretention_minutes = 1\n";
    let (_dir, gateway) = configured(config);
    let message = |queue: &str, more: Value| {
        let mut message = json!({"recipient": "ann", "body": "x", "queue": queue});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message
    };
    for (queue, more, wrong) in [
        ("sms", json!({"delaySeconds": 60, "ttlSeconds": 59}), "ttlSeconds"),
        ("sms", json!({"delaySeconds": 60, "ttlSeconds": 60}), "ttlSeconds"),
        ("sms", json!({"scheduledAt": LAST, "ttlSeconds": 60}), "ttlSeconds"),
        ("mail", json!({"delaySeconds": 60}), "delaySeconds"),
        ("mail", json!({"scheduledAt": LAST}), "scheduledAt"),
        ("mail", json!({"delaySeconds": 60, "ttlSeconds": 61}), "delaySeconds"),
    ] {
        let message = message(queue, more);
        let answer = gateway.post("/api/v1/messages", &message);
        assert_eq!((answer.status, fields(&answer)), (400, vec![wrong.to_owned()]), "{message}");
        let answer = gateway.post("/api/v1/messages/batch", &json!([message]));
        assert_eq!(fields(&answer), [format!("messages[0].{wrong}")], "{message}");
    }
    let ttl = [("delaySeconds", "60"), ("ttlSeconds", "60")];
    assert_eq!(fields(&push(&gateway, "other", "x", &ttl)), ["ttlSeconds"]);
    assert_eq!(fields(&push(&gateway, "jobs", "x", &[("delaySeconds", "60")])), ["delaySeconds"]);
    assert_eq!(fields(&push(&gateway, "jobs", "x", &[("scheduledAt", LAST)])), ["scheduledAt"]);
    let batch = json!([{"content": "x", "consumerGroup": "jobs", "delaySeconds": 60}]);
    assert_eq!(fields(&gateway.post("/queue/batch/push", &batch)), ["messages[0].delaySeconds"]);
    for fine in [
        message("sms", json!({"delaySeconds": 60, "ttlSeconds": 61})),
        message("sms", json!({"scheduledAt": "2020-01-01T00:00:00Z", "ttlSeconds": 1})),
        message("mail", json!({"delaySeconds": 59})),
        message("mail", json!({})),
    ] {
        assert_eq!(gateway.post("/api/v1/messages", &fine).status, 202, "{fine}");
    }
    assert_eq!(push(&gateway, "jobs", "x", &[("delaySeconds", "59")]).status, 200);
}

#[test]
fn a_thousand_messages_of_a_thousand_bytes_are_one_batch() {
    let (_dir, gateway) = configured("");
    let text = "x".repeat(1_000);
    let texts = json!(vec![text.as_str(); 1_000]);
    let headers = [("consumerGroup", "jobs")];
    let answer = exchange(gateway.address, "POST", "/queue/batch/push", &headers, &texts.to_string());
    assert_eq!((answer.status, answer.json()["results"].as_array().map(Vec::len)), (200, Some(1_000)));
    let messages: Vec<_> =
        (0..1_000).map(|n| json!({"recipient": format!("user-{n}"), "body": text})).collect();
    let answer = gateway.post("/api/v1/messages/batch", &json!({ "messages": messages }));
    assert_eq!((answer.status, &answer.json()["accepted"]), (202, &json!(1_000)));
    assert_eq!(slot_config(&gateway, &json!({"maxPerWindow": 1_000})).status, 200);
    let event = |n| json!({"eventId": format!("event-{n}"), "requestedTime": "2099-01-01T00:00:00Z", "message": text});
    let events: Vec<_> = (0..1_000).map(event).collect();
    assert_eq!(gateway.post("/api/v1/slots/batch", &json!({ "events": events })).status, 200);
    // One message has the limit of one message.
    let large = json!({"recipient": "ann", "body": "x".repeat(1_048_576)});
    assert_eq!(gateway.post("/api/v1/messages", &large).status, 413);
}

#[test]
fn one_of_a_thing_is_told_in_the_singular() {
    let (_dir, gateway) = configured("");
    let quota = json!({"userId": "ann", "rateLimit": 1, "timeWindow": 1});
    assert_eq!(gateway.post("/api/config", &quota).status, 200);
    assert_eq!(gateway.send("ann", "first").status, 200);
    let told = gateway.send("ann", "second").json()["message"].as_str().unwrap().to_owned();
    assert_eq!(told, "rate limit exceeded: user ann may send 1 message per 1 minute");
}

#[test]
fn a_dead_letter_comes_back_without_a_body_and_not_into_a_full_queue() {
    let config = "[[queues]]\nname = \"jobs\"\nmode = \"reserve\"\nattempts_max = 1\npending_max = 1\n\
                  pending_hard_max = 1\n";
    let (_dir, gateway) = configured(config);
    push(&gateway, "jobs", "first", &[]);
    let popped = pop(&gateway, "jobs", &[]).json();
    assert_eq!(gateway.post("/queue/nack", &json!({"receipt": popped["receipt"]})).json()["status"], "dead");
    push(&gateway, "jobs", "second", &[]);
    let path = format!("/api/v1/dead-letters/{}/requeue", popped["id"].as_str().unwrap());
    // A JSON content type with no body, as many clients send it.
    let requeue = || client::exchange(gateway.address, "POST", &path, &[], "");
    let full = requeue();
    assert_eq!((full.status, &full.json()["code"]), (429, &json!("queue_full")), "{full:?}");
    assert!(full.header("Retry-After").is_some());
    assert!(full.json()["message"].as_str().unwrap().contains("queue jobs"), "{full:?}");
    let many = gateway.post("/api/v1/dead-letters/requeue", &json!({"filter": {}})).json();
    assert_eq!((&many["requeued"], &many["full"]), (&json!(0), &json!(1)), "{many}");
    let second = pop(&gateway, "jobs", &[]).json();
    assert_eq!(gateway.post("/queue/ack", &json!({"receipt": second["receipt"]})).status, 200);
    assert_eq!(fields(&gateway.post(&path, &json!({"body": " "}))), ["body"]);
    let back = requeue();
    assert_eq!((back.status, &back.json()["edited"]), (200, &json!(false)), "{back:?}");
    assert_eq!(pop(&gateway, "jobs", &[]).json()["content"], "first");
}

/// PostgreSQL has no place for some of these, and a ledger that fails looks like one that is away.
#[test]
fn no_input_looks_like_a_ledger_that_is_away() {
    let (_dir, gateway) = configured("[[queues]]\nname = \"jobs\"\nmode = \"reserve\"\n");
    gateway.configure("ann", 5);
    assert_eq!(slot_config(&gateway, &json!({})).status, 200);
    let nul = "a\u{0}b";
    for (path, body, wrong) in [
        ("/api/send", json!({"userId": nul, "message": "x"}), "userId"),
        ("/api/config", json!({"userId": nul, "rateLimit": 1, "timeWindow": 1}), "userId"),
        ("/api/config", json!({"userId": "ann", "rateLimit": 1e30, "timeWindow": 1}), "rateLimit"),
        ("/api/config", json!({"userId": "ann", "rateLimit": 1, "timeWindow": u64::MAX}), "timeWindow"),
        ("/api/v1/messages", json!({"recipient": nul, "body": "x"}), "recipient"),
        ("/api/v1/messages", json!({"recipient": "x".repeat(257), "body": "x"}), "recipient"),
        ("/api/v1/messages", json!({"recipient": "ann", "body": "x", "headers": {"a": nul}}), "headers"),
        (
            "/api/v1/messages",
            json!({"recipient": "ann", "body": "x", "delaySeconds": u64::MAX}),
            "delaySeconds",
        ),
        ("/api/v1/messages", json!({"recipient": "ann", "body": "x", "ttlSeconds": 1e300}), "ttlSeconds"),
        (
            "/api/v1/messages",
            json!({"recipient": "ann", "body": "x", "idempotencyKey": nul}),
            "idempotencyKey",
        ),
        ("/api/v1/slots", json!({"eventId": nul, "requestedTime": LAST}), "eventId"),
        ("/api/v1/slots", json!({"eventId": "x".repeat(256), "requestedTime": LAST}), "eventId"),
        ("/api/v1/slots", json!({"eventId": "e", "requestedTime": LAST, "configName": nul}), "configName"),
        ("/api/v1/dead-letters/requeue", json!({"filter": {"recipient": nul}}), "filter.recipient"),
        ("/api/v1/dead-letters/requeue", json!({"filter": {"queue": nul}}), "filter.queue"),
    ] {
        let answer = gateway.post(path, &body);
        assert_eq!((answer.status, fields(&answer)), (400, vec![wrong.to_owned()]), "{path} {body}");
    }
    for path in [
        "/api/v1/messages?recipient=%00",
        "/queue/pop?consumerGroup=%00",
        "/api/config?after=%00",
        "/api/config/%00",
        "/api/v1/slots/%00",
    ] {
        assert_eq!(gateway.get(path).status, 400, "{path}");
    }
    // What a text may hold is kept as it is.
    let pushed = push(&gateway, "jobs", nul, &[("recipient", "ann")]);
    assert_eq!(pushed.status, 200, "{pushed:?}");
    let popped = pop(&gateway, "jobs", &[]).json();
    assert_eq!(popped["content"], nul);
    let nack =
        |reason: &str| gateway.post("/queue/nack", &json!({"receipt": popped["receipt"], "reason": reason}));
    assert_eq!(fields(&nack(nul)), ["reason"]);
    assert_eq!(nack("\u{1F30A} no\nink").status, 200);
    // Far away, and still a time.
    let first = json!({"eventId": "first", "requestedTime": "-009999-01-03T00:00:00Z"});
    assert_eq!(gateway.post("/api/v1/slots", &first).status, 200);
    let past = json!({"recipient": "bob", "body": "x", "scheduledAt": "-009999-01-03T00:00:00Z"});
    assert_eq!(gateway.post("/api/v1/messages", &past).status, 202);
    assert_eq!(
        gateway.get("/api/v1/messages?from=-009999-01-03T00:00:00Z&to=9999-12-31T23:59:59Z").status,
        200
    );
    // No caller was given these.
    let id = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    let receipt = format!("{id}.ffffffffffffffff.-7fffffffffffffff.ffffffff.ffffffff.jobs");
    assert_eq!(gateway.get(&format!("/api/v1/messages/{id}")).status, 404);
    assert_eq!(gateway.delete(&format!("/api/v1/messages/{id}")).status, 404);
    assert_eq!(gateway.post("/api/v1/ack", &json!({ "id": id })).status, 404);
    assert_eq!(gateway.delete(&format!("/api/v1/dead-letters/{id}")).status, 404);
    assert_eq!(gateway.post("/queue/ack", &json!({ "receipt": receipt })).status, 409);
    assert_eq!(gateway.post("/queue/nack", &json!({ "receipt": receipt })).status, 409);
    assert_eq!(gateway.post("/queue/extend", &json!({"receipt": receipt, "seconds": 43_200})).status, 409);
    assert_eq!(gateway.get("/health/ready").status, 200);
}

/// A body of some megabytes can hold hundreds of thousands of faults: an answer that named them all would be ten times
/// as large, and cost the gateway as much.
#[test]
fn a_request_with_very_many_faults_is_answered_in_short() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let item =
        |keys: usize| (0..keys).map(|key| (format!("k{key}"), json!(0))).collect::<serde_json::Value>();
    let many = vec![item(40); 1_000];
    for (path, body) in [
        ("/api/v1/messages/batch", json!({ "messages": many })),
        ("/api/v1/slots/batch", json!({ "events": many })),
        ("/queue/batch/push", json!({ "messages": many })),
        ("/api/send", item(30_000)),
    ] {
        let answer = gateway.post(path, &body);
        assert_eq!(answer.status, 400, "{path}");
        let said = answer.json();
        let (named, omitted) = (said["fields"].as_array().unwrap().len(), said["fieldsOmitted"].as_u64());
        assert!(named == 100 && omitted > Some(29_000) && answer.text.len() < 20_000, "{path}: {omitted:?}");
        let more = format!("and {} more", omitted.unwrap() + 95);
        assert!(said["message"].as_str().unwrap().ends_with(&more), "{}", said["message"]);
    }
    let answer = gateway.post("/api/v1/messages/batch", &json!({"messages": vec![item(400); 1_000]}));
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("json_too_many_values")));
    let long = json!({ "k".repeat(100_000): 0 });
    assert!(gateway.post("/api/send", &long).text.len() < 1_000);
}

#[test]
fn faults_of_headers_fields_and_parameters_are_named_together() {
    let (_dir, gateway) = configured("");
    let headers = [("Idempotency-Key", ""), ("Tidegate-Priority", "high")];
    let post = |path: &str, body: &Value| fields(&client::post(gateway.address, path, &headers, body));
    let send = json!({"message": " ", "colour": 1});
    assert_eq!(post("/api/send", &send), ["Idempotency-Key", "colour", "message", "priority", "userId"]);
    let message = json!({"recipient": 7, "body": "b"});
    assert_eq!(post("/api/v1/messages", &message), ["Idempotency-Key", "priority", "recipient"]);
    let batch = json!({ "messages": [message] });
    let expected = ["Idempotency-Key", "messages[0].priority", "messages[0].recipient"];
    assert_eq!(post("/api/v1/messages/batch", &batch), expected);
    let named = fields(&gateway.get("/api/config?limit=0&after=%ff&foo=1"));
    assert_eq!(named, ["after", "foo", "limit"]);
}

#[test]
fn a_blank_user_or_recipient_is_refused() {
    let (_dir, gateway) = configured("");
    assert_eq!(fields(&gateway.send(" ", "text")), ["userId"]);
    let quota = json!({"userId": "\u{2003} ", "rateLimit": 5, "timeWindow": 1});
    assert_eq!(fields(&gateway.post("/api/config", &quota)), ["userId"]);
    let message = json!({"recipient": "  ", "body": "b"});
    assert_eq!(fields(&gateway.post("/api/v1/messages", &message)), ["recipient"]);
}

#[test]
fn a_plus_in_a_query_is_a_space() {
    let (_dir, gateway) = configured("");
    assert_eq!(gateway.post("/api/v1/messages", &json!({"recipient": "u x", "body": "b"})).status, 202);
    let found = |query: &str| {
        let listed = gateway.get(&format!("/api/v1/messages?{query}"));
        listed.json()["messages"].as_array().unwrap_or_else(|| panic!("{listed:?}")).len()
    };
    assert_eq!(found("recipient=u+x"), 1);
    assert_eq!(found("recipient=u%20x&from=2001-01-01T00:00:00+02:00"), 1, "an offset keeps its sign");
    assert_eq!(found("recipient=u%2Bx"), 0);
}
