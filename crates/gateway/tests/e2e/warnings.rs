use std::path::Path;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{self, Answer};
use crate::gateway::{Gateway, command, eventually, start};
use crate::sink::Sink;

fn push(gateway: &Gateway) -> Answer {
    let headers = [("consumerGroup", "jobs")];
    client::exchange(gateway.address, "POST", "/queue/push", &headers, "paint the fence")
}

fn pop(gateway: &Gateway) -> Answer {
    client::get(gateway.address, "/queue/pop", &[("consumerGroup", "jobs")])
}

fn told(sink: &Sink, count: usize) -> Vec<Value> {
    let seen = eventually(|| Some(sink.seen()).filter(|seen| seen.len() >= count));
    seen.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

#[test]
fn a_queue_that_gets_too_deep_is_told_to_the_webhook_and_so_is_its_recovery() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(500));
    let config = format!(
        "[stats]\ndepth_warning = 5\nwarning_webhook = \"http://{}/alarm\"\n\
         [webhook]\nallow = [\"127.0.0.1/32\"]\nheaders = [\"Authorization: not for the alarm\"]\n\
         secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n",
        sink.address
    );
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    for _ in 0..6 {
        assert_eq!(push(&gateway).status, 200);
    }
    told(&sink, 1);
    sink.answer(204);
    // The receiver was unwell; it is told again, under the same id.
    let first = told(&sink, 2);
    assert_eq!((&first[0], &first[0]["type"]), (&first[1], &json!("queue.depth_warning")));
    assert_eq!(first[0]["data"], json!({"queue": "jobs", "depth": 6, "threshold": 5}));
    assert_eq!((push(&gateway).status, pop(&gateway).status, pop(&gateway).status), (200, 200, 200));
    // Just below the threshold it is not yet well.
    assert_eq!(pop(&gateway).status, 200);
    let second = told(&sink, 3);
    assert_eq!((&second[2]["type"], second.len()), (&json!("queue.depth_recovered"), 3), "{second:?}");
    let heads = sink.heads();
    let id = |head: &String| head.lines().find(|line| line.starts_with("webhook-id:")).map(str::to_owned);
    assert_eq!(id(&heads[0]), id(&heads[1]));
    assert_ne!(id(&heads[1]), id(&heads[2]));
    assert!(
        heads[0].contains("webhook-signature: v1,") && heads[0].contains("application/json"),
        "{heads:?}"
    );
    assert!(!heads.iter().any(|head| head.contains("not for the alarm")), "{heads:?}");
    let delivered = "tidegate_warning_webhooks_total{result=\"delivered\"} 2";
    eventually(|| gateway.get("/metrics").text.lines().any(|line| line == delivered).then_some(()));
}

#[test]
fn a_deaf_receiver_holds_nothing_up() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    sink.delay(60_000);
    let config = format!(
        "[stats]\ndepth_warning = 1\nwarning_webhook = \"http://{}/\"\n[webhook]\nallow = [\"127.0.0.1/32\"]\n",
        sink.address
    );
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    for _ in 0..3 {
        assert_eq!(push(&gateway).status, 200);
    }
    told(&sink, 1);
    assert_eq!((push(&gateway).status, pop(&gateway).status), (200, 200));
    assert_eq!(gateway.stop().code(), Some(0));
}

#[test]
fn settings_of_webhooks_are_checked_before_anything_starts() {
    let dir = tempdir().unwrap();
    let (code, text) = check(
        dir.path(),
        "[sender]\nattempt_timeout_ms = 2000\n[webhook]\nconnect_timeout_ms = 3000\nports = [\"http\"]\n\
         headers = [\"s3cret\"]\n",
    );
    assert_eq!(code, Some(2), "{text}");
    for part in [
        "tidegate.toml:4: webhook.connect_timeout_ms: 3000 does not fit into sender.attempt_timeout_ms (2000)",
        "webhook.ports: \"http\" is not a port; choose from 1 to 65535",
        "webhook.headers: an entry has no colon",
    ] {
        assert!(text.contains(part), "{part}\nnot in\n{text}");
    }
    assert!(!text.contains("s3cret"), "{text}");
    let short = "[sender]\nattempt_timeout_ms = 2000\n[webhook]\nheaders = [\"X-Key: s3cret\"]\n";
    let (code, text) = check(dir.path(), short);
    assert_eq!(code, Some(0), "the default gives way: {text}");
    assert!(text.contains("webhook.headers = (hidden)") && !text.contains("s3cret"), "{text}");
    let alarm = "[stats]\nwarning_webhook = \"https://example.com:8443/s3cret\"\n";
    assert_eq!(check(dir.path(), alarm).0, Some(0));
    let (code, text) = check(dir.path(), &format!("{alarm}[webhook]\nports = [\"443\"]\n"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("stats.warning_webhook") && text.contains("port 8443"), "{text}");
    let (code, text) = check(dir.path(), "[stats]\nwarning_webhook = \"http://169.254.169.254/s3cret\"\n");
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("169.254.169.254 is not on the public internet") && !text.contains("s3cret"),
        "{text}"
    );
}

fn check(dir: &Path, config: &str) -> (Option<i32>, String) {
    std::fs::write(dir.join("tidegate.toml"), config).unwrap();
    let output = command(dir).arg("check-config").output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}
