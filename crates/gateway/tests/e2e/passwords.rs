//! Wrong passwords from many addresses: what they may cost, and what they must not cost others.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tempfile::tempdir;
use tidegate_testkit::HANG;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::gateway::{Gateway, start};
use crate::principals::password_hash;

const PASSWORD: &str = "s3cret pass";
/// Of the memory that the process may gain by an attack. A password takes 19 MiB to verify, a connection some 30 KiB.
const GAIN_KIB_MAX: u64 = 64 * 1024;

/// Addresses that guess.
const GUESSERS: u8 = 25;

/// The gateway of a principal `ops` with [`PASSWORD`].
fn gateway(dir: &Path) -> Gateway {
    let hash = password_hash(dir, PASSWORD);
    let config = format!("[[principals]]\nname = \"ops\"\nrole = \"ADMIN\"\npassword_hash = \"{hash}\"\n");
    std::fs::write(dir.join("tidegate.toml"), config).unwrap();
    start(dir)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The status of one request with a password, from a loopback address of the caller's choice.
async fn login(gateway: SocketAddr, from: Ipv4Addr, user: &str, password: &str) -> u16 {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(gateway).await.unwrap();
    let credential = STANDARD.encode(format!("{user}:{password}"));
    let request = format!(
        "GET /api/v1/stats HTTP/1.1\r\nHost: {gateway}\r\nConnection: close\r\nAuthorization: Basic {credential}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(HANG, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The most that the process has had in memory so far.
fn peak_kib(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// argon2id needs its memory for every check. Threads that each keep theirs took a gateway from 18 to 700 MiB, without
/// a single right password.
#[test]
fn wrong_passwords_at_once_take_the_memory_of_one() {
    let dir = tempdir().unwrap();
    let gateway = gateway(dir.path());
    let before = peak_kib(&gateway);
    let runtime = runtime();
    // Every address has failed once, so all of them stand behind a client that has not.
    for client in 0..GUESSERS {
        let (address, from) = (gateway.address, Ipv4Addr::new(127, 0, 1, client));
        assert_eq!(runtime.block_on(login(address, from, "ops", "first guess")), 401);
    }
    runtime.block_on(async {
        let guess = |n: u8| {
            let (address, from) = (gateway.address, Ipv4Addr::new(127, 0, 1, n % GUESSERS));
            tokio::spawn(async move { login(address, from, "ops", &format!("guess {n}")).await })
        };
        let guesses: Vec<_> = (0..100).map(guess).collect();
        // However many guesses wait, the right password of another client is the next to be verified.
        assert_eq!(login(gateway.address, Ipv4Addr::new(127, 0, 2, 1), "ops", PASSWORD).await, 200);
        for guess in guesses {
            let status = guess.await.unwrap();
            assert!(matches!(status, 401 | 429 | 503), "{status}");
        }
    });
    let gained = peak_kib(&gateway) - before;
    println!("{before} KiB before the guesses, {gained} KiB more at the peak");
    assert!(gained < GAIN_KIB_MAX, "{before} KiB before, {gained} KiB gained");
}

/// Otherwise an attacker locks a name's owner out, by guessing at the name.
#[test]
fn guesses_at_a_name_lock_out_their_own_address_alone() {
    let dir = tempdir().unwrap();
    let gateway = gateway(dir.path());
    let runtime = runtime();
    let login = |last: u8, user: &str, password: &str| {
        runtime.block_on(login(gateway.address, Ipv4Addr::new(127, 0, 1, last), user, password))
    };
    for n in 0..10 {
        assert_eq!(login(1, "ops", &format!("guess {n}")), 401);
    }
    assert_eq!(login(1, "ops", PASSWORD), 429, "from an address that has guessed too often");
    assert_eq!(login(2, "ops", PASSWORD), 200, "from elsewhere");

    let line = gateway.stderr.wait_for("client locked out");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["target"], &line["principal"]), (&"tidegate::audit".into(), &"ops".into()), "{line}");
    assert_eq!(line["client"], "127.0.1.1", "{line}");
    assert!(line["request_id"].as_str().is_some_and(|id| !id.is_empty()), "{line}");
}
