mod tls;

use std::collections::BTreeSet;

use serde_json::json;
use tempfile::{TempDir, tempdir};
use tidegate_testkit::services::{Postgres, PostgresOptions};

use crate::client;
use crate::gateway::{Gateway, command, eventually, start};
use crate::queue::{pop, push};

fn server(durable: bool) -> Postgres {
    Postgres::start(PostgresOptions { durable, settings: Vec::new() }).unwrap()
}

fn configured(url: &str) -> TempDir {
    let dir = tempdir().unwrap();
    let text = format!("[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"{url}\"\nconnections_max = 6\n");
    std::fs::write(dir.path().join("tidegate.toml"), text).unwrap();
    dir
}

fn gateway(server: &Postgres) -> (TempDir, Gateway) {
    let dir = configured(&server.url("postgres"));
    let gateway = start(dir.path());
    (dir, gateway)
}

#[test]
fn gateways_share_quotas_keys_and_messages() {
    let server = server(true);
    let (_one, one) = gateway(&server);
    let (_other, other) = gateway(&server);
    one.configure("ann", 5);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let sends: Vec<_> = (0..20)
            .map(|n| {
                let gateway = if n % 2 == 0 { &one } else { &other };
                scope.spawn(move || gateway.send("ann", &format!("message {n}")).status)
            })
            .collect();
        sends.into_iter().map(|send| send.join().unwrap()).collect()
    });
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let denied = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!((passed, denied), (5, 15), "{statuses:?}");

    one.configure("bob", 5);
    let body = json!({"userId": "bob", "message": "hello"});
    let send =
        |gateway: &Gateway| client::post(gateway.address, "/api/send", &[("Idempotency-Key", "k")], &body);
    let (first, again) = (send(&one), send(&other));
    assert_eq!((first.status, again.status), (200, 200), "{again:?}");
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(again.json()["id"], id.as_str());
    assert_eq!(other.delivered(&id)["attempts"].as_array().unwrap().len(), 1);
    // Each message went out once, through one of them.
    let sent =
        |gateway: &Gateway| gateway.stdout.all().iter().filter(|line| line.contains("SMS SENT")).count();
    eventually(|| (sent(&one) + sent(&other) == 6).then_some(()));
}

#[test]
fn a_killed_server_loses_nothing_and_the_gateway_comes_back_by_itself() {
    let mut server = server(true);
    let (_dir, gateway) = gateway(&server);
    gateway.configure("ann", 1_000_000);
    let mut kept = BTreeSet::new();
    for n in 0..20 {
        let answer = gateway.send("ann", &format!("before {n}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        kept.insert(answer.json()["id"].as_str().unwrap().to_owned());
    }
    server.kill().unwrap();
    let refused = |gateway: &Gateway| {
        let answer = gateway.send("ann", "meanwhile");
        assert_eq!((answer.status, answer.header("Retry-After").is_some()), (503, true), "{answer:?}");
    };
    // One that was at work may still answer for a moment.
    eventually(|| {
        let answer = gateway.send("ann", "meanwhile");
        let taken = answer.status == 200;
        taken.then(|| kept.insert(answer.json()["id"].as_str().unwrap().to_owned()));
        (!taken).then_some(())
    });
    refused(&gateway);
    // The same once it has been noticed.
    let ready = eventually(|| Some(gateway.get("/health/ready")).filter(|ready| ready.status == 503));
    let metrics = gateway.get("/metrics");
    assert_eq!(metrics.status, 200, "{metrics:?}");
    assert!(metrics.text.contains("\ntidegate_ledger_up 0\n"), "{metrics:?}");
    assert!(!metrics.text.contains("tidegate_messages_pending"), "nobody knows: {metrics:?}");
    assert_eq!(ready.json()["ledger"], "away");
    refused(&gateway);
    server.restart().unwrap();
    let answer = eventually(|| Some(gateway.send("ann", "after")).filter(|answer| answer.status == 200));
    kept.insert(answer.json()["id"].as_str().unwrap().to_owned());
    for id in &kept {
        gateway.delivered(id);
    }
    let metrics = gateway.get("/metrics").text;
    for line in ["\ntidegate_conservation_balanced 1\n", "\ntidegate_ledger_up 1\n"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert_eq!(gateway.get("/health/ready").status, 200);
}

#[test]
fn the_schema_is_migrated_by_hand_and_an_unsafe_server_is_refused() {
    let server = server(false);
    let dir = configured(&server.url("postgres"));
    let run = |arguments: &[&str]| command(dir.path()).args(arguments).output().unwrap();
    let refused = run(&["serve", "--listen", "127.0.0.1:0"]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("fsync is off"), "{words}");
    for _ in 0..2 {
        let migrated = run(&["migrate"]);
        let words = String::from_utf8_lossy(&migrated.stdout).into_owned();
        assert!(migrated.status.success() && words.contains("is up to date"), "{migrated:?}");
    }
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM tidegate.message").unwrap().trim(), "0");
}

/// A row that is there already: no caller can put it there, only a mistake of ours.
#[test]
fn a_violated_constraint_is_500_told_in_the_log_and_the_gateway_stays_ready() {
    let server = server(true);
    let dir = configured(&server.url("postgres"));
    let config = std::fs::read_to_string(dir.path().join("tidegate.toml")).unwrap();
    std::fs::write(dir.path().join("tidegate.toml"), config + "[queue]\nmode = \"reserve\"\n").unwrap();
    let gateway = start(dir.path());
    push(&gateway, "jobs", "x", &[]);
    let popped = pop(&gateway, "jobs", &[]).json();
    server
        .sql("postgres", "INSERT INTO tidegate.attempt SELECT seq, 1, 0, 0, 1 FROM tidegate.message")
        .unwrap();
    let refused = gateway.post("/queue/nack", &json!({"receipt": popped["receipt"]}));
    assert_eq!((refused.status, &refused.json()["code"]), (500, &json!("internal")), "{refused:?}");
    assert_eq!(refused.header("Retry-After"), None);
    assert!(!refused.text.contains("23505"), "{refused:?}");
    let line = gateway.stderr.wait_for("SQLSTATE 23505");
    assert!(
        line.contains("settle") && line.contains("constraint attempt") && line.contains("\"ERROR\""),
        "{line}"
    );
    assert_eq!(gateway.get("/health/ready").status, 200);
    let told = gateway.stderr.all().iter().filter(|line| line.contains("23505")).count();
    assert_eq!(told, 1, "once");
}
