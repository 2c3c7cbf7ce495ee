//! Connections: how many there are, and whose.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::tempdir;

use crate::gateway::{Gateway, command, start, start_command};

/// The binary, in a shell that has set limits on open files for it.
pub fn limited(dir: &Path, limits: &str) -> Command {
    let tidegate = command(dir);
    let mut shell = Command::new("/bin/sh");
    shell.current_dir(dir).env_clear();
    shell.envs(tidegate.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.arg("-c").arg(format!("{limits} && exec \"$0\" \"$@\"")).arg(tidegate.get_program());
    shell
}

fn open_files(gateway: &Gateway) -> (u64, u64) {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// The status of a request on a connection that stays open.
fn ask(address: SocketAddr) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    (std::str::from_utf8(&line[9..]).unwrap().parse().unwrap(), stream)
}

#[test]
fn the_limit_on_open_files_is_raised_and_bounds_the_connections() {
    let dir = tempdir().unwrap();
    let gateway = start_command(limited(dir.path(), "ulimit -Sn 100 && ulimit -Hn 200"), &[]);
    assert_eq!(open_files(&gateway), (200, 200));
    let line = gateway.stderr.wait_for("server.connections_max lowered");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let max = line["connections_max"].as_u64().unwrap();
    assert!((16..200).contains(&max) && line["configured"] == 10_000 && line["level"] == "WARN", "{line}");

    let dir = tempdir().unwrap();
    let refused = limited(dir.path(), "ulimit -Sn 100 && ulimit -Hn 100")
        .args(["serve", "--listen", "127.0.0.1:0", "--data", "data"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("RLIMIT_NOFILE"), "{stderr}");
    assert!(!dir.path().join("data").exists(), "nothing was opened");
}

#[test]
fn an_address_has_its_share_of_the_connections_unless_it_is_a_trusted_proxy() {
    for (proxies, statuses) in [("[]", [200, 429, 429]), ("[\"127.0.0.0/8\"]", [200, 200, 200])] {
        let dir = tempdir().unwrap();
        let config = format!(
            "[server]\nconnections_max = 4\nconnections_per_client_percent = 25\ntrusted_proxies = {proxies}\n"
        );
        std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
        let gateway = start(dir.path());
        let answers = [(); 3].map(|()| ask(gateway.address));
        assert_eq!(answers.each_ref().map(|(status, _)| *status), statuses, "{proxies}");
    }
}
