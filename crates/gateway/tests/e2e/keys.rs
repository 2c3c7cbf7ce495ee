//! Every message has an idempotency key, and shows it: to its caller, and to its provider.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client;
use crate::gateway::{Gateway, eventually, start};
use crate::sink::Sink;

const PATH: &str = "/api/v1/messages";

fn post(gateway: &Gateway, key: Option<&str>, message: &Value) -> Value {
    let headers: Vec<_> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
    let answer = client::post(gateway.address, PATH, &headers, message);
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()
}

#[test]
fn every_message_shows_its_key_and_its_provider_is_sent_it() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(204));
    let config = format!(
        "[webhook]\nurl = \"http://{}/hook\"\nallow = [\"127.0.0.0/8\"]\n\
         [[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\ndedup = \"content\"\n",
        sink.address
    );
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let hook =
        |body: &str| json!({"queue": "hooks", "recipient": "ann", "body": body, "headers": {"X-Own": "7"}});

    let own = post(&gateway, Some("k-1"), &hook("one"));
    assert_eq!(own["idempotencyKey"], "k-1");
    let mut in_body = hook("two");
    in_body["idempotencyKey"] = json!("k-2");
    assert_eq!(post(&gateway, Some("k-2"), &in_body)["idempotencyKey"], "k-2", "said twice is said once");
    let differing = client::post(gateway.address, PATH, &[("Idempotency-Key", "k-3")], &in_body);
    assert_eq!((differing.status, &differing.json()["fields"][0]["field"]), (400, &json!("idempotencyKey")));

    let first = post(&gateway, None, &hook("three"));
    let key = first["idempotencyKey"].as_str().unwrap().to_owned();
    assert!(key.starts_with("content-"), "{key}");
    let mut again = hook("three");
    again["priority"] = json!("high");
    let again = post(&gateway, None, &again);
    assert_eq!(
        (&again["status"], &again["id"], &again["idempotencyKey"]),
        (&json!("duplicate"), &first["id"], &json!(key))
    );
    let mut other = hook("three");
    other["recipient"] = json!("bob");
    assert_ne!(post(&gateway, None, &other)["id"], first["id"], "another recipient");

    let alone = post(&gateway, None, &json!({"recipient": "ann", "body": "sms"}));
    assert_eq!(alone["idempotencyKey"], alone["id"], "one that is made for it alone");
    let batch = json!({"messages": [{"recipient": "ann", "body": "a"}, {"recipient": "ann", "body": "b", "idempotencyKey": "own"}]});
    let batch =
        client::post(gateway.address, "/api/v1/messages/batch", &[("Idempotency-Key", "many")], &batch)
            .json();
    let keys: Vec<_> =
        batch["results"].as_array().unwrap().iter().map(|one| &one["idempotencyKey"]).collect();
    assert_eq!(keys, ["many/0", "own"]);
    // A key that was shown is taken: the provider would be sent it for two texts.
    let again = json!({"recipient": "ann", "body": "another text", "idempotencyKey": "many/0"});
    assert_eq!(client::post(gateway.address, "/api/v1/messages", &[], &again).status, 409);

    eventually(|| (sink.seen().len() == 4).then_some(()));
    for (head, body) in sink.heads().iter().zip(sink.seen()) {
        let expected = match body.as_str() {
            "one" => "k-1",
            "two" => "k-2",
            _ => "content-",
        };
        assert!(head.contains(&format!("\r\nidempotency-key: {expected}")), "{body}: {head}");
        assert_eq!(head.matches("idempotency-key").count(), 1, "{head}");
        assert!(head.contains("\r\nx-own: 7"), "{head}");
    }

    // It is the same after a restart, in a record and in lists, and among no headers.
    drop(gateway);
    let gateway = start(dir.path());
    for (answer, key) in [(&own, json!("k-1")), (&first, json!(key)), (&alone, alone["id"].clone())] {
        let record = gateway.get(&format!("{PATH}/{}", answer["id"].as_str().unwrap())).json();
        assert_eq!(record["idempotencyKey"], key);
        let listed = gateway.get(&format!("{PATH}?limit=100")).json();
        let listed =
            listed["messages"].as_array().unwrap().iter().find(|one| one["id"] == answer["id"]).cloned();
        assert_eq!(listed.unwrap()["idempotencyKey"], key);
        let headers = record.get("headers").cloned().unwrap_or_default();
        assert!(headers.get("idempotency-key").is_none(), "{record}");
    }
    assert_eq!(
        post(&gateway, None, &hook("three"))["id"],
        first["id"],
        "the content is known after a restart"
    );
}

#[test]
fn a_caller_cannot_give_its_key_as_a_header_of_the_message() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let message = json!({"recipient": "ann", "body": "x", "headers": {"Idempotency-Key": "k"}});
    let refused = gateway.post(PATH, &message);
    assert_eq!(
        (refused.status, &refused.json()["fields"][0]["field"]),
        (400, &json!("headers")),
        "{refused:?}"
    );
}
