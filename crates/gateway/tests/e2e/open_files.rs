//! What becomes of webhooks when this process may open few files.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::connections::limited;
use crate::gateway::{Gateway, eventually, start, start_command};
use crate::sink::Sink;

const BATCH: &str = "/api/v1/messages/batch";

fn configure(dir: &Path, sink: &Sink) {
    let config = format!(
        "[webhook]\nurl = \"http://{}/hook\"\nallow = [\"127.0.0.0/8\"]\n\
         [[queues]]\nname = \"hooks\"\nchannel = \"webhook\"\nattempts_max = 1\n",
        sink.address
    );
    std::fs::write(dir.join("tidegate.toml"), config).unwrap();
}

fn messages(count: usize) -> Value {
    let one = |n: usize| json!({"queue": "hooks", "recipient": format!("r{n}"), "body": n.to_string()});
    json!({"messages": (0..count).map(one).collect::<Vec<_>>()})
}

fn delivered(gateway: &Gateway, count: usize) {
    let queue = eventually(|| {
        let stats = gateway.get("/api/v1/stats").json();
        let queue = stats["queues"].as_array()?.iter().find(|queue| queue["queue"] == "hooks")?.clone();
        (queue["dead"] != 0 || queue["delivered"] == count).then_some(queue)
    });
    assert_eq!(
        (&queue["delivered"], &queue["retried"], &queue["dead"]),
        (&json!(count), &json!(0), &json!(0))
    );
    let stats = gateway.get("/api/v1/stats").json();
    let breaker = stats["breakers"].as_array().unwrap().iter().find(|one| one["channel"] == "webhook");
    assert_eq!(breaker.unwrap()["state"], "closed", "{stats}");
}

#[test]
fn webhooks_leave_callers_their_share_of_the_files() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    configure(dir.path(), &sink);
    sink.hold();
    let gateway = start_command(limited(dir.path(), "ulimit -n 200"), &[]);
    let line = gateway.stderr.wait_for("sender.concurrency of webhooks lowered");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert!(line["concurrency"] == 36 && line["configured"] == 4_096 && line["level"] == "WARN", "{line}");
    assert_eq!(gateway.post(BATCH, &messages(300)).status, 202);
    eventually(|| (sink.seen().len() >= 36).then_some(()));
    assert_eq!(gateway.get("/health/ready").status, 200);
    sink.release();
    delivered(&gateway, 300);
}

fn set_limit(gateway: &Gateway, files: u64) -> u64 {
    let pid = Pid::from_raw(gateway.pid().try_into().unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap().current.unwrap()
}

/// The gateway's own want says nothing about the provider.
#[test]
fn an_attempt_without_a_file_to_dial_with_is_not_made_and_not_counted() {
    let (dir, sink) = (tempdir().unwrap(), Sink::start(200));
    configure(dir.path(), &sink);
    let gateway = start(dir.path());
    let mut caller = TcpStream::connect(gateway.address).unwrap();
    caller.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut ask = |request: String| {
        caller.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        caller.read_exact(&mut status).unwrap();
        String::from_utf8(status.to_vec()).unwrap()
    };
    // The connection has to be accepted while there are files.
    let (address, body) = (gateway.address, messages(20).to_string());
    assert_eq!(ask(format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n")), "HTTP/1.1 200");
    let before = set_limit(&gateway, 3);
    let head = format!("POST {BATCH} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
    gateway.stderr.wait_for("attempts can't begin");
    assert_eq!(sink.seen().len(), 0);
    set_limit(&gateway, before);
    delivered(&gateway, 20);
    assert_eq!(sink.seen().len(), 20);
}
