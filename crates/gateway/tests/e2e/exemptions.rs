//! What is urgent passes a policy or a quota that says so, and nothing else does.

use serde_json::json;
use tempfile::tempdir;

use crate::client::{self, Answer, exchange};
use crate::gateway::{Gateway, start};
use crate::policies::{configure, policy};
use crate::principals::api_key;

const HIGH: (&str, &str) = ("Tidegate-Priority", "high");

fn push(gateway: &Gateway, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[("consumerGroup", "jobs")], headers].concat();
    exchange(gateway.address, "POST", "/queue/push", &headers, "text")
}

#[test]
fn a_policy_lets_urgent_messages_pass_and_holds_them_to_their_word() {
    let dir = tempdir().unwrap();
    configure(
        dir.path(),
        &(policy("lenient", "/queue/push", 2, "exemptPriority = \"high\"")
            + &policy("lenient-too", "/queue/batch/*", 1, "exempt_priority = \"high\"")
            + &policy("messages", "/api/v1/messages/**", 1, "exemptPriority = \"high\"")
            + &policy("strict", "/api/send", 1, "")
            + &policy("pops", "/queue/pop", 1, "exemptPriority = \"high\"")
            + &policy("purges", "/queue/purge", 1, "exemptPriority = \"high\"")),
    );
    let gateway = start(dir.path());
    let urgent = [HIGH, ("priority", "high")];
    assert_eq!(push(&gateway, &urgent).status, 200, "takes what is there");
    assert_eq!(push(&gateway, &[]).status, 200);
    assert_eq!(push(&gateway, &[]).status, 429);
    assert_eq!(push(&gateway, &[("priority", "high")]).status, 429, "policies don't read what a route does");
    for _ in 0..3 {
        assert_eq!(push(&gateway, &urgent).status, 200);
    }
    for wrong in [&[HIGH][..], &[HIGH, ("priority", "low")]] {
        let answer = push(&gateway, wrong);
        assert_eq!((answer.status, answer.text.contains("Tidegate-Priority")), (400, true), "{answer:?}");
    }
    // These bring no message: there the header says nothing.
    let group = [("consumerGroup", "jobs"), HIGH];
    for (method, path) in [("GET", "/queue/pop"), ("POST", "/queue/purge")] {
        let asked = [(); 2].map(|()| exchange(gateway.address, method, path, &group, "").status);
        assert_eq!(asked, [200, 429], "{path}");
    }

    let message = |priority: &str| json!({"recipient": "ann", "body": "hello", "priority": priority});
    let post = |path: &str, body| client::post(gateway.address, path, &[HIGH], &body);
    for (path, sound, wrong) in [
        ("/api/v1/messages", message("high"), message("normal")),
        (
            "/api/v1/messages/batch",
            json!({"messages": [message("high"), message("high")]}),
            json!({"messages": [message("high"), message("low")]}),
        ),
    ] {
        for _ in 0..2 {
            assert_eq!(post(path, sound.clone()).status, 202, "{path}");
        }
        assert_eq!(post(path, wrong).status, 400, "{path}");
    }
    let batch = [("consumerGroup", "jobs"), HIGH];
    for (items, status) in [(json!([{"content": "a", "priority": "high"}]), 200), (json!(["a"]), 400)] {
        for _ in 0..2 {
            assert_eq!(client::post(gateway.address, "/queue/batch/push", &batch, &items).status, status);
        }
    }

    gateway.configure("ann", 10);
    let body = json!({"userId": "ann", "message": "hello", "priority": "high"});
    let sent = [(); 2].map(|()| post("/api/send", body.clone()).status);
    assert_eq!(sent, [200, 429], "off unless it is said");

    let listed = gateway.get("/admin/policies").json();
    let lenient = &listed["policies"][0];
    assert_eq!((&lenient["exemptPriority"], &lenient["counts"]["exempted"]), (&"high".into(), &5.into()));
    assert!(listed["policies"][3].get("exemptPriority").is_none(), "{listed}");
    let line = "tidegate_policy_total{policy=\"lenient\",outcome=\"exempted\"} 5";
    assert!(gateway.get("/metrics").text.contains(line));
}

/// What the edge refuses brings no message, whatever it claims.
#[test]
fn a_refused_request_is_not_exempt() {
    let dir = tempdir().unwrap();
    let (key, hash) = api_key(dir.path());
    let principal =
        format!("[[principals]]\nname = \"app\"\nrole = \"USER\"\napi_key_hashes = [\"{hash}\"]\n");
    configure(dir.path(), &(principal + &policy("ip", "/**", 2, "exemptPriority = \"high\"")));
    let known = [HIGH, ("X-Api-Key", key.as_str())];
    let cross_site = [&known[..], &[("Sec-Fetch-Site", "cross-site")]].concat();
    for (path, headers, refusal) in [
        ("/api/send", &[HIGH][..], 401),
        ("/api/send", &[HIGH, ("X-Api-Key", "tg_wrong")], 401),
        ("/api/send", &cross_site, 403),
        ("/api/%73end", &known, 404),
    ] {
        let gateway = start(dir.path());
        let body = json!({"userId": "ann", "message": "hello", "priority": "high"});
        let ask = |headers: &[(&str, &str)]| client::post(gateway.address, path, headers, &body).status;
        assert_eq!([(); 3].map(|()| ask(headers)), [refusal, refusal, 429], "{path} {refusal}");
        let urgent = client::post(gateway.address, "/api/send", &known, &body);
        assert_eq!(urgent.status, 404, "exempt, and its user unknown: {urgent:?}");
    }
}

#[test]
fn a_quota_lets_urgent_messages_pass() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let quota = json!({"userId": "ann", "rateLimit": 1, "timeWindow": 60, "exemptPriority": "high"});
    let put = gateway.post("/api/config", &quota);
    assert_eq!((put.status, &put.json()["exemptPriority"]), (200, &"high".into()), "{put:?}");
    let send = |priority: &str, on_limit: &str| {
        let body = json!({"userId": "ann", "message": "hello", "priority": priority, "onLimit": on_limit});
        gateway.post("/api/send", &body)
    };
    assert_eq!(send("normal", "reject").status, 200);
    assert_eq!(send("normal", "reject").status, 429);
    for on_limit in ["reject", "defer"] {
        let answer = send("high", on_limit);
        assert_eq!((answer.status, &answer.json()["status"]), (200, &"accepted".into()), "{answer:?}");
    }
    assert_eq!(send("low", "defer").status, 202, "what is not urgent waits");
    let shown = gateway.get("/api/config/ann").json();
    assert_eq!((&shown["exemptPriority"], &shown["currentCount"]), (&"high".into(), &1.into()), "{shown}");
    for wrong in [json!("low"), json!(true), json!(""), json!(["high"])] {
        let mut quota = quota.clone();
        quota["exemptPriority"] = wrong;
        let answer = gateway.post("/api/config", &quota);
        let field = answer.json()["fields"][0]["field"].clone();
        assert_eq!((answer.status, field), (400, json!("exemptPriority")), "{answer:?}");
    }
    // The deferred one counts in the new window.
    let plain = json!({"userId": "ann", "rateLimit": 2, "timeWindow": 60});
    assert!(gateway.post("/api/config", &plain).json().get("exemptPriority").is_none());
    assert_eq!([(); 2].map(|()| send("high", "reject").status), [200, 429]);
}

#[test]
fn a_wrong_exemption_is_named_with_its_line() {
    let dir = tempdir().unwrap();
    let wrong =
        policy("a", "/**", 1, "exemptPriority = \"low\"") + &policy("b", "/**", 1, "exemptPriority = true");
    configure(dir.path(), &wrong);
    let output = crate::gateway::command(dir.path()).arg("check-config").output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success());
    for part in [
        "tidegate.toml:7: policies.exemptPriority: \"low\" is not known",
        "tidegate.toml:14: policies.exemptPriority",
    ] {
        assert!(said.contains(part), "{said}");
    }
}
