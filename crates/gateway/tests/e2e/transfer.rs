//! `tidegate export` and `import`, between ledgers of both kinds. These tests choose their ledgers themselves.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tidegate_testkit::services::{Postgres, PostgresOptions};

use crate::client::{self, exchange};
use crate::gateway::{Gateway, command, eventually, start};
use crate::ledger;
use crate::queue::{pop, push};

const QUEUES: &str = "[[queues]]\nname = \"jobs\"\nmode = \"reserve\"\nattempts_max = 1\nlease_ms = 600000\n";

fn embedded() -> TempDir {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("tidegate.toml"), QUEUES).unwrap();
    dir
}

fn on_postgres(server: &Postgres) -> (TempDir, String) {
    let (dir, database) = (tempdir().unwrap(), server.new_name());
    server.sql("postgres", &format!("CREATE DATABASE {database}")).unwrap();
    let url = server.url(&database);
    let text = format!(
        "{QUEUES}[ledger]\nkind = \"postgres\"\n[postgres]\nurl = \"{url}\"\nconnections_max = 6\n\
         unsafe_server = \"allow\"\n"
    );
    fs::write(dir.path().join("tidegate.toml"), text).unwrap();
    (dir, database)
}

fn server() -> Postgres {
    Postgres::start(PostgresOptions { durable: false, settings: Vec::new() }).unwrap()
}

fn tidegate(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = command(dir);
    command.args(arguments).args(["--data", "data"]);
    command
}

fn run(dir: &TempDir, arguments: &[&str]) -> Output {
    tidegate(dir.path(), arguments).stdin(Stdio::null()).output().unwrap()
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.ends_with("\nbalanced\n"), "{table}");
    table
}

fn refused(output: &Output, because: &str) {
    assert!(!output.status.success(), "{output:?}");
    assert!(said(output).contains(because), "{}", said(output));
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Something of everything.
fn fill(gateway: &Gateway) {
    gateway.configure("ann", 5);
    for n in 0..2 {
        let sent = gateway.send("ann", &format!("hello {n}")).json();
        gateway.delivered(sent["id"].as_str().unwrap());
    }
    let later = json!({"recipient": "bob", "body": "ü\u{0}\"", "delaySeconds": 3600, "priority": "high",
                       "ttlSeconds": 7200, "ackRequired": true, "headers": {"a": "1"}});
    for _ in 0..2 {
        assert_eq!(gateway.post("/api/v1/messages", &later).status, 202);
    }
    for text in ["dies", "first", "second"] {
        assert_eq!(push(gateway, "jobs", text, &[("recipient", "ann")]).status, 200);
    }
    let dying = pop(gateway, "jobs", &[]).json();
    let nack = gateway.post("/queue/nack", &json!({"receipt": dying["receipt"], "reason": "no ink"}));
    assert_eq!(nack.json()["status"], "dead", "{nack:?}");
    for text in ["a", "b", "c"] {
        push(gateway, "tasks", text, &[]);
    }
    assert_eq!(pop(gateway, "tasks", &[]).json()["content"], "a");
    let paused = exchange(gateway.address, "POST", "/queue/pause", &[("consumerGroup", "tasks")], "");
    assert_eq!(paused.status, 200, "{paused:?}");
    let config = json!({"configName": "default", "maxPerWindow": 2, "windowSize": "PT1H"});
    assert_eq!(gateway.post("/admin/rate-limit/config", &config).status, 200);
    for n in 0..3 {
        let event = json!({"eventId": format!("pay-{n}"), "requestedTime": "2099-06-01T12:00:00Z",
                           "message": {"recipient": "bank", "body": "pay"}});
        assert_eq!(gateway.post("/api/v1/slots", &event).status, 200);
    }
}

fn keyed(gateway: &Gateway) -> Value {
    let body = json!({"userId": "ann", "message": "once"});
    let answer = client::post(gateway.address, "/api/send", &[("Idempotency-Key", "k")], &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["id"].clone()
}

/// All that can be looked at and does not change by itself.
fn observed(gateway: &Gateway) -> Vec<Value> {
    let paths = [
        "/api/v1/messages?limit=1000",
        "/api/v1/dead-letters?limit=1000",
        "/api/config",
        "/admin/rate-limit/config?name=default",
        "/api/v1/slots/pay-0",
        "/api/v1/slots/pay-1",
        "/api/v1/slots/pay-2",
        "/api/v1/slots/forecast?requestedTime=2099-06-01T12:00:00Z",
    ];
    let mut seen: Vec<_> = paths.iter().map(|path| gateway.get(path).json()).collect();
    // Where in its window a forecast falls is chance.
    seen[7]["scheduledTime"].take();
    seen[7]["delayMs"].take();
    seen.push(gateway.get("/api/v1/stats").json()["totals"].clone());
    let headers = [("consumerGroup", "tasks"), ("messageCount", "10")];
    seen.push(exchange(gateway.address, "GET", "/queue/view", &headers, "").json());
    seen
}

/// The lines, less what may differ: the first (tokens grow), and the sums that follow from it.
fn entries(archive: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(archive).unwrap();
    let line = |line: &str| line.rsplit_once(",\"sum\"").unwrap().0.to_owned();
    text.lines().skip(1).map(line).collect()
}

/// Holds a message, stops, and moves on.
fn leave(gateway: Gateway) -> Value {
    let held = pop(&gateway, "jobs", &[]).json();
    assert_eq!(held["content"], "first", "{held}");
    assert_eq!(gateway.stop().code(), Some(0));
    held
}

/// Who held a message where it was can't settle it where it is.
fn lost(gateway: &Gateway, held: &Value) {
    let ack = gateway.post("/queue/ack", &json!({"receipt": held["receipt"]}));
    assert_eq!((ack.status, &ack.json()["code"]), (409, &json!("lease_lost")), "{ack:?}");
    assert_eq!(pop(gateway, "tasks", &[]).status, 404, "it is paused");
}

#[test]
fn a_ledger_moves_to_postgres_and_back() {
    if !ledger::is_embedded() {
        return;
    }
    let server = server();
    let (home, (away, _), back) = (embedded(), on_postgres(&server), embedded());
    let (first, second) = (home.path().join("first.archive"), home.path().join("second.archive"));
    let (first_arg, second_arg) = (first.to_str().unwrap(), second.to_str().unwrap());
    let gateway = start(home.path());
    fill(&gateway);
    let id = keyed(&gateway);
    gateway.delivered(id.as_str().unwrap());
    let before = observed(&gateway);
    let held = leave(gateway);
    let table = done(&run(&home, &["export", "--to", first_arg]));
    assert!(table.contains("dead letters               1             1"), "{table}");
    done(&run(&away, &["import", "--from", first_arg]));

    let gateway = start(away.path());
    assert_eq!(observed(&gateway), before);
    assert_eq!(keyed(&gateway), id, "the key is still known");
    lost(&gateway, &held);
    let held = leave(gateway);
    done(&run(&away, &["export", "--to", second_arg]));
    assert_eq!(entries(&second), entries(&first));
    done(&run(&back, &["import", "--from", second_arg]));

    let gateway = start(back.path());
    assert_eq!(observed(&gateway), before);
    assert_eq!(keyed(&gateway), id);
    lost(&gateway, &held);
    for text in ["first", "second"] {
        let popped = pop(&gateway, "jobs", &[]).json();
        assert_eq!((&popped["content"], &popped["attempt"]), (&json!(text), &json!(1)), "{popped}");
        assert_eq!(gateway.post("/queue/ack", &json!({"receipt": popped["receipt"]})).status, 200);
    }
    assert_eq!(gateway.send("ann", "the last").json()["remaining"], 1);
    assert!(gateway.get("/metrics").text.contains("tidegate_conservation_balanced 1\n"));
    assert_eq!(gateway.stop().code(), Some(0));
}

/// An archive with something in it.
fn archived() -> (TempDir, String) {
    let dir = embedded();
    let gateway = start(dir.path());
    fill(&gateway);
    assert_eq!(gateway.stop().code(), Some(0));
    let path = dir.path().join("archive").to_str().unwrap().to_owned();
    done(&run(&dir, &["export", "--to", &path]));
    (dir, path)
}

fn is_untouched(dir: &TempDir) -> bool {
    has_no_ledger(dir) && !dir.path().join("data/import").exists()
}

/// The lock is on the database: it may be there, with nothing in it.
fn has_no_ledger(dir: &TempDir) -> bool {
    fs::metadata(dir.path().join("data/ledger.db")).map_or(true, |found| found.len() == 0)
}

fn rows(server: &Postgres, database: &str) -> String {
    let tables = ["message", "pending", "queue", "quota", "slot_config", "slot", "key", "tally"];
    let counts: Vec<_> =
        tables.iter().map(|table| format!("(SELECT count(*) FROM tidegate.{table})")).collect();
    server.sql(database, &format!("SELECT {}", counts.join(" + "))).unwrap().trim().to_owned()
}

#[test]
fn a_damaged_or_truncated_archive_is_refused_with_its_line_and_leaves_nothing() {
    if !ledger::is_embedded() {
        return;
    }
    let server = server();
    let (from, path) = archived();
    let text = fs::read(&path).unwrap();
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    let mut flipped = text.clone();
    flipped[text.len() - 100] ^= 4;
    let bad = from.path().join("bad");
    let (target, (shared, database)) = (embedded(), on_postgres(&server));
    for (damaged, line) in [(&flipped[..], "line "), (&text[..text.len() - 10], &format!("line {lines}: "))] {
        fs::write(&bad, damaged).unwrap();
        for dir in [&target, &shared] {
            let output = run(dir, &["import", "--from", bad.to_str().unwrap()]);
            refused(&output, line);
            assert!(!String::from_utf8_lossy(&output.stdout).contains("balanced"));
        }
        assert!(is_untouched(&target));
        assert_eq!(rows(&server, &database), "0");
    }
    for dir in [&target, &shared] {
        done(&run(dir, &["import", "--from", &path]));
        refused(&run(dir, &["import", "--from", &path]), "with something in it already");
    }
}

#[test]
fn a_ledger_in_use_is_neither_exported_nor_filled() {
    if !ledger::is_embedded() {
        return;
    }
    let server = server();
    let (from, path) = archived();
    let other = from.path().join("other").to_str().unwrap().to_owned();
    refused(&run(&from, &["export", "--to", &path]), "exists already");
    let gateway = start(from.path());
    refused(&run(&from, &["export", "--to", &other]), "in use by another tidegate");
    refused(&run(&from, &["import", "--from", &path]), "in use by another tidegate");
    assert_eq!(gateway.stop().code(), Some(0));

    let (shared, _) = on_postgres(&server);
    let gateway = start(shared.path());
    refused(&run(&shared, &["export", "--to", &other]), "gateways are connected");
    refused(&run(&shared, &["import", "--from", &path]), "gateways are connected");
    done(&run(&shared, &["export", "--live", "--to", &other]));
    gateway.configure("ann", 5);
    assert_eq!(gateway.send("ann", "still there").status, 200);
    assert_eq!(gateway.stop().code(), Some(0));
    let nowhere = embedded();
    refused(&run(&nowhere, &["export", "--to", "x"]), "there is no ledger");
    assert!(!nowhere.path().join("x.part").exists() && !nowhere.path().join("data").exists());
}

/// An import that has been given all but the end of its archive, and waits for it.
fn half_imported(dir: &TempDir, archive: &str, has_begun: impl Fn() -> bool) -> Child {
    let mut import = tidegate(dir.path(), &["import", "--from", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let text = fs::read(archive).unwrap();
    let mut pipe = import.stdin.take().unwrap();
    pipe.write_all(&text[..text.len() - 5]).unwrap();
    pipe.flush().unwrap();
    eventually(|| has_begun().then_some(()));
    import.stdin = Some(pipe);
    import
}

fn end(mut import: Child, signal: &str) {
    assert!(import.try_wait().unwrap().is_none(), "it waits");
    let pid = import.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    // What it reads from goes on waiting: an interrupt does not need its end.
    let status = eventually(|| import.try_wait().unwrap());
    assert!(!status.success(), "{status:?}");
}

#[test]
fn an_interrupted_import_leaves_the_target_as_it_was() {
    if !ledger::is_embedded() {
        return;
    }
    let server = server();
    let (_from, path) = archived();
    let target = embedded();
    let has_begun = || target.path().join("data/import/ledger.db").exists();
    end(half_imported(&target, &path, has_begun), "-INT");
    assert!(is_untouched(&target));
    // Killed, it leaves its directory behind, and nobody minds.
    end(half_imported(&target, &path, has_begun), "-KILL");
    assert!(has_no_ledger(&target));
    done(&run(&target, &["import", "--from", &path]));
    assert!(!target.path().join("data/import").exists());

    let (shared, database) = on_postgres(&server);
    let waiting = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted \
                   AND relation = to_regclass('tidegate.message')";
    let has_begun = || server.sql(&database, waiting).unwrap().trim() == "1";
    for signal in ["-INT", "-KILL"] {
        end(half_imported(&shared, &path, has_begun), signal);
        eventually(|| (server.sql(&database, waiting).unwrap().trim() == "0").then_some(()));
        assert_eq!(rows(&server, &database), "0");
    }
    done(&run(&shared, &["import", "--from", &path]));
}

#[test]
fn archives_go_through_pipes() {
    if !ledger::is_embedded() {
        return;
    }
    let (from, path) = archived();
    let exported = run(&from, &["export", "--to", "-"]);
    assert!(exported.status.success() && said(&exported).contains("\nbalanced\n"), "{}", said(&exported));
    let target = embedded();
    let mut import = tidegate(target.path(), &["import", "--from", "-"]);
    let mut import =
        import.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    import.stdin.take().unwrap().write_all(&exported.stdout).unwrap();
    done(&import.wait_with_output().unwrap());
    let again = run(&target, &["export", "--to", "again"]);
    done(&again);
    assert_eq!(entries(&target.path().join("again")), entries(Path::new(&path)));
}
