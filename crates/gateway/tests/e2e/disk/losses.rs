//! What was acknowledged and is no longer there.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::tempdir;

use super::id_of;
use crate::gateway::{Gateway, command, start};

fn killed(dir: &Path) -> Vec<String> {
    let gateway = start(dir);
    gateway.configure("alice", 1_000);
    assert_eq!(gateway.stop().code(), Some(0));
    let gateway = start(dir);
    let ids: Vec<_> = (0..5).map(|n| id_of(&gateway, &n.to_string())).collect();
    ids.iter().for_each(|id| drop(gateway.delivered(id)));
    kill(gateway);
    ids
}

fn kill(gateway: Gateway) {
    gateway.signal("-KILL");
    gateway.wait();
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    command(dir).args(arguments).args(["--data", "data"]).output().unwrap()
}

fn refused(dir: &Path) -> String {
    let output = run(dir, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A gateway that starts without its WAL would have forgotten five messages, and give their numbers out again.
#[test]
fn a_ledger_that_lacks_something_is_refused_until_the_operator_accepts_the_loss() {
    let dir = tempdir().unwrap();
    let lost = killed(dir.path());
    fs::remove_file(dir.path().join("data/ledger.db-wal")).unwrap();
    for _ in 0..2 {
        let said = refused(dir.path());
        for part in ["ledger.db", "sequence numbers 1 to 5", "tidegate accept-loss --data data"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let export = run(dir.path(), &["export", "--to", "archive"]);
    assert!(!export.status.success());
    assert!(String::from_utf8_lossy(&export.stderr).contains("tidegate accept-loss"), "{export:?}");

    let accepted = run(dir.path(), &["accept-loss"]);
    assert!(accepted.status.success(), "{accepted:?}");
    let said = String::from_utf8_lossy(&accepted.stdout).into_owned();
    assert!(said.contains("accepted: ") && said.contains("sequence numbers 1 to 5"), "{said}");
    assert!(String::from_utf8_lossy(&accepted.stderr).contains("a loss was accepted"), "{accepted:?}");
    let losses = fs::read_to_string(dir.path().join("data/ledger.db-losses")).unwrap();
    assert!(losses.contains("sequence numbers 1 to 5"), "{losses}");

    let gateway = start(dir.path());
    let next = gateway.post("/api/v1/messages", &serde_json::json!({"recipient": "bob", "body": "x"}));
    assert_eq!(next.status, 202, "{next:?}");
    assert!(next.json()["sequence"].as_u64().is_none_or(|sequence| sequence > 5), "{next:?}");
    assert_eq!(gateway.get(&format!("/api/v1/messages/{}", lost[0])).status, 404);
    let next = id_of(&gateway, "next");
    assert!(!lost.contains(&next));
    assert_eq!(gateway.stop().code(), Some(0));
    let nothing = run(dir.path(), &["accept-loss"]);
    assert!(String::from_utf8_lossy(&nothing.stdout).contains("nothing is missing"), "{nothing:?}");
}

#[test]
fn nothing_is_accepted_where_there_is_no_ledger_or_one_in_use() {
    let dir = tempdir().unwrap();
    let none = run(dir.path(), &["accept-loss"]);
    assert!(!none.status.success());
    assert!(String::from_utf8_lossy(&none.stderr).contains("there is no ledger"), "{none:?}");
    assert!(!dir.path().join("data").exists());
    let gateway = start(dir.path());
    let used = run(dir.path(), &["accept-loss"]);
    assert!(String::from_utf8_lossy(&used.stderr).contains("in use by another tidegate"), "{used:?}");
    assert_eq!(gateway.stop().code(), Some(0));
}
