use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use tempfile::tempdir;

use crate::gateway::{command, start};

/// Exit code and everything that was said.
fn health(dir: &Path, address: SocketAddr, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = command(dir);
    command.env("TIDEGATE_SERVER__LISTEN", address.to_string());
    let output = command.arg("health").args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// Takes one connection, reads a little, and answers.
fn impostor(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(answer.as_bytes());
    });
    address
}

#[test]
fn a_running_gateway_is_ready_and_live() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    for (flag, state) in [(None, "ready"), (Some("--ready"), "ready"), (Some("--live"), "live")] {
        let (code, said) = health(dir.path(), gateway.address, flag.as_slice());
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with(&format!("{} is {state}: {{", gateway.address)), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // Port and address from the flag, and the directory is none of its business.
    let listen = gateway.address.to_string();
    let asked = command(dir.path()).args(["health", "--listen", &listen, "--data", "nowhere"]).status();
    assert!(asked.unwrap().success() && !dir.path().join("nowhere").exists());
}

#[test]
fn a_gateway_that_is_gone_is_named_with_its_address() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let address = gateway.address;
    assert!(gateway.stop().success());
    let (code, said) = health(dir.path(), address, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("nobody can be reached on {address}")), "{said}");
}

#[test]
fn whoever_is_not_ready_or_no_gateway_or_silent_is_not_well() {
    let dir = tempdir().unwrap();
    let not_ready = "HTTP/1.1 503 Service Unavailable\r\n\r\n{\"ledger\":\"away\"}";
    for (answer, part) in [
        (not_ready, "is not ready, it answers 503: {\"ledger\":\"away\"}"),
        ("-ERR unknown command\r\n", "is not a gateway"),
    ] {
        let (code, said) = health(dir.path(), impostor(answer), &[]);
        assert!(code == Some(1) && said.contains(part), "{said}");
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, said) = health(dir.path(), silent.local_addr().unwrap(), &["--timeout-ms", "50"]);
    assert!(code == Some(1) && said.contains("did not answer within 50 ms"), "{said}");
    let (code, said) = health(dir.path(), ([127, 0, 0, 1], 0).into(), &[]);
    assert!(code == Some(1) && said.contains("nobody can tell which port"), "{said}");
    let (code, said) = health(dir.path(), ([0, 0, 0, 0], 1).into(), &[]);
    assert!(code == Some(2) && said.contains("server.listen"), "{said}");
}
