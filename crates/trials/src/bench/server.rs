use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tidegate_testkit::load;

/// A server process that ends with the bench.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// The gateway that users get, with its ledger in a directory.
    pub fn durable(data: &Path) -> anyhow::Result<Self> {
        Self::start(&gateway()?, &["serve", "--data", &data.to_string_lossy()])
    }

    /// The same handlers on the same edge, without a ledger.
    pub fn noop() -> anyhow::Result<Self> {
        Self::start(&std::env::current_exe()?, &["noop-server"])
    }

    pub fn durable_with(data: &Path, config: &Path) -> anyhow::Result<Self> {
        let (data, config) = (data.to_string_lossy(), config.to_string_lossy());
        Self::start(&gateway()?, &["serve", "--data", &data, "--config", &config])
    }

    /// The same, with what it prints in a file.
    pub fn printing(data: &Path, config: &Path, output: &Path) -> anyhow::Result<Self> {
        let (data, config) = (data.to_string_lossy(), config.to_string_lossy());
        let args = ["serve", "--data", &data, "--config", &config];
        Self::start_to(&gateway()?, &args, File::create(output)?.into())
    }

    /// A provider that takes everything.
    pub fn sink() -> anyhow::Result<Self> {
        Self::start(&std::env::current_exe()?, &["sink-server"])
    }

    pub fn noop_with(config: &Path) -> anyhow::Result<Self> {
        Self::start(&std::env::current_exe()?, &["noop-server", "--config", &config.to_string_lossy()])
    }

    fn start(binary: &Path, args: &[&str]) -> anyhow::Result<Self> {
        Self::start_to(binary, args, Stdio::null())
    }

    fn start_to(binary: &Path, args: &[&str], output: Stdio) -> anyhow::Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = Command::new(binary);
        command.args(args).args(["--listen", &address.to_string()]);
        command.env("TIDEGATE_LOG__LEVEL", "warn").stdin(Stdio::null()).stdout(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Self { child, address })
    }

    pub async fn ready(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !load::get(self.address, "/health/ready").await.is_ok_and(|(status, _)| status == 200) {
            anyhow::ensure!(begun.elapsed() < Duration::from_secs(20), "{} is not ready", self.address);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Until nothing is pending any more, as long as it gets less.
    pub async fn all_delivered(&self, stalled_for: Duration) -> anyhow::Result<()> {
        let mut least = (u64::MAX, Instant::now());
        loop {
            let (_, stats) = load::get(self.address, "/api/v1/stats").await?;
            let stats: serde_json::Value = serde_json::from_slice(&stats)?;
            let pending = stats["totals"]["pending"].as_u64().with_context(|| stats.to_string())?;
            if pending == 0 {
                return Ok(());
            }
            if pending < least.0 {
                least = (pending, Instant::now());
            }
            anyhow::ensure!(least.1.elapsed() < stalled_for, "{pending} are not delivered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Any success will do.
    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &str) -> anyhow::Result<()> {
        let mut request = Vec::new();
        load::write_request(&mut request, "POST", path, headers, body.as_bytes());
        let mut connection = load::Connection::open(self.address).await?;
        let response = connection.exchange(&request).await?;
        let (status, answer) = (response.status, String::from_utf8_lossy(response.body));
        anyhow::ensure!((200..300).contains(&status), "{path} answered {status}: {answer}");
        Ok(())
    }

    pub async fn post(&self, path: &str, body: &str) -> anyhow::Result<()> {
        let (status, answer) = load::post(self.address, path, body.as_bytes()).await?;
        anyhow::ensure!(status == 200, "{path} answered {status}: {}", String::from_utf8_lossy(&answer));
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already; either way it is not ours any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gateway() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("tidegate");
    anyhow::ensure!(path.exists(), "{} is missing: build it in the same profile", path.display());
    Ok(path)
}
