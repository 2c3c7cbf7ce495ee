use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::tempdir;
use tidegate_testkit::HANG;

use crate::client::{self, Answer, exchange};
use crate::gateway::{Gateway, start};
use crate::principals::api_key;
use crate::slots::fields;

pub fn push(gateway: &Gateway, group: &str, content: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[("consumerGroup", group)], headers].concat();
    exchange(gateway.address, "POST", "/queue/push", &headers, content)
}

pub fn pop(gateway: &Gateway, group: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[("consumerGroup", group)], headers].concat();
    exchange(gateway.address, "GET", "/queue/pop", &headers, "")
}

fn view(gateway: &Gateway, group: &str, count: &str, consumed: Option<&str>) -> Answer {
    let mut headers = vec![("consumerGroup", group), ("messageCount", count)];
    headers.extend(consumed.map(|consumed| ("consumed", consumed)));
    exchange(gateway.address, "GET", "/queue/view", &headers, "")
}

fn contents(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let list = answer.json();
    list.as_array().unwrap().iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_pushed_is_popped_once_oldest_first_byte_for_byte() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let texts = ["{\"a\": [1,  2]}\n", " ü☃ \t\"quoted\"", "plain"];
    let pushed: Vec<Value> = texts
        .iter()
        .map(|text| {
            let answer = push(&gateway, "jobs", text, &[]);
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()
        })
        .collect();
    for (pushed, text) in pushed.iter().zip(texts) {
        assert_eq!(pushed["content"], text);
        let names: BTreeSet<_> = pushed.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, BTreeSet::from(["content", "createdAt", "id"]));
        let answer = pop(&gateway, "jobs", &[]);
        assert_eq!((answer.status, &answer.json()), (200, pushed));
    }
    push(&gateway, "jobs", "kept", &[]);
    for method in ["HEAD", "POST", "DELETE"] {
        let unseen = exchange(gateway.address, method, "/queue/pop", &[("consumerGroup", "jobs")], "");
        assert_eq!((unseen.status, unseen.header("Allow")), (405, Some("GET")), "{method}");
    }
    assert_eq!(pop(&gateway, "jobs", &[]).json()["content"], "kept");
    let empty = pop(&gateway, "jobs", &[]);
    assert_eq!((empty.status, &empty.json()["code"]), (404, &json!("queue_empty")));
    assert_eq!(empty.json()["path"], "/queue/pop");
    assert_eq!(pop(&gateway, "never-seen", &[]).status, 404);
}

#[test]
fn a_view_shows_all_consumed_or_not_and_changes_nothing() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    for text in ["1", "2", "3", "4"] {
        push(&gateway, "jobs", text, &[]);
    }
    push(&gateway, "other", "x", &[]);
    pop(&gateway, "jobs", &[]);
    for _ in 0..3 {
        for all in [None, Some("all"), Some("ALL")] {
            assert_eq!(contents(&view(&gateway, "jobs", "10", all)), ["1", "2", "3", "4"]);
        }
        assert_eq!(contents(&view(&gateway, "jobs", "10", Some("yes"))), ["1"]);
        assert_eq!(contents(&view(&gateway, "jobs", "2", Some("no"))), ["2", "3"]);
    }
    let first = view(&gateway, "jobs", "1", None).json()[0].clone();
    let names: BTreeSet<_> = first.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["consumed", "consumerGroup", "content", "createdAt", "id"]));
    assert_eq!((&first["consumed"], &first["consumerGroup"]), (&json!(true), &json!("jobs")));
    assert!(first["createdAt"].as_str().unwrap().ends_with('Z'));
    assert_eq!(contents(&view(&gateway, "never-seen", "1", None)), Vec::<String>::new());
}

#[test]
fn what_is_missing_blank_or_out_of_bounds_is_400() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    for wrong in ["", " \n\t", "\u{2003}"] {
        let answer = push(&gateway, "jobs", wrong, &[]);
        assert_eq!((answer.status, fields(&answer)), (400, vec!["content".to_owned()]), "{answer:?}");
        for key in ["timestamp", "status", "error", "message", "path"] {
            assert!(!answer.json()[key].is_null(), "{answer:?}");
        }
    }
    for group in [" ", "a/b", &"x".repeat(65)] {
        assert_eq!(fields(&push(&gateway, group, "x", &[])), ["consumerGroup"]);
        assert_eq!(fields(&pop(&gateway, group, &[])), ["consumerGroup"]);
    }
    for (method, path) in [("POST", "/queue/push"), ("GET", "/queue/pop")] {
        assert_eq!(fields(&exchange(gateway.address, method, path, &[], "x")), ["consumerGroup"]);
    }
    for count in ["0", "101", "-1", "many", ""] {
        assert_eq!(fields(&view(&gateway, "jobs", count, None)), ["messageCount"], "{count:?}");
    }
    assert_eq!(fields(&view(&gateway, "jobs", "1", Some("maybe"))), ["consumed"]);
    let none = exchange(gateway.address, "GET", "/queue/view", &[], "");
    assert_eq!(fields(&none), ["consumerGroup", "messageCount"]);
    let wrong = [("priority", "urgent"), ("delaySeconds", "-1"), ("scheduledAt", "soon"), ("recipient", "")];
    let named = ["delaySeconds", "priority", "recipient", "scheduledAt"];
    assert_eq!(fields(&push(&gateway, "jobs", "x", &wrong)), named);
    assert_eq!(
        fields(&pop(&gateway, "jobs", &[("waitSeconds", "31"), ("max", "0")])),
        ["max", "waitSeconds"]
    );
    assert_eq!(contents(&view(&gateway, "jobs", "10", None)), Vec::<String>::new(), "nothing was stored");
}

#[test]
fn users_push_and_pop_and_admins_also_view_and_keep() {
    let dir = tempdir().unwrap();
    let (admin, user) = (api_key(dir.path()), api_key(dir.path()));
    principals(dir.path(), &admin.1, &user.1);
    let gateway = start(dir.path());
    let statuses = |key: Option<&str>| {
        let mut headers = vec![("consumerGroup", "jobs"), ("messageCount", "1")];
        headers.extend(key.map(|key| ("X-Api-Key", key)));
        let status = |method, path| exchange(gateway.address, method, path, &headers, "x").status;
        [
            status("POST", "/queue/push"),
            status("GET", "/queue/pop"),
            status("GET", "/queue/view"),
            status("POST", "/queue/pause"),
            status("POST", "/queue/resume"),
            status("POST", "/queue/purge"),
        ]
    };
    assert_eq!(statuses(None), [401; 6]);
    assert_eq!(statuses(Some(&user.0)), [200, 200, 403, 403, 403, 403]);
    assert_eq!(statuses(Some(&admin.0)), [200; 6]);
}

#[test]
fn concurrent_pops_never_return_one_message_twice() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let batch: Vec<_> = (0..200).map(|n| n.to_string()).collect();
    let headers = [("consumerGroup", "jobs")];
    let answer = exchange(gateway.address, "POST", "/queue/batch/push", &headers, &json!(batch).to_string());
    assert_eq!(answer.json()["results"].as_array().unwrap().len(), 200, "{answer:?}");
    let address = gateway.address;
    let poppers: Vec<_> = (0..8)
        .map(|n| {
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                loop {
                    let max = if n % 2 == 0 { "1" } else { "7" };
                    let headers = [("consumerGroup", "jobs"), ("max", max)];
                    let found = exchange(address, "GET", "/queue/pop", &headers, "").json();
                    let found = found.as_array().unwrap().clone();
                    if found.is_empty() {
                        return seen;
                    }
                    seen.extend(found.iter().map(|m| m["content"].as_str().unwrap().to_owned()));
                }
            })
        })
        .collect();
    let mut seen: Vec<_> = poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect();
    seen.sort_by_key(|text| text.parse::<u32>().unwrap());
    assert_eq!(seen, batch);
}

#[test]
fn priority_delay_recipient_and_key_are_heeded() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    push(&gateway, "jobs", "low", &[("priority", "low")]);
    push(&gateway, "jobs", "later", &[("delaySeconds", "3600")]);
    push(&gateway, "jobs", "much later", &[("scheduledAt", "2099-01-01T00:00:00Z")]);
    push(&gateway, "jobs", "high", &[("priority", "HIGH"), ("recipient", "ann")]);
    let first = push(&gateway, "jobs", "keyed", &[("Idempotency-Key", "k")]);
    let again = push(&gateway, "jobs", "keyed", &[("Idempotency-Key", "k")]);
    assert_eq!((again.status, again.json()), (200, first.json()));
    assert_eq!(again.header("Idempotent-Replay"), Some("true"));
    let line = gateway.stderr.wait_for("duplicate request");
    assert!(line.contains(first.json()["id"].as_str().unwrap()), "{line}");
    let other = push(&gateway, "jobs", "other", &[("Idempotency-Key", "k")]);
    assert_eq!((other.status, &other.json()["code"]), (409, &json!("idempotency_conflict")));
    assert_eq!(contents(&pop(&gateway, "jobs", &[("max", "10")])), ["high", "keyed", "low"]);
    assert!(gateway.get("/metrics").text.contains("tidegate_duplicates_total 1\n"));
}

#[test]
fn a_pop_waits_for_a_push() {
    let dir = tempdir().unwrap();
    // Both longer than HANG: neither the drain timeout nor the pop's own wait ends anything in this test.
    let config = "[server]\ndrain_timeout_ms = 3600000\n[queue]\nwait_seconds_max = 300\n";
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let wait = || {
        let host = gateway.address;
        let mut waiting = TcpStream::connect(host).unwrap();
        waiting.set_read_timeout(Some(HANG)).unwrap();
        // Sent in one piece, and taken up in one go: when the first has its answer, the pop is under way.
        let both = format!(
            "GET /health/live HTTP/1.1\r\nHost: {host}\r\n\r\nGET /queue/pop HTTP/1.1\r\nHost: {host}\r\n\
             Connection: close\r\nconsumerGroup: jobs\r\nwaitSeconds: 300\r\n\r\n"
        );
        waiting.write_all(both.as_bytes()).unwrap();
        let (mut first, mut piece) = (String::new(), [0; 1024]);
        while !first.ends_with('}') {
            let length = waiting.read(&mut piece).unwrap();
            assert_ne!(length, 0, "{first}");
            first.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        }
        assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
        waiting
    };
    let waiting = wait();
    push(&gateway, "jobs", "at last", &[]);
    let answer = client::answer(waiting).unwrap();
    assert_eq!((answer.status, &answer.json()["content"]), (200, &json!("at last")));
    // And a stop does not wait for it.
    let waiting = wait();
    assert_eq!(gateway.stop().code(), Some(0));
    assert_eq!(client::answer(waiting).unwrap().status, 404);
}

#[test]
fn a_queue_is_paused_purged_and_bounded() {
    let dir = tempdir().unwrap();
    let config = "[[queues]]\nname = \"small\"\npending_max = 2\npending_hard_max = 3\n";
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let keep = |what: &str| {
        exchange(gateway.address, "POST", &format!("/queue/{what}"), &[("consumerGroup", "small")], "")
    };
    let none = exchange(gateway.address, "POST", "/queue/pause", &[("consumerGroup", "never-seen")], "");
    assert_eq!((none.status, &none.json()["code"]), (404, &json!("unknown_queue")));
    // One of the configuration is there before its first message.
    let stats = || {
        let stats = gateway.get("/api/v1/stats").json();
        let queues = stats["queues"].as_array().unwrap().clone();
        queues.into_iter().find(|queue| queue["queue"] == "small").unwrap_or_else(|| panic!("{stats}"))
    };
    assert_eq!((&stats()["paused"], &stats()["depth"]["normal"]), (&json!(false), &json!(0)));
    assert_eq!(contents(&view(&gateway, "small", "10", None)), Vec::<String>::new());
    assert_eq!(keep("pause").json(), json!({"consumerGroup": "small", "paused": true}));
    assert_eq!(stats()["paused"], true);
    push(&gateway, "small", "held", &[]);
    assert_eq!(pop(&gateway, "small", &[]).status, 404, "it is paused from its first message on");
    assert_eq!(keep("resume").status, 200);
    assert_eq!(pop(&gateway, "small", &[]).json()["content"], "held");
    assert_eq!(
        [push(&gateway, "small", "1", &[]).status, push(&gateway, "small", "2", &[]).status],
        [200; 2]
    );
    let full = push(&gateway, "small", "3", &[]);
    assert_eq!((full.status, &full.json()["code"]), (429, &json!("queue_full")));
    assert!(full.header("Retry-After").is_some());
    assert_eq!(push(&gateway, "small", "urgent", &[("priority", "high")]).status, 200);
    assert_eq!(push(&gateway, "small", "urgent", &[("priority", "high")]).status, 429);
    assert_eq!(keep("pause").json(), json!({"consumerGroup": "small", "paused": true}));
    assert_eq!(pop(&gateway, "small", &[]).status, 404);
    assert_eq!(keep("resume").status, 200);
    assert_eq!(pop(&gateway, "small", &[]).json()["content"], "urgent");
    assert_eq!(keep("purge").json(), json!({"consumerGroup": "small", "purged": 2}));
    assert_eq!(pop(&gateway, "small", &[]).status, 404);
    let metrics = gateway.get("/metrics").text;
    assert!(metrics.contains("tidegate_conservation_balanced 1\n"), "{metrics}");
}

#[test]
fn a_batch_is_checked_as_a_whole_and_answered_one_by_one() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let batch = |body: Value| {
        exchange(
            gateway.address,
            "POST",
            "/queue/batch/push",
            &[("consumerGroup", "jobs")],
            &body.to_string(),
        )
    };
    let wrong =
        json!(["fine", "", 7, {"content": "x", "priority": "urgent"}, {"content": "x", "colour": "red"}]);
    let answer = batch(wrong);
    assert_eq!(answer.status, 400);
    assert_eq!(
        fields(&answer),
        ["messages[1].content", "messages[2]", "messages[3].priority", "messages[4].colour"]
    );
    assert_eq!(fields(&batch(json!([]))), ["messages"]);
    assert_eq!(fields(&batch(json!(vec!["x"; 1_001]))), ["messages"]);
    assert_eq!(pop(&gateway, "jobs", &[]).status, 404, "nothing was stored");
    let answer = batch(json!({"messages": [
        "one",
        {"content": "two", "idempotencyKey": "k"},
        {"content": "two", "idempotencyKey": "k"},
        {"content": "three", "idempotencyKey": "k"},
        {"content": "elsewhere", "consumerGroup": "other"},
    ]}));
    let results = answer.json()["results"].clone();
    let statuses: Vec<_> =
        results.as_array().unwrap().iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["accepted", "accepted", "duplicate", "idempotency_conflict", "accepted"]);
    assert_eq!(results[1]["id"], results[2]["id"]);
    assert_eq!(contents(&pop(&gateway, "jobs", &[("max", "10")])), ["one", "two"]);
    assert_eq!(pop(&gateway, "other", &[]).json()["content"], "elsewhere");
}

#[test]
fn a_batch_of_which_nothing_gets_in_is_worth_another_try_as_a_whole() {
    let dir = tempdir().unwrap();
    let config = "[[queues]]\nname = \"small\"\npending_max = 2\npending_hard_max = 2\n";
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let batch = |body: Value| {
        let headers = [("consumerGroup", "small")];
        exchange(gateway.address, "POST", "/queue/batch/push", &headers, &body.to_string())
    };
    let statuses = |answer: &Answer| -> Vec<Value> {
        let results = answer.json()["results"].clone();
        results.as_array().unwrap().iter().map(|result| result["status"].clone()).collect()
    };
    let keyed = |content: &str| json!({"content": content, "idempotencyKey": "k"});
    let some = batch(json!([keyed("1"), "2", "3"]));
    assert_eq!(some.status, 200, "{some:?}");
    assert_eq!(statuses(&some), ["accepted", "accepted", "queue_full"]);
    for nothing in [json!(["4", "5"]), json!([keyed("another"), "4"])] {
        let none = batch(nothing);
        assert_eq!((none.status, &none.json()["code"]), (429, &json!("queue_full")), "{none:?}");
        assert!(none.header("Retry-After").is_some());
    }
    // Another try would not change these.
    let answer = batch(json!([keyed("1"), "4"]));
    assert_eq!((answer.status, statuses(&answer)), (200, vec![json!("duplicate"), json!("queue_full")]));
    let answer = batch(json!([keyed("another")]));
    assert_eq!((answer.status, statuses(&answer)), (200, vec![json!("idempotency_conflict")]));
}

pub fn principals(dir: &Path, admin_hash: &str, user_hash: &str) {
    let principal = |name: &str, role: &str, hash: &str| {
        format!("[[principals]]\nname = \"{name}\"\nrole = \"{role}\"\napi_key_hashes = [\"{hash}\"]\n")
    };
    let config = principal("ops", "ADMIN", admin_hash) + &principal("app", "USER", user_hash);
    std::fs::write(dir.join("tidegate.toml"), config).unwrap();
}
