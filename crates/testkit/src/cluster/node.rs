use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::IN_FLIGHT_MAX;
use super::ask::ask;
use crate::WebProvider;
use crate::process::free_address;
use crate::services::{Tied, log_path, wrong_clock};

/// What a load balancer would grant.
const PROBED_WITHIN: Duration = Duration::from_secs(2);
/// Of a lease, for its attempt to begin: a gateway insists on 500.
const BEGINNING_MS: u64 = 600;

/// What all nodes of a cluster have in common.
#[derive(Debug, Clone)]
pub struct Shared {
    pub binary: PathBuf,
    pub postgres: SocketAddr,
    pub redis: SocketAddr,
    pub provider: WebProvider,
    pub lease_ms: u64,
    pub allow_unsafe_server: bool,
    /// Lines below `[bus]`.
    pub bus: Option<String>,
}

/// One process of a cluster. It keeps its address over restarts.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub address: SocketAddr,
    shared: Shared,
    role: &'static str,
    dir: PathBuf,
    clock_skew_s: i64,
    /// Which process of all nodes this is: told to the provider in its URL.
    life: u32,
    process: Tied,
}

impl Node {
    pub fn start(
        shared: Shared,
        dir: &Path,
        role: &'static str,
        number: usize,
        clock_skew_s: i64,
    ) -> anyhow::Result<Self> {
        let name = format!("{role}-{number}");
        let dir = dir.join(&name);
        fs::create_dir_all(&dir)?;
        let address = free_address()?;
        let life = 1_000 * u32::try_from(number)?;
        let process = spawn(&shared, &dir, role, address, clock_skew_s, life)?;
        Ok(Self { name, address, shared, role, dir, clock_skew_s, life, process })
    }

    /// Says so, and proves it where it serves anything beside.
    pub fn is_ready(&self) -> impl Future<Output = bool> + Send + use<> {
        let (address, is_gateway) = (self.address, self.role == "gateway");
        let ok = move |path: &'static str| async move {
            let reply = ask(address, "GET", path, &[], b"", PROBED_WITHIN).await;
            reply.is_some_and(|reply| reply.status == 200 && reply.body["bus"]["status"] != "away")
        };
        async move { ok("/health/ready").await && (!is_gateway || ok("/api/v1/stats").await) }
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// After a kill. Does not wait for anything.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.life += 1;
        let Self { shared, dir, role, address, clock_skew_s, life, .. } = self;
        self.process = spawn(shared, dir, role, *address, *clock_skew_s, *life)?;
        Ok(())
    }

    /// After a kill, as one who has never received anything from the bus.
    pub fn restart_with(&mut self, bus: String) -> anyhow::Result<()> {
        self.shared.bus = Some(bus);
        self.restart()
    }

    pub fn stop(&self) -> anyhow::Result<()> {
        self.process.stop()
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.resume()
    }

    pub fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(log_path(&self.dir)).unwrap_or_default()).into_owned()
    }

    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

fn spawn(
    shared: &Shared,
    dir: &Path,
    role: &str,
    address: SocketAddr,
    clock_skew_s: i64,
    life: u32,
) -> anyhow::Result<Tied> {
    fs::write(dir.join("tidegate.toml"), config(shared, life))?;
    let mut command = Tied::command(&shared.binary);
    command.args(["serve", "--role", role, "--listen", &address.to_string()]).current_dir(dir);
    // Not the variables of whoever runs the test.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if clock_skew_s != 0 {
        command.env("LD_PRELOAD", wrong_clock()?).env("FAKETIME", format!("{clock_skew_s:+}"));
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DISABLE_SHM", "1");
    }
    let log = File::options().create(true).append(true).open(log_path(dir))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Tied::spawn(command)
}

/// Short times, so that a fault and its end fit into a test.
fn config(shared: &Shared, life: u32) -> String {
    let Shared { postgres, redis, lease_ms, .. } = shared;
    // As long as the lease allows: an attempt that a slow machine cuts short is one that is repeated.
    let attempt_timeout_ms = lease_ms.saturating_sub(BEGINNING_MS);
    let url = shared.provider.url(life);
    let unsafe_server = if shared.allow_unsafe_server { "allow" } else { "refuse" };
    let bus = shared.bus.as_ref().map_or_else(String::new, |bus| {
        format!("[bus]\ntransit_ms = {lease_ms}\nin_transit_max = 50\n{bus}")
    });
    format!(
        r#"{bus}
[ledger]
kind = "postgres"
[postgres]
url = "postgres://postgres@{postgres}/postgres"
connections_max = 8
connection_wait_ms = 1000
connect_timeout_ms = 1000
statement_timeout_ms = 1500
lock_timeout_ms = 1000
unsafe_server = "{unsafe_server}"
[quotas]
accelerator = "redis"
[limits]
store = "redis"
[redis]
url = "redis://{redis}/"
[webhook]
url = "{url}"
allow = ["127.0.0.0/8"]
connect_timeout_ms = 500
[sender]
concurrency = {IN_FLIGHT_MAX}
batch = {IN_FLIGHT_MAX}
lease_ms = {lease_ms}
attempt_timeout_ms = {attempt_timeout_ms}
attempts_max = 1000
retry_base_ms = 20
retry_max_ms = 100
[breaker]
failure_percent = 100
[queue]
lease_ms = 1000
attempts_max = 1000
[[queues]]
name = "sms"
channel = "webhook"
[[queues]]
name = "jobs"
mode = "reserve"
lease_ms = 1000
attempts_max = 1000
[[policies]]
name = "wide"
pathPattern = "/**"
keyStrategy = "IP"
capacity = 1000000
refillTokensPerSecond = 100000.0
failStrategy = "FAIL_OPEN"
"#
    )
}
