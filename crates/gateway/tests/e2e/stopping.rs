use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::gateway::{Gateway, Lines, eventually, start, start_with};

const BODY: &str = r#"{"userId":"alice","message":"in flight"}"#;

/// A send that has been begun: its body is missing.
fn begin(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST /api/send HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Expect: 100-continue\r\n\r\n",
        gateway.address,
        BODY.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // Said by whoever has the head and wants the body, so it is under way.
    let expected = "HTTP/1.1 100 Continue\r\n\r\n";
    let mut told = vec![0; expected.len()];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(String::from_utf8_lossy(&told), expected);
    stream
}

#[test]
fn a_request_under_way_is_finished_and_its_message_kept() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    gateway.configure("alice", 5);
    let before = gateway.stdout.clone();
    let mut stream = begin(&gateway);
    gateway.signal("-TERM");
    gateway.stderr.wait_for("stopping");
    stream.write_all(BODY.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(gateway.wait().code(), Some(0));
    let second = start(dir.path());
    let said = |lines: &Lines| lines.all().iter().any(|line| line.contains("in flight"));
    eventually(|| (said(&before) || said(&second.stdout)).then_some(()));
}

#[test]
fn a_request_that_never_ends_does_not_outlast_the_drain() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("quick.toml"), "[server]\ndrain_timeout_ms = 300\n").unwrap();
    let gateway = start_with(dir.path(), &["--config", "quick.toml"]);
    let _stream = begin(&gateway);
    let asked = Instant::now();
    assert_eq!(gateway.stop().code(), Some(0));
    // The default is 20 s.
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let _stream = begin(&gateway);
    gateway.signal("-TERM");
    gateway.stderr.wait_for("stopping");
    gateway.signal("-INT");
    assert_eq!(gateway.wait().code(), Some(130));
}
