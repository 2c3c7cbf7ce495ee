use serde_json::json;
use tempfile::tempdir;

use crate::gateway::{eventually, start};
use crate::sink::Sink;

const PATH: &str = "/api/v1/messages";

/// A recipient that acks while its provider is still thinking about its answer.
#[test]
fn an_ack_that_comes_before_the_providers_answer_is_not_lost() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    sink.hold();
    let config = format!(
        "[webhook]\nurl = \"http://{}/hook\"\nallow = [\"127.0.0.0/8\"]\n\
         [[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\n\
         [sender]\nattempt_timeout_ms = 60000\nlease_ms = 70000\n",
        sink.address
    );
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let message = json!({"queue": "hooks", "recipient": "ann", "body": "one", "ackRequired": true});
    let id = gateway.post(PATH, &message).json()["id"].as_str().unwrap().to_owned();
    eventually(|| (sink.seen().len() == 1).then_some(()));
    let acked = gateway.post("/api/v1/ack", &json!({"id": id}));
    assert_eq!((acked.status, &acked.json()["status"]), (200, &json!("delivered")), "{acked:?}");
    let record = gateway.get(&format!("{PATH}/{id}")).json();
    assert_eq!(
        (&record["status"], &record["attempts"][0]["result"]),
        (&json!("delivered"), &json!("delivered"))
    );
    assert!(record["deliveredAt"].is_string(), "{record}");
    sink.release();
    // The provider's answer comes to nothing, and that is no lost lease.
    let accepted = "tidegate_queue_accepted_total{queue=\"hooks\"} 1";
    let metrics = eventually(|| Some(gateway.get("/metrics").text).filter(|text| text.contains(accepted)));
    assert!(!metrics.contains("tidegate_sender_lost_leases_total 1"), "{metrics}");
    assert_eq!(sink.seen().len(), 1);
}

/// Ids carry a number that is easy to guess; the rest of them has to fit too.
#[test]
fn an_id_with_another_messages_time_is_unknown() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let message = json!({"recipient": "ann", "body": "one", "scheduledAt": "2099-01-01T00:00:00Z"});
    let id = gateway.post(PATH, &message).json()["id"].as_str().unwrap().to_owned();
    let (time, rest) = (u64::from_str_radix(&id[..8], 16).unwrap(), &id[8..]);
    let forged = format!("{:08x}{rest}", time - 1);
    assert_eq!(gateway.get(&format!("{PATH}/{forged}")).status, 404);
    assert_eq!(gateway.delete(&format!("{PATH}/{forged}")).status, 404);
    let acked = gateway.post("/api/v1/ack", &json!({"id": forged}));
    assert_eq!((acked.status, &acked.json()["code"]), (404, &json!("unknown_message")), "{acked:?}");
    assert_eq!(gateway.get(&format!("{PATH}/{id}")).json()["status"], "pending");
    assert_eq!(gateway.delete(&format!("{PATH}/{id}")).status, 204);
}

/// The recipient's word wins over what the gateway guessed; and what is out can't be taken back.
#[test]
fn an_ack_after_the_last_delivery_wins_over_the_dead_letter() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    let config = format!(
        "[webhook]\nurl = \"http://{}/hook\"\nallow = [\"127.0.0.0/8\"]\n\
         [[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\nattempts_max = 1\n\
         [sender]\nack_within_ms = 200\n",
        sink.address
    );
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let message = json!({"queue": "hooks", "recipient": "ann", "body": "one", "ackRequired": true});
    let id = gateway.post(PATH, &message).json()["id"].as_str().unwrap().to_owned();
    let record = || gateway.get(&format!("{PATH}/{id}")).json();
    let dead = eventually(|| Some(record()).filter(|record| record["status"] == "dead"));
    assert_eq!(dead["attempts"].as_array().unwrap().len(), 1, "giving up is no attempt: {dead}");
    assert_eq!((&dead["retryCount"], &dead["ackAttempts"]), (&json!(0), &json!(1)));
    let acked = gateway.post("/api/v1/ack", &json!({"id": id}));
    assert_eq!((acked.status, &acked.json()["status"]), (200, &json!("delivered")), "{acked:?}");
    let record = record();
    assert_eq!((&record["status"], &record["attempts"]), (&json!("delivered"), &dead["attempts"]));
    assert!(record["deliveredAt"].is_string() && record.get("reason").is_none(), "{record}");
    assert_eq!(gateway.get(&format!("/api/v1/dead-letters/{id}")).status, 404);
    let metrics = gateway.get("/metrics").text;
    assert!(metrics.contains("tidegate_conservation_balanced 1"), "{metrics}");
}

#[test]
fn what_a_provider_has_cannot_be_taken_back() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    let config = format!(
        "[webhook]\nurl = \"http://{}/hook\"\nallow = [\"127.0.0.0/8\"]\n\
         [[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\n",
        sink.address
    );
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let message = json!({"queue": "hooks", "recipient": "ann", "body": "one", "ackRequired": true});
    let id = gateway.post(PATH, &message).json()["id"].as_str().unwrap().to_owned();
    let path = format!("{PATH}/{id}");
    eventually(|| (gateway.get(&path).json()["ackAttempts"] == 1).then_some(()));
    let refused = gateway.delete(&path);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("sent")), "{refused:?}");
    assert_eq!(gateway.get(&path).json()["status"], "pending");
}
