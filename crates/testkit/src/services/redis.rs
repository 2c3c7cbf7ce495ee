use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use super::directory::log_path;
use super::package::program;
use super::tied::Tied;
use crate::HANG;
use crate::process::free_address;

const POLL: Duration = Duration::from_millis(2);

/// A private Redis. It keeps nothing on disk: after a kill it is empty, as after a failover to an empty replica.
#[derive(Debug)]
pub struct Redis {
    pub address: SocketAddr,
    /// For connections over TLS, if it has a certificate.
    pub tls_address: SocketAddr,
    /// Where the nodes of a cluster meet.
    bus: SocketAddr,
    options: RedisOptions,
    dir: TempDir,
    server: Tied,
}

#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    pub password: Option<String>,
    pub cluster: Cluster,
    /// Keeps what it was told over a restart.
    pub append_only: bool,
    /// The files of a certificate and of its key, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cluster {
    #[default]
    No,
    /// One node that serves every slot: keys of one call in two slots are refused, as in any Redis Cluster.
    AllSlots,
    /// A node that serves none yet.
    NoSlots,
}

impl Redis {
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(RedisOptions::default())
    }

    pub fn start_with(options: RedisOptions) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("tidegate-redis-").tempdir()?;
        let (address, tls_address, bus) = (free_address()?, free_address()?, free_address()?);
        let server = spawn([address, tls_address, bus], &options, &dir)?;
        let mut redis = Self { address, tls_address, bus, options, dir, server };
        redis.wait_until_ready()?;
        if redis.options.cluster == Cluster::AllSlots {
            redis.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
            wait_for(&redis, "cluster_state:ok", &["CLUSTER", "INFO"])?;
        }
        Ok(redis)
    }

    pub fn url(&self) -> String {
        match &self.options.password {
            Some(password) => format!("redis://:{password}@{}/", self.address),
            None => format!("redis://{}/", self.address),
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.server.kill()
    }

    /// Freezes it: it takes connections, by way of the kernel, and answers nobody.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.server.stop()
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.server.resume()
    }

    /// On the same port, after a kill.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        let addresses = [self.address, self.tls_address, self.bus];
        self.server = spawn(addresses, &self.options, &self.dir)?;
        self.wait_until_ready()
    }

    /// Another node of the cluster serves the key's slot from now on. What was in it is gone.
    pub fn hand_over(&self, key: &str, to: &Self) -> anyhow::Result<()> {
        self.meet(to)?;
        let (id, slot) = (to.id()?, self.slot(key)?);
        self.ask(&["FLUSHALL"])?;
        // The giver first: its word about the slot would otherwise take it back.
        for node in [self, to] {
            let said = node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &id])?;
            anyhow::ensure!(said.starts_with("+OK"), "{said}");
        }
        to.ask(&["CLUSTER", "BUMPEPOCH"])?;
        wait_for(to, "cluster_state:ok", &["CLUSTER", "INFO"])
    }

    /// The key's slot is on its way to another node: what is still here is served here, and for the rest callers are
    /// sent there, for this one question (`ASK`).
    pub fn begin_hand_over(&self, key: &str, to: &Self) -> anyhow::Result<()> {
        self.meet(to)?;
        let slot = self.slot(key)?;
        for (node, state, other) in [(to, "IMPORTING", self), (self, "MIGRATING", to)] {
            let said = node.ask(&["CLUSTER", "SETSLOT", &slot, state, &other.id()?])?;
            anyhow::ensure!(said.starts_with("+OK"), "{said}");
        }
        Ok(())
    }

    /// One command over a connection of its own; what comes back, raw. For tests to look in from the side.
    pub fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, HANG)?;
        stream.set_read_timeout(Some(HANG))?;
        if let Some(password) = &self.options.password {
            exchange(&mut stream, &["AUTH", password])?;
        }
        exchange(&mut stream, words)
    }

    fn meet(&self, other: &Self) -> anyhow::Result<()> {
        let (port, bus) = (other.address.port().to_string(), other.bus.port().to_string());
        self.ask(&["CLUSTER", "MEET", &other.address.ip().to_string(), &port, &bus])?;
        wait_for(self, &other.id()?, &["CLUSTER", "NODES"])?;
        wait_for(other, &self.id()?, &["CLUSTER", "NODES"])
    }

    fn id(&self) -> anyhow::Result<String> {
        bulk(&self.ask(&["CLUSTER", "MYID"])?)
    }

    fn slot(&self, key: &str) -> anyhow::Result<String> {
        let said = self.ask(&["CLUSTER", "KEYSLOT", key])?;
        Ok(said.trim_start_matches(':').trim_end().to_owned())
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        wait_for(self, "+PONG", &["PING"])?;
        // Or somebody else has its port, and answered.
        ensure!(self.server.is_running(), "redis-server on {} has ended", self.address);
        Ok(())
    }
}

fn wait_for(redis: &Redis, part: &str, words: &[&str]) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let said = redis.ask(words);
        if said.as_ref().is_ok_and(|said| said.contains(part)) {
            return Ok(());
        }
        if begun.elapsed() > HANG {
            bail!("redis-server on {} is not ready; {words:?}: {said:?}", redis.address);
        }
        std::thread::sleep(POLL);
    }
}

fn spawn(
    [address, tls_address, bus]: [SocketAddr; 3],
    options: &RedisOptions,
    dir: &TempDir,
) -> anyhow::Result<Tied> {
    let mut command = Tied::command(program("redis-server", "redis-server")?);
    command.args(["--port", &address.port().to_string(), "--bind", &Ipv4Addr::LOCALHOST.to_string()]);
    command.arg("--dir").arg(dir.path()).args(["--save", "", "--daemonize", "no"]);
    command.args(["--appendonly", if options.append_only { "yes" } else { "no" }]);
    if let Some(password) = &options.password {
        command.args(["--requirepass", password]);
    }
    if let Some((certificate, key)) = &options.certificate {
        command.args(["--tls-port", &tls_address.port().to_string(), "--tls-auth-clients", "no"]);
        command.arg("--tls-cert-file").arg(certificate).arg("--tls-key-file").arg(key);
    }
    if options.cluster != Cluster::No {
        command.args(["--cluster-enabled", "yes", "--cluster-port", &bus.port().to_string()]);
    }
    let log = File::options().create(true).append(true).open(log_path(dir.path()))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Tied::spawn(command)
}

/// The text of an answer such as "$3\r\nabc\r\n".
fn bulk(answer: &str) -> anyhow::Result<String> {
    let text = answer.split("\r\n").nth(1).filter(|_| answer.starts_with('$'));
    Ok(text.with_context(|| format!("not a text: {answer:?}"))?.to_owned())
}

/// Reads what comes in one go: enough for the short answers of a look from the side.
fn exchange(stream: &mut TcpStream, words: &[&str]) -> anyhow::Result<String> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut answer = vec![0; 1 << 16];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    String::from_utf8(answer).context("not text")
}
