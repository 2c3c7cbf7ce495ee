use serde_json::json;
use tempfile::tempdir;

use crate::gateway::{command, start, start_in};

#[test]
fn a_restart_keeps_quotas_messages_and_keys() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("alice", 3);
    let id = gateway.send("alice", "before").json()["id"].as_str().unwrap().to_owned();
    gateway.delivered(&id);
    assert_eq!(gateway.stop().code(), Some(0));

    let gateway = start(dir.path());
    let quota = gateway.get("/api/config/alice").json();
    assert_eq!((&quota["currentCount"], &quota["remaining"]), (&json!(1), &json!(2)));
    let record = gateway.get(&format!("/api/v1/messages/{id}")).json();
    assert_eq!((&record["status"], &record["message"]), (&json!("delivered"), &json!("before")));
    assert_eq!(gateway.send("alice", "after").json()["remaining"], 1);
}

#[test]
fn a_kill_loses_nothing_that_was_answered() {
    let dir = tempdir().unwrap();
    // On a ledger that others share, what a killed gateway had claimed comes back when the lease ends.
    let text = "[sender]\nlease_ms = 3000\nattempt_timeout_ms = 2000\n";
    std::fs::write(dir.path().join("tidegate.toml"), text).unwrap();
    let gateway = start(dir.path());
    gateway.configure("alice", 100);
    let ids: Vec<_> = (0..20)
        .map(|n| gateway.send("alice", &n.to_string()).json()["id"].as_str().unwrap().to_owned())
        .collect();
    gateway.signal("-KILL");
    gateway.wait();
    let gateway = start(dir.path());
    for id in &ids {
        gateway.delivered(id);
    }
    assert_eq!(gateway.get("/api/config/alice").json()["currentCount"], 20);
}

#[test]
fn sigterm_drains_and_exits_with_0() {
    let dir = tempdir().unwrap();
    // Longer than HANG: a stop that waits for the drain timeout, with nothing under way, fails the test.
    std::fs::write(dir.path().join("tidegate.toml"), "[server]\ndrain_timeout_ms = 3600000\n").unwrap();
    let gateway = start(dir.path());
    gateway.configure("alice", 1_000);
    for n in 0..50 {
        assert_eq!(gateway.send("alice", &n.to_string()).status, 200);
    }
    let stderr = gateway.stderr.clone();
    assert_eq!(gateway.stop().code(), Some(0));
    stderr.wait_for("\"stopped\"");
}

#[test]
fn a_second_process_on_the_directory_is_refused() {
    let dir = tempdir().unwrap();
    let _first = start(dir.path());
    let second =
        command(dir.path()).args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("data") && stderr.contains("in use"), "{stderr}");
}

#[test]
fn a_taken_port_is_a_clear_error_and_touches_no_data() {
    let dir = tempdir().unwrap();
    let first = start(dir.path());
    let address = first.address.to_string();
    let second =
        command(dir.path()).args(["serve", "--listen", &address, "--data", "other"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&address) && stderr.contains("--listen"), "{stderr}");
    assert!(!dir.path().join("other").exists());
}

/// Beside a Service named "tidegate", Kubernetes gives such variables to every container.
#[test]
fn the_variables_of_a_kubernetes_service_do_not_keep_a_gateway_from_starting() {
    let dir = tempdir().unwrap();
    let service = [
        ("TIDEGATE_SERVICE_HOST", "10.96.0.7"),
        ("TIDEGATE_PORT", "tcp://10.96.0.7:8080"),
        ("TIDEGATE_PORT_8080_TCP_ADDR", "10.96.0.7"),
    ];
    let gateway = start_in(dir.path(), &service);
    assert_eq!(gateway.get("/health/ready").status, 200);
    gateway.stderr.wait_for("environment TIDEGATE_PORT: is no setting, and is ignored");
    let checked = command(dir.path()).arg("check-config").envs(service).output().unwrap();
    let stderr = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("warning: environment TIDEGATE_SERVICE_HOST: is no setting"), "{stderr}");
}
