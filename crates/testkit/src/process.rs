use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::{load, sys};

const POLL: Duration = Duration::from_millis(5);

/// How to start a real `tidegate`.
#[derive(Debug, Clone)]
pub struct Launch {
    pub binary: PathBuf,
    pub data: PathBuf,
    /// Appended to: what the `log` channel delivers.
    pub stdout: PathBuf,
    /// Appended to: the process' own log.
    pub stderr: PathBuf,
    pub env: Vec<(String, String)>,
    pub ready_within: Duration,
}

/// A running gateway. Dropping it kills it.
#[derive(Debug)]
pub struct Gateway {
    pub address: SocketAddr,
    /// From the start of the process to the first "ready".
    pub ready_after: Duration,
    child: Child,
}

impl Launch {
    /// Starts the process and waits until it is ready.
    pub async fn start(&self) -> anyhow::Result<Gateway> {
        let begun = Instant::now();
        let mut gateway = self.spawn()?;
        while !gateway.is_ready().await {
            if let Some(status) = gateway.child.try_wait()? {
                bail!("the gateway ended with {status} before it was ready:\n{}", self.last_words());
            }
            if begun.elapsed() > self.ready_within {
                bail!("the gateway was not ready within {:?}:\n{}", self.ready_within, self.last_words());
            }
            tokio::time::sleep(POLL).await;
        }
        gateway.ready_after = begun.elapsed();
        Ok(gateway)
    }

    /// Starts the process and does not wait for anything.
    pub fn spawn(&self) -> anyhow::Result<Gateway> {
        let address = free_address()?;
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--listen").arg(address.to_string()).arg("--data").arg(&self.data);
        not_ours(std::env::vars_os().map(|(name, _)| name)).for_each(|name| _ = command.env_remove(name));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(append(&self.stdout)?).stderr(append(&self.stderr)?);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.binary.display()))?;
        Ok(Gateway { address, ready_after: Duration::ZERO, child })
    }

    fn last_words(&self) -> String {
        let text = fs::read(&self.stderr).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(4_000)..]).into_owned()
    }
}

impl Gateway {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub async fn is_ready(&self) -> bool {
        matches!(load::get(self.address, "/health/ready").await, Ok((200, _)))
    }

    /// `kill -9`, and the process is gone when it returns.
    pub fn kill(mut self) -> anyhow::Result<ExitStatus> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }

    /// `kill -9` without waiting: none of its threads returns from the kernel any more, so nothing that it learns
    /// from now on reaches anybody.
    pub fn strike(&self) -> anyhow::Result<()> {
        Ok(sys::signal(self.pid(), libc::SIGKILL)?)
    }

    pub fn terminate(&self) -> anyhow::Result<()> {
        Ok(sys::signal(self.pid(), libc::SIGTERM)?)
    }

    /// Freezes the process: alive to the kernel, dead to everybody else.
    pub fn stop(&self) -> anyhow::Result<()> {
        Ok(sys::signal(self.pid(), libc::SIGSTOP)?)
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        Ok(sys::signal(self.pid(), libc::SIGCONT)?)
    }

    /// Waits for the process to end by itself.
    pub async fn ended(mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("the gateway still runs after {within:?}")
    }

    /// The value of a metric without labels, or the sum over all of its labels.
    pub async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        let (status, body) = load::get(self.address, "/metrics").await?;
        anyhow::ensure!(status == 200, "/metrics answers {status}");
        Ok(metric_in(&String::from_utf8(body)?, name))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sums the samples of one metric in Prometheus' text form.
pub fn metric_in(text: &str, name: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labelled) => labelled.rsplit_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.split(' ').next()?.parse::<f64>().ok()
    });
    samples.reduce(|sum, value| sum + value)
}

/// A port for a server that is about to start, perhaps slowly, or that is to come back to it after a fault. The system
/// gives those below 32768 to nobody who asks for any port, and this process gives each of them once.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 20_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Processes that run at the same time begin far from each other.
    let start = std::process::id().wrapping_mul(7_919) % PORTS;
    for _ in 0..PORTS {
        let place = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(FIRST + place)?));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port of {FIRST} to {} is free", FIRST + PORTS - 1)
}

/// A gateway takes every variable of that prefix for a setting: neither the test kit's own ones (`TIDEGATE_SEED`) nor
/// those of whoever runs the test are meant for it.
fn not_ours(names: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    names.filter(|name| name.to_string_lossy().starts_with("TIDEGATE_"))
}

fn append(path: &PathBuf) -> anyhow::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_kits_variables_do_not_reach_the_gateway() {
        let names = ["PATH", "TIDEGATE_SEED", "TIDEGATE_LEDGER__SYNC", "XTIDEGATE_"].map(OsString::from);
        let removed: Vec<_> = not_ours(names.into_iter()).collect();
        assert_eq!(removed, ["TIDEGATE_SEED", "TIDEGATE_LEDGER__SYNC"]);
    }

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# TYPE depth gauge\ndepth{lane=\"high\"} 3\ndepth{lane=\"low\"} 4 1763244000\n\
                    depth_max 9\npending 12\n";
        assert_eq!(metric_in(text, "depth"), Some(7.0));
        assert_eq!(metric_in(text, "pending"), Some(12.0));
        assert_eq!(metric_in(text, "pend"), None);
    }
}
