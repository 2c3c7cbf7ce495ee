//! Messages that wait for devices: none is given up before a device was handed it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use tempfile::tempdir;
use tidegate_testkit::HANG;
use tidegate_testkit::services::{Postgres, PostgresOptions};

use crate::client;
use crate::gateway::{Gateway, WallClock, eventually, start};
use crate::inbox::{CONFIG, admin, configured, token};

/// A device of one recipient.
struct Device {
    recipient: &'static str,
    token: String,
}

impl Device {
    fn of(recipient: &'static str, gateway: &Gateway, key: &str) -> Self {
        Self { recipient, token: token(gateway, key, recipient) }
    }

    fn poll(&self, gateway: &Gateway, wait_s: u64) -> Vec<Value> {
        let path = format!("/inbox/{}/messages?waitSeconds={wait_s}&token={}", self.recipient, self.token);
        let answer = client::get(gateway.address, &path, &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["messages"].as_array().unwrap().clone()
    }

    fn ack(&self, gateway: &Gateway, id: &str) {
        let path = format!("/inbox/{}/ack?token={}", self.recipient, self.token);
        let acked = client::post(gateway.address, &path, &[], &json!({"id": id}));
        assert_eq!((acked.status, &acked.json()["status"]), (200, &json!("delivered")), "{acked:?}");
    }

    fn events(&self, gateway: &Gateway) -> impl FnMut() -> Value + use<> {
        let stream = request(gateway, &format!("/inbox/{}/events?token={}", self.recipient, self.token));
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == ": here"), "no beginning");
        move || {
            let line = lines.find(|line| line.starts_with("data: ")).expect("an event");
            serde_json::from_str(line.trim_start_matches("data: ")).unwrap()
        }
    }
}

fn request(gateway: &Gateway, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", gateway.address).unwrap();
    stream
}

fn send(gateway: &Gateway, key: &str, message: Value) -> String {
    let mut whole = json!({"queue": "devices", "recipient": "ann"});
    whole.as_object_mut().unwrap().extend(message.as_object().unwrap().clone());
    let answer = admin(gateway, key, "/api/v1/messages", &whole);
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

fn record(gateway: &Gateway, key: &str, id: &str) -> Value {
    client::get(gateway.address, &format!("/api/v1/messages/{id}"), &[("X-Api-Key", key)]).json()
}

fn until(gateway: &Gateway, key: &str, id: &str, status: &str) -> Value {
    eventually(|| Some(record(gateway, key, id)).filter(|record| record["status"] == status))
}

fn attempts(record: &Value) -> Vec<&str> {
    record["attempts"].as_array().unwrap().iter().map(|attempt| attempt["result"].as_str().unwrap()).collect()
}

/// On an embedded ledger the clock moves; a database has a clock of its own, where everything is young.
#[test]
fn a_device_that_polls_rarely_is_handed_what_waits_for_it_at_once() {
    let (dir, key) = configured("attempts_max = 2\n[sender]\nack_within_ms = 20000\n");
    let (gateway, clock) = WallClock::start(dir.path());
    let device = Device::of("ann", &gateway, &key);
    let first = send(&gateway, &key, json!({"body": "one", "ackRequired": true}));
    let second = send(&gateway, &key, json!({"body": "two", "ackRequired": true}));
    // Others are looked for all the time; it costs her nothing.
    let other = Device::of("bob", &gateway, &key);
    for polls in 1..=4 {
        clock.set_forward(polls * 25);
        assert_eq!(other.poll(&gateway, 0), [] as [Value; 0]);
        assert_eq!(attempts(&record(&gateway, &key, &first)), [""; 0], "no device has seen it");
    }
    clock.set_forward(86_400);
    let found = device.poll(&gateway, 0);
    assert_eq!((&found[0]["id"], &found[0]["attempt"], found.len()), (&json!(first), &json!(1), 1));
    device.ack(&gateway, &first);
    assert_eq!(device.poll(&gateway, 0)[0]["id"], json!(second));
    device.ack(&gateway, &second);
    // Accepted, or delivered: the ack may come before it is written down that it was handed over.
    assert_eq!(attempts(&record(&gateway, &key, &second)).len(), 1);
    assert_eq!(device.poll(&gateway, 0), [] as [Value; 0]);
}

#[test]
fn only_what_a_device_was_handed_counts_as_delivered_without_an_ack() {
    let (dir, key) = configured("attempts_max = 2\n[sender]\nack_within_ms = 1000\n");
    let gateway = start(dir.path());
    let device = Device::of("ann", &gateway, &key);
    let id = send(&gateway, &key, json!({"body": "one", "ackRequired": true}));
    let next = send(&gateway, &key, json!({"body": "two", "ackRequired": true}));
    for attempt in 1..=2 {
        let poll = || device.poll(&gateway, 20).into_iter().find(|found| found["attempt"] == attempt);
        assert_eq!(eventually(poll)["id"], json!(id));
    }
    let poll = || device.poll(&gateway, 20).into_iter().find(|found| found["id"] == next);
    eventually(poll);
    let dead = record(&gateway, &key, &id);
    assert_eq!((&dead["status"], attempts(&dead)), (&json!("dead"), vec!["accepted", "accepted"]), "{dead}");
}

#[test]
fn a_poll_is_bounded_in_bytes_and_the_next_one_has_the_rest() {
    const QUEUES: usize = 8;
    let name = |n: usize| format!("big{n}");
    let queue = |n: usize| format!("[[queues]]\nname = \"{}\"\nchannel = \"inbox\"\n", name(n));
    let (dir, key) = configured(&(0..QUEUES).map(queue).collect::<String>());
    let gateway = start(dir.path());
    let device = Device::of("ann", &gateway, &key);
    let body = "x".repeat(900_000);
    for n in 0..QUEUES {
        send(&gateway, &key, json!({"queue": name(n), "body": body}));
    }
    let mut left = QUEUES;
    while left > 0 {
        let found = device.poll(&gateway, 20);
        let bytes: usize = found.iter().map(|message| message["body"].as_str().unwrap().len()).sum();
        assert!(bytes <= 5 * body.len(), "{} messages in one answer", found.len());
        left -= found.len();
    }
    assert_eq!(device.poll(&gateway, 0), [] as [Value; 0]);
}

#[test]
fn what_requires_no_ack_is_delivered_when_it_is_read() {
    let (dir, key) = configured("");
    let gateway = start(dir.path());
    let device = Device::of("ann", &gateway, &key);
    let ids: Vec<_> = (0..5).map(|n| send(&gateway, &key, json!({"body": n.to_string()}))).collect();
    for id in &ids {
        let found = device.poll(&gateway, 0);
        assert_eq!((&found[0]["id"], &found[0]["ackRequired"], found.len()), (&json!(id), &json!(false), 1));
    }
    assert_eq!(device.poll(&gateway, 0), [] as [Value; 0]);
    for id in &ids {
        assert_eq!(attempts(&until(&gateway, &key, id, "delivered")), ["delivered"]);
    }
}

/// The next poll comes while the message of the one before is being settled.
#[test]
fn polls_back_to_back_are_given_each_message_once_and_without_a_stall() {
    let (dir, key) = configured("");
    let gateway = start(dir.path());
    let poll_all = |recipient: &'static str, acks: bool| {
        let device = Device::of(recipient, &gateway, &key);
        let message = |n: usize| json!({"queue": "devices", "recipient": recipient, "body": n.to_string()});
        let messages: Vec<_> = (0..100).map(message).collect();
        let sent = admin(&gateway, &key, "/api/v1/messages/batch", &json!({ "messages": messages }));
        let ids: Vec<Value> =
            sent.json()["results"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
        for id in &ids {
            let found = device.poll(&gateway, 0);
            assert_eq!((&found[0]["id"], found.len()), (id, 1), "{recipient}");
            if acks {
                // Settled or not: the device has it, and says so.
                let path = format!("/inbox/{recipient}/ack?token={}", device.token);
                let acked = client::post(gateway.address, &path, &[], &json!({ "id": id }));
                assert_eq!((acked.status, &acked.json()["status"]), (200, &json!("already_delivered")));
            }
        }
        assert_eq!(device.poll(&gateway, 0), [] as [Value; 0]);
        for id in &ids {
            let record = until(&gateway, &key, id.as_str().unwrap(), "delivered");
            assert_eq!(attempts(&record), ["delivered"]);
            // A poll gives up its wait for a look after three seconds.
            let latency_ms = record["attempts"][0]["latencyMs"].as_u64().unwrap();
            assert!(latency_ms < 2_900, "it lay in the buffer of a poll for {latency_ms} ms");
        }
    };
    std::thread::scope(|devices| {
        for (recipient, acks) in [("ann", false), ("bob", false), ("cyd", false), ("dan", true)] {
            let poll_all = &poll_all;
            devices.spawn(move || (0..3).for_each(|_| poll_all(recipient, acks)));
        }
    });
}

#[test]
fn an_event_stream_is_given_what_waits_and_what_comes_in_order() {
    let (dir, key) = configured("");
    let gateway = start(dir.path());
    let device = Device::of("ann", &gateway, &key);
    let mut ids: Vec<_> = (0..10).map(|n| send(&gateway, &key, json!({"body": n.to_string()}))).collect();
    let (mut phone, mut tablet) = (device.events(&gateway), device.events(&gateway));
    ids.extend((10..20).map(|n| send(&gateway, &key, json!({"body": n.to_string()}))));
    ids.push(send(&gateway, &key, json!({"body": "acked", "ackRequired": true})));
    ids.push(send(&gateway, &key, json!({"body": "last"})));
    for id in &ids {
        let event = phone();
        assert_eq!(event["id"], json!(id), "{event}");
        if event["ackRequired"] == true {
            device.ack(&gateway, id);
        }
    }
    // Whichever of both came first; from then on both have every message.
    while tablet()["id"] != json!(ids.last().unwrap()) {}
    until(&gateway, &key, ids.last().unwrap(), "delivered");
}

#[test]
fn a_device_that_breaks_off_before_a_message_is_written_costs_nothing() {
    let (dir, key) = configured("");
    let gateway = start(dir.path());
    let device = Device::of("ann", &gateway, &key);
    // More than the buffers between the two take, so that the connection stands still in the middle.
    let body = "x".repeat(16 << 20);
    let id = send(&gateway, &key, json!({"body": body}));
    for path in ["messages", "events"] {
        let mut stream = request(&gateway, &format!("/inbox/ann/{path}?token={}", device.token));
        stream.read_exact(&mut [0; 1_000]).unwrap();
        drop(stream);
    }
    let found = device.poll(&gateway, 20);
    assert_eq!((&found[0]["id"], &found[0]["attempt"]), (&json!(id), &json!(1)));
    assert_eq!(attempts(&until(&gateway, &key, &id, "delivered")), ["delivered"]);
}

#[test]
fn what_nobody_fetches_expires_and_a_pause_holds_for_devices_too() {
    let (dir, key) = configured("");
    let gateway = start(dir.path());
    let device = Device::of("ann", &gateway, &key);
    let over = send(&gateway, &key, json!({"body": "over", "ttlSeconds": 1}));
    let expired = until(&gateway, &key, &over, "expired");
    assert_eq!(attempts(&expired), [""; 0]);
    let control = |what: &str| {
        let path = format!("/queue/{what}?consumerGroup=devices");
        let answer = admin(&gateway, &key, &path, &json!({}));
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    control("pause");
    let id = send(&gateway, &key, json!({"body": "held"}));
    assert_eq!(device.poll(&gateway, 0), [] as [Value; 0]);
    let mut events = device.events(&gateway);
    control("resume");
    assert_eq!(events()["id"], json!(id));
}

#[test]
fn a_stop_ends_polls_that_wait_and_loses_nothing() {
    let (dir, key) = configured("");
    let gateway = start(dir.path());
    let device = Device::of("ann", &gateway, &key);
    let waiting = request(&gateway, &format!("/inbox/ann/messages?waitSeconds=30&token={}", device.token));
    let mut reader = BufReader::new(waiting);
    assert_eq!(gateway.stop().code(), Some(0), "and not after the drain timeout");
    let mut answer = String::new();
    // A request that was not read before the stop is closed unanswered.
    let _ = reader.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.ends_with("{\"messages\":[]}"), "{answer}");
    let gateway = start(dir.path());
    let id = send(&gateway, &key, json!({"body": "after"}));
    assert_eq!(device.poll(&gateway, 20)[0]["id"], json!(id));
}

#[test]
fn a_message_for_devices_needs_a_recipient() {
    let (dir, key) = configured("");
    let gateway = start(dir.path());
    let single = admin(&gateway, &key, "/queue/push?consumerGroup=devices", &json!("hi"));
    let batch = json!([{"consumerGroup": "devices", "content": "hi"}]);
    let batch = admin(&gateway, &key, "/queue/batch/push", &batch);
    for answer in [single, batch] {
        assert!(answer.text.contains("recipient") && answer.text.contains("is missing"), "{answer:?}");
    }
}

/// Each gateway hands over to the devices that are connected to it, whichever gateway took the message in.
#[test]
fn a_device_at_another_gateway_is_handed_what_waits_at_once() {
    let server = Postgres::start(PostgresOptions { durable: true, settings: Vec::new() }).unwrap();
    let dir = tempdir().unwrap();
    let url = server.url("postgres");
    let ledger = format!("[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"{url}\"\nconnections_max = 6\n");
    std::fs::write(dir.path().join("tidegate.toml"), format!("{ledger}{CONFIG}")).unwrap();
    let (here, there) = (start(dir.path()), start(dir.path()));
    let device = Device::of("ann", &here, "");
    let old = send(&here, "", json!({"body": "old", "ackRequired": true}));
    let next = send(&here, "", json!({"body": "next"}));
    // Those who listen here for others do not take it away.
    let mut others = Device::of("bob", &here, "").events(&here);
    assert_eq!(device.poll(&there, 0)[0]["id"], json!(old), "it waits at no gateway");
    device.ack(&here, &old);
    let found = device.poll(&there, 0);
    assert_eq!((&found[0]["id"], found.len()), (&json!(next), 1), "the ack is heard there, too");
    until(&here, "", &next, "delivered");
    // And what comes while it listens there.
    let mut events = device.events(&there);
    for n in 0..3 {
        let id = send(&here, "", json!({"body": n.to_string()}));
        assert_eq!(events()["id"], json!(id));
    }
    let id = send(&there, "", json!({"recipient": "bob", "body": "bob"}));
    assert_eq!(others()["id"], json!(id));
}
