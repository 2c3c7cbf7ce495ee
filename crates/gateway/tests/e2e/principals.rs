use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tempfile::tempdir;

use crate::client;
use crate::gateway::{command, start};

#[test]
fn other_machines_are_let_in_only_with_principals() {
    let dir = tempdir().unwrap();
    let refused =
        command(dir.path()).args(["serve", "--listen", "0.0.0.0:0", "--data", "data"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("flag --listen: server.listen: 0.0.0.0:0"), "{stderr}");
    assert!(stderr.contains("[[principals]]"), "{stderr}");
    assert!(!dir.path().join("data").exists(), "nothing was opened");
}

#[test]
fn only_principals_get_in_and_only_admins_configure() {
    let dir = tempdir().unwrap();
    let key = api_key(dir.path());
    let hash = password_hash(dir.path(), "s3cret pass");
    let config = format!(
        "[[principals]]\nname = \"ops\"\nrole = \"ADMIN\"\npassword_hash = \"{hash}\"\n\
         [[principals]]\nname = \"app\"\nrole = \"USER\"\napi_key_hashes = [\"{}\"]\n",
        key.1
    );
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let quota = json!({"userId": "alice", "rateLimit": 5, "timeWindow": 1});
    let message = json!({"userId": "alice", "message": "hi"});
    // ops:s3cret pass
    let basic = [("Authorization", "Basic b3BzOnMzY3JldCBwYXNz")];
    let wrong = [("Authorization", "Basic b3BzOndyb25n")];
    let api_key = [("X-Api-Key", key.0.as_str())];

    assert_eq!(gateway.post("/api/config", &quota).status, 401);
    assert_eq!(client::post(gateway.address, "/api/config", &wrong, &quota).status, 401);
    assert_eq!(client::post(gateway.address, "/api/config", &api_key, &quota).status, 403);
    assert_eq!(client::post(gateway.address, "/api/config", &basic, &quota).status, 200);
    assert_eq!(gateway.post("/api/send", &message).status, 401);
    assert_eq!(client::post(gateway.address, "/api/send", &api_key, &message).status, 200);
    assert_eq!(gateway.get("/health/live").status, 200);
    let logged = gateway.stderr.all().join("\n");
    assert!(!logged.contains(&key.0) && !logged.contains("s3cret"), "no secrets in logs");
}

#[test]
fn check_config_names_every_problem_or_every_source() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    std::fs::write(&file, "[server]\nlisen = \"x\"\n[sender]\nbatch = 0\n").unwrap();
    let bad = command(dir.path()).arg("check-config").output().unwrap();
    let stderr = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(bad.status.code(), Some(2));
    assert!(
        stderr.contains("tidegate.toml:2: server.lisen: no such key; did you mean \"server.listen\"?"),
        "{stderr}"
    );
    assert!(stderr.contains("tidegate.toml:4: sender.batch: 0 is out of range"), "{stderr}");

    std::fs::write(&file, "[sender]\nbatch = 5\n").unwrap();
    let good = command(dir.path()).arg("check-config").env("TIDEGATE_LEDGER__SYNC", "off").output().unwrap();
    let stdout = String::from_utf8_lossy(&good.stdout).into_owned();
    assert_eq!(good.status.code(), Some(0));
    assert_eq!(
        stdout,
        "ok\nledger.sync = \"off\"  (environment TIDEGATE_LEDGER__SYNC)\nsender.batch = 5  (tidegate.toml:2)\n"
    );
}

pub fn api_key(dir: &Path) -> (String, String) {
    let output = command(dir).arg("new-api-key").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("{text}"))
            .trim()
            .to_owned()
    };
    (value("key:"), value("hash:"))
}

pub fn password_hash(dir: &Path, password: &str) -> String {
    let mut command = command(dir);
    let mut child =
        command.arg("hash-password").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}
