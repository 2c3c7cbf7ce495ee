use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_testkit::HANG;
use tidegate_testkit::services::wrong_clock;

use crate::client::{self, Answer};
use crate::ledger;

/// A gateway process. It is killed when the test forgets it.
pub struct Gateway {
    child: Child,
    pub address: SocketAddr,
    pub stdout: Lines,
    pub stderr: Lines,
}

/// What a process has printed so far.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

pub fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    // Not the developer's tidegate.toml, nor their variables.
    command.current_dir(dir).env_clear().envs(ledger::variables(dir));
    command
}

pub fn start(dir: &Path) -> Gateway {
    start_with(dir, &[])
}

pub fn start_with(dir: &Path, arguments: &[&str]) -> Gateway {
    start_command(command(dir), arguments)
}

pub fn start_in(dir: &Path, variables: &[(&str, &str)]) -> Gateway {
    let mut command = command(dir);
    command.envs(variables.iter().copied());
    start_command(command, &[])
}

pub fn start_command(mut command: Command, arguments: &[&str]) -> Gateway {
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]).args(arguments);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = Lines::follow(child.stdout.take().unwrap());
    let stderr = Lines::follow(child.stderr.take().unwrap());
    let line = stderr.wait_for("\"listening\"");
    let line: Value = serde_json::from_str(&line).unwrap();
    let address = line["address"].as_str().unwrap().parse().unwrap();
    Gateway { child, address, stdout, stderr }
}

/// The wall clock of a gateway, to be set forward while it runs. What waits for seconds is then tested without waiting.
pub struct WallClock(PathBuf);

impl WallClock {
    /// A gateway on a clock that goes right until it is set.
    pub fn start(dir: &Path) -> (Gateway, Self) {
        let clock = Self(dir.join("clock"));
        clock.set_forward(0);
        let mut command = command(dir);
        command.env("LD_PRELOAD", wrong_clock().unwrap()).env("FAKETIME_TIMESTAMP_FILE", &clock.0);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DISABLE_SHM", "1");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        (start_command(command, &[]), clock)
    }

    /// From now on the gateway's clock is so many seconds ahead of the machine's.
    pub fn set_forward(&self, seconds: u64) {
        // At once or not at all: the gateway may read it at any moment. In place, where a full disk has room for it.
        let mut file = File::options().create(true).write(true).truncate(false).open(&self.0).unwrap();
        file.write_all(format!("+{seconds:08}s\n").as_bytes()).unwrap();
    }
}

impl Gateway {
    pub fn get(&self, path: &str) -> Answer {
        client::get(self.address, path, &[])
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        client::post(self.address, path, &[], body)
    }

    pub fn delete(&self, path: &str) -> Answer {
        client::exchange(self.address, "DELETE", path, &[], "")
    }

    pub fn configure(&self, user: &str, limit: u32) {
        let answer = self.post("/api/config", &json!({"userId": user, "rateLimit": limit, "timeWindow": 60}));
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    pub fn send(&self, user: &str, message: &str) -> Answer {
        self.post("/api/send", &json!({"userId": user, "message": message}))
    }

    /// The message's record, once it has been delivered.
    pub fn delivered(&self, id: &str) -> Value {
        let path = format!("/api/v1/messages/{id}");
        eventually(|| Some(self.get(&path).json()).filter(|record| record["status"] == "delivered"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub fn wait(mut self) -> ExitStatus {
        eventually(|| self.child.try_wait().unwrap())
    }

    pub fn stop(self) -> ExitStatus {
        self.signal("-TERM");
        self.wait()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    fn follow(source: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let copy = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                copy.0.lock().unwrap().push(line);
            }
        });
        lines
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn wait_for(&self, part: &str) -> String {
        let deadline = Instant::now() + HANG;
        while Instant::now() < deadline {
            if let Some(line) = self.all().into_iter().find(|line| line.contains(part)) {
                return line;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no line with {part:?} in {:#?}", self.all());
    }
}

pub fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + HANG;
    loop {
        match ask() {
            Some(found) => return found,
            None if Instant::now() > deadline => panic!("it did not happen within {HANG:?}"),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
