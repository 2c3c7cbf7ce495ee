//! What is deleted is gone: from every answer at once, and from the files soon.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::{TempDir, tempdir};

use crate::client::exchange;
use crate::gateway::{Gateway, eventually, start};
use crate::ledger;
use crate::queue::{pop, push};

const CONFIG: &str =
    "[[queues]]\nname = \"jobs\"\n[[queues]]\nname = \"once\"\nmode = \"reserve\"\nattempts_max = 1\n";
const MESSAGES: &str = "/api/v1/messages";
const DEAD: &str = "/api/v1/dead-letters";

/// Messages that wait, some of them deep in the files, and dead letters; each with a text of its own.
struct Secrets {
    waiting: Vec<String>,
    queued: Vec<String>,
    dead: Vec<String>,
    kept: String,
}

fn text(n: usize) -> String {
    // Some take a part of a page, some several pages.
    format!("secret-{n:03}-{}", "x".repeat([20, 700, 9_000, 100_000][n % 4]))
}

fn marker(n: usize) -> String {
    format!("secret-{n:03}-")
}

fn begin() -> (TempDir, Gateway, Secrets) {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("tidegate.toml"), CONFIG).unwrap();
    let gateway = start(dir.path());
    let id = |answer: crate::client::Answer| {
        answer.json()["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    };
    let send = |body: String, header: String| {
        let sent =
            json!({"recipient": "ann", "body": body, "delaySeconds": 3_600, "headers": {"x-note": header}});
        id(gateway.post(MESSAGES, &sent))
    };
    let kept = send("kept-text".to_owned(), "kept-note".to_owned());
    let waiting = (0..8).map(|n| send(text(n), format!("{}note", marker(n)))).collect();
    let queued = (8..16).map(|n| id(push(&gateway, "jobs", &text(n), &[("recipient", "ann")]))).collect();
    let dead = (16..20).map(|n| {
        push(&gateway, "once", &text(n), &[]);
        let popped = pop(&gateway, "once", &[]).json();
        let nack = gateway.post("/queue/nack", &json!({"receipt": popped["receipt"], "reason": "no ink"}));
        assert_eq!(nack.json()["status"], "dead", "{nack:?}");
        popped["id"].as_str().unwrap().to_owned()
    });
    let dead = dead.collect();
    (dir, gateway, Secrets { waiting, queued, dead, kept })
}

/// Deletes all of them, each in its way.
fn delete(gateway: &Gateway, secrets: &Secrets) {
    for id in &secrets.waiting {
        assert_eq!(gateway.delete(&format!("{MESSAGES}/{id}")).status, 204);
    }
    for id in &secrets.dead {
        assert_eq!(gateway.delete(&format!("{DEAD}/{id}")).status, 204);
    }
    let purged = exchange(gateway.address, "POST", "/queue/purge", &[("consumerGroup", "jobs")], "");
    assert_eq!(purged.json()["purged"], 8, "{purged:?}");
}

fn assert_not_told(gateway: &Gateway, secrets: &Secrets) {
    for id in secrets.waiting.iter().chain(&secrets.queued) {
        let record = gateway.get(&format!("{MESSAGES}/{id}"));
        assert!(!record.text.contains("secret-"), "{record:?}");
        let record = record.json();
        assert_eq!((&record["status"], &record["erased"]), (&json!("deleted"), &json!(true)), "{record}");
        assert!(record.get("message").is_none() && record.get("headers").is_none(), "{record}");
    }
    for id in &secrets.dead {
        assert_eq!(gateway.get(&format!("{MESSAGES}/{id}")).status, 404);
    }
    let viewed = [("consumerGroup", "jobs"), ("messageCount", "100"), ("consumed", "all")];
    let lists = [
        gateway.get(&format!("{MESSAGES}?limit=1000")),
        gateway.get(&format!("{MESSAGES}?limit=1000&status=deleted&queue=jobs")),
        gateway.get(&format!("{DEAD}?limit=1000")),
        exchange(gateway.address, "GET", "/queue/view", &viewed, ""),
    ];
    for list in lists {
        assert_eq!(list.status, 200, "{list:?}");
        assert!(!list.text.contains("secret-"), "{list:?}");
    }
    let kept = gateway.get(&format!("{MESSAGES}/{}", secrets.kept)).json();
    assert_eq!((&kept["message"], &kept["headers"]["x-note"]), (&json!("kept-text"), &json!("kept-note")));
}

/// Which of the texts are in a file of the ledger's directory.
fn found(dir: &Path) -> Vec<usize> {
    let files: Vec<_> = fs::read_dir(dir.join("data")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let bytes: Vec<_> =
        files.iter().filter(|path| path.is_file()).map(|path| fs::read(path).unwrap()).collect();
    let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    (0..20).filter(|n| bytes.iter().any(|bytes| holds(bytes, marker(*n).as_bytes()))).collect()
}

#[test]
fn what_is_deleted_is_told_no_more_and_leaves_the_files() {
    let (dir, gateway, secrets) = begin();
    if ledger::is_embedded() {
        assert_eq!(found(dir.path()), (0..20).collect::<Vec<_>>(), "the search finds what is there");
    }
    delete(&gateway, &secrets);
    assert_not_told(&gateway, &secrets);
    if ledger::is_embedded() {
        eventually(|| found(dir.path()).is_empty().then_some(()));
    }
    assert_not_told(&gateway, &secrets);
}

#[test]
fn what_was_deleted_before_a_crash_leaves_the_files_after_it() {
    let (dir, gateway, secrets) = begin();
    delete(&gateway, &secrets);
    gateway.signal("-KILL");
    gateway.wait();
    let gateway = start(dir.path());
    assert_not_told(&gateway, &secrets);
    if ledger::is_embedded() {
        eventually(|| found(dir.path()).is_empty().then_some(()));
    }
    let metrics = gateway.get("/metrics").text;
    assert!(metrics.contains("tidegate_conservation_balanced 1\n"), "{metrics}");
}
