use std::path::Path;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::gateway::{Gateway, command, eventually, start};
use crate::sink::Sink;

const PATH: &str = "/api/v1/messages";

/// A gateway whose queue "hooks" goes to the sink.
fn hooked(dir: &Path, sink: &Sink, more: &str) -> Gateway {
    let config = format!(
        "[webhook]\nurl = \"http://{}/hook\"\nallow = [\"127.0.0.0/8\"]\n\
         [[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\n{more}",
        sink.address
    );
    std::fs::write(dir.join("tidegate.toml"), config).unwrap();
    start(dir)
}

fn send(gateway: &Gateway, recipient: &str, body: &str) -> String {
    let answer = gateway.post(PATH, &json!({"queue": "hooks", "recipient": recipient, "body": body}));
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn ended(gateway: &Gateway, id: &str, status: &str) -> Value {
    let path = format!("{PATH}/{id}");
    eventually(|| Some(gateway.get(&path).json()).filter(|record| record["status"] == status))
}

fn breaker(gateway: &Gateway) -> Value {
    let stats = gateway.get("/api/v1/stats").json();
    let breakers = stats["breakers"].as_array().unwrap().clone();
    breakers.into_iter().find(|breaker| breaker["channel"] == "webhook").unwrap()
}

#[test]
fn webhooks_are_retried_with_growing_delays_into_a_dead_letter_or_refused_at_once() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(500));
    let more = "attempts_max = 3\n[sender]\nretry_base_ms = 50\nretry_jitter_percent = 10\n[breaker]\nfailure_percent = 100\n";
    let gateway = hooked(dir.path(), &sink, more);
    let record = ended(&gateway, &send(&gateway, "ann", "one"), "dead");
    assert_eq!(
        (record["attempts"].as_array().unwrap().len(), &record["retryCount"]),
        (3, &json!(2)),
        "{record}"
    );
    assert!(record["reason"].as_str().unwrap().starts_with("gave up after 3 attempts"), "{record}");
    assert_eq!(sink.seen(), ["one"; 3]);
    sink.answer(410);
    let record = ended(&gateway, &send(&gateway, "ann", "two"), "dead");
    assert_eq!(record["attempts"].as_array().unwrap().len(), 1, "{record}");
    sink.answer(204);
    ended(&gateway, &send(&gateway, "ann", "three"), "delivered");
    // A settlement is counted once the ledger has it, and the record says so a moment earlier.
    let (stats, queue) = eventually(|| {
        let stats = gateway.get("/api/v1/stats").json();
        let queue = stats["queues"].as_array()?.iter().find(|queue| queue["queue"] == "hooks")?.clone();
        (queue["delivered"] == 1).then_some((stats, queue))
    });
    assert_eq!((&queue["retried"], &queue["dead"]), (&json!(2), &json!(2)));
    assert_eq!((&stats["totals"]["balanced"], &queue["paused"]), (&json!(true), &json!(false)));
    let metrics = gateway.get("/metrics").text;
    for line in [
        "tidegate_queue_retried_total{queue=\"hooks\"} 2",
        "tidegate_queue_depth{queue=\"hooks\",lane=\"normal\"} 0",
        "tidegate_breaker_state{channel=\"webhook\",state=\"closed\"} 1",
    ] {
        assert!(metrics.lines().any(|given| given == line), "{line}\nnot in\n{metrics}");
    }
}

#[test]
fn behind_an_open_breaker_messages_wait_and_spend_no_attempts() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(503));
    let more = "[sender]\nretry_base_ms = 50\nretry_max_ms = 50\n[breaker]\nwindow = 4\nopen_ms = 6000\nprobes = 2\n";
    let gateway = hooked(dir.path(), &sink, more);
    let first: Vec<_> = (0..4).map(|n| send(&gateway, &format!("r{n}"), "x")).collect();
    gateway.stderr.wait_for("the breaker opened");
    assert_eq!(breaker(&gateway)["state"], "open");
    let ready = gateway.get("/health/ready");
    assert_eq!((ready.status, &ready.json()["breakers"]["webhook"]), (200, &json!("open")));
    let seen = sink.seen().len();
    let waiting = send(&gateway, "late", "y");
    let record = gateway.get(&format!("{PATH}/{waiting}")).json();
    assert_eq!((&record["status"], &record["attempts"]), (&json!("pending"), &json!([])));
    sink.answer(200);
    for id in first.iter().chain([&waiting]) {
        ended(&gateway, id, "delivered");
    }
    let late = gateway.get(&format!("{PATH}/{waiting}")).json();
    assert_eq!(late["attempts"].as_array().unwrap().len(), 1, "it waited: {late}");
    assert!(sink.seen().len() >= seen + 5);
    let breaker = eventually(|| Some(breaker(&gateway)).filter(|breaker| breaker["state"] == "closed"));
    assert_eq!((&breaker["changes"]["half-open"], &breaker["changes"]["closed"]), (&json!(1), &json!(1)));
    let metrics = gateway.get("/metrics").text;
    assert!(
        metrics.contains("tidegate_breaker_changes_total{channel=\"webhook\",to=\"open\"} 1\n"),
        "{metrics}"
    );
}

#[test]
fn a_slow_provider_holds_neither_other_channels_nor_the_stop_back() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    sink.hold();
    let more = "[sender]\nconcurrency = 2\nattempt_timeout_ms = 60000\nlease_ms = 70000\n";
    let gateway = hooked(dir.path(), &sink, more);
    for n in 0..6 {
        send(&gateway, &format!("r{n}"), "slow");
    }
    eventually(|| (sink.seen().len() == 2).then_some(()));
    let quick = gateway.post(PATH, &json!({"recipient": "ann", "body": "quick"})).json();
    gateway.delivered(quick["id"].as_str().unwrap());
    assert_eq!(sink.seen().len(), 2, "no more at once than the channel may");
}

/// The queues of a channel share its room in the order of asking.
#[test]
fn a_flooded_queue_does_not_starve_the_other_queues_of_its_channel() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    sink.delay(20);
    let more = "[[queues]]\nname = \"calm\"\nchannel = \"webhook\"\n[sender]\nconcurrency = 4\n";
    let gateway = hooked(dir.path(), &sink, more);
    let flood = |n: u32| json!({"queue": "hooks", "recipient": format!("r{n}"), "body": "flood"});
    let flood = json!({"messages": (0..400).map(flood).collect::<Vec<_>>()});
    assert_eq!(gateway.post(&format!("{PATH}/batch"), &flood).status, 202);
    eventually(|| (sink.seen().len() > 8).then_some(()));
    let calm = |n: u32| json!({"queue": "calm", "recipient": format!("r{n}"), "body": "calm"});
    let calm = json!({"messages": (0..8).map(calm).collect::<Vec<_>>()});
    assert_eq!(gateway.post(&format!("{PATH}/batch"), &calm).status, 202);
    let before = sink.seen().len();
    let places = eventually(|| {
        let seen = sink.seen();
        let places = seen.iter().enumerate().filter(|(_, body)| *body == "calm").map(|(place, _)| place);
        Some(places.collect::<Vec<_>>()).filter(|places| places.len() == 8)
    });
    assert!(places[7] < before + 60, "{before} before them, then {places:?}");
}

#[test]
fn one_recipients_messages_arrive_in_order_past_a_failing_head() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(500));
    let more = "[sender]\nretry_base_ms = 300\n[breaker]\nfailure_percent = 100\n";
    let gateway = hooked(dir.path(), &sink, more);
    let ids: Vec<_> = (0..5).map(|n| send(&gateway, "ann", &n.to_string())).collect();
    eventually(|| (!sink.seen().is_empty()).then_some(()));
    sink.answer(200);
    ended(&gateway, &ids[4], "delivered");
    let mut seen = sink.seen();
    seen.dedup();
    assert_eq!(seen, ["0", "1", "2", "3", "4"]);
}

#[test]
fn check_config_names_what_is_wrong_with_a_channel_and_shows_no_secret() {
    let dir = tempdir().unwrap();
    let check = |text: &str| {
        std::fs::write(dir.path().join("tidegate.toml"), text).unwrap();
        let output = command(dir.path()).arg("check-config").output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = check(
        "[[queues]]\nname = \"h\"\nchannel = \"webhook\"\n[[queues]]\nname = \"i\"\nchannel = \"inbox\"\n",
    );
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("webhook.url: is empty") && text.contains("inbox.secrets: is empty"), "{text}");
    let inner =
        "[webhook]\nurl = \"http://127.0.0.1:1/s3cret\"\n[[queues]]\nname = \"h\"\nchannel = \"webhook\"\n";
    let (code, text) = check(inner);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("127.0.0.1") && !text.contains("s3cret"), "{text}");
    let (code, text) = check(&inner.replace("[[queues]]", "allow = [\"127.0.0.1/32\"]\n[[queues]]"));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("webhook.url = (hidden)") && !text.contains("s3cret"), "{text}");
}

/// A process that sleeps through its own lease wakes up as nobody: what it then reports changes nothing.
#[test]
fn a_stopped_sender_is_fenced_off() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    let more = "lease_ms = 3500\n[sender]\nattempt_timeout_ms = 3000\nlease_ms = 3500\n";
    let gateway = hooked(dir.path(), &sink, more);
    sink.hold();
    let id = send(&gateway, "ann", "once or twice");
    eventually(|| (sink.seen().len() == 1).then_some(()));
    gateway.signal("-STOP");
    std::thread::sleep(std::time::Duration::from_millis(3_800));
    sink.release();
    gateway.signal("-CONT");
    let record = ended(&gateway, &id, "delivered");
    assert_eq!(sink.seen(), ["once or twice"; 2], "the attempt in flight, and the one that counts");
    let attempts = record["attempts"].as_array().unwrap();
    let told: Vec<_> = attempts.iter().map(|attempt| (&attempt["number"], &attempt["result"])).collect();
    assert_eq!(told, [(&json!(1), &json!("interrupted")), (&json!(2), &json!("delivered"))], "{record}");
    let lost = "tidegate_sender_lost_leases_total 1\n";
    let metrics = eventually(|| Some(gateway.get("/metrics").text).filter(|text| text.contains(lost)));
    assert!(metrics.lines().any(|line| line == "tidegate_conservation_balanced 1"), "{metrics}");
}

/// The address of a provider and its answers are for operators alone.
#[test]
fn what_a_provider_says_is_for_admins() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(410));
    let (admin, admin_hash) = crate::principals::api_key(dir.path());
    let (app, app_hash) = crate::principals::api_key(dir.path());
    let principals = format!(
        "[[principals]]\nname = \"ops\"\nrole = \"ADMIN\"\napi_key_hashes = [\"{admin_hash}\"]\n\
         [[principals]]\nname = \"app\"\nrole = \"USER\"\napi_key_hashes = [\"{app_hash}\"]\n"
    );
    let gateway = hooked(dir.path(), &sink, &principals);
    let message = json!({"queue": "hooks", "recipient": "ann", "body": "one"});
    let answer = crate::client::post(gateway.address, PATH, &[("X-Api-Key", &app)], &message);
    let path = format!("{PATH}/{}", answer.json()["id"].as_str().unwrap());
    let seen_by = |key: &str| crate::client::get(gateway.address, &path, &[("X-Api-Key", key)]).json();
    let record = eventually(|| Some(seen_by(&admin)).filter(|record| record["status"] == "dead"));
    assert_eq!(
        (&record["reason"], &record["attempts"][0]["reason"]),
        (&json!("410 Gone"), &json!("410 Gone"))
    );
    let record = seen_by(&app);
    assert_eq!(
        (&record["reason"], &record["attempts"][0]["reason"]),
        (&json!("http_410"), &json!("http_410"))
    );
}
