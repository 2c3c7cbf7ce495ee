use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::client::exchange;
use crate::gateway::{Gateway, start};
use crate::queue::{pop, push};
use crate::slots::fields;

const PATH: &str = "/api/v1/dead-letters";
const CONFIG: &str = "[[queues]]\nname = \"jobs\"\nmode = \"reserve\"\nattempts_max = 1\n";

/// A gateway with as many dead letters, and their ids.
fn with_dead(count: usize) -> (TempDir, Gateway, Vec<String>) {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("tidegate.toml"), CONFIG).unwrap();
    let gateway = start(dir.path());
    let ids = (0..count)
        .map(|n| {
            push(&gateway, "jobs", &n.to_string(), &[("recipient", "ann")]);
            kill(&gateway)
        })
        .collect();
    (dir, gateway, ids)
}

fn kill(gateway: &Gateway) -> String {
    let popped = pop(gateway, "jobs", &[]).json();
    let nack = gateway.post("/queue/nack", &json!({"receipt": popped["receipt"], "reason": "no ink"}));
    assert_eq!(nack.json()["status"], "dead", "{nack:?}");
    popped["id"].as_str().unwrap().to_owned()
}

fn listed(gateway: &Gateway, query: &str) -> Vec<String> {
    let list = gateway.get(&format!("{PATH}?{query}")).json();
    let letters = list["deadLetters"].as_array().unwrap_or_else(|| panic!("{list}")).clone();
    letters.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn dead_letters_are_listed_looked_at_and_removed_for_good() {
    let (dir, gateway, ids) = with_dead(3);
    assert_eq!(listed(&gateway, ""), ids);
    assert_eq!(listed(&gateway, "queue=jobs&recipient=ann&limit=2"), ids[..2]);
    assert_eq!(listed(&gateway, &format!("cursor={}", ids[0])), ids[1..]);
    assert_eq!(listed(&gateway, "queue=other"), Vec::<String>::new());
    let letter = gateway.get(&format!("{PATH}/{}", ids[0])).json();
    assert_eq!((&letter["status"], &letter["message"]), (&json!("dead"), &json!("0")));
    assert_eq!(letter["reason"], "gave up after 1 attempt: no ink");
    assert_eq!(gateway.delete(&format!("{PATH}/{}", ids[0])).status, 204);
    assert_eq!(gateway.delete(&format!("{PATH}/{}", ids[0])).status, 404);
    assert_eq!(gateway.get(&format!("{PATH}/{}", ids[0])).status, 404);
    gateway.signal("-KILL");
    gateway.wait();
    let gateway = start(dir.path());
    assert_eq!(listed(&gateway, ""), ids[1..], "through a crash");
    assert!(gateway.get("/metrics").text.contains("tidegate_conservation_balanced 1\n"));
}

#[test]
fn a_dead_letter_comes_back_as_it_was_or_edited_with_its_count_reset() {
    let (_dir, gateway, ids) = with_dead(2);
    let plain = exchange(gateway.address, "POST", &format!("{PATH}/{}/requeue", ids[0]), &[], "{}");
    assert_eq!((plain.status, &plain.json()["edited"]), (200, &json!(false)), "{plain:?}");
    let edited = gateway.post(&format!("{PATH}/{}/requeue", ids[1]), &json!({"body": "better"}));
    assert_eq!((edited.status, &edited.json()["status"]), (200, &json!("pending")));
    assert_eq!(gateway.post(&format!("{PATH}/{}/requeue", ids[1]), &json!({})).status, 404, "no longer dead");
    let popped = pop(&gateway, "jobs", &[]).json();
    assert_eq!((&popped["id"], &popped["content"]), (&json!(ids[0]), &json!("0")));
    assert_eq!(gateway.post("/queue/ack", &json!({"receipt": popped["receipt"]})).status, 200);
    let popped = pop(&gateway, "jobs", &[]).json();
    assert_eq!((&popped["id"], &popped["content"]), (&json!(ids[1]), &json!("better")));
    let nack = gateway.post("/queue/nack", &json!({"receipt": popped["receipt"]})).json();
    assert_eq!(nack["status"], "dead", "one attempt, anew");
    assert_eq!(listed(&gateway, ""), ids[1..]);
}

#[test]
fn a_page_of_dead_letters_is_bounded_in_bytes() {
    let (_dir, gateway, _) = with_dead(0);
    let body = "x".repeat(900_000);
    for _ in 0..6 {
        push(&gateway, "jobs", &body, &[("recipient", "ann")]);
        kill(&gateway);
    }
    let first = gateway.get(PATH);
    assert!(first.text.len() < 5 << 20, "{} bytes in one page", first.text.len());
    let first = first.json();
    let letters = first["deadLetters"].as_array().unwrap().len();
    assert!((1..6).contains(&letters), "{letters} dead letters");
    let rest = listed(&gateway, &format!("cursor={}", first["next"].as_str().unwrap()));
    assert_eq!(letters + rest.len(), 6);
}

#[test]
fn many_come_back_by_id_or_filter_at_a_pace() {
    let (_dir, gateway, ids) = with_dead(5);
    let requeue = |body: Value| gateway.post(&format!("{PATH}/requeue"), &body);
    let stranger = "01981c5e-8a00-7000-8000-00000040d2f1";
    let tally = |requeued: u32, not_dead: u32| json!({"requeued": requeued, "notDead": not_dead, "full": 0, "expired": 0, "more": false});
    assert_eq!(requeue(json!({"ids": [ids[0], ids[1], stranger]})).json(), tally(2, 1));
    assert_eq!(requeue(json!({"filter": {"queue": "other"}})).json(), tally(0, 0));
    let paced = json!({"filter": {"queue": "jobs", "recipient": "ann"}, "ratePerSecond": 1});
    assert_eq!(requeue(paced).json(), tally(3, 0));
    let due: Vec<_> = ids[2..]
        .iter()
        .map(|id| {
            let record = gateway.get(&format!("/api/v1/messages/{id}")).json();
            record["dueAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
        })
        .collect();
    assert_eq!([due[1] - due[0], due[2] - due[1]], [1_000, 1_000]);
    assert_eq!(fields(&requeue(json!({}))), ["filter"]);
    assert_eq!(fields(&requeue(json!({"ids": ["x"], "filter": {}}))), ["filter", "ids[0]"]);
    assert_eq!(
        fields(&requeue(json!({"filter": {"colour": "red"}, "ratePerSecond": 0}))),
        ["filter.colour", "ratePerSecond"]
    );
}
