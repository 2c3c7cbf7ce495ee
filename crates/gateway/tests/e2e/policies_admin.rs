use serde_json::json;
use tempfile::tempdir;

use crate::client;
use crate::gateway::{Gateway, eventually, start};
use crate::policies::{configure, policy};
use crate::principals::api_key;

fn tokens(gateway: &Gateway, name: &str) -> u64 {
    let shown = gateway.get(&format!("/admin/policies/{name}/keys/127.0.0.1"));
    assert_eq!(shown.status, 200, "{shown:?}");
    shown.json()["tokens"].as_u64().unwrap()
}

#[test]
fn a_reload_keeps_levels_and_counts_by_signal_and_by_call() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("p", "/nowhere", 10, ""));
    let gateway = start(dir.path());
    for _ in 0..4 {
        gateway.get("/nowhere");
    }
    assert_eq!(tokens(&gateway, "p"), 6);

    // More capacity, same tokens; and a second policy.
    configure(dir.path(), &(policy("p", "/nowhere", 20, "") + &policy("q", "/other", 1, "")));
    gateway.signal("-HUP");
    let line = gateway.stderr.wait_for("policies reloaded");
    assert!(line.contains("\"tidegate::audit\"") && line.contains("\"SIGHUP\""), "{line}");
    let shown = gateway.get("/admin/policies").json();
    assert_eq!((&shown["policies"][0]["capacity"], &shown["policies"][1]["name"]), (&json!(20), &json!("q")));
    assert_eq!(shown["policies"][0]["counts"]["allowed"], 4);
    assert_eq!(tokens(&gateway, "p"), 6);

    // Less capacity: no more tokens than fit.
    configure(dir.path(), &policy("p", "/nowhere", 3, ""));
    let answer = gateway.post("/admin/policies/reload", &json!({}));
    assert_eq!((answer.status, &answer.json()["policies"]), (200, &json!(1)));
    assert_eq!(tokens(&gateway, "p"), 3);
    let statuses: Vec<_> = (0..4).map(|_| gateway.get("/nowhere").status).collect();
    assert_eq!(statuses, [404, 404, 404, 429]);
    assert_eq!(gateway.get("/admin/policies/q/keys/x").status, 404);
}

#[test]
fn a_configuration_with_problems_changes_nothing_and_says_why() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("p", "/nowhere", 1, ""));
    let gateway = start(dir.path());
    gateway.get("/nowhere");
    configure(dir.path(), &(policy("p", "/nowhere", 0, "") + "[server]\nlisen = \"x\"\n"));
    let answer = gateway.post("/admin/policies/reload", &json!({}));
    let body = answer.json();
    assert_eq!((answer.status, &body["code"]), (400, &json!("invalid_configuration")));
    let problems = body["problems"].to_string();
    assert!(
        problems.contains("tidegate.toml:5: policies.capacity: a capacity of 0 is out of range; choose 1 to"),
        "{problems}"
    );
    assert!(problems.contains("server.lisen"), "{problems}");
    gateway.signal("-HUP");
    let line = gateway.stderr.wait_for("policies not reloaded");
    assert!(line.contains("policies.capacity"), "{line}");
    assert_eq!(gateway.get("/nowhere").status, 429, "the old one is in force");
    std::fs::remove_file(dir.path().join("tidegate.toml")).unwrap();
    // Without its file there would be no policies at all.
    let answer = gateway.post("/admin/policies/reload", &json!({}));
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("unreadable_configuration")));
    assert_eq!(gateway.get("/nowhere").status, 429, "the old one is in force");
}

#[test]
fn no_spelling_of_a_path_and_no_head_gets_around_a_policy() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("p", "/api/config/?ob", 2, "methods = [\"GET\"]"));
    let gateway = start(dir.path());
    gateway.post("/api/config", &json!({"userId": "bob", "rateLimit": 1, "timeWindow": 60}));
    let ask = |method, path| client::exchange(gateway.address, method, path, &[], "").status;
    assert_eq!((ask("GET", "/api/config/%62ob"), ask("HEAD", "/api/config/bob")), (200, 200));
    assert_eq!((ask("GET", "/api/config/b%6Fb"), ask("HEAD", "/api/config/%62%6f%62")), (429, 429));
    // An encoded slash stays within its segment.
    assert_eq!((ask("GET", "/api/config/%2Fob"), ask("GET", "/api/config/xx%2Fob")), (404, 404));
}

#[test]
fn the_most_denied_are_shown_and_can_be_let_go() {
    let dir = tempdir().unwrap();
    configure(dir.path(), &policy("keyed", "/nowhere", 1, "keyStrategy = \"API_KEY\""));
    let gateway = start(dir.path());
    for (key, times) in [("quiet", 1), ("loud", 4), ("noisy", 3)] {
        for _ in 0..times {
            client::get(gateway.address, "/nowhere", &[("X-Api-Key", key)]);
        }
    }
    let shown = gateway.get("/admin/policies").json();
    let policy = &shown["policies"][0];
    assert_eq!(
        policy["counts"],
        json!({"allowed": 3, "denied": 5, "degraded": 0, "shadowDenied": 0, "exempted": 0})
    );
    assert_eq!(
        (&policy["mostDenied"][0]["denied"], &policy["mostDenied"][1]["denied"]),
        (&json!(3), &json!(2))
    );
    assert!(policy["mostDenied"].as_array().unwrap().len() == 2 && shown["buckets"] == 3);
    assert!(!shown.to_string().contains("loud"), "keys are secrets");
    let hash = policy["mostDenied"][0]["key"].as_str().unwrap();
    let path = format!("/admin/policies/keyed/keys/{hash}");
    let bucket = gateway.get(&path).json();
    assert_eq!((&bucket["tokens"], &bucket["wouldPass"]), (&json!(0), &json!(false)));
    assert_eq!(gateway.get("/admin/policies/keyed/keys/loud").json()["key"], hash, "named by the key itself");
    assert!(bucket["retryAfterMs"].as_u64().unwrap() > 900_000);
    assert_eq!(client::exchange(gateway.address, "DELETE", &path, &[], "").status, 200);
    assert_eq!(gateway.get(&path).json()["tokens"], 1);
    assert_eq!(client::get(gateway.address, "/nowhere", &[("X-Api-Key", "loud")]).status, 404);
    assert_eq!(client::get(gateway.address, "/nowhere", &[("X-Api-Key", "noisy")]).status, 429);
    assert_eq!(gateway.get("/admin/policies/none/keys/x").status, 404);
}

#[test]
fn principals_have_buckets_of_their_own_and_only_admins_see_them() {
    let dir = tempdir().unwrap();
    let (ops, app) = (api_key(dir.path()), api_key(dir.path()));
    let principals = format!(
        "[[principals]]\nname = \"ops\"\nrole = \"ADMIN\"\napi_key_hashes = [\"{}\"]\n\
         [[principals]]\nname = \"app\"\nrole = \"USER\"\napi_key_hashes = [\"{}\"]\n",
        ops.1, app.1
    );
    let policies = policy("who", "/api/**", 2, "keyStrategy = \"PRINCIPAL\"");
    configure(dir.path(), &(principals + &policies));
    let gateway = start(dir.path());
    let get = |path: &str, key: &str| client::get(gateway.address, path, &[("X-Api-Key", key)]).status;
    assert_eq!([0; 3].map(|_| get("/api/config/x", &app.0)), [404, 404, 429]);
    assert_eq!(get("/api/config/x", &ops.0), 404);
    // Who is not let in is no business of the policies: nothing is taken from anybody.
    assert_eq!(get("/api/config/x", "wrong"), 401);
    for (method, path) in [
        ("GET", "/admin/policies"),
        ("POST", "/admin/policies/reload"),
        ("GET", "/admin/policies/who/keys/app"),
        ("DELETE", "/admin/policies/who/keys/app"),
    ] {
        let status =
            |key: &str| client::exchange(gateway.address, method, path, &[("X-Api-Key", key)], "").status;
        assert_eq!((status(&app.0), status(&ops.0)), (403, 200), "{method} {path}");
    }
    eventually(|| (get("/api/config/x", &app.0) == 404).then_some(()));
}
