//! Memory follows from bounds, and not from what callers ask for. Measured on the whole process, from the outside.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use crate::client;
use crate::gateway::{Gateway, eventually, start};
use crate::queue::{pop, push};

const MIB: u64 = 1 << 20;
const BODIES: usize = 200;
const BODY_BYTES: usize = 900_000;
const CLIENTS: usize = 10;
/// As many pages as one answer held when it was not bounded would fill four times over.
const PAGES_OF_EACH: usize = 4;
/// Eight answers at a time, with their bodies once as read and once as JSON, and what the allocator keeps. Without the
/// bound in bytes one list alone takes 600 MB, and ten at once take several gigabytes.
const GROWTH_MAX: u64 = 220 * MIB;
/// SQLite's caches of pages, which fill with the first messages.
const FIXED: u64 = 24 * MIB;

#[test]
fn lists_of_large_bodies_take_little_memory_however_many_ask_at_once() {
    let dir = tempdir().unwrap();
    let gateway = start_with_small_cache(dir.path());
    let text = "x".repeat(BODY_BYTES);
    for n in 0..BODIES {
        assert_eq!(push(&gateway, "jobs", &format!("{n} {text}"), &[]).status, 200);
    }
    let resident = reset_peak(&gateway);
    // A busy machine may be told to come back.
    let list = |cursor: &str| {
        let path = format!("/api/v1/messages?limit=1000{cursor}");
        eventually(|| Some(client::get(gateway.address, &path, &[])).filter(|page| page.status != 503))
    };
    std::thread::scope(|clients| {
        for _ in 0..CLIENTS {
            clients.spawn(|| {
                let mut cursor = String::new();
                for _ in 0..PAGES_OF_EACH {
                    let page = list(&cursor);
                    assert_eq!(page.status, 200, "{}", &page.text[..page.text.len().min(300)]);
                    let page = page.json();
                    let count = page["messages"].as_array().unwrap().len();
                    assert!((1..=5).contains(&count), "{count} messages in a page");
                    cursor = format!("&cursor={}", page["next"].as_str().unwrap());
                }
            });
        }
    });
    let grown = peak(&gateway).saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "lists took {} MiB", grown / MIB);

    let resident = reset_peak(&gateway);
    let seen = view_all(&gateway);
    let grown = peak(&gateway).saturating_sub(resident);
    assert_eq!((seen.len(), grown < GROWTH_MAX), (BODIES, true), "views took {} MiB", grown / MIB);

    // A pop takes what it answers and no more: every message comes once.
    let resident = reset_peak(&gateway);
    let mut popped = BTreeSet::new();
    loop {
        let answer = pop(&gateway, "jobs", &[("max", "100")]).json();
        let answered = contents_of(&answer);
        if answered.is_empty() {
            break;
        }
        assert!(answered.len() <= 5, "{} messages in an answer", answered.len());
        let all = popped.len() + answered.len();
        popped.extend(answered);
        assert_eq!(popped.len(), all, "a message came twice");
    }
    let grown = peak(&gateway).saturating_sub(resident);
    assert_eq!((popped.len(), grown < GROWTH_MAX), (BODIES, true), "pops took {} MiB", grown / MIB);
}

/// A body that is pushed alone comes in a read buffer of some 4 kB; whatever is kept of it must not keep that.
#[test]
fn a_waiting_message_takes_little_more_memory_than_its_body() {
    for (count, body_bytes) in [(20_000, 16), (30_000, 2_000), (2_000, 10_000)] {
        let dir = tempdir().unwrap();
        let gateway = start(dir.path());
        push_alone(&gateway, 200, body_bytes);
        drain(&gateway);
        let resident = status(&gateway, "VmRSS:");
        push_alone(&gateway, count, body_bytes);
        let grown = status(&gateway, "VmRSS:").saturating_sub(resident);
        // Its body, its entry in the cache and its place in the line, with what the allocator adds to each.
        let most = count as u64 * (body_bytes as u64 * 3 / 2 + 1_000) + FIXED;
        assert!(grown < most, "{count} messages of {body_bytes} bytes took {} kB", grown / 1_024);

        // What a drained backlog took goes back to the system, all but SQLite's caches of pages.
        drain(&gateway);
        eventually(|| (status(&gateway, "VmRSS:").saturating_sub(resident) < FIXED).then_some(()));

        push_alone(&gateway, count, body_bytes);
        let again = status(&gateway, "VmRSS:").saturating_sub(resident);
        assert!(
            again < most,
            "{count} messages of {body_bytes} bytes took {} kB the second time",
            again / 1_024
        );
    }
}

/// One push after the other, on a few connections.
fn push_alone(gateway: &Gateway, count: usize, body_bytes: usize) {
    const CONNECTIONS: usize = 8;
    std::thread::scope(|clients| {
        for _ in 0..CONNECTIONS {
            clients.spawn(|| {
                let mut stream = BufReader::new(TcpStream::connect(gateway.address).unwrap());
                let body = "x".repeat(body_bytes);
                let request = format!(
                    "POST /queue/push HTTP/1.1\r\nHost: {}\r\nconsumerGroup: jobs\r\nContent-Length: {body_bytes}\r\n\r\n{body}",
                    gateway.address
                );
                for _ in 0..count / CONNECTIONS {
                    stream.get_mut().write_all(request.as_bytes()).unwrap();
                    read_answer(&mut stream);
                }
            });
        }
    });
}

fn read_answer(stream: &mut BufReader<TcpStream>) {
    let (mut length, mut line) = (0, String::new());
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the gateway has closed the connection");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
}

fn drain(gateway: &Gateway) {
    while pop(gateway, "jobs", &[("max", "100")]).text.len() > 2 {}
}

fn view_all(gateway: &Gateway) -> BTreeSet<String> {
    let (mut seen, mut after) = (BTreeSet::new(), None);
    loop {
        let mut headers = vec![("consumerGroup", "jobs"), ("messageCount", "100")];
        headers.extend(after.as_deref().map(|after| ("after", after)));
        let answer = client::get(gateway.address, "/queue/view", &headers);
        assert_eq!(answer.status, 200);
        seen.extend(contents_of(&answer.json()));
        after = answer.header("tidegate-next").map(str::to_owned);
        if after.is_none() {
            return seen;
        }
    }
}

/// The number that each content begins with.
fn contents_of(answer: &Value) -> Vec<String> {
    let content =
        |message: &Value| message["content"].as_str().unwrap().split(' ').next().unwrap().to_owned();
    answer.as_array().unwrap().iter().map(content).collect()
}

/// What is pushed is not kept in memory, so that only answers count.
fn start_with_small_cache(dir: &Path) -> Gateway {
    std::fs::write(dir.join("tidegate.toml"), "[ledger]\nbody_cache_bytes = 1000000\n").unwrap();
    start(dir)
}

/// From here on the peak counts anew. Returns what is resident now.
fn reset_peak(gateway: &Gateway) -> u64 {
    std::fs::write(format!("/proc/{}/clear_refs", gateway.pid()), "5").unwrap();
    status(gateway, "VmRSS:")
}

fn peak(gateway: &Gateway) -> u64 {
    status(gateway, "VmHWM:")
}

fn status(gateway: &Gateway, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}
